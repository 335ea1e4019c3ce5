package mutation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// BaseVar names the commit since which CI looks for changes.
const BaseVar = "CI_BASE"

// Changes are the lines that differ from a commit, as git says it. What is not committed counts, and so do files that git
// does not know yet.
type Changes struct {
	Base  string            // as it was named
	files map[string][]span // path from the root; what was removed is an empty list
	lines map[string][]string
}

// span is some lines of a file, the first and the last.
type span struct{ from, to int }

// everything is a file that is new.
var everything = span{1, 1 << 30}

// ChangesSince are the changes since a commit. If none is named, it is CI_BASE; or where this branch left origin/main; or
// the commit before this one; or, if there is none, as in a clone without history, emptyTree.
func ChangesSince(ctx context.Context, root, base string) (*Changes, error) {
	var err error
	if base == "" {
		if base, err = defaultBase(ctx, root); err != nil {
			return nil, err
		}
	}
	diff, err := git(ctx, root, "diff", "--unified=0", "--no-color", "--no-ext-diff", "--no-renames", "--src-prefix=a/", "--dst-prefix=b/",
		base, "--")
	if err != nil {
		return nil, fmt.Errorf("what has changed since %s: %w", base, err)
	}
	c, err := parseDiff(diff)
	if err != nil {
		return nil, err
	}
	c.Base = base
	unknown, err := git(ctx, root, "ls-files", "--others", "--exclude-standard", "-z")
	if err != nil {
		return nil, err
	}
	for name := range strings.SplitSeq(unknown, "\x00") {
		if name == "" {
			continue
		}
		c.files[name] = []span{everything}
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			return nil, err
		}
		c.lines[name] = strings.Split(string(text), "\n")
	}
	return c, nil
}

// emptyTree is git's name of a tree without files. Compared with it, as without any history, everything has changed.
const emptyTree = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"

func defaultBase(ctx context.Context, root string) (string, error) {
	if base := os.Getenv(BaseVar); base != "" {
		return base, nil
	}
	head, err := git(ctx, root, "rev-parse", "HEAD")
	if err != nil {
		return "", fmt.Errorf("which mutants have changed is asked of git: %w", err)
	}
	if left, err := git(ctx, root, "merge-base", "HEAD", "origin/main"); err == nil && left != head {
		return strings.TrimSpace(left), nil
	}
	if before, err := git(ctx, root, "rev-parse", "--verify", "HEAD~1"); err == nil {
		return strings.TrimSpace(before), nil
	}
	return emptyTree, nil
}

var hunk = regexp.MustCompile(`^@@ -\S+ \+(\d+)(?:,(\d+))? @@`)

// parseDiff reads a diff without context.
func parseDiff(diff string) (*Changes, error) {
	c := &Changes{files: map[string][]span{}, lines: map[string][]string{}}
	file, header := "", false
	for line := range strings.Lines(diff) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "diff --git ") {
			file, header = "", true
			continue
		}
		if name, ok := strings.CutPrefix(line, "+++ b/"); header && ok {
			file = strings.TrimSuffix(name, "\t") // git ends a name with a blank in it
			c.files[file] = nil
			continue
		}
		if m := hunk.FindStringSubmatch(line); m != nil {
			header = false
			if file == "" { // removed
				continue
			}
			from, err := strconv.Atoi(m[1])
			if err != nil {
				return nil, err
			}
			n := 1
			if m[2] != "" {
				if n, err = strconv.Atoi(m[2]); err != nil {
					return nil, err
				}
			}
			s := span{from, from + n - 1}
			if n == 0 { // lines were removed between this one and the next
				s.to = from + 1
			}
			c.files[file] = append(c.files[file], s)
			continue
		}
		if added, ok := strings.CutPrefix(line, "+"); ok && !header && file != "" {
			c.lines[file] = append(c.lines[file], added)
		}
	}
	return c, nil
}

// Has reports whether something in a file has changed.
func (c *Changes) Has(file string) bool { return len(c.files[file]) > 0 }

// Touch reports whether one of some lines of a file has changed.
func (c *Changes) Touch(file string, from, to int) bool {
	return slices.ContainsFunc(c.files[file], func(s span) bool { return s.from <= to && from <= s.to })
}

