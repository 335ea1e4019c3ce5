package main

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/checkout"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/notifier"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/proof/internal/chaos"
	"example.com/payonce/proof/internal/inventory"
)

var update = flag.Bool("update", false, "write forms.txt: what is new in the code as read, the first of two steps")

// TestForms: forms.txt has exactly the stored forms of the code.
func TestForms(t *testing.T) {
	t.Parallel()
	code := codesForms(t)
	marks, err := parseForms(forms)
	require.NoError(t, err)
	if *update {
		var b strings.Builder
		b.WriteString("# What this version stores, and other versions read. docs/releases.md, \"Stored forms\".\n")
		for _, form := range code {
			mark := marks[form]
			if mark == "" {
				mark = onlyIs
			}
			fmt.Fprintf(&b, "%s %s\n", mark, form)
		}
		require.NoError(t, os.WriteFile("forms.txt", []byte(b.String()), 0o600))
		return
	}
	require.Empty(t, cmp.Diff(slices.Sorted(maps.Keys(marks)), code),
		"go test -C proof ./versions -run TestForms -update, and read docs/releases.md, \"Stored forms\"")
}

// TestFormerVersionReads: what this version writes the former one can read, and the other way round. What is new comes
// in two steps: a version that reads it, and the next, which writes it.
func TestFormerVersionReads(t *testing.T) {
	t.Parallel()
	ours, err := parseForms(forms)
	require.NoError(t, err)
	former, err := parseForms(formerForms)
	require.NoError(t, err)
	require.Empty(t, unreadable(ours, former), "this version writes it, and the former one cannot read it")
	require.Empty(t, unreadable(former, ours), "the former version writes it, and this one cannot read it")
}

// TestUnreadable: what the two tests above are red for.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	marks := func(lines string) map[string]string {
		m, err := parseForms(lines)
		require.NoError(t, err)
		return m
	}
	former := marks("written operation pay\nwritten recovery point paid\nread recovery point begun\nwritten request pay a int64")
	for lines, want := range map[string][]string{
		"written recovery point paid":                                   nil,
		"written recovery point begun":                                  nil, // the second step
		"read recovery point new":                                       nil, // the first step
		"written recovery point new":                                    {"recovery point new"},
		"written-by-tip recovery point new":                             nil, // a version without tips leaves their keys alone
		"written-by-pay recovery point new":                             {"recovery point new"},
		"written operation tip":                                         nil,
		"written request pay a string":                                  {"request pay a string"},
		"written enum payment_status held\nwritten recovery point paid": {"enum payment_status held"},
	} {
		require.Equal(t, want, unreadable(marks(lines), former), lines)
	}
	_, err := parseForms("perhaps recovery point paid")
	require.Error(t, err)
	early, err := writtenTooEarly([]chaos.Point{{Operation: "create_payment", Name: "payment_recorded"}, {Operation: "create_payment", Name: "nowhere"}})
	require.NoError(t, err)
	require.Len(t, early, 1)
}

