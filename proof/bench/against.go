package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"example.com/payonce/proof/internal/inventory"
	"example.com/payonce/proof/internal/plot"
)

const (
	aloneBefore = "one client alone, before"
	aloneNow    = "one client alone, now"
	freshBefore = "32 clients, before"
	freshNow    = "32 clients, now"
)

// againstGroup compares the service with that of another commit, in turns. Each has a database of its own, with its own
// migrations, because the schema may have changed; tenant, key and orders are written by the same SQL into both, so a
// commit whose tables for these differ cannot be compared, and the run says so.
func (b *bench) againstGroup() group {
	var before, now *bench
	var commit string
	pays := func(which **bench, clients int) func(context.Context) (sample, error) {
		return func(ctx context.Context) (sample, error) { return (*which).as(clients).pays(ctx) }
	}
	return group{
		name:    inAgainst,
		clients: true,
		off:     b.s.against == "",
		says: func() string {
			return "Before is " + commit + ": the service of this bench as it was there, built apart, on a database with the " +
				"migrations of that time. Both have a gateway that answers at once."
		},
		prepare: func(ctx context.Context) (err error) {
			if now, err = b.another(ctx, b.s); err != nil {
				return err
			}
			before, commit, err = b.built(ctx, b.s.against)
			return err
		},
		finish: func() {
			for _, one := range []*bench{before, now} {
				if one != nil {
					one.close()
				}
			}
		},
		list: []*measurement{
			{name: aloneBefore, kind: plot.Floor, unit: "payments/s", timed: true, run: pays(&before, 1)},
			{name: aloneNow, unit: "payments/s", floor: aloneBefore, timed: true, run: pays(&now, 1)},
			{name: freshBefore, kind: plot.Floor, unit: "payments/s", timed: true, run: pays(&before, 32)},
			{name: freshNow, unit: "payments/s", floor: freshBefore, timed: true, run: pays(&now, 32)},
		},
	}
}

// built is the service of a commit, built in a worktree that is removed at once, and its database. The second result
// names the commit.
func (b *bench) built(ctx context.Context, commit string) (before *bench, name string, err error) {
	root, err := inventory.Root()
	if err != nil {
		return nil, "", err
	}
	name, err = output(ctx, "git", "-C", root, "log", "-1", "--format=%h (%cs, %s)", commit, "--")
	if err != nil {
		return nil, "", fmt.Errorf("-against: %w", err)
	}
	dir, err := os.MkdirTemp("", "payonce-bench-against")
	if err != nil {
		return nil, "", err
	}
	tree, service, api := filepath.Join(dir, "tree"), filepath.Join(dir, "service"), filepath.Join(dir, "api")
	defer func() {
		if before == nil || err != nil {
			_ = os.RemoveAll(dir)
		}
	}()
	if _, err = output(ctx, "git", "-C", root, "worktree", "add", "--detach", tree, commit); err == nil {
		_, err = output(ctx, "go", "build", "-C", filepath.Join(tree, "proof"), "-o", service, "./bench")
	}
	if err == nil {
		_, err = output(ctx, "go", "build", "-C", tree, "-o", api, "./cmd/api")
	}
	// Also after an error, and when the run was interrupted.
	_, removed := output(context.WithoutCancel(ctx), "git", "-C", root, "worktree", "remove", "--force", tree)
	if err = errors.Join(err, removed); err != nil {
		return nil, "", fmt.Errorf("build the service of %s: %w", name, err)
	}
	before, err = prepareWith(ctx, b.serverURL, b.s, func(ctx context.Context, one *bench) error {
		migrate := exec.CommandContext(ctx, api, "migrate")
		migrate.Env = []string{"DATABASE_URL=" + one.url}
		if out, err := migrate.CombinedOutput(); err != nil {
			return fmt.Errorf("migrate: %w: %s", err, out)
		}
		return nil
	})
	if err != nil {
		return nil, "", fmt.Errorf("the database of %s: %w", name, err)
	}
	before.program, before.programDir = service, dir
	var args []string
	help, _ := exec.CommandContext(ctx, service, "service", "-h").CombinedOutput()
	// Until ADR 40 a flag said that requests share commits, as they did by default.
	if bytes.Contains(help, []byte("  -group\n")) {
		args = append(args, "-group")
	}
	if err = before.startService(ctx, args...); err != nil {
		before.close()
		return nil, "", fmt.Errorf("start the service of %s: %w", name, err)
	}
	return before, name, nil
}

// output runs a command and returns what it prints. What it prints of an error is in the error.
func output(ctx context.Context, name string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	text := strings.TrimSpace(string(out))
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, text)
	}
	return text, nil
}
