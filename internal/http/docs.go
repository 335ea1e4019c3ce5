package http

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"io"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"example.com/payonce/internal/operations"
)

// The documentation is part of the binary and loads nothing from other hosts, because it
// must be readable during an outage.

//go:embed assets pages
var docsFiles embed.FS

const (
	// What the reference needs, and nothing from any other host. Its script sets styles
	// on elements, hence 'unsafe-inline' for styles, and for nothing else.
	referencePolicy = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; " +
		"img-src 'self' data:; connect-src 'self'; worker-src blob:; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	pagePolicy = "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; " +
		"frame-ancestors 'none'"

	revalidate = "no-cache" // The browser checks each time; a 304 is cheap, and a new deployment is visible at once.
	forever    = "public, max-age=31536000, immutable"
)

func docsPart() part {
	return part{routes: func(s *Server) []route { return docsRoutes(s.o.Retention, s.notFound, s.o.Own...) }}
}

// docsRoutes need no API key: a developer reads the documentation before getting one. The
// retention is what /docs/idempotency promises.
func docsRoutes(retention time.Duration, notFound http.HandlerFunc, own ...operations.Operation) []route {
	fixed := fixedPages()
	pages, values, assets := fixed.problems, fixed.values, fixed.assets
	problem := func(w http.ResponseWriter, r *http.Request) {
		slug := r.PathValue("slug")
		if _, ok := pages[slug]; !ok {
			notFound(w, r)
			return
		}
		negotiate(w, r, pages[slug], values[slug])
	}
	asset := func(w http.ResponseWriter, r *http.Request) {
		file, ok := assets[r.PathValue("file")]
		if !ok {
			notFound(w, r)
			return
		}
		file.ServeHTTP(w, r)
	}
	contract := newDocument("application/json", OpenAPIWith(own))
	return []route{
		{method: "GET", pattern: "/", handle: root, open: true, document: true},
		{method: "GET", pattern: "/openapi.json", handle: contract.ServeHTTP, open: true, document: true},
		{method: "GET", pattern: "/docs", handle: fixed.reference.ServeHTTP, open: true, document: true},
		{method: "GET", pattern: "/docs/idempotency", handle: policyPage(retention).ServeHTTP, open: true, document: true},
		{method: "GET", pattern: "/docs/retries", handle: fixed.retries.ServeHTTP, open: true, document: true},
		{method: "GET", pattern: "/docs/test-cards", handle: fixed.cards.ServeHTTP, open: true, document: true},
		{method: "GET", pattern: "/docs/assets/{file}", handle: asset, open: true, document: true},
		{method: "GET", pattern: "/problems", handle: fixed.list, open: true, document: true},
		{method: "GET", pattern: "/problems/{slug}", handle: problem, open: true, document: true},
	}
}

// documents are the pages that are the same in every server of a program.
type documents struct {
	reference, retries, cards staticDocument
	list                      http.HandlerFunc
	problems, values          map[string]staticDocument
	assets                    map[string]staticDocument
}

// fixedPages renders those pages for the first server of a process.
var fixedPages = sync.OnceValue(func() documents {
	d := documents{reference: referencePage(), retries: retriesPage(), cards: cardsPage(), assets: docsAssets()}
	d.list, d.problems, d.values = problemPages()
	return d
})

// withoutSlash is the address of a page of the documentation that was asked for with a
// slash at the end, which people and link checkers add. An escaped slash is not one.
func withoutSlash(r *http.Request) (page string, ok bool) {
	asked := r.URL.EscapedPath()
	page = strings.TrimRight(asked, "/")
	if page == asked || r.Method != http.MethodGet && r.Method != http.MethodHead ||
		!strings.HasPrefix(page, "/docs/") && !strings.HasPrefix(page, "/problems/") &&
			page != "/docs" && page != "/problems" {
		return "", false
	}
	if r.URL.RawQuery != "" {
		page += "?" + r.URL.RawQuery
	}
	return page, true
}

// root is for who opens the API's bare address: people are sent to the reference, and programs that ask for JSON are told
// what there is. The redirect is temporary, so that no browser keeps it if a service one day has a page of its own there.
func root(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Add("Vary", "Accept")
	if prefersJSON(r.Header.Values("Accept")) {
		h.Set("Content-Type", contentJSON)
		_, _ = io.WriteString(w, `{"openapi":"/openapi.json","docs":"/docs","problems":"/problems"}`)
		return
	}
	h.Set("Location", "/docs")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusSeeOther)
}

// staticDocument is rendered once, at the start, so that a broken template stops the
// process and not a reader.
type staticDocument struct {
	contentType  string
	body         []byte
	etag         string
	cacheControl string
	policy       string
	plain        func() []byte // of a compressed body, for clients that do not accept gzip; nil: it is not compressed
}

