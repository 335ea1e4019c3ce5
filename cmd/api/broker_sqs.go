//go:build brokers || sqs

package main

import _ "example.com/payonce/internal/broker/sqs" // go build -tags sqs
