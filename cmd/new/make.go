package main

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"go/format"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// ours is the module of this checkout.
const ours = "example.com/payonce"

// starter is one service to be made.
type starter struct {
	module string
	parts  map[string]bool
	to     string // the folder, which must not exist or be empty
	log    io.Writer
}

var moduleName = regexp.MustCompile(`^[a-z0-9][a-zA-Z0-9._~/-]*[a-zA-Z0-9]$`)

// make writes the folder. It leaves an incomplete folder behind if a step fails, so that the reason can be looked at.
func (s starter) make(ctx context.Context) error {
	if !moduleName.MatchString(s.module) {
		return fmt.Errorf("-module: %q is not the name of a Go module", s.module)
	}
	to, err := filepath.Abs(s.to)
	if err != nil {
		return err
	}
	s.to = to
	if entries, err := os.ReadDir(to); err == nil && len(entries) > 0 {
		return fmt.Errorf("%s is not empty", to)
	}
	from, err := checkout(ctx)
	if err != nil {
		return err
	}
	for _, step := range []struct {
		says string
		run  func() error
	}{
		{"copying what is needed", func() error { return s.copy(ctx, from) }},
		{"writing README.md", s.writeReadme},
		{"generating Go from the remaining queries", func() error { return s.generate(ctx, from) }},
		{"removing modules that nothing imports", func() error { return s.tidy(ctx) }},
		{"writing db/schema.sql from the remaining migrations", func() error { return s.writeSchema(ctx) }},
		{"git init, and the first commit", func() error { return s.commit(ctx) }},
	} {
		_, _ = fmt.Fprintf(s.log, "%s\n", step.says)
		if err := step.run(); err != nil {
			return fmt.Errorf("%s: %w", step.says, err)
		}
	}
	lines, err := handWritten(to)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(s.log,
		"%s: %d lines of hand-written Go, %d of them code; tests, testkit, simulator and client are not counted\n"+
			"next: cd %s && go test ./...\n", s.to, lines.all, lines.code, s.to)
	return err
}

// checkout is the root of this checkout: go run starts programs in the folder where it was called.
func checkout(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Path}} {{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("go list -m: %w", err)
	}
	path, dir, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	if path != ours {
		return "", fmt.Errorf("run it in a checkout of %s; this is %s", ours, path)
	}
	return dir, nil
}

