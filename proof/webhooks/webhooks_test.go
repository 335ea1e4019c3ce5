package webhooks_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/notifier"
	"example.com/payonce/proof/internal/installed"
	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/world"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// request is one that an endpoint received, or that somebody made up, and whether it is to be accepted with the secret.
type request struct {
	Secret  string            `json:"secret"`
	Headers map[string]string `json:"headers"`
	Body    []byte            `json:"body"`

	what    string
	genuine bool
}

// receiver is an endpoint that keeps what it gets.
type receiver struct {
	mu  sync.Mutex
	got []request
}

func (e *receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	headers := map[string]string{}
	for name := range r.Header {
		headers[strings.ToLower(name)] = r.Header.Get(name)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.got = append(e.got, request{Headers: headers, Body: body})
	w.WriteHeader(http.StatusNoContent)
}

func (e *receiver) all() []request {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]request(nil), e.got...)
}

func (e *receiver) await(w *world.World, n int) []request {
	w.T.Helper()
	w.Until("the events arrived", func() bool { return len(e.all()) >= n })
	return e.all()
}

// TestSignaturesAreVerified: of deliveries before and after the rotation of a secret, and of what is like them.
func TestSignaturesAreVerified(t *testing.T) {
	t.Parallel()
	requests := requests(t)
	for name, accepts := range map[string]func(*testing.T, []request) []bool{
		"StandardWebhooksInGo":         byLibraryInGo,
		"StandardWebhooksInJavaScript": byLibraryInJavaScript,
		"PageInGo":                     byPage("go", "go", "verify.go", "driver.go.txt", "go", "run", "."),
		"PageInTypeScript":             byPageInTypeScript,
		"PageInPython":                 byPage("python", "python3", "verify.py", "driver.py", "python3", "driver.py"),
		"PageInRuby":                   byPage("ruby", "ruby", "verify.rb", "driver.rb", "ruby", "driver.rb"),
		"PageInPHP":                    byPage("php", "php", "verify.php", "driver.php", "php", "driver.php"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			results := accepts(t, requests)
			require.Len(t, results, len(requests))
			for i, r := range requests {
				require.Equal(t, r.genuine, results[i], r.what)
			}
		})
	}
}

// requests are deliveries of a real process, and others.
func requests(t *testing.T) []request {
	t.Helper()
	w := world.New(t)
	p := w.Process("NOTIFY_PRIVATE_ADDRESSES=true")
	e := &receiver{}
	server := httptest.NewServer(e)
	t.Cleanup(server.Close)
	made := p.Post("/v1/webhook-endpoints", "endpoint", `{"url":"`+server.URL+`","events":["order.created"]}`)
	require.Equal(t, http.StatusCreated, made.Status, string(made.Body))
	first := made.Get("secret").(string)
	require.Equal(t, http.StatusAccepted, p.Post("/v1/webhook-endpoints/"+made.ID()+"/test", "test", "").Status)
	e.await(w, 1)
	p.Order()
	e.await(w, 2)
	rotated := p.Post("/v1/webhook-endpoints/"+made.ID()+"/rotate-secret", "rotate", "")
	require.Equal(t, http.StatusOK, rotated.Status, string(rotated.Body))
	second := rotated.Get("secret").(string)
	p.Order()
	got := e.await(w, 3)
	w.Until("a repeated test is over", func() bool {
		a := p.Post("/v1/webhook-endpoints/"+made.ID()+"/test", "test", "")
		return a.Status == http.StatusOK && a.Get("status") == "delivered"
	})
	require.Len(t, e.all(), 3, "it is sent once")

	with := func(what string, genuine bool, r request, secret string, change func(r *request)) request {
		headers := map[string]string{}
		for name, value := range r.Headers {
			headers[name] = value
		}
		r.Secret, r.Headers, r.what, r.genuine = secret, headers, what, genuine
		if change != nil {
			change(&r)
		}
		return r
	}
	signed := func(at time.Duration) func(r *request) {
		return func(r *request) {
			h, key := http.Header{}, []byte(nil)
			require.NoError(t, json.Unmarshal([]byte(`"`+strings.TrimPrefix(first, "whsec_")+`"`), &key))
			notifier.Sign(h, r.Headers["webhook-id"], time.Now().Add(at), r.Body, key)
			for name := range h {
				r.Headers[strings.ToLower(name)] = h.Get(name)
			}
		}
	}
	header := func(name string, value func(string) string) func(r *request) {
		return func(r *request) { r.Headers[name] = value(r.Headers[name]) }
	}
	is := func(value string) func(string) string { return func(string) string { return value } }
	return []request{
		with("a test event", true, got[0], first, nil),
		with("an order", true, got[1], first, nil),
		with("an order, with the secret that came later", false, got[1], second, nil),
		with("after the rotation, with the old secret", true, got[2], first, nil),
		with("after the rotation, with the new secret", true, got[2], second, nil),
		with("another body", false, got[1], first, func(r *request) {
			r.Body = bytes.Replace(r.Body, []byte("order.created"), []byte("order.paid"), 1)
		}),
		with("another id", false, got[1], first, header("webhook-id", is("ord_1-1"))),
		with("another time", false, got[1], first, header("webhook-timestamp", func(s string) string { return s[:len(s)-1] + "x" })),
		with("signed six minutes ago", false, got[1], first, signed(-6*time.Minute)),
		with("signed in six minutes", false, got[1], first, signed(6*time.Minute)),
		with("signed four minutes ago", true, got[1], first, signed(-4*time.Minute)),
		with("no signature", false, got[1], first, header("webhook-signature", is(""))),
		with("no time", false, got[1], first, header("webhook-timestamp", is(""))),
		with("a signature of another version", false, got[1], first,
			header("webhook-signature", func(s string) string { return strings.Replace(s, "v1,", "v2,", 1) })),
		with("a wrong signature before the right one", true, got[1], first,
			header("webhook-signature", func(s string) string { return "v1,AAAA v1a,x " + s })),
	}
}

