package main

import (
	"go/build"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// lineCount is how large a service is for the person who owns it.
type lineCount struct {
	all  int // every line
	code int // without blank lines and comments
}

// handWritten counts the Go of a service. What is there for tests is not counted: the tests, the test kit, the
// simulator of Stripe (stripesim, cmd/stripesim), and files that go build leaves out unless it is given a tag, such as
// cmd/api/boundary_faults.go. Neither is the client, which is for the programs that call the service, nor what sqlc
// generates, nor docs/skeleton, which is a text to copy from.
func handWritten(root string) (n lineCount, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if d.IsDir() {
			switch name {
			case "testkit", "stripesim", "cmd/stripesim", "client", "proof", "docs", ".git":
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		if built, err := build.Default.MatchFile(filepath.Dir(path), d.Name()); err != nil || !built {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if strings.HasPrefix(string(text), "// Code generated ") {
			return nil
		}
		for line := range strings.Lines(string(text)) {
			n.all++
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
				n.code++
			}
		}
		return nil
	})
	return n, err
}
