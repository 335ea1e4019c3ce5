package postgres_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTimeIsTheDatabases: what decides is clock_timestamp(). now() is when the
// transaction began, so a lease taken with it after a wait would be born old; and
// an instant of ours is as good as this machine's clock, which may be an hour off.
func TestTimeIsTheDatabases(t *testing.T) {
	t.Parallel()

	t.Run("InEveryStatement", func(t *testing.T) {
		t.Parallel()
		frozen := regexp.MustCompile(
			`(?i)\bnow\(\)|\b(current_timestamp|current_time|localtimestamp|transaction_timestamp)\b`,
		)
		var files []string
		for _, pattern := range []string{"../../db/queries/*.sql", "../../db/migrations/*.sql"} {
			found, err := filepath.Glob(pattern)
			require.NoError(t, err)
			files = append(files, found...)
		}
		require.NotEmpty(t, files)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			for n, line := range strings.Split(string(text), "\n") {
				line, _, _ = strings.Cut(line, "--")
				require.False(t, frozen.MatchString(line), "%s:%d: %s", file, n+1, line)
			}
		}
	})

	// Leases, pauses and retentions go to the database as durations. These go as instants, and decide nothing
	// or came from the database's clock:
	allowed := []string{
		"CreatedAt",      // what people read
		"Since", "Until", // of a replay, reckoned from OutboxNow
		"Through", // of a reconciler's window, given by ReconcileClaim
		// of a look into Stripe's list, reckoned from when the call was announced and how long ago that is; or what a
		// page of it spans
		"FromAt", "UntilAt",
		"AfterAt", "BeforeAt", // where the page before ended
		"EvidenceDueBy", "CaptureBefore", // Stripe's; what people read
		"BackupAt", // of a backup, given by its operator
	}
	t.Run("InEveryParameter", func(t *testing.T) {
		t.Parallel()
		files, err := filepath.Glob("../../db/*.sql.go")
		require.NoError(t, err)
		require.NotEmpty(t, files)
		seen := 0
		for _, file := range files {
			tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			ast.Inspect(tree, func(n ast.Node) bool {
				spec, ok := n.(*ast.TypeSpec)
				if !ok || !strings.HasSuffix(spec.Name.Name, "Params") {
					return true
				}
				seen++
				for _, field := range spec.Type.(*ast.StructType).Fields.List {
					if isInstant(field.Type) {
						require.True(
							t,
							slices.Contains(allowed, field.Names[0].Name),
							"%s.%s is an instant of this machine", spec.Name.Name, field.Names[0].Name,
						)
					}
				}
				return false
			})
		}
		require.Positive(t, seen)
	})
}

func isInstant(e ast.Expr) bool {
	if pointer, ok := e.(*ast.StarExpr); ok {
		e = pointer.X
	}
	s, ok := e.(*ast.SelectorExpr)
	return ok && s.Sel.Name == "Time"
}