func byLibraryInGo(t *testing.T, requests []request) (results []bool) {
	t.Helper()
	for _, r := range requests {
		library, err := standardwebhooks.NewWebhook(r.Secret)
		require.NoError(t, err)
		header := http.Header{}
		for name, value := range r.Headers {
			header.Set(name, value)
		}
		results = append(results, library.Verify(r.Body, header) == nil)
	}
	return results
}

func byLibraryInJavaScript(t *testing.T, requests []request) []bool {
	t.Helper()
	installed.Packages(t)
	return ask(t, requests, ".", "node", "verify.mjs")
}

func byPageInTypeScript(t *testing.T, requests []request) []bool {
	t.Helper()
	installed.Packages(t)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "verify.ts"), page(t, "typescript"))
	write(t, filepath.Join(dir, "driver.ts"), read(t, "driver.ts"))
	write(t, filepath.Join(dir, "package.json"), `{"type":"module"}`)
	types, err := filepath.Abs("node_modules/@types")
	require.NoError(t, err)
	compile := exec.CommandContext(t.Context(), "node_modules/.bin/tsc", "--strict", "--target", "es2022", "--module", "nodenext",
		"--typeRoots", types, "--types", "node", filepath.Join(dir, "driver.ts"))
	out, err := compile.CombinedOutput()
	require.NoError(t, err, string(out))
	return ask(t, requests, dir, "node", "driver.js")
}

// byPage runs the code of the page in a language with its driver.
func byPage(language, runtime, file, driver string, command ...string) func(*testing.T, []request) []bool {
	return func(t *testing.T, requests []request) []bool {
		t.Helper()
		installed.Need(t, runtime)
		dir := t.TempDir()
		code := page(t, language)
		if language == "go" { // The page has the function; the driver the imports.
			write(t, filepath.Join(dir, "go.mod"), "module driver\n\ngo 1.24\n")
			write(t, filepath.Join(dir, "main.go"), read(t, driver)+"\n"+code)
		} else {
			write(t, filepath.Join(dir, file), code)
			write(t, filepath.Join(dir, driver), read(t, driver))
		}
		return ask(t, requests, dir, command...)
	}
}

// ask gives a program the requests, and returns what it accepts.
func ask(t *testing.T, requests []request, dir string, command ...string) (results []bool) {
	t.Helper()
	input, err := json.Marshal(requests)
	require.NoError(t, err)
	program := exec.CommandContext(t.Context(), command[0], command[1:]...)
	var stderr bytes.Buffer
	program.Dir, program.Stdin, program.Stderr = dir, bytes.NewReader(input), &stderr
	program.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
	out, err := program.Output()
	require.NoError(t, err, stderr.String())
	require.NoError(t, json.Unmarshal(out, &results), string(out))
	return results
}

// page is the code in a language on docs/receive-webhooks.md.
func page(t *testing.T, language string) string {
	t.Helper()
	_, code, found := strings.Cut(read(t, "../../docs/receive-webhooks.md"), "\n```"+language+"\n")
	require.True(t, found, "the page has no code in %s", language)
	code, _, _ = strings.Cut(code, "\n```\n")
	return code + "\n"
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(b)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}
