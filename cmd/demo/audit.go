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

const auditTimeout = 15 * time.Second

// auditUntilClean runs the service's own audit, and repeats it for a while if it
// finds violations: consumers may not have handled the last events yet.
func (s *system) auditUntilClean(ctx context.Context) check {
	for began := time.Now(); ; time.Sleep(4 * pollInterval) {
		checks, violations, err := s.audit(ctx)
		if err != nil {
			violations = []string{err.Error()}
		}
		if len(violations) == 0 || time.Since(began) > auditTimeout || ctx.Err() != nil {
			name := fmt.Sprintf("api audit, the service's own audit, finds no violations in its %d checks", checks)
			return check{name, violations}
		}
	}
}

// audit runs `api audit`, which also compares every object at Stripe with the
// database. With -against the demo has no key for that Stripe, and runs only the
// invariant queries.
func (s *system) audit(ctx context.Context) (checks int, violations []string, err error) {
	if len(s.processes) == 0 {
		all, err := s.pool.Invariants(ctx)
		for _, c := range all {
			violations = append(violations, violationTexts(c.ID, c.Name, c.Rows)...)
		}
		return len(all), violations, err
	}
	cmd := exec.CommandContext(ctx, s.processes[0].Program, "audit", "-json")
	cmd.Env = s.processes[0].Env
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var exit *exec.ExitError
	// Exit code 1 means violations, and they are in the output; 2 means it could not run.
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
		return 0, nil, fmt.Errorf("api audit: %w: %s", err, bytes.TrimSpace(stderr.Bytes()))
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
		violations = append(violations, violationTexts(c.ID, c.Name, c.Rows)...)
	}
	return len(report.Checks), violations, nil
}

func violationTexts(id, name string, rows []postgres.Violation) (texts []string) {
	for _, v := range rows {
		texts = append(texts, fmt.Sprintf("%s %s: %s %s", id, name, v.Subject, v.Detail))
	}
	return texts
}
