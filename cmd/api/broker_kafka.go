//go:build brokers || kafka

package main

import _ "example.com/payonce/internal/broker/kafka" // go build -tags kafka
