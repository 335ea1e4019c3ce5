// Package inventory lists what the source has: its tests, its metrics, its
// settings, the words of its code and its SQL. It is for tests that hold a
// document, an alert or a dashboard to the code: a sentence about a test that was
// renamed, or a panel of a metric that was dropped, is worse than none, because
// an operator will rely on it during an incident.
//
// It reads files and runs nothing, so a test that uses it costs a second and
// needs no database.
package inventory

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
)

// service is the first line of the go.mod that stands in the repository's root.
// Below it there are others: proof is a module, and so is a peer of the bench.
const service = "module example.com/payonce"

// Root is the root of the repository, above the working folder.
var Root = sync.OnceValues(func() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if first, _, _ := strings.Cut(string(text), "\n"); err == nil && strings.TrimSpace(first) == service {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no go.mod with %q at or above the working folder", service)
		}
		dir = filepath.Dir(dir)
	}
})

// Path is where a program of proof reads or writes a file that a flag names. It
// takes a relative path from the root of the repository: `go run -C proof` has
// changed the working folder to proof, and out/ and docs/ are not there. Outside
// the repository, as in a container, the working folder counts.
func Path(name string) string {
	root, err := Root()
	if err != nil || name == "" || filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(root, name)
}

// Files are the paths below the root, slashes between them, whose names end in
// one of the suffixes. What is hidden, built or written at run time is left out.
func Files(suffixes ...string) (list []string, err error) {
	root, err := Root()
	if err != nil {
		return nil, err
	}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if path != root && (strings.HasPrefix(name,
				".") && name != ".ci" && name != ".github" && name != ".devcontainer" || skipped[name]) {
				return filepath.SkipDir
			}
			return nil
		}
		for _, suffix := range suffixes {
			if strings.HasSuffix(name, suffix) {
				relative, err := filepath.Rel(root, path)
				list = append(list, filepath.ToSlash(relative))
				return err
			}
		}
		return nil
	})
	return list, err
}

var skipped = map[string]bool{"payonce-data": true, "bin": true, "out": true, "testdata": true, "node_modules": true}

// Read is the text of a file below the root.
func Read(path string) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	b, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(path)))
	return string(b), err
}

var word = regexp.MustCompile(`[A-Za-z_][A-Za-z0-9_]*`)

// Words are all words, in the programmer's sense, of the files with such suffixes.
func Words(suffixes ...string) (map[string]bool, error) {
	files, err := Files(suffixes...)
	if err != nil {
		return nil, err
	}
	words := map[string]bool{}
	for _, file := range files {
		text, err := Read(file)
		if err != nil {
			return nil, err
		}
		for _, w := range word.FindAllString(text, -1) {
			words[w] = true
		}
	}
	return words, nil
}

// parsed is the source of every package, by folder.
type parsed map[string][]*ast.File

func parse(keep func(path string) bool) (parsed, error) {
	files, err := Files(".go")
	if err != nil {
		return nil, err
	}
	root, err := Root()
	if err != nil {
		return nil, err
	}
	packages := parsed{}
	for _, file := range files {
		if !keep(file) {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, filepath.FromSlash(file)), nil,
			parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		dir := filepath.ToSlash(filepath.Dir(file))
		packages[dir] = append(packages[dir], tree)
	}
	return packages, nil
}
