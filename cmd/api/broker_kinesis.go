//go:build !nokinesis

package main

import _ "example.com/payonce/internal/broker/kinesis" // go build -tags kinesis
