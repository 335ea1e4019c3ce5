package main

import (
	"bytes"
	"html/template"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"

	"example.com/payonce/stripesim"
)

// codeOf names the function behind each line of the timeline, as "file#function".
// TestConsole_CodeLinksExist fails when one of them is moved or renamed.
var codeOf = map[string]string{
	// What the service does.
	"request":          "internal/http/idempotency.go#execute",
	"payment_recorded": "internal/payments/payment.go#beginPayment",
	"intent_recorded":  "internal/payments/payment.go#createIntent",
	"charge":           "internal/payments/payment.go#confirm",
	"finished":         "internal/payments/payment.go#Finish",
	"capture_recorded": "internal/payments/capture.go#begin",
	"cancel_begun":     "internal/payments/cancel.go#beginPayment",
	"captured":         "internal/payments/capture.go#Capture",
	"taken_over":       "internal/idempotency/completer.go#RunOnce",
	"resumed":          "internal/idempotency/completer.go#complete",
	"fenced":           "internal/idempotency/claim.go#fenced",
	"webhook":          "internal/http/webhooks.go#stripeWebhook",
	"inbox":            "internal/inbox/processor.go#apply",
	"event":            "internal/outbox/relay.go#publish",

	// By the kind of effect.
	stripesim.EffectAuthorized: "internal/payments/authorization.go#settleAuthorized",
	stripesim.EffectReleased:   "internal/payments/authorization.go#endAuthorization",

	// What the buttons do.
	"pay":     "cmd/demo/console_actions.go#payOnce",
	"double":  "cmd/demo/console_actions.go#payConcurrently",
	"fifty":   "cmd/demo/console_actions.go#payConcurrently",
	"capture": "cmd/demo/console_authorizations.go#authorizeAndCapture",
	"release": "cmd/demo/console_authorizations.go#releaseAuthorization",
	"lose":    "cmd/demo/console_actions.go#loseStripeResponse",
	"kill":    "cmd/demo/console_actions.go#killProcess",
	"pause":   "cmd/demo/console_actions.go#pauseProcess",
	"cut":     "cmd/demo/console_actions.go#cutPostgres",
	"again":   "cmd/demo/console_actions.go#retryLastRequest",
}

// sourceTree is the repository's folder, if the demo runs in a checkout of it.
type sourceTree struct{ root *os.Root }

// findSourceTree looks for the module's go.mod in the working directory and above.
// "go run ./cmd/demo" is started there; a demo in a container has no source.
func findSourceTree() *sourceTree {
	build, ok := debug.ReadBuildInfo()
	dir, err := os.Getwd()
	if !ok || err != nil {
		return nil
	}
	for ; ; dir = filepath.Dir(dir) {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && bytes.HasPrefix(mod, []byte("module "+build.Main.Path+"\n")) {
			break
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil
	}
	return &sourceTree{root}
}

// sourceFile is a file as a page.
type sourceFile struct {
	Title string
	Lines []sourceLine
}

type sourceLine struct {
	Number int
	Text   string
	First  bool // of the function: the page scrolls here
	Marked bool
}

// file reads a Go file and marks a function in it. Only files that codeOf names can
// be read: the console must not become a way to read other files of this machine.
func (t *sourceTree) file(name, function string) (*sourceFile, error) {
	if t == nil || !hasCode(name) {
		return nil, fs.ErrNotExist
	}
	f, err := t.root.Open(filepath.FromSlash(name))
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	content, err := io.ReadAll(f)
	if err != nil {
		return nil, err
	}
	declaration := regexp.MustCompile(`^func (\([^)]*\) )?` + regexp.QuoteMeta(function) + `[\[(]`)
	page := &sourceFile{Title: name}
	inside := false
	for i, line := range strings.Split(strings.TrimSuffix(string(content), "\n"), "\n") {
		first := function != "" && declaration.MatchString(line)
		inside = inside || first
		// A tab would be as wide as the line number before it leaves room for.
		text := strings.ReplaceAll(line, "\t", "    ")
		page.Lines = append(page.Lines, sourceLine{i + 1, text, first, inside})
		if inside && (line == "}" || first && strings.HasSuffix(line, " }")) {
			inside = false
		}
	}
	return page, nil
}

func hasCode(name string) bool {
	for _, at := range codeOf {
		if file, _, _ := strings.Cut(at, "#"); file == name {
			return true
		}
	}
	return false
}

var consolePages = template.Must(template.ParseFS(consoleFiles, "console/code.html", "console/key.html"))

// showCode shows a source file with one function marked.
func (c *console) showCode(w http.ResponseWriter, r *http.Request) {
	file, err := c.source.file(path.Clean(r.PathValue("file")), r.URL.Query().Get("func"))
	if err != nil {
		http.Error(w, "this file is not shown here", http.StatusNotFound)
		return
	}
	writePage(w, "code.html", file)
}

func writePage(w http.ResponseWriter, name string, data any) {
	var page bytes.Buffer
	if err := consolePages.ExecuteTemplate(&page, name, data); err != nil {
		panic("bug: " + err.Error())
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(page.Bytes()) // a client that has closed the connection needs no page
}
