package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/proof/internal/inventory"
)

var (
	walkStop    = regexp.MustCompile("(?ms)^\\d\\. \\[`([^`]+)`\\]\\(([^)]+)\\): (.*?)\\n(?:^\\d|\\n)")
	identifier  = regexp.MustCompile("`([A-Za-z]\\w*)`")
	query       = regexp.MustCompile(`(?m)^-- name: (\w+) :`)
	confirmCall = regexp.MustCompile(`\.PaymentIntents\.Confirm\(`)
)

// TestWalk: the README follows a payment through five files. Every function that it
// names is declared in the file that it names, in that order, and is called by one
// that the walk has named before; and the money moves where the walk says, and nowhere
// else.
func TestWalk(t *testing.T) {
	t.Parallel()
	w := readWalk(t)
	require.Equal(t, []string{
		"internal/http/payments.go", "internal/http/idempotency.go", "internal/payments/payment.go",
		"internal/stripe/client.go", "db/queries/payments.sql",
	}, w.files)

	t.Run("NamesWhatTheFilesDeclare", func(t *testing.T) {
		t.Parallel()
		for _, file := range w.files {
			require.NotEmpty(t, w.named[file], "the walk names nothing in %s", file)
			at := -1
			for _, name := range w.named[file] {
				i := slices.Index(w.declared[file], name)
				require.GreaterOrEqual(t, i, 0, "%s has no %s", file, name)
				require.Greater(t, i, at, "%s declares %s before the function that the walk names before it", file,
					name)
				at = i
			}
		}
	})
	t.Run("EachIsCalledByOneBefore", func(t *testing.T) {
		t.Parallel()
		calls := w.callGraph(t)
		reached := map[string]bool{w.named[w.files[0]][0]: true}
		named := map[string]bool{}
		for _, file := range w.files {
			for _, name := range w.named[file] {
				named[name] = true
			}
		}
		for i, file := range w.files {
			for j, name := range w.named[file] {
				if i == 0 && j == 0 {
					continue
				}
				require.True(t, reachable(calls, reached, named, name),
					"%s: %s is called by none that the walk names before", file, name)
				reached[name] = true
			}
		}
	})
	t.Run("TheMoneyMovesInConfirmIntent", func(t *testing.T) {
		t.Parallel()
		readme, err := inventory.Read("README.md")
		require.NoError(t, err)
		require.Contains(t, readme, "**`ConfirmIntent` moves the money**")
		require.Contains(t, w.callsIn(t, "internal/stripe/client.go")["ConfirmIntent"], "Confirm")
		require.Contains(t, w.callsIn(t, "internal/payments/payment.go")["confirm"], "ConfirmIntent")
		require.NotContains(t, w.callsIn(t, "internal/stripe/client.go")["CreateIntent"], "Confirm")
		found := 0
		files, err := inventory.Files(".go")
		require.NoError(t, err)
		for _, file := range files {
			service := strings.HasPrefix(file, "internal/") || strings.HasPrefix(file, "cmd/api/")
			if !service || strings.HasSuffix(file, "_test.go") {
				continue
			}
			text, err := inventory.Read(file)
			require.NoError(t, err)
			found += len(confirmCall.FindAllString(text, -1))
		}
		require.Equal(t, 1, found, "the service confirms PaymentIntents in other places, too")
	})
}

// walk is what the README says, and what the files have: declared functions, in SQL
// the queries.
type walk struct {
	files           []string
	named, declared map[string][]string
}

func readWalk(t *testing.T) walk {
	t.Helper()
	readme, err := inventory.Read("README.md")
	require.NoError(t, err)
	_, text, ok := strings.Cut(readme, "\n## The life of a payment\n")
	require.True(t, ok)
	text, _, _ = strings.Cut(text, "\n## ")
	w := walk{named: map[string][]string{}, declared: map[string][]string{}}
	for text != "" {
		at := walkStop.FindStringSubmatchIndex(text)
		if at == nil {
			break
		}
		file := text[at[2]:at[3]]
		require.Equal(t, file, text[at[4]:at[5]], "the link leads elsewhere")
		w.files = append(w.files, file)
		for _, m := range identifier.FindAllStringSubmatch(text[at[6]:at[7]], -1) {
			w.named[file] = append(w.named[file], m[1])
		}
		w.declared[file] = declaredIn(t, file)
		text = text[at[7]+1:]
	}
	return w
}

