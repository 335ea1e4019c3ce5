// Package cdc reads the service's events from PostgreSQL's write-ahead log, as Debezium does, and compares them with what
// the relay sends to a broker. docs/change-data-capture.md says how that is set up; its SQL is what runs here.
//
//	go test -C proof ./cdc
package cdc
