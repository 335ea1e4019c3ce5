//go:build !nosqs

package main

import _ "example.com/payonce/internal/broker/sqs" // without it: go build -tags nosqs