func declaredIn(t *testing.T, file string) (names []string) {
	t.Helper()
	if strings.HasSuffix(file, ".sql") {
		text, err := inventory.Read(file)
		require.NoError(t, err)
		for _, m := range query.FindAllStringSubmatch(text, -1) {
			names = append(names, m[1])
		}
		return names
	}
	for _, d := range parseFile(t, file).Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			names = append(names, f.Name.Name)
		}
	}
	return names
}

func parseFile(t *testing.T, file string) *ast.File {
	t.Helper()
	root, err := inventory.Root()
	require.NoError(t, err)
	path := filepath.Join(root, filepath.FromSlash(file))
	tree, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	return tree
}

// callGraph says what each function of the five files calls. Two calls go through
// tables, and are read from these: the router gives a route with an operation to keyed
// (server.go), and an operation's Begin and Run stand in the table of operations
// (operations.go).
func (w walk) callGraph(t *testing.T) map[string][]string {
	t.Helper()
	calls := map[string][]string{}
	for _, file := range w.files {
		if strings.HasSuffix(file, ".go") {
			for name, called := range w.callsIn(t, file) {
				calls[name] = append(calls[name], called...)
			}
		}
	}
	route := values(t, "internal/http/payments.go", "operation")
	require.Contains(t, route, "CreatePayment", "no route names the operation")
	router := w.callsIn(t, "internal/http/server.go")["mux"]
	require.Contains(t, router, "keyed", "the router no longer gives routes to keyed")
	calls["paymentsPart"] = append(calls["paymentsPart"], "keyed")
	calls["paymentsPart"] = append(calls["paymentsPart"], values(t, "internal/http/payments.go", "parse")...)

	operation := values(t, "internal/payments/operations.go", "CreatePayment")
	require.Len(t, operation, 2, "the table of operations has no Begin and Run for CreatePayment")
	require.Contains(t, calls["work"], "Begin")
	require.Contains(t, calls["work"], "Run")
	calls["Begin"] = []string{operation[0]}
	calls["Run"] = []string{operation[1]}

	// A statement over arrays is called through its queue: s.batched.begin.Do runs runBegin, in statements.go.
	const statements = "internal/payments/statements.go"
	for name, called := range w.callsIn(t, statements) {
		calls[name] = append(calls[name], called...)
	}
	queues := 0
	ast.Inspect(parseFile(t, statements), func(n ast.Node) bool {
		queue, ok := n.(*ast.KeyValueExpr)
		if !ok {
			return true
		}
		ast.Inspect(queue.Value, func(n ast.Node) bool {
			if run, ok := n.(*ast.KeyValueExpr); ok && nameOf(run.Key) == "Run" {
				queues++
				calls["batched."+nameOf(queue.Key)] = []string{nameOf(run.Value)}
			}
			return true
		})
		return true
	})
	require.GreaterOrEqual(t, queues, 4, "the queues of the statements were not read")
	return calls
}

// callsIn lists what each function of a file calls, by the names of the called.
func (walk) callsIn(t *testing.T, file string) map[string][]string {
	t.Helper()
	calls := map[string][]string{}
	for _, d := range parseFile(t, file).Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		ast.Inspect(f.Body, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				name := nameOf(call.Fun)
				if name == "Do" {
					name = "batched." + nameOf(call.Fun.(*ast.SelectorExpr).X)
				}
				if name != "" {
					calls[f.Name.Name] = append(calls[f.Name.Name], name)
				}
			}
			return true
		})
	}
	return calls
}

func nameOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

// values are the names that composite literals of a file give to a key; those of the
// fields, if the value is a literal itself.
func values(t *testing.T, file, key string) (names []string) {
	t.Helper()
	ast.Inspect(parseFile(t, file), func(n ast.Node) bool {
		pair, ok := n.(*ast.KeyValueExpr)
		if !ok || nameOf(pair.Key) != key {
			return true
		}
		if literal, ok := pair.Value.(*ast.CompositeLit); ok {
			for _, element := range literal.Elts {
				if field, ok := element.(*ast.KeyValueExpr); ok {
					names = append(names, nameOf(field.Value))
				}
			}
			return false
		}
		names = append(names, nameOf(pair.Value))
		return true
	})
	return names
}

// reachable reports whether a name is called by one of those that have been reached,
// directly or through functions of the five files that the walk does not name.
func reachable(calls map[string][]string, reached, named map[string]bool, name string) bool {
	seen := map[string]bool{}
	var follow func(string) bool
	follow = func(caller string) bool {
		if seen[caller] {
			return false
		}
		seen[caller] = true
		return slices.ContainsFunc(calls[caller], func(called string) bool {
			return called == name || !named[called] && follow(called)
		})
	}
	for caller := range reached {
		if follow(caller) {
			return true
		}
	}
	return false
}
