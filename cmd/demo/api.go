package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

const (
	apiPackage     = "example.com/payonce/cmd/api"
	buildUnnoticed = 3 * time.Second // a build of what was built before takes one
)

// findAPI returns the API's program: the one that was named, or one built from
// source, with the crash points that the build tag faults adds, or, where there
// is no source or no compiler, the one beside ours: so it is in the container.
func findAPI(ctx context.Context, named, dir string, out *printer) (string, error) {
	if named != "" {
		return filepath.Abs(named)
	}
	program := filepath.Join(dir, "api")
	patience := time.AfterFunc(buildUnnoticed, func() { out.fact("API", "is being built; the first time, this takes a minute") })
	defer patience.Stop()
	said, err := exec.CommandContext(ctx, "go", "build", "-tags", "faults", "-o", program, apiPackage).CombinedOutput()
	if err == nil || ctx.Err() != nil {
		return program, ctx.Err()
	}
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), "api")
		if _, err := os.Stat(beside); err == nil {
			return beside, nil
		}
	}
	return "", fmt.Errorf("the API's program is not beside this one, not named with -api, and cannot be built (the demo runs in the repository's folder): %w\n%s", err, bytes.TrimSpace(said))
}

type tenant struct {
	ID     string `json:"tenant_id"`
	APIKey string `json:"api_key"`
}

// createTenant makes a tenant as an operator does.
func createTenant(ctx context.Context, program, dsn string) (t tenant, err error) {
	create := exec.CommandContext(ctx, program, "tenant", "create", "demo")
	create.Env = []string{"DATABASE_URL=" + dsn}
	var said bytes.Buffer
	create.Stderr = &said
	out, err := create.Output()
	if err != nil {
		return t, fmt.Errorf("create a tenant: %w: %s", err, bytes.TrimSpace(said.Bytes()))
	}
	if err := json.Unmarshal(out, &t); err != nil {
		return t, fmt.Errorf("create a tenant: %w", err)
	}
	return t, nil
}
