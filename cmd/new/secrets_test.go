package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestStarterHasNoSecrets: what lies in a checkout and is not tracked is not copied, and git ignores the files in which
// the documents have people keep secrets.
func TestStarterHasNoSecrets(t *testing.T) {
	t.Parallel()
	from := t.TempDir()
	git := func(args ...string) string {
		out, err := exec.Command("git", append([]string{"-C", from}, args...)...).CombinedOutput()
		require.NoError(t, err, string(out))
		return string(out)
	}
	git("init", "-q")
	ignored, err := os.ReadFile(filepath.Join(root, ".gitignore"))
	require.NoError(t, err)
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(from, name), []byte(text), 0o600))
	}
	write(".gitignore", string(ignored))
	write("main.go", "package main")
	for _, secret := range []string{".env", "payonce.env", "owner.env", ".env.local"} {
		write(secret, "STRIPE_SECRET_KEY=x")
	}
	git("add", "-A")
	write("notes.txt", "a password")
	write(".env.example", "")
	require.NotContains(t, git("status", "--porcelain", "--untracked-files"), "payonce.env")
	require.Contains(t, git("status", "--porcelain", "--untracked-files"), ".env.example")
	list, err := files(t.Context(), from)
	require.NoError(t, err)
	require.Equal(t, []string{".gitignore", "main.go"}, list)
}
