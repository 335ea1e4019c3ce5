package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/proof/internal/inventory"
)

const glossary = "docs/glossary.md"

var (
	section      = regexp.MustCompile("(?m)^(#{2,3}) `?(.+?)`?$")
	tableRow     = regexp.MustCompile(`(?m)^\| (.+) \|$`)
	createdTable = regexp.MustCompile(`(?m)^CREATE TABLE (\w+) \(`)
	createdEnum  = regexp.MustCompile(`(?s)CREATE TYPE (\w+) AS ENUM \(([^)]*)\);`)
	setting      = regexp.MustCompile(`(?m)^#?([A-Z][A-Z_]+)=`)
	failureCode  = regexp.MustCompile(
		`(?:\b(?:Failure)?Code:\s+|(?:AuthorizationExpired|outOfStockCode|CodeKeyReused) = )"([a-z_]+)"`)
	eventType = regexp.MustCompile(`(?m)^ +- (\w+\.\w+)`)
)

// TestGlossary compares the lists of the glossary with the schema, the source and the
// settings, in both directions: a value without a sentence sends a reader to the code,
// and a sentence about a value that was renamed sends them nowhere.
func TestGlossary(t *testing.T) {
	t.Parallel()
	sections := readGlossary(t)
	schema, err := inventory.Read("db/schema.sql")
	require.NoError(t, err)

	t.Run("Tables", func(t *testing.T) {
		t.Parallel()
		var tables []string
		for _, m := range createdTable.FindAllStringSubmatch(schema, -1) {
			tables = append(tables, m[1])
		}
		requireListed(t, sections["Tables"], tables)
	})
	t.Run("Values", func(t *testing.T) {
		t.Parallel()
		enums := createdEnum.FindAllStringSubmatch(schema, -1)
		require.NotEmpty(t, enums)
		var names []string
		for _, enum := range enums {
			var values []string
			for _, v := range quoted.FindAllString(enum[2], -1) {
				values = append(values, strings.Trim(v, "'"))
			}
			requireListed(t, sections[enum[1]], values)
			names = append(names, enum[1])
		}
		for title := range sections {
			if strings.Contains(title, "_") {
				require.Contains(t, names, title, "the schema has no such enum")
			}
		}
	})
	t.Run("Events", func(t *testing.T) {
		t.Parallel()
		api, err := inventory.Read("internal/http/openapi.yaml")
		require.NoError(t, err)
		_, after, found := strings.Cut(api, "\n    EventType:\n")
		require.True(t, found)
		list, _, _ := strings.Cut(after, "\n    Event:\n")
		var types []string
		for _, m := range eventType.FindAllStringSubmatch(list, -1) {
			types = append(types, m[1])
		}
		requireListed(t, sections["Events"], types)
	})
	t.Run("FailureCodes", func(t *testing.T) {
		t.Parallel()
		codes := map[string]bool{}
		files, err := inventory.Files(".go")
		require.NoError(t, err)
		for _, file := range files {
			pkg := path.Dir(file)
			if !slices.Contains([]string{"internal/payments", "internal/checkout", "internal/stripe"}, pkg) ||
				strings.HasSuffix(file, "_test.go") {
				continue
			}
			source, err := inventory.Read(file)
			require.NoError(t, err)
			for _, m := range failureCode.FindAllStringSubmatch(source, -1) {
				codes[m[1]] = true
			}
		}
		requireListed(t, sections["Failure codes"], slices.Collect(maps.Keys(codes)))
	})
	t.Run("RecoveryPoints", func(t *testing.T) {
		t.Parallel()
		requireListed(t, sections["Recovery points"], recoveryPoints(t))
	})
	t.Run("Settings", func(t *testing.T) {
		t.Parallel()
		example, err := inventory.Read(".env.example") // cmd/api's TestEnvExample compares it with what is read
		require.NoError(t, err)
		var names []string
		for _, m := range setting.FindAllStringSubmatch(example, -1) {
			names = append(names, m[1])
		}
		requireListed(t, sections["Settings"], names)
	})
	t.Run("Metrics", func(t *testing.T) {
		t.Parallel()
		metrics, err := inventory.FindMetrics()
		require.NoError(t, err)
		requireListed(t, sections["Metrics"], slices.Collect(maps.Keys(metrics)))
		for _, row := range sections["Metrics"] {
			require.Equal(t, metrics[word(row[0])].Labels, words(row[1]), "%s has other labels", row[0])
		}
	})
	t.Run("LabelValues", func(t *testing.T) {
		t.Parallel()
		requireLabelValues(t, sections["Label values"])
	})
}

