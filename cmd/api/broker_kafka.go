//go:build !nokafka

package main

import _ "example.com/payonce/internal/broker/kafka" // without it: go build -tags nokafka
