package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestRun: the exit code says what was found, and the reports are in the files that were named.
func TestRun(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	made := map[string]bool{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		if r.Method == http.MethodPost {
			defer time.Sleep(20 * time.Millisecond) // so that duplicates overlap
		}
		mu.Lock()
		defer mu.Unlock()
		key := r.Header.Get("Idempotency-Key")
		switch {
		case r.Method == http.MethodGet:
			_, _ = fmt.Fprint(w, map[bool]int{true: 1}[made[r.URL.Query().Get("thing")]])
		case key == "" && r.URL.Path == "/things":
			w.WriteHeader(http.StatusBadRequest)
		default:
			made[string(body)] = true // once for each thing, whatever the key is
			w.WriteHeader(http.StatusCreated)
		}
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
	files := []string{"-junit", dir + "/junit.xml", "-json", dir + "/report.json", "-badge", dir + "/badge.svg"}
	badge := func() string {
		for _, file := range []string{"junit.xml", "report.json"} {
			require.FileExists(t, filepath.Join(dir, file))
		}
		text, err := os.ReadFile(dir + "/badge.svg")
		require.NoError(t, err)
		return string(text)
	}

	counted := "name: a shop\nsettle: 20ms\nconcurrent: 20\neffects: {url: '/count?thing={{n}}'}\n"
	write(counted + "intent: {path: /things, body: '{{n}}'}\n")
	code, out := ask(append(files, "-profile", profile, server.URL)...)
	require.Zero(t, code, out)
	require.Contains(t, out, "5 hold, 0 broken, 8 not asked")
	require.Regexp(t, "5 of 13 hold", badge())
	require.Contains(t, badge(), "#0b6e4f")

	write(counted + "intent: {path: /keyless, body: '{{n}}'}\n")
	code, out = ask(append(files, "-profile", profile, server.URL)...)
	require.Equal(t, exitBroken, code, out)
	require.Contains(t, out, "no key: 201 , expected 400")
	require.Contains(t, badge(), "2 broken, 3 of 13 hold")

	write("name: a shop\nintent: {path: /things, body: '{{n}}'}\n")
	code, out = ask(append(files, "-profile", profile, server.URL)...)
	require.Equal(t, exitUsage, code, out)
	require.Contains(t, out, "0 hold, 0 broken, 13 not asked")
	require.Contains(t, out, "this report proves nothing")
	require.Contains(t, badge(), "#777")

	for _, args := range [][]string{
		{}, {"-profile", profile}, {"-profile", dir + "/none", server.URL}, {"-profile", profile, "https://api.example"},
		{"-colour"},
	} {
		code, out = ask(args...)
		require.Equal(t, exitUsage, code, out)
	}
	write(counted + "headers: {X-Api-Key: '${IDEMCHECK_TEST_UNSET}'}\nintent: {path: /things, body: '{{n}}'}\n")
	code, out = ask("-profile", profile, server.URL)
	require.Equal(t, exitUsage, code)
	require.Contains(t, out, "IDEMCHECK_TEST_UNSET is not set in the environment")
	write(strings.Replace(counted, "a shop", "a shop at ${PATH}", 1) + "intent: {path: /things, body: '{{n}}'}\n")
	code, out = ask("-profile", profile, server.URL)
	require.Zero(t, code, out)
	require.Contains(t, out, "a shop at "+os.Getenv("PATH"))
	code, out = ask("-profile", profile, server.URL, "-json", "x")
	require.Equal(t, exitUsage, code)
	require.Contains(t, out, "-json comes after the address of the API")
	code, out = ask("-profile", profile, "http://127.0.0.1:1")
	require.Equal(t, exitUsage, code)
	require.Contains(t, out, "it could not be asked")

	write("name: a shop\nintnet: {}\n")
	code, out = ask("-profile", profile, server.URL)
	require.Equal(t, exitUsage, code)
	require.Contains(t, out, "line 2: field intnet not found")
}
