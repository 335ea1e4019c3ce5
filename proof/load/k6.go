package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"time"

	"example.com/payonce/proof/internal/inventory"
	"example.com/payonce/testkit/process"
)

const (
	k6Package  = "go.k6.io/k6"
	k6Modfile  = "tools/k6.mod"
	k6Patience = 30 * time.Second // for its teardown to end after Ctrl-C

	thresholdsBroken = 99 // k6's exit status; any other that is not 0 is a test that was not run
)

// k6Program is k6, somewhere on this machine.
type k6Program struct{ path, version string }

var k6Version = regexp.MustCompile(`\bv(\d+)\.[0-9.]+`)

// findK6 takes the one that was named, the one on the path, or builds one, in
// this order. One that is older than its scripts is not taken.
func findK6(ctx context.Context, named string, say func(string, ...any)) (k6Program, error) {
	if named != "" {
		path, err := filepath.Abs(inventory.Path(named)) // it will run in another folder
		if err != nil {
			return k6Program{}, err
		}
		return askVersion(ctx, path)
	}
	if path, err := exec.LookPath("k6"); err == nil {
		if k6, err := askVersion(ctx, path); err == nil {
			return k6, nil
		}
	}
	return buildK6(ctx, say)
}

// buildK6 builds what tools/k6.mod pins. Go builds it once; after that this takes
// a second.
func buildK6(ctx context.Context, say func(string, ...any)) (k6Program, error) {
	root, err := process.Root()
	if err != nil {
		return k6Program{}, fmt.Errorf("k6 is neither on the path nor named with -k6, and can only be built in the "+
			"repository's folder, by Go: %w", err)
	}
	path := filepath.Join(root, "bin", "k6")
	patience := time.AfterFunc(5*time.Second,
		func() { say("k6 is being built; the first time, this takes two minutes") })
	defer patience.Stop()
	build := exec.CommandContext(ctx, "go", "build", "-modfile="+k6Modfile, "-o", path, k6Package)
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if said, err := build.CombinedOutput(); err != nil {
		return k6Program{}, fmt.Errorf("build k6 (or put it on the path, or name it with -k6): %w\n%s", err,
			bytes.TrimSpace(said))
	}
	return askVersion(ctx, path)
}

func askVersion(ctx context.Context, path string) (k6Program, error) {
	out, err := exec.CommandContext(ctx, path, "version").Output()
	if err != nil {
		return k6Program{}, fmt.Errorf("%s version: %w", path, err)
	}
	v := k6Version.FindStringSubmatch(string(out))
	if v == nil || v[1] == "0" {
		return k6Program{}, fmt.Errorf("%s is %s, and must be k6 v1 or later", path, bytes.TrimSpace(out))
	}
	return k6Program{path, v[0]}, nil
}

// run runs a scenario and returns its results. An error means that it could
// not be run; a broken threshold is in the report.
func (k k6Program) run(ctx context.Context, o options, s *system) (*report, error) {
	dir, err := os.MkdirTemp("", "payonce-k6-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := unpackScripts(dir); err != nil {
		return nil, err
	}
	summary, samples, console := filepath.Join(dir, "summary.json"), filepath.Join(dir, "samples.json.gz"),
		filepath.Join(dir, "console.log")
	cmd := exec.CommandContext(ctx, k.path, "run", "--quiet", "--address", "127.0.0.1:0", "--out", "json="+samples,
		"--console-output", console, o.scenario+".js")
	// k6 then ends its clients and evaluates what there is
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = k6Patience
	cmd.Dir = dir
	// Nothing of our own environment but the path to files and the settings: K6_…
	// of the user's shell would change what is measured.
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + dir, "K6_NO_USAGE_REPORT=true",
		"K6_AUTO_EXTENSION_RESOLUTION=false", "NO_COLOR=true",
		"API_URL=" + s.apiURL, "STRIPESIM_URL=" + s.simulator, "API_KEY=" + s.apiKey, "RUN_ID=" + o.run,
		"SUMMARY_FILE=" + summary,
	}
	for name, v := range o.script {
		cmd.Env = append(cmd.Env, name+"="+v)
	}
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = io.Discard, &said // the report replaces its summary
	began := time.Now()
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != thresholdsBroken) {
		log, _ := os.ReadFile(console) // k6 may have exited before it had one
		return nil, fmt.Errorf("k6: %w\n%s", err, bytes.TrimSpace(append(withoutFailedRequests(said.Bytes()), log...)))
	}
	r := &report{Run: o.run, Scenario: o.scenario, K6: k.version, System: s.about, Began: began.UTC(),
		Settings: o.script, thresholdsHeld: err == nil}
	if err := r.readSummary(summary); err != nil {
		return nil, err
	}
	if err := r.readSamples(samples); err != nil {
		return nil, err
	}
	if err := r.readConsole(console); err != nil {
		return nil, err
	}
	return r, r.conclude()
}

// withoutFailedRequests is what k6 said but for the requests that got no answer:
// in a storm these are thousands, and they are counted.
func withoutFailedRequests(said []byte) (rest []byte) {
	for line := range bytes.Lines(said) {
		if !bytes.Contains(line, []byte("Request Failed")) {
			rest = append(rest, line...)
		}
	}
	return rest
}

// k6Summary is the part of k6's summary that we read.
type k6Summary struct {
	State struct {
		TestRunDurationMS float64 `json:"testRunDurationMs"`
	}
	Metrics map[string]struct {
		Values     map[string]float64
		Thresholds map[string]struct{ OK bool }
	}
}

func (r *report) readSummary(file string) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("k6 wrote no summary: %w", err)
	}
	if err := json.Unmarshal(b, &r.summary); err != nil {
		return fmt.Errorf("k6's summary: %w", err)
	}
	return nil
}
