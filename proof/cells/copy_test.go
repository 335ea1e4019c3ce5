//go:build linux

package cells

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/proof/internal/inventory"
)

// TestCopyTenantShowsNoPassword: every user of a machine sees the arguments of its programs. psql gets its passwords in its
// environment.
func TestCopyTenantShowsNoPassword(t *testing.T) {
	t.Parallel()
	root, err := inventory.Root()
	require.NoError(t, err)
	dir := t.TempDir()
	psql := "#!/bin/sh\nprintf '%s\\n' \"$PGPASSWORD: $*\" >> '" + dir + "/calls'\necho eu2\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "psql"), []byte(psql), 0o700))
	run := func(source string) (out, calls string) {
		cmd := exec.CommandContext(t.Context(), filepath.Join(root, "deploy/copy-tenant.sh"), "ten_1")
		cmd.Env = []string{"PATH=" + dir + ":" + os.Getenv("PATH"), "SOURCE=" + source,
			"TARGET=postgres://payonce_owner:second@eu2-db/payonce?sslmode=require"}
		said, _ := cmd.CombinedOutput()
		text, _ := os.ReadFile(filepath.Join(dir, "calls"))
		return string(said), string(text)
	}
	_, calls := run("postgresql://payonce_audit:fir%73t%2fp%40ss@eu1-db/payonce")
	require.Contains(t, calls, "first/p@ss: --no-psqlrc")
	require.Contains(t, calls, " postgresql://payonce_audit@eu1-db/payonce ")
	require.Contains(t, calls, "second: --no-psqlrc")
	require.Contains(t, calls, " postgres://payonce_owner@eu2-db/payonce?sslmode=require ")

	out, more := run("host=eu1-db password=first")
	require.Contains(t, out, "give the passwords in the URLs")
	require.Equal(t, calls, more)
}
