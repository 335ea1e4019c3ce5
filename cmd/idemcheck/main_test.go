package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRun: the exit code says what was found, and the reports are in the files that were named.
func TestRun(t *testing.T) {
	t.Parallel()
	var made atomic.Int64
	keyed := map[bool]int{true: http.StatusCreated, false: http.StatusBadRequest}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = fmt.Fprint(w, made.Load())
			return
		}
		made.Add(1) // whether it has a key or not
		w.WriteHeader(keyed[r.Header.Get("Idempotency-Key") != ""])
	}))
	t.Cleanup(server.Close)
	dir := t.TempDir()
	profile := filepath.Join(dir, "profile.yaml")
	write := func(text string) {
		require.NoError(t, os.WriteFile(profile, []byte(text), 0o600))
	}
	ask := func(args ...string) (int, string) {
		var out bytes.Buffer
		return run(t.Context(), args, &out, &out), out.String()
	}

	write("name: a shop\nintent: {path: /things}\n")
	code, out := ask("-profile", profile, "-junit", dir+"/junit.xml", "-json", dir+"/report.json", "-badge", dir+"/badge.svg",
		server.URL)
	require.Zero(t, code, out)
	require.Contains(t, out, "1 hold, 0 broken, 10 not asked")
	for _, file := range []string{"junit.xml", "report.json", "badge.svg"} {
		require.FileExists(t, filepath.Join(dir, file))
	}

	write("name: a shop\nintent: {path: /things}\neffects: {url: /count}\n")
	code, out = ask("-profile", profile, server.URL)
	require.Equal(t, exitBroken, code, out)
	require.Contains(t, out, "2 effects after a request without a key, expected 0")

	for _, args := range [][]string{
		{}, {"-profile", profile}, {"-profile", dir + "/none", server.URL}, {"-profile", profile, "https://api.example"},
		{"-colour"},
	} {
		code, out = ask(args...)
		require.Equal(t, exitUsage, code, out)
	}
	write("name: a shop\nintnet: {}\n")
	code, out = ask("-profile", profile, server.URL)
	require.Equal(t, exitUsage, code)
	require.Contains(t, out, "line 2: field intnet not found")
}
