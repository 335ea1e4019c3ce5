//go:build !norabbitmq

package main

import _ "example.com/payonce/internal/broker/rabbitmq" // without it: go build -tags norabbitmq