// names reports whether a name is in a changed line of the schema or of a migration.
func (c *Changes) names(name string) bool {
	word := regexp.MustCompile(`\b` + regexp.QuoteMeta(name) + `\b`)
	for file, lines := range c.lines {
		if (file == "db/schema.sql" || strings.HasPrefix(file, "db/migrations/")) && slices.ContainsFunc(lines, word.MatchString) {
			return true
		}
	}
	return false
}

// TestFiles are the files of tests that have changed.
func (c *Changes) TestFiles() (files []string) {
	for file := range c.files {
		if strings.HasSuffix(file, "_test.go") && c.Has(file) {
			files = append(files, file)
		}
	}
	slices.Sort(files)
	return files
}

// Changed are the mutants in lines that have changed: of Go the condition itself, of a query those that the base's text of
// the query has not, of a view those of its lines, of the schema the names in a changed line.
func (b *Build) Changed(ctx context.Context, c *Changes) ([]Mutant, error) {
	before := map[string]map[string]bool{} // IDs at the base, by the Go file of the queries
	var changed []Mutant
	for _, m := range b.Mutants {
		var is bool
		switch {
		case m.Kind == Catalogue:
			_, name, _ := strings.Cut(m.ID, " without ")
			is = c.names(name)
		case m.Kind == SQL && m.query != "":
			if !c.Has(m.source) {
				continue
			}
			if before[m.source] == nil {
				ids, err := queriesAt(ctx, b.Root, c.Base, m.source)
				if err != nil {
					return nil, err
				}
				before[m.source] = ids
			}
			is = !before[m.source][m.ID]
		default:
			is = c.Touch(m.File, m.Line, m.to)
		}
		if is {
			changed = append(changed, m)
		}
	}
	return changed, nil
}

// queriesAt are the IDs of the mutants that the queries of a generated file had in a commit.
func queriesAt(ctx context.Context, root, commit, file string) (map[string]bool, error) {
	ids := map[string]bool{}
	source, err := git(ctx, root, "show", commit+":"+file)
	if err != nil {
		return ids, nil //nolint:nilerr // the commit does not have the file, so all of its mutants are new
	}
	next := func() int { return 0 }
	statements, _, err := instrumentQueries(file, []byte(source), next)
	if err != nil {
		return nil, err
	}
	var all []Mutant
	for _, s := range statements {
		found, err := s.mutants(next)
		if err != nil {
			return nil, fmt.Errorf("%s at %s: %w", s.name, commit, err)
		}
		all = append(all, found...)
	}
	unique(all)
	for _, m := range all {
		ids[m.ID] = true
	}
	return ids, nil
}

// KilledIn are the mutants of which a record says that a test in one of these files kills them.
func (r *Recorded) KilledIn(root string, files []string, all []Mutant) ([]Mutant, error) {
	of := map[Test]bool{}
	for _, file := range files {
		tests, err := testsIn(root, file)
		if err != nil {
			return nil, err
		}
		for _, t := range tests {
			of[t] = true
		}
	}
	var killed []Mutant
	for _, m := range all {
		if by, ok := r.KilledBy[m.ID]; ok && of[by.Test] {
			killed = append(killed, m)
		}
	}
	return killed, nil
}

// Now names the commit that is checked out.
func Now(ctx context.Context, root string) (string, error) {
	commit, err := git(ctx, root, "rev-parse", "--short=8", "HEAD")
	if err != nil {
		return "", err
	}
	commit = strings.TrimSpace(commit)
	dirty, err := git(ctx, root, "status", "--porcelain", "--untracked-files=no")
	if err == nil && dirty != "" {
		commit += ", and what was not committed"
	}
	return commit, err
}

func git(ctx context.Context, root string, args ...string) (string, error) {
	c := exec.CommandContext(ctx, "git", append([]string{"-c", "core.quotePath=false"}, args...)...)
	c.Dir = root
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		return "", errors.Join(fmt.Errorf("git %s: %w", args[0], err), errors.New(strings.TrimSpace(stderr.String())))
	}
	return string(out), nil
}
