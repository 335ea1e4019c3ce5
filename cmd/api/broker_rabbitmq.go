//go:build !norabbitmq

package main

import _ "example.com/payonce/internal/broker/rabbitmq" // go build -tags rabbitmq
