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

	"example.com/payonce/testkit/demo/tags"
	"example.com/payonce/testkit/process"
)

const (
	apiPackage     = "example.com/payonce/cmd/api"
	slowBuildAfter = 3 * time.Second // with a warm build cache it takes one second
)

// findAPI returns the API's program: the one that -api names, or one built from
// source. Where there is no source or no compiler, as in the container, it is the
// one next to this program.
func findAPI(ctx context.Context, named, dir string, out *printer) (string, error) {
	if named != "" {
		return filepath.Abs(named)
	}
	program := filepath.Join(dir, "api")
	slow := time.AfterFunc(slowBuildAfter, func() {
		out.fact("API", "is being built; the first time, this takes a minute")
	})
	defer slow.Stop()
	build := exec.CommandContext(ctx, "go", "build", "-tags", tags.API, "-o", program, apiPackage)
	output, err := build.CombinedOutput()
	if err == nil || ctx.Err() != nil {
		return program, ctx.Err()
	}
	if self, err := os.Executable(); err == nil {
		sibling := filepath.Join(filepath.Dir(self), "api")
		if _, err := os.Stat(sibling); err == nil {
			return sibling, nil
		}
	}
	return "", fmt.Errorf("cannot build the API, and there is no program \"api\" next to this one;"+
		" run the demo in the repository's folder, or name the API's program with -api: %w\n%s",
		err, bytes.TrimSpace(output))
}

type tenant struct {
	ID     string `json:"tenant_id"`
	APIKey string `json:"api_key"`
}

// createTenant uses the command that an operator would use.
func createTenant(ctx context.Context, program, name, dsn, dataKey string) (t tenant, err error) {
	create := exec.CommandContext(ctx, program, "tenant", "create", name)
	create.Env = []string{"DATABASE_URL=" + dsn, "DATA_KEY=" + dataKey}
	var stderr bytes.Buffer
	create.Stderr = &stderr
	out, err := create.Output()
	if err != nil {
		return t, fmt.Errorf("create a tenant: %w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	if err := json.Unmarshal(out, &t); err != nil {
		return t, fmt.Errorf("create a tenant: %w", err)
	}
	return t, nil
}

// apiProcess is one of the API processes, A or B.
type apiProcess struct {
	process.API
	endpoint
}

// start starts the process; a second time, at the same address, because the shop
// and Stripe's webhooks keep using it.
func (p *apiProcess) start(ctx context.Context, env ...string) error {
	err := p.API.Start(ctx, env...)
	if p.url != p.URL { // not written when unchanged: requests may be reading it
		p.url = p.URL
	}
	return err
}
