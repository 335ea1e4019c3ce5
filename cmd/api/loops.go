package main

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"time"
)

// loop is work that comes up again and again. Packages run no loops of their
// own; all of them are in the list that serve makes.
type loop struct {
	name  string
	every time.Duration // how often to look when there was nothing to do
	// wake, if not nil, ends the pause early: a hint, never needed.
	wake    <-chan struct{}
	runOnce func(context.Context) (n int, err error)
}

// start runs the loops until ctx ends; wait returns when all have stopped, each
// between two items.
func start(ctx context.Context, log *slog.Logger, loops ...loop) (wait func()) {
	var running sync.WaitGroup
	for _, l := range loops {
		running.Go(func() {
			for ctx.Err() == nil {
				n := l.once(ctx, log)
				if n > 0 {
					continue // There may be more. Look again at once.
				}
				select {
				case <-time.After(l.every/2 + time.Duration(rand.Int64N(int64(l.every)))):
				case <-l.wake:
				case <-ctx.Done():
				}
			}
		})
	}
	return running.Wait
}

// once runs one turn. Nothing that goes wrong in it stops the loop.
func (l loop) once(ctx context.Context, log *slog.Logger) (n int) {
	defer func() {
		if bug := recover(); bug != nil {
			log.Error("bug: a loop panicked", "loop", l.name, "panic", bug, "stack", string(debug.Stack()))
			n = 0
		}
	}()
	n, err := l.runOnce(ctx)
	if err != nil && ctx.Err() == nil {
		log.Warn("loop", "loop", l.name, "error", err.Error())
		return 0
	}
	return n
}