// newDocument derives the ETag from the content and not from the time, so that all
// processes of a release agree on it.
func newDocument(contentType string, body []byte) staticDocument {
	sum := sha256.Sum256(body)
	return staticDocument{
		contentType: contentType, body: body, etag: `"` + hex.EncodeToString(sum[:12]) + `"`,
		cacheControl: revalidate, policy: pagePolicy,
	}
}

func (d staticDocument) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h, body := w.Header(), d.body
	h.Set("Content-Type", d.contentType)
	h.Set("Cache-Control", d.cacheControl)
	h.Set("Content-Security-Policy", d.policy)
	h.Set("X-Content-Type-Options", "nosniff") // A browser must not guess that an asset is a page.
	h.Set("Referrer-Policy", "no-referrer")
	etag := d.etag
	if d.plain != nil {
		h.Add("Vary", "Accept-Encoding")
		if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			h.Set("Content-Encoding", "gzip")
		} else {
			body, etag = d.plain(), strings.TrimSuffix(etag, `"`)+`-plain"` // Other bytes, another tag.
		}
	}
	h.Set("ETag", etag)
	// A list of many small ranges would cost far more than the document, which is small enough to be sent whole.
	r.Header.Del("Range")
	whole := &wholeOnly{ResponseWriter: w}
	http.ServeContent(whole, r, "", time.Time{}, bytes.NewReader(body))
	visitOf(r).slot.sent(whole.sent)
}

// wholeOnly takes back what http.ServeContent says about ranges, and counts what is sent.
type wholeOnly struct {
	http.ResponseWriter
	sent int
}

// Write implements io.Writer.
func (w *wholeOnly) Write(p []byte) (int, error) {
	n, err := w.ResponseWriter.Write(p)
	w.sent += n
	return n, err
}

func (w *wholeOnly) WriteHeader(status int) {
	w.Header().Set("Accept-Ranges", "none")
	w.ResponseWriter.WriteHeader(status)
}

// negotiate serves the page or the JSON, because a problem's type is one address for
// people and for programs.
func negotiate(w http.ResponseWriter, r *http.Request, page, value staticDocument) {
	w.Header().Add("Vary", "Accept")
	if prefersJSON(r.Header.Values("Accept")) {
		value.ServeHTTP(w, r)
		return
	}
	page.ServeHTTP(w, r)
}

// acceptMax is how many elements of Accept are read. Browsers send fewer than ten.
const acceptMax = 32

// prefersJSON reports whether JSON has a higher weight than HTML. Without a preference it
// is false, because a client without one is probably a browser or curl.
func prefersJSON(accept []string) bool {
	var forJSON, forHTML float64
	read := 0
	for part := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		if read++; read > acceptMax {
			break
		}
		mediaType, params, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		weight := 1.0
		if q, given := params["q"]; given {
			if weight, err = strconv.ParseFloat(q, 64); err != nil {
				continue
			}
		}
		switch mediaType {
		case "application/json", contentProblem:
			forJSON = max(forJSON, weight)
		case "text/html", "application/xhtml+xml":
			forHTML = max(forHTML, weight)
		}
	}
	return forJSON > forHTML
}

// pageData is what the templates see.
type pageData struct {
	Title, Path       string
	Retention         string
	Problem           explainedProblem
	StatusText        string
	Problems          []problemType
	KeyProblems       []problemType
	DefiniteConflicts []problemType
	Cards             []testCard
}

// explainedProblem is a problem with the texts of its page.
type explainedProblem struct {
	problemType
	problemText
}

// renderPage panics if a template is broken: the pages are embedded, so that is a bug of
// this build, and every test that creates a server finds it.
func renderPage(name string, data pageData) staticDocument {
	t := template.Must(template.ParseFS(docsFiles, "pages/layout.html", "pages/"+name))
	var b bytes.Buffer
	if err := t.ExecuteTemplate(&b, "layout.html", data); err != nil {
		panic(fmt.Sprintf("bug: page %s: %v", name, err))
	}
	return newDocument("text/html; charset=utf-8", b.Bytes())
}

func referencePage() staticDocument {
	page := newDocument("text/html; charset=utf-8", mustRead("pages/reference.html"))
	page.policy = referencePolicy
	return page
}

// policyPage lists the codes from the problem types, so that the policy cannot omit one
// that is added later.
func policyPage(retention time.Duration) staticDocument {
	data := pageData{Title: "How idempotency keys work", Path: "/docs/idempotency", Retention: inWords(retention)}
	for _, t := range problemTypes {
		if strings.HasPrefix(t.Code, "idempotency-key-") {
			data.KeyProblems = append(data.KeyProblems, t)
		}
		if t.Status == http.StatusConflict && t.Stored {
			data.DefiniteConflicts = append(data.DefiniteConflicts, t)
		}
	}
	return renderPage("idempotency.html", data)
}

// retriesPage says which response leads where.
func retriesPage() staticDocument {
	return renderPage("retries.html", pageData{Title: "Retries", Path: "/docs/retries"})
}

