package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
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

// between is what may lie between two functions of the walk that it does not name: the fields of the table of
// operations, and for each query the queue of its batches with what it runs, in batches.go.
var between = []string{
	"Begin", "Run",
	"statements.PaymentBegin", "runPaymentBegin",
	"statements.PaymentIntentRecord", "runPaymentIntentRecord",
	"statements.PaymentFinish", "runPaymentFinish",
}

// TestWalk: the README follows a payment through five files. Every function that it
// names is declared in the file that it names, in that order, and is called by one
// that the walk has named before, with nothing but what between lists in the middle;
// payment.go names the queries that it runs; and the money moves where the walk says,
// and nowhere else.
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
		var passed []string
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
				path, ok := pathTo(calls, reached, named, name)
				require.True(t, ok, "%s: %s is called by none that the walk names before", file, name)
				require.Subset(t, between, path, "%s: %s is reached through these, and the walk names none of them",
					file, name)
				passed = append(passed, path...)
				reached[name] = true
			}
		}
		require.ElementsMatch(t, between, passed, "what lies between is listed")
	})
	t.Run("PaymentNamesItsQueries", func(t *testing.T) {
		t.Parallel()
		runs := queues(t)
		payment, batches := w.callsIn(t, w.files[2]), w.callsIn(t, batchesFile)
		for caller, query := range map[string]string{
			"recordPayment": "PaymentBegin", "recordIntent": "PaymentIntentRecord", "finish": "PaymentFinish",
		} {
			require.Contains(t, w.named[w.files[4]], query)
			require.Contains(t, payment[caller], "statements."+query, "%s does not name its query", caller)
			require.Contains(t, batches[runs[query]], query, "the queue %s runs another query", query)
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

// callGraph says what each function of the five files and of batches.go calls. Two calls
// go through tables, and are read from these: the router gives a route with an operation to keyed
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

	// A statement over arrays is called through its queue: s.statements.PaymentBegin.Do runs runPaymentBegin.
	for name, called := range w.callsIn(t, batchesFile) {
		calls[name] = append(calls[name], called...)
	}
	for query, run := range queues(t) {
		calls["statements."+query] = []string{run}
	}
	return calls
}

const batchesFile = "internal/payments/batches.go"

// queues are the fields of statements, with the function that each runs.
func queues(t *testing.T) map[string]string {
	t.Helper()
	runs := map[string]string{}
	ast.Inspect(parseFile(t, batchesFile), func(n ast.Node) bool {
		queue, ok := n.(*ast.KeyValueExpr)
		if !ok {
			return true
		}
		ast.Inspect(queue.Value, func(n ast.Node) bool {
			if run, ok := n.(*ast.KeyValueExpr); ok && nameOf(run.Key) == "Run" {
				runs[nameOf(queue.Key)] = nameOf(run.Value)
			}
			return true
		})
		return true
	})
	require.GreaterOrEqual(t, len(runs), 4, "the queues of the statements were not read")
	return runs
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
					name = "statements." + nameOf(call.Fun.(*ast.SelectorExpr).X)
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

// pathTo is the shortest way to a name from those that have been reached: what it passes, none of which the walk names.
func pathTo(calls map[string][]string, reached, named map[string]bool, name string) (path []string, ok bool) {
	type stop struct {
		at     string
		passed []string
	}
	var queue []stop
	for _, from := range slices.Sorted(maps.Keys(reached)) {
		queue = append(queue, stop{at: from})
	}
	for seen := map[string]bool{}; len(queue) > 0; queue = queue[1:] {
		for _, called := range calls[queue[0].at] {
			switch {
			case called == name:
				return queue[0].passed, true
			case !named[called] && !seen[called]:
				seen[called] = true
				queue = append(queue, stop{called, append(slices.Clone(queue[0].passed), called)})
			}
		}
	}
	return nil, false
}
