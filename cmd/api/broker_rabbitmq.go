//go:build brokers || rabbitmq

package main

import _ "example.com/payonce/internal/broker/rabbitmq" // go build -tags rabbitmq