// testCard is a payment method of Stripe's test mode, and what happens to a payment with it.
type testCard struct{ Method, Outcome string }

// testCards are those that a client of this API wants to try; a test pays with each.
var testCards = []testCard{
	{"pm_card_visa", "The payment succeeds: 201."},
	{"pm_card_mastercard", "The payment succeeds: 201."},
	{"pm_card_chargeDeclined", "The issuer declines: 402, without a reason."},
	{"pm_card_chargeDeclinedInsufficientFunds", "The issuer declines: 402, insufficient_funds."},
	{"pm_card_chargeDeclinedExpiredCard", "The issuer declines: 402, expired_card."},
	{"pm_card_authenticationRequired", "The customer must authenticate: 202, requires_action."},
	{"pm_card_threeDSecure2Required", "The customer must authenticate: 202, requires_action."},
	{"pm_card_refundFail", "The payment succeeds, and a refund of it fails later."},
	{"pm_card_pendingRefund", "The payment succeeds, and a refund of it is pending first."},
	{"pm_card_createDispute", "The payment succeeds, and the customer disputes it as fraudulent."},
	{"pm_card_createDisputeProductNotReceived", "The payment succeeds, and the customer disputes it: nothing arrived."},
	{"pm_card_createDisputeInquiry", "The payment succeeds, and the bank asks about it; no money is withdrawn."},
}

func cardsPage() staticDocument {
	return renderPage("test-cards.html", pageData{Title: "Test cards", Path: "/docs/test-cards", Cards: testCards})
}

// problemPages are the list of problems and each problem, as pages and as JSON.
func problemPages() (list http.HandlerFunc, pages, values map[string]staticDocument) {
	type value struct {
		Type      string `json:"type"`
		Title     string `json:"title"`
		Status    int    `json:"status"`
		Code      string `json:"code"`
		Retryable bool   `json:"retryable"`
		Stored    bool   `json:"stored"`
		What      string `json:"what"`
		Retry     string `json:"retry"`
	}
	pages, values = map[string]staticDocument{}, map[string]staticDocument{}
	texts := problemTexts()
	var all []value
	for _, t := range problemTypes {
		text := texts[t.Code]
		v := value{t.typeURI(), t.Title, t.Status, t.Code, t.Retryable, t.Stored, text.What, text.Retry}
		all = append(all, v)
		pages[t.Code] = renderPage("problem.html", pageData{
			Title: t.Title, Path: t.typeURI(), Problem: explainedProblem{t, text}, StatusText: http.StatusText(t.Status),
		})
		values[t.Code] = newDocument(contentJSON, mustJSON(v))
	}
	listPage := renderPage("problems.html", pageData{Title: "Problems", Path: "/problems", Problems: problemTypes})
	listValue := newDocument(contentJSON, mustJSON(listBody[value]{"list", all, false}))
	return func(w http.ResponseWriter, r *http.Request) { negotiate(w, r, listPage, listValue) }, pages, values
}

// docsAssets are the files under /docs/assets/, by name. Only the file with a version in
// its name may be cached for ever. The compressed one keeps the binary small.
func docsAssets() map[string]staticDocument {
	entries, err := docsFiles.ReadDir("assets")
	if err != nil {
		panic(fmt.Sprintf("bug: %v", err))
	}
	files := map[string]staticDocument{}
	for _, entry := range entries {
		name, gzipped := strings.CutSuffix(entry.Name(), ".gz")
		types := map[string]string{
			".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml",
		}
		file := newDocument(types[path.Ext(name)], mustRead("assets/"+entry.Name()))
		if gzipped {
			file.plain = sync.OnceValue(func() []byte { return gunzip(file.body) })
		}
		if strings.HasPrefix(name, "scalar-") {
			file.cacheControl = forever
		}
		files[name] = file
	}
	return files
}

func mustRead(name string) []byte {
	b, err := docsFiles.ReadFile(name)
	if err != nil {
		panic(fmt.Sprintf("bug: %v", err))
	}
	return b
}

// gunzip is for clients that do not accept gzip. It costs more than a request may, so the result is kept.
func gunzip(b []byte) []byte {
	r, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		panic(fmt.Sprintf("bug: an asset that is not gzip: %v", err))
	}
	plain, err := io.ReadAll(r)
	if err != nil {
		panic(fmt.Sprintf("bug: an asset that is not gzip: %v", err))
	}
	return plain
}

// inWords writes a duration for readers: 72 hours instead of Go's 72h0m0s.
func inWords(d time.Duration) string {
	for _, unit := range []struct {
		name string
		of   time.Duration
	}{{"hour", time.Hour}, {"minute", time.Minute}, {"second", time.Second}} {
		if d >= unit.of && d%unit.of == 0 {
			n := int64(d / unit.of)
			if n == 1 {
				return "1 " + unit.name
			}
			return strconv.FormatInt(n, 10) + " " + unit.name + "s"
		}
	}
	return d.String()
}