// codesForms lists the stored forms of the code, sorted.
func codesForms(t *testing.T) (list []string) {
	t.Helper()
	pool, err := postgres.Open(t.Context(), "postgres://127.0.0.1:1/nothing", postgres.Options{}) // never used
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	for _, all := range []map[string]idempotency.Operation{
		payments.New(pool, nil, nil, nil, payments.Options{}).Operations(),
		(*checkout.Service)(nil).Operations(), (*notifier.Endpoints)(nil).Operations(),
	} {
		for name := range all {
			list = append(list, "operation "+name)
		}
	}
	packages := parsed(t)
	for _, p := range packages {
		for _, file := range p {
			list = append(list, recoveryPoints(file)...)
			list = append(list, versionsOf(file)...)
		}
	}
	list = append(list, requests(t, packages)...)
	schema, err := inventory.Read("db/schema.sql")
	require.NoError(t, err)
	for _, enum := range regexp.MustCompile(`CREATE TYPE (\w+) AS ENUM \(([^)]*)\)`).FindAllStringSubmatch(schema, -1) {
		for _, value := range regexp.MustCompile(`'(\w+)'`).FindAllStringSubmatch(enum[2], -1) {
			list = append(list, "enum "+enum[1]+" "+value[1])
		}
	}
	openapi, err := inventory.Read("internal/http/openapi.yaml")
	require.NoError(t, err)
	_, events, found := strings.Cut(openapi, "\n    EventType:\n      type: string\n      enum:\n")
	require.True(t, found, "the types of events")
	for line := range strings.Lines(events) {
		name, isOne := strings.CutPrefix(line, "        - ")
		if !isOne {
			break
		}
		name, _, _ = strings.Cut(name, " #")
		list = append(list, "event "+strings.TrimSpace(name))
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// parsed are the files of the service's packages, by folder.
func parsed(t *testing.T) map[string][]*ast.File {
	t.Helper()
	root, err := inventory.Root()
	require.NoError(t, err)
	files, err := inventory.Files(".go")
	require.NoError(t, err)
	packages := map[string][]*ast.File{}
	for _, file := range files {
		if !strings.HasPrefix(file, "internal/") || strings.HasSuffix(file, "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, filepath.FromSlash(file)), nil,
			parser.ParseComments|parser.SkipObjectResolution)
		require.NoError(t, err)
		packages[path.Dir(file)] = append(packages[path.Dir(file)], tree)
	}
	return packages
}

// recoveryPoints are the values of constants whose comment says that they are recovery points.
func recoveryPoints(file *ast.File) (list []string) {
	called := regexp.MustCompile(`(?i)\brecovery\s+points?\b`)
	constants(file, func(doc string, name string, value ast.Expr) {
		if literal, ok := value.(*ast.BasicLit); ok && literal.Kind == token.STRING && called.MatchString(doc) {
			text, _ := strconv.Unquote(literal.Value)
			list = append(list, "recovery point "+text)
		}
	})
	return list
}

// versionsOf are the versions of encodings: constants such as answerVersion.
func versionsOf(file *ast.File) (list []string) {
	constants(file, func(_ string, name string, value ast.Expr) {
		if literal, ok := value.(*ast.BasicLit); ok && literal.Kind == token.INT && strings.HasSuffix(name, "Version") {
			list = append(list, "version "+file.Name.Name+"."+name+" "+literal.Value)
		}
	})
	return list
}

func constants(file *ast.File, found func(doc, name string, value ast.Expr)) {
	for _, d := range file.Decls {
		block, ok := d.(*ast.GenDecl)
		if !ok || block.Tok != token.CONST {
			continue
		}
		for _, s := range block.Specs {
			spec := s.(*ast.ValueSpec)
			for i, value := range spec.Values {
				found(block.Doc.Text()+spec.Doc.Text(), spec.Names[i].Name, value)
			}
		}
	}
}

// requests are the members of each type that a stored request is decoded as, those of its members' types included.
func requests(t *testing.T, packages map[string][]*ast.File) (list []string) {
	t.Helper()
	decoded := regexp.MustCompile(`^idempotency\.Decode$`)
	for dir, files := range packages {
		for _, file := range files {
			ast.Inspect(file, func(n ast.Node) bool {
				if index, ok := n.(*ast.IndexExpr); ok && decoded.MatchString(types.ExprString(index.X)) {
					list = append(list, members(t, packages, dir, index.Index, nil)...)
				}
				return true
			})
		}
	}
	require.NotEmpty(t, list)
	return list
}

// members are the JSON members of a struct type of the service, and of the types that these have.
func members(t *testing.T, packages map[string][]*ast.File, dir string, of ast.Expr, above []string) (list []string) {
	t.Helper()
	switch e := of.(type) {
	case *ast.StarExpr:
		return members(t, packages, dir, e.X, above)
	case *ast.ArrayType:
		return members(t, packages, dir, e.Elt, above)
	case *ast.SelectorExpr: // of another package
		return members(t, packages, "internal/"+types.ExprString(e.X), e.Sel, above)
	case *ast.Ident:
		structure := structOf(packages[dir], e.Name)
		if structure == nil || slices.Contains(above, dir+e.Name) {
			return nil
		}
		for _, field := range structure.Fields.List {
			require.NotNil(t, field.Tag, "%s.%s: a member without a name of its own", e.Name, field.Names)
			tag, err := strconv.Unquote(field.Tag.Value)
			require.NoError(t, err)
			list = append(list, fmt.Sprintf("request %s.%s %s %s", path.Base(dir), e.Name, reflect.StructTag(tag).Get("json"),
				types.ExprString(field.Type)))
			list = append(list, members(t, packages, dir, field.Type, append(above, dir+e.Name))...)
		}
	}
	return list
}

func structOf(files []*ast.File, name string) (found *ast.StructType) {
	for _, file := range files {
		for _, d := range file.Decls {
			block, ok := d.(*ast.GenDecl)
			if !ok || block.Tok != token.TYPE {
				continue
			}
			for _, s := range block.Specs {
				if spec := s.(*ast.TypeSpec); spec.Name.Name == name {
					found, _ = spec.Type.(*ast.StructType)
				}
			}
		}
	}
	return found
}
