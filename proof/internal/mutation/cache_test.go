package mutation

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCacheForgetsWhatChanged: what a test reaches is measured again once the source or the tests of its package change, in
// either module.
func TestCacheForgetsWhatChanged(t *testing.T) {
	t.Parallel()
	for _, pkg := range []string{"internal/payments", "proof/night/payments"} {
		root := t.TempDir()
		write := func(file, text string) {
			path := filepath.Join(root, filepath.FromSlash(file))
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
			require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		}
		write("internal/payments/payment.go", "package payments")
		write("internal/inbox/inbox_test.go", "package inbox")
		write(pkg+"/a_test.go", "package payments_test")
		c := &cache{root: root}
		name := func() string {
			file, err := c.file(pkg)
			require.NoError(t, err)
			return file
		}
		first := name()
		write("internal/inbox/inbox_test.go", "package inbox // of another package")
		require.Equal(t, first, name(), pkg)
		for _, file := range []string{pkg + "/a_test.go", "internal/payments/payment.go"} {
			before := name()
			write(file, "package payments // changed")
			require.NotEqual(t, before, name(), "%s: %s", pkg, file)
		}
	}
}
