package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/proof/internal/inventory"
	"example.com/payonce/testkit/process"
)

// TestReleasedMigrations: a migration that a version was released with never changes, because databases have run it;
// migrations.sum has their checksums. The changelog says what is released: while its first entry is a version, every
// migration belongs to it.
func TestReleasedMigrations(t *testing.T) {
	t.Parallel()
	root, err := process.Root()
	require.NoError(t, err)
	files, err := filepath.Glob(filepath.Join(root, "db/migrations/*.sql"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	now := make(map[string]string, len(files))
	for _, file := range files {
		sql, err := os.ReadFile(file)
		require.NoError(t, err)
		now[filepath.Base(file)] = fmt.Sprintf("%x", sha256.Sum256(sql))
	}
	sums, err := os.ReadFile("migrations.sum")
	require.NoError(t, err)
	released, err := parseSums(sums)
	require.NoError(t, err)
	require.NotEmpty(t, released)
	require.Empty(t, editedMigrations(released, now), "released migrations that were edited or are gone: add one that changes what they made")

	changelog, err := inventory.Read("CHANGELOG.md")
	require.NoError(t, err)
	if version := releasedNow(changelog); version != "" && len(released) < len(now) {
		if !*update {
			t.Fatalf("version %s has migrations that migrations.sum has not: go test -C proof ./versions -run TestReleasedMigrations -update", version)
		}
		var b strings.Builder
		for _, file := range files { // sorted
			name := filepath.Base(file)
			fmt.Fprintf(&b, "%s  %s\n", now[name], name)
		}
		require.NoError(t, os.WriteFile("migrations.sum", []byte(b.String()), 0o600))
	}
}

// TestEditedMigrations: what the test above is red for.
func TestEditedMigrations(t *testing.T) {
	t.Parallel()
	released, err := parseSums([]byte("aa  00001_a.sql\nbb  00002_b.sql\n"))
	require.NoError(t, err)
	require.Empty(t, editedMigrations(released, map[string]string{"00001_a.sql": "aa", "00002_b.sql": "bb", "00003_c.sql": "cc"}))
	require.Equal(t, []string{"00002_b.sql"}, editedMigrations(released, map[string]string{"00001_a.sql": "aa", "00002_b.sql": "edited"}))
	require.Equal(t, []string{"00002_b.sql"}, editedMigrations(released, map[string]string{"00001_a.sql": "aa", "00002_renamed.sql": "bb"}))
	_, err = parseSums([]byte("aa 00001_a.sql\n"))
	require.Error(t, err)

	require.Equal(t, "0.1.0", releasedNow("# Changelog\n\n## [0.1.0] - 2026-11-28\n"))
	require.Empty(t, releasedNow("# Changelog\n\n## [Unreleased]\n\n## [0.1.0] - 2026-11-28\n"))
}

// sum is the checksum of a migration that was released.
type sum struct{ name, sha256 string }

// parseSums reads lines as sha256sum writes them.
func parseSums(text []byte) (list []sum, err error) {
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		sha, name, found := strings.Cut(lines.Text(), "  ")
		if !found {
			return nil, fmt.Errorf("migrations.sum: no checksum and name: %q", lines.Text())
		}
		list = append(list, sum{name: name, sha256: sha})
	}
	return list, lines.Err()
}

// editedMigrations lists the released migrations that are not, byte for byte, what is there now.
func editedMigrations(released []sum, now map[string]string) (edited []string) {
	for _, s := range released {
		if now[s.name] != s.sha256 {
			edited = append(edited, s.name)
		}
	}
	return edited
}

var firstEntry = regexp.MustCompile(`(?m)^## \[([^\]]+)\]`)

// releasedNow is the version that the changelog's first entry is about, and empty while that is Unreleased.
func releasedNow(changelog string) string {
	entry := firstEntry.FindStringSubmatch(changelog)
	if entry == nil || entry[1] == "Unreleased" {
		return ""
	}
	return entry[1]
}