// copy copies the files that git has, so that no build output and no secret in an ignored file is copied.
func (s starter) copy(ctx context.Context, from string) error {
	list, err := files(ctx, from)
	if err != nil {
		return err
	}
	for _, name := range list {
		if s.leavesOut(name) {
			continue
		}
		if err := s.copyFile(from, name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return s.copyInstead()
}

// texts are the files that stand where those of a part were.
//
//go:embed instead
var texts embed.FS

func (s starter) copyInstead() error {
	for _, p := range parts {
		for name, from := range p.instead {
			text, err := texts.ReadFile("instead/" + from)
			if err != nil {
				return err
			}
			if s.parts[p.name] {
				continue
			}
			if err := s.write(name, text, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// files are the files of a checkout that git tracks. What lies beside them may be a secret.
func files(ctx context.Context, from string) ([]string, error) {
	cmd := exec.CommandContext(ctx, "git", "ls-files", "-z", "--cached")
	cmd.Dir = from
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	var list []string
	for name := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
		if _, err := os.Stat(filepath.Join(from, name)); err == nil && !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	return list, nil
}

// leavesOut reports whether a file belongs to a part that was not chosen.
func (s starter) leavesOut(name string) bool {
	if slices.ContainsFunc(never, func(path string) bool { return covers(path, name) }) {
		return true
	}
	// Generated from the queries that remain, later.
	if strings.HasSuffix(name, ".sql.go") {
		return true
	}
	for _, p := range parts {
		if !s.parts[p.name] && slices.ContainsFunc(p.paths, func(path string) bool { return covers(path, name) }) {
			return true
		}
	}
	return false
}

// covers reports whether a path of the manifest covers a file.
func covers(path, name string) bool {
	if strings.HasSuffix(path, "/") || strings.HasSuffix(path, "*") {
		return strings.HasPrefix(name, strings.TrimSuffix(path, "*"))
	}
	return path == name
}

func (s starter) keeps(name string) bool { return s.parts[name] }

func (s starter) copyFile(from, name string) error {
	path := filepath.Join(from, name)
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if text, err = s.textOf(name, text); err != nil {
		return err
	}
	return s.write(name, text, info.Mode().Perm())
}

// textOf is the text of a file without the parts that were not chosen.
func (s starter) textOf(name string, text []byte) (_ []byte, err error) {
	if bytes.ContainsRune(text[:min(len(text), 8000)], 0) { // a picture
		return text, nil
	}
	whole := len(text)
	for _, p := range parts {
		for _, w := range wordings[p.name] {
			if w.file == name && !s.parts[p.name] {
				text = bytes.ReplaceAll(text, []byte(w.with), []byte(w.without))
			}
		}
	}
	if text, err = cut(text, s.keeps); err != nil {
		return nil, err
	}
	if len(text) < whole && strings.HasSuffix(name, ".go") {
		if text, err = withoutUnusedImports(text); err != nil {
			return nil, err
		}
	}
	if strings.HasPrefix(name, "deploy/grafana/dashboards/") {
		return s.cutPanels(text)
	}
	return text, nil
}

func (s starter) write(name string, text []byte, mode os.FileMode) (err error) {
	text = bytes.ReplaceAll(text, []byte(ours), []byte(s.module))
	if strings.HasSuffix(name, ".go") { // imports are sorted by their path
		if text, err = format.Source(text); err != nil {
			return err
		}
	}
	to := filepath.Join(s.to, name)
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, text, mode)
}

// generate runs sqlc as pinned in this checkout, whose build of it may be cached.
func (s starter) generate(ctx context.Context, from string) error {
	return s.command(ctx, from, []string{"CGO_ENABLED=0"},
		"go", "tool", "-modfile=tools/sqlc.mod", "sqlc", "generate", "-f", filepath.Join(s.to, "sqlc.yaml"))
}

func (s starter) tidy(ctx context.Context) error {
	modules := []string{".", "stripesim", "client"}
	if s.parts["proof"] {
		modules = append(modules, "proof")
	}
	for _, module := range modules {
		if err := s.command(ctx, filepath.Join(s.to, module), nil, "go", "mod", "tidy"); err != nil {
			return err
		}
	}
	return nil
}

// writeSchema lets the starter's own test write the file: it migrates a database, on the PostgreSQL
// that its tests use.
func (s starter) writeSchema(ctx context.Context) error {
	return s.command(ctx, s.to, nil, "go", "test", "./internal/postgres", "-run=^TestSchemaFileIsCurrent$", "-update")
}

func (s starter) commit(ctx context.Context) error {
	for _, args := range [][]string{{"init", "-q"}, {"add", "-A"}} {
		if err := s.command(ctx, s.to, nil, "git", args...); err != nil {
			return err
		}
	}
	args := []string{"commit", "-q", "-m", "made with cmd/new of " + ours + "\n\nwith: " + s.list()}
	if exec.CommandContext(ctx, "git", "-C", s.to, "config", "user.email").Run() != nil { // CI has no name
		args = append([]string{"-c", "user.name=new", "-c", "user.email=new@localhost"}, args...)
	}
	return s.command(ctx, s.to, nil, "git", args...)
}

func (s starter) list() string {
	var names []string
	for _, p := range parts {
		if s.parts[p.name] {
			names = append(names, p.name)
		}
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ",")
}

// command runs a program and returns what it printed as the error.
func (s starter) command(ctx context.Context, dir string, env []string, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return errors.Join(fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err), errors.New(string(out)))
	}
	return nil
}