// readGlossary returns the rows of each section's table, without the two lines of its head.
func readGlossary(t *testing.T) map[string][][]string {
	t.Helper()
	text, err := inventory.Read(glossary)
	require.NoError(t, err)
	sections := map[string][][]string{}
	titles := section.FindAllStringSubmatchIndex(text, -1)
	require.Greater(t, len(titles), 10)
	for i, at := range titles {
		end := len(text)
		if i+1 < len(titles) {
			end = titles[i+1][0]
		}
		rows := tableRow.FindAllStringSubmatch(text[at[1]:end], -1)
		for _, row := range rows[min(2, len(rows)):] {
			cells := strings.Split(row[1], "|")
			for j := range cells {
				cells[j] = strings.TrimSpace(cells[j])
			}
			require.NotEmpty(t, cells[len(cells)-1], "%s: a row without a sentence: %s", glossary, row[1])
			title := text[at[4]:at[5]]
			sections[title] = append(sections[title], cells)
		}
	}
	return sections
}

// requireListed: the first cells of the rows are the names, each of them once.
func requireListed(t *testing.T, rows [][]string, names []string) {
	t.Helper()
	require.NotEmpty(t, names, "nothing was found in the source")
	var listed []string
	for _, row := range rows {
		listed = append(listed, word(row[0]))
	}
	slices.Sort(listed)
	slices.Sort(names)
	require.Equal(t, names, listed, "%s lists something else than there is (first the source, then the page)", glossary)
}

func word(cell string) string { return strings.Trim(cell, "`") }

func words(cell string) (list []string) {
	for _, m := range code.FindAllStringSubmatch(cell, -1) {
		list = append(list, m[1])
	}
	return list
}

// constants are the string constants of one package, and which of them a comment calls
// recovery points.
type constants struct {
	values map[string]string
	points map[string]bool
}

// recoveryPoints are the constants whose comment calls them recovery points. So that
// none escapes for want of the comment, each constant that is given to a phase as the
// point at which it ends, or that a switch compares with a claim's point, must be one.
func recoveryPoints(t *testing.T) []string {
	t.Helper()
	packages := map[string]*constants{}
	files := serviceSource(t)
	for name, file := range files {
		dir := path.Dir(name)
		if packages[dir] == nil {
			packages[dir] = &constants{values: map[string]string{}, points: map[string]bool{}}
		}
		packages[dir].read(file)
	}
	var points []string
	for dir, p := range packages {
		for name := range p.points {
			require.NotEmpty(t, p.values[name], "%s: %s is called a recovery point and has no value", dir, name)
			points = append(points, p.values[name])
		}
	}
	checked := 0
	for name, file := range files {
		p := packages[path.Dir(name)]
		for _, used := range pointsUsed(file) {
			if _, isConstant := p.values[used]; isConstant {
				checked++
				require.True(t, p.points[used], "%s: the comment of %s must call it a recovery point", name, used)
			}
		}
	}
	require.Greater(t, checked, 20, "the uses were not found")
	return points
}

var callsItAPoint = regexp.MustCompile(`(?i)\brecovery\s+points?\b`)

