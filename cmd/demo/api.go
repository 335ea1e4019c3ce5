package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

const apiPackage = "example.com/payonce/cmd/api"

// findAPI returns the API's program: the one that was named, the one beside ours
// (so it is in the container image), or one built from source, with the crash
// points that the build tag faults adds.
func findAPI(ctx context.Context, named, dir string) (string, error) {
	if named != "" {
		return filepath.Abs(named)
	}
	name := "api"
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	if self, err := os.Executable(); err == nil && !strings.Contains(self, "go-build") {
		beside := filepath.Join(filepath.Dir(self), name)
		if _, err := os.Stat(beside); err == nil {
			return beside, nil
		}
	}
	program := filepath.Join(dir, name)
	build := exec.CommandContext(ctx, "go", "build", "-tags", "faults", "-o", program, apiPackage)
	said, err := build.CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		return "", errors.New("the API's program is neither named (-api) nor beside this one, and without the go command it cannot be built")
	}
	if err != nil {
		return "", fmt.Errorf("build %s (run the demo inside the repository, or name a program with -api): %w\n%s", apiPackage, err, bytes.TrimSpace(said))
	}
	return program, nil
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
