package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"example.com/payonce/internal/postgres"
)

const auditPatience = 15 * time.Second // consumers may be a moment behind

// auditUntilClean asks the service's own auditor, again for a while if something
// offends: not everybody downstream has heard everything at once.
func (s *system) auditUntilClean(ctx context.Context) finding {
	for began := time.Now(); ; time.Sleep(4 * askAgain) {
		checks, offenders, err := s.audit(ctx)
		if err != nil {
			offenders = []string{err.Error()}
		}
		if len(offenders) == 0 || time.Since(began) > auditPatience || ctx.Err() != nil {
			return finding{fmt.Sprintf("the service's own audit finds nothing, in %d checks", checks), offenders}
		}
	}
}

// audit runs `api audit`, which also compares every object at Stripe with every
// row here. Elsewhere we have no key to that Stripe, and ask the database only.
func (s *system) audit(ctx context.Context) (checks int, offenders []string, err error) {
	if len(s.processes) == 0 {
		all, err := s.pool.Invariants(ctx)
		for _, c := range all {
			offenders = append(offenders, offending(c.ID, c.Name, c.Rows)...)
		}
		return len(all), offenders, err
	}
	cmd := exec.CommandContext(ctx, s.processes[0].Program, "audit", "-json")
	cmd.Env = s.processes[0].Env
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) { // 1: something offends, and out says what
		return 0, nil, fmt.Errorf("api audit: %w: %s", err, bytes.TrimSpace(said.Bytes()))
	}
	var report struct {
		Checks []struct {
			ID, Name string
			Rows     []postgres.Violation
		}
	}
	if err := json.Unmarshal(out, &report); err != nil {
		return 0, nil, fmt.Errorf("api audit: %w", err)
	}
	for _, c := range report.Checks {
		offenders = append(offenders, offending(c.ID, c.Name, c.Rows)...)
	}
	return len(report.Checks), offenders, nil
}

func offending(id, name string, rows []postgres.Violation) (out []string) {
	for _, v := range rows {
		out = append(out, fmt.Sprintf("%s %s: %s %s", id, name, v.Subject, v.Detail))
	}
	return out
}
