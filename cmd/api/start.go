package main

import (
	"context"
	"log/slog"
	"time"

	"example.com/payonce/internal/postgres"
)

// A process that starts while the database is short of slots, or has no primary, waits: others that stop, or a failover,
// need seconds. Everything else is a wrong setting, which waiting does not fix.
const (
	startWithin = time.Minute
	startEvery  = time.Second
)

// whenReady calls open again, once a second for a minute, while the server only is not ready yet.
func whenReady(ctx context.Context, log *slog.Logger, open func() error) error {
	for until := time.Now().Add(startWithin); ; {
		err := open()
		if !postgres.NotReady(err) || time.Now().After(until) {
			return err
		}
		log.Warn("the database is not ready; trying again", "every", startEvery.String(), "for", startWithin.String(),
			"error", oneLine(err))
		select {
		case <-time.After(startEvery):
		case <-ctx.Done():
			return err
		}
	}
}