func (p *constants) read(file *ast.File) {
	for _, d := range file.Decls {
		block, ok := d.(*ast.GenDecl)
		if !ok || block.Tok != token.CONST {
			continue
		}
		for _, s := range block.Specs {
			spec := s.(*ast.ValueSpec)
			isPoint := callsItAPoint.MatchString(block.Doc.Text()) || callsItAPoint.MatchString(spec.Doc.Text())
			for i, name := range spec.Names {
				if i >= len(spec.Values) {
					continue
				}
				literal, ok := spec.Values[i].(*ast.BasicLit)
				if !ok || literal.Kind != token.STRING {
					continue
				}
				p.values[name.Name], _ = strconv.Unquote(literal.Value)
				if isPoint {
					p.points[name.Name] = true
				}
			}
		}
	}
}

// pointArgument says which argument of a method of claims is a recovery point.
var pointArgument = map[string]int{"Phase": 1, "Statement": 1, "Begin": 3, "BeginStatement": 3}

// pointsUsed are the identifiers that stand where a recovery point is expected.
func pointsUsed(file *ast.File) (names []string) {
	add := func(e ast.Expr) {
		if id, ok := e.(*ast.Ident); ok {
			names = append(names, id.Name)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.SelectorExpr); ok {
				if i, ok := pointArgument[f.Sel.Name]; ok && len(n.Args) > i+1 {
					add(n.Args[i])
				}
			}
		case *ast.SwitchStmt:
			if asksForPoint(n.Tag) {
				for _, c := range n.Body.List {
					for _, e := range c.(*ast.CaseClause).List {
						add(e)
					}
				}
			}
		case *ast.BinaryExpr:
			if asksForPoint(n.X) {
				add(n.Y)
			}
		}
		return true
	})
	return names
}

func asksForPoint(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}
	f, ok := call.Fun.(*ast.SelectorExpr)
	return ok && f.Sel.Name == "RecoveryPoint"
}

// serviceSource is the service's own Go, without tests and without what is generated.
func serviceSource(t *testing.T) map[string]*ast.File {
	t.Helper()
	root, err := inventory.Root()
	require.NoError(t, err)
	names, err := inventory.Files(".go")
	require.NoError(t, err)
	files := map[string]*ast.File{}
	for _, name := range names {
		ours := strings.HasPrefix(name, "internal/") || strings.HasPrefix(name, "cmd/api/")
		if !ours || strings.HasSuffix(name, "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, filepath.FromSlash(name)), nil,
			parser.ParseComments|parser.SkipObjectResolution)
		require.NoError(t, err)
		files[name] = tree
	}
	require.NotEmpty(t, files)
	return files
}

// requireLabelValues: each value belongs to a label of its metric and stands in the
// source or the schema; and each word that the source gives to a metric literally is
// listed.
func requireLabelValues(t *testing.T, rows [][]string) {
	t.Helper()
	metrics, err := inventory.FindMetrics()
	require.NoError(t, err)
	literals, given := map[string]bool{}, map[string]bool{}
	for _, file := range serviceSource(t) {
		ast.Inspect(file, func(n ast.Node) bool {
			if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				s, _ := strconv.Unquote(literal.Value)
				literals[s] = true
			}
			if call, ok := n.(*ast.CallExpr); ok {
				if f, ok := call.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "WithLabelValues" {
					for _, a := range call.Args {
						if literal, ok := a.(*ast.BasicLit); ok {
							s, _ := strconv.Unquote(literal.Value)
							given[s] = true
						}
					}
				}
			}
			return true
		})
	}
	schema, err := inventory.Words(".sql")
	require.NoError(t, err)
	listed := map[string]bool{"other": true, "unmatched": true} // the method and route of what is not HTTP
	for _, row := range rows {
		require.Len(t, row, 4, "%v", row)
		metric, label, value := word(row[0]), word(row[1]), word(row[2])
		require.Contains(t, metrics[metric].Labels, label, "%s has no such label", metric)
		require.True(t, literals[value] || schema[value], "%s: nothing in the source says %q", metric, value)
		listed[value] = true
	}
	require.NotEmpty(t, given)
	for value := range given {
		require.True(t, listed[value], "%s lists no %q, which is the value of a label", glossary, value)
	}
}
