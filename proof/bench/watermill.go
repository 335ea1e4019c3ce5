package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// buildWatermill builds the peer of the relay, a module of its own.
func (b *bench) buildWatermill(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, "go", "build", "-C", filepath.Join("bench", "watermill"), "-o",
		b.watermillBinary(), ".").CombinedOutput()
	if err != nil {
		return fmt.Errorf("build bench/watermill, in the repository's root: %w\n%s", err, out)
	}
	return nil
}

func (b *bench) watermillBinary() string { return filepath.Join(b.dir, "watermill") }

// watermill drains as many events as our relay does to a broker like ours, from an
// outbox of its own form in a database of its own.
func (b *bench) watermill(syncs bool, batch int) func(context.Context) (sample, error) {
	return func(ctx context.Context) (sample, error) {
		o, err := b.outboxOf(ctx, syncs, 0)
		defer o.done()
		if err != nil {
			return sample{}, err
		}
		cmd := exec.CommandContext(ctx, b.watermillBinary(), "-database", o.url, "-nats", o.broker, "-subject",
			"payonce.bench.forwarded",
			"-events", strconv.Itoa(b.s.events), "-batch", strconv.Itoa(batch))
		cmd.Stderr = os.Stderr
		said, err := cmd.Output()
		if err != nil {
			return sample{}, err
		}
		rate, err := strconv.ParseFloat(strings.TrimSpace(string(said)), 64)
		return sample{rate: rate}, errors.Join(err, ctx.Err())
	}
}
