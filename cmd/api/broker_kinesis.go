//go:build !nokinesis

package main

import _ "example.com/payonce/internal/broker/kinesis" // without it: go build -tags nokinesis
