package main

import (
	"context"
	"fmt"
	"time"

	"example.com/payonce/internal/postgres"
)

// due wakes the loops that have something to do. One statement looks for all of them, so that an idle process asks the
// database seldom, and finds what other processes left soon all the same.
type due struct {
	pool      *postgres.Pool
	consumers func() []string // of the events that this process applies
	wakes     map[string][]func()
	woken     wakeup
}

const (
	dueEvery = 800 * time.Millisecond // How late work may be noticed that another process left.
	dueRest  = 100 * time.Millisecond // How soon it looks again after work of this process.
	// How often a loop runs that nothing wakes. It sets its gauges then, and if no wake-up comes, it works all the same.
	wokenEvery = 30 * time.Second
)

func newDue(pool *postgres.Pool, consumers func() []string) *due {
	return &due{pool: pool, consumers: consumers, wakes: map[string][]func(){}, woken: newWakeup()}
}

// wake has a loop woken when it has something due. The names are those of the statement.
func (d *due) wake(loop string, wake func()) { d.wakes[loop] = append(d.wakes[loop], wake) }

// RunOnce looks, and wakes. It processes nothing itself, so it returns zero.
func (d *due) RunOnce(ctx context.Context) (int, error) {
	names, err := d.pool.LoopsDue(ctx, d.consumers())
	if err != nil {
		return 0, fmt.Errorf("look for what is due: %w", err)
	}
	for _, name := range names {
		for _, wake := range d.wakes[name] {
			wake()
		}
	}
	return 0, nil
}

// wakeup wakes one loop. One that is sent while the loop works is kept.
type wakeup chan struct{}

func newWakeup() wakeup { return make(wakeup, 1) }

func (w wakeup) send() {
	select {
	case w <- struct{}{}:
	default:
	}
}
