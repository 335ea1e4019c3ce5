package docs_test

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/proof/internal/inventory"
)

// TestCommands reads what the documents tell somebody to type: the program is one
// of ours or a common one, the subcommand and the flags exist, the make target
// and the compose profile too.
func TestCommands(t *testing.T) {
	t.Parallel()
	c := commands{t: t}
	for _, d := range readDocuments(t) {
		c.where = d.path
		for _, f := range d.fences {
			if f.language == "sh" {
				for line := range strings.SplitSeq(strings.ReplaceAll(f.text, "\\\n", " "), "\n") {
					c.line(line)
				}
			}
		}
	}
	require.Greater(t, c.checked, 10, "the fences were not found")
}

type commands struct {
	t       *testing.T
	where   string
	checked int
}

var (
	quoted     = regexp.MustCompile(`'[^']*'|"[^"]*"`)
	separator  = regexp.MustCompile(`\|\|?|&&|&\s*$|;|\$\(`)
	assignment = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)
	common     = map[string]bool{
		"cat": true, "cd": true, "chmod": true, "cp": true, "createdb": true, "curl": true, "cut": true, "date": true,
		"dropdb": true, "echo": true, "export": true, "find": true,
		"gh": true, "git": true, "gofmt": true, "grep": true, "head": true, "jq": true, "k6": true, "kubectl": true, "ls": true, "mv": true,
		"pg_dump": true, "pg_restore": true, "printf": true, "promtool": true, "psql": true,
		"rm": true, "sed": true, "sha256sum": true, "sort": true, "stripe": true, "tail": true, "uniq": true, "xargs": true, "for": true, "do": true, "done": true,
		"if": true, "fi": true, "until": true, "sleep": true,
	}
)

func (c *commands) line(line string) {
	line = quoted.ReplaceAllStringFunc(line, func(s string) string { return strings.Map(noSeparator, s) })
	line, _, _ = strings.Cut(" "+line, " #")
	for _, command := range separator.Split(line, -1) {
		words := strings.Fields(command)
		for len(words) > 0 && assignment.MatchString(words[0]) {
			words = words[1:]
		}
		if len(words) == 0 {
			continue
		}
		c.checked++
		c.command(words)
	}
}

// noSeparator keeps what is quoted in one word.
func noSeparator(r rune) rune {
	if strings.ContainsRune("|&; #", r) {
		return '_'
	}
	return r
}

func (c *commands) command(words []string) {
	c.t.Helper()
	switch words[0] {
	case "go":
		c.goTool(words[1:])
	case "make":
		makefile := c.read("Makefile")
		for _, target := range words[1:] {
			if !strings.Contains(target, "=") {
				has := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(target) + `:`).MatchString(makefile)
				require.True(c.t, has, "%s: make %s, and the Makefile has no such target", c.where, target)
			}
		}
	case "docker":
		if len(words) > 1 && words[1] == "compose" {
			c.compose(words[2:])
		}
	default:
		if strings.HasPrefix(words[0], "./") || strings.HasPrefix(words[0], ".ci/") || strings.HasPrefix(words[0],
			"bin/") {
			c.exists(words[0])
			return
		}
		require.True(c.t, common[words[0]], "%s: what is %q?", c.where, words[0])
	}
}

func (c *commands) goTool(words []string) {
	c.t.Helper()
	if len(words) == 0 {
		return
	}
	rest, module := words[1:], "."
	if len(rest) > 1 && rest[0] == "-C" {
		module, rest = rest[1], rest[2:]
		c.exists(module + "/go.mod")
	}
	for len(rest) > 0 && strings.HasPrefix(rest[0], "-") {
		name, value, _ := strings.Cut(rest[0], "=")
		if name == "-modfile" {
			c.exists(value)
		}
		rest = rest[1:]
	}
	switch words[0] {
	case "run":
		require.NotEmpty(c.t, rest, c.where)
		if strings.HasPrefix(rest[0], "./") {
			c.exists(path.Join(module, rest[0]))
			c.program(path.Join(module, rest[0]), rest[1:])
		}
	case "test", "build", "vet":
		for _, p := range rest {
			if strings.HasPrefix(p, "./") {
				c.exists(path.Join(module, strings.TrimSuffix(strings.TrimSuffix(p, "..."), "/")))
			}
		}
	}
}

// program holds subcommand and flags to the strings in the program's source.
func (c *commands) program(dir string, args []string) {
	c.t.Helper()
	root, err := inventory.Root()
	require.NoError(c.t, err)
	files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(dir), "*.go"))
	require.NoError(c.t, err)
	var source strings.Builder
	for _, f := range files {
		if !strings.HasSuffix(f, "_test.go") {
			b, err := os.ReadFile(f)
			require.NoError(c.t, err)
			source.Write(b)
		}
	}
	for _, arg := range args {
		if strings.HasPrefix(arg, "-") {
			name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
			require.True(c.t, strings.Contains(source.String(), `"`+name+`"`), "%s: %s has no flag %s", c.where, dir,
				arg)
		}
	}
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		// A subcommand may have several words, and arguments after them.
		known := false
		for n := range args {
			known = known || strings.Contains(source.String(), `"`+strings.Join(args[:n+1], " ")+`"`)
		}
		require.True(c.t, known, "%s: %s has no subcommand %s", c.where, dir, strings.Join(args, " "))
	}
}

func (c *commands) compose(words []string) {
	c.t.Helper()
	file := c.read("docker-compose.yml")
	for i, w := range words {
		if w == "--profile" && i+1 < len(words) {
			require.Contains(c.t, file, "profiles: ["+words[i+1]+"]", "%s: docker compose --profile %s", c.where,
				words[i+1])
		}
		if (w == "run" || w == "logs" || w == "exec" || w == "restart" || w == "stop") && i+1 < len(words) {
			for _, service := range words[i+1:] {
				if regexp.MustCompile(`^[a-z]+$`).MatchString(service) {
					require.Contains(c.t, file, "\n  "+service+":\n", "%s: docker compose has no service %s", c.where,
						service)
					break
				}
			}
		}
	}
}

func (c *commands) read(name string) string {
	c.t.Helper()
	text, err := inventory.Read(name)
	require.NoError(c.t, err)
	return text
}

func (c *commands) exists(name string) {
	c.t.Helper()
	root, err := inventory.Root()
	require.NoError(c.t, err)
	if c.where == "docs/add-an-operation.md" { // which moves it there
		name = strings.Replace(name, "internal/tips", "docs/skeleton/tips", 1)
	}
	_, err = os.Stat(filepath.Join(root, filepath.FromSlash(strings.TrimPrefix(name, "./"))))
	require.NoError(c.t, err, "%s: %s", c.where, name)
}
