//go:build brokers || kinesis

package main

import _ "example.com/payonce/internal/broker/kinesis" // go build -tags kinesis
