package crashmatrix_test

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/crashmatrix"
)

var update = flag.Bool("update", false, "write the crash matrix into docs/guarantees.md")

const (
	guaranteesPage = "../../../docs/guarantees.md"

	matrixBegin = "<!-- crash matrix: written by `go test -C proof ./night/crashmatrix -run TestCrashMatrixIsOnItsPage " +
		"-update` -->\n"
	matrixEnd = "<!-- /crash matrix -->\n"
)

// TestCrashMatrixIsOnItsPage holds the table in docs/guarantees.md to the cells
// that are run.
func TestCrashMatrixIsOnItsPage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(guaranteesPage)
	require.NoError(t, err)
	page := string(text)
	before, rest, begins := strings.Cut(page, matrixBegin)
	_, after, ends := strings.Cut(rest, matrixEnd)
	require.True(t, begins && ends, "docs/guarantees.md has no place for the crash matrix")
	want := before + matrixBegin + crashmatrix.Table("../proof/night/crashmatrix/matrix_test.go") + matrixEnd + after
	if *update {
		require.NoError(t, os.WriteFile(guaranteesPage, []byte(want), 0o600))
		return
	}
	require.True(t, want == page, "docs/guarantees.md shows another matrix than is run: %s", matrixBegin)
}
