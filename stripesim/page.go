package stripesim

import (
	"bytes"
	"cmp"
	"container/heap"
	"embed"
	"html/template"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The page at / of the admin port: what the simulator knows, its effect log, its clock, its faults and its webhooks,
// with buttons for what the JSON API does. It is rendered on the server and works without its script, which only keeps
// it current. It shows no secret: neither a key of the API, nor what signs webhooks, nor a client_secret.

//go:embed page
var pageFiles embed.FS

var pageTemplate = template.Must(template.New("page.html").Funcs(template.FuncMap{
	"money": decimal, "when": when, "text": func(t text) string { return deref(t) },
}).ParseFS(pageFiles, "page/page.html"))

const (
	pageRows = 50 // of each list: who wants more asks the JSON API

	// pagePolicy lets the browser load the page's own three files, and send forms to this address only.
	pagePolicy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; " +
		"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)

// pageView is one moment of the simulator, taken under its lock.
type pageView struct {
	Error string // why the last button did nothing

	Version string
	Now     time.Time
	Moved   time.Duration
	Due     []due
	Counts  []count

	Effects      []Effect // newest first
	EffectCounts []count
	EffectsFound int
	Kind, Find   string

	Intents   []*intent // newest first
	Endpoints []shownEndpoint

	Deliveries      []Delivery // newest first
	DeliveriesTotal int
	Undelivered     int // events that some endpoint has not taken yet

	Faults        []faultReport
	WebhookFaults []webhookFaultReport
	Holds         []holdReport
	Operations    []Operation
	FaultGroups   []faultGroup
	WebhookKinds  []faultButton
}

type count struct {
	Name string
	N    int
}

// due is something that happens when the clock gets there.
type due struct {
	At   time.Time
	What string
	ID   string
}

type shownEndpoint struct {
	ID, URL string
	Events  []string
	Account string
}

// pageHandler serves the page and its buttons.
func (s *Sim) pageHandler(mux *http.ServeMux) {
	page := func(h http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			header := w.Header()
			header.Set("Content-Security-Policy", pagePolicy)
			header.Set("X-Content-Type-Options", "nosniff")
			header.Set("Referrer-Policy", "same-origin") // with no-referrer, the Origin of a form would be "null"
			header.Set("Cache-Control", "no-store")
			h(w, r)
		}
	}
	for file, kind := range map[string]string{
		"page.css": "text/css; charset=utf-8", "page.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml",
	} {
		body, err := pageFiles.ReadFile("page/" + file)
		if err != nil {
			panic("bug: " + err.Error())
		}
		mux.HandleFunc("GET /page/"+file, page(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			_, _ = w.Write(body)
		}))
	}
	mux.HandleFunc("GET /{$}", page(func(w http.ResponseWriter, r *http.Request) {
		s.showPage(w, http.StatusOK, s.look(r.URL.Query()))
	}))
	mux.HandleFunc("POST /page/{button}", page(s.pressed))
}

func (s *Sim) showPage(w http.ResponseWriter, status int, v pageView) {
	var out bytes.Buffer
	if err := pageTemplate.Execute(&out, v); err != nil {
		http.Error(w, "bug: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(out.Bytes())
}

// look takes the view: everything, with the effects that the query selects.
func (s *Sim) look(q url.Values) pageView {
	v := pageView{
		Version: apiVersion, Kind: q.Get("kind"), Find: strings.TrimSpace(q.Get("find")),
		Faults: s.faults.report(), WebhookFaults: s.outbox.report(), Holds: s.holds.report(),
		Operations: Operations(), FaultGroups: faultGroups, WebhookKinds: webhookButtons,
	}
	for i, f := range v.Faults {
		v.Faults[i].Firings = f.Firings[max(0, len(f.Firings)-3):]
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.st
	v.Now, v.Moved = s.now(), s.offset
	v.Counts = []count{
		{"payment intents", len(st.intents.byID)}, {"charges", len(st.charges.byID)},
		{"refunds", len(st.refunds.byID)}, {"disputes", len(st.disputes.byID)},
		{"balance transactions", len(st.txns.byID)}, {"payment methods", len(st.methods.byID)},
		{"events", len(st.events.byID)}, {"idempotency keys", len(st.keys)},
	}
	v.Intents = newest(st.intents)
	v.Due = s.dueNext()
	v.lookAtEffects(st.effects)
	v.lookAtWebhooks(s)
	return v
}

// newest are the latest objects of all accounts.
func newest[T object](t table[T]) []T {
	var out []T
	for _, ids := range t.order {
		for _, id := range ids[max(0, len(ids)-pageRows):] {
			out = append(out, t.byID[id])
		}
	}
	slices.SortFunc(out, func(a, b T) int { return cmp.Compare(b.meta().Seq, a.meta().Seq) })
	return out[:min(pageRows, len(out))]
}

// dueNext is what the clock will do, soonest first. Called with mu held.
func (s *Sim) dueNext() []due {
	var out []due
	for rest := slices.Clone(s.agenda); len(rest) > 0 && len(out) < 5; {
		next := heap.Pop(&rest).(appointment)
		o := s.current(next.o)
		if o == nil || !o.meta().Due.Equal(next.at) {
			continue // its fate has changed, as runDue will find too
		}
		out = append(out, due{next.at, becomes(o), o.id()})
	}
	return out
}

// becomes says what mature will do.
func becomes(o object) string {
	switch o := o.(type) {
	case *intent:
		if o.Capturing != nil {
			return "the capture succeeds"
		}
		return "the authorization expires"
	case *charge:
		return "the balance transaction is booked"
	}
	return string(o.kind()) + " becomes " + o.meta().DueTo
}

func (v *pageView) lookAtEffects(all []Effect) {
	byKind := map[string]int{}
	for i := len(all) - 1; i >= 0; i-- {
		e := all[i]
		byKind[e.Kind]++
		if (v.Kind != "" && e.Kind != v.Kind) || !e.mentions(v.Find) {
			continue
		}
		if v.EffectsFound++; len(v.Effects) < pageRows {
			v.Effects = append(v.Effects, e)
		}
	}
	v.EffectCounts = []count{{"", len(all)}}
	for _, kind := range sortedKeys(byKind) {
		v.EffectCounts = append(v.EffectCounts, count{kind, byKind[kind]})
	}
}

// mentions is whether an id, the key or a value of the metadata contains a text.
func (e Effect) mentions(part string) bool {
	fields := []string{e.IntentID, e.ChargeID, e.RefundID, e.DisputeID, e.Key, e.RequestID, e.Account}
	for _, value := range e.Metadata {
		fields = append(fields, value)
	}
	return slices.ContainsFunc(fields, func(f string) bool { return strings.Contains(f, part) })
}

// lookAtWebhooks is called with mu held.
func (v *pageView) lookAtWebhooks(s *Sim) {
	endpoints := newest(s.st.endpoints)
	if f := s.outbox.fixed; f != nil {
		endpoints = append(endpoints, f)
	}
	for _, e := range endpoints {
		v.Endpoints = append(v.Endpoints, shownEndpoint{
			e.ID, withoutPassword(e.URL), e.EnabledEvents, cmp.Or(e.Account, "every account"),
		})
	}
	d := &s.outbox
	d.mu.Lock()
	defer d.mu.Unlock()
	v.Undelivered, v.DeliveriesTotal = len(d.pending), len(d.log)
	for i := len(d.log) - 1; i >= 0 && len(v.Deliveries) < pageRows; i-- {
		delivery := d.log[i]
		delivery.URL = withoutPassword(delivery.URL)
		v.Deliveries = append(v.Deliveries, delivery)
	}
}

func withoutPassword(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	return u.Redacted()
}

// decimal is money with the currency behind it: $ alone is six of them.
func decimal(amount int64, currency string) string {
	number, _, _ := strings.Cut(strings.TrimPrefix(money(amount, currency), symbols[currency]), " ")
	return number + " " + currency
}

func when(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") }

func deref(t text) string {
	if t == nil {
		return ""
	}
	return *t
}

// ownOrigin refuses what another site's page sends through a browser: a request that changes something from another
// origin, and any request of a page whose name somebody has pointed at this machine (DNS rebinding), whose GETs have no
// Origin.
func ownOrigin(next http.Handler) http.Handler {
	guarded := http.NewCrossOriginProtection().Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !localName(r.Host) {
			http.Error(w, "ask for this by address, as http://127.0.0.1:"+portOf(r.Host), http.StatusMisdirectedRequest)
			return
		}
		guarded.ServeHTTP(w, r)
	})
}

// localName is whether nobody outside can own the name in a Host header: an address, or a name without a dot, such as
// localhost or that of a container.
func localName(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = strings.Trim(host, "[]")
	}
	_, err = netip.ParseAddr(name)
	return err == nil || !strings.Contains(name, ".") || strings.HasSuffix(name, ".localhost")
}

func portOf(host string) string {
	if _, port, err := net.SplitHostPort(host); err == nil {
		if _, err := strconv.ParseUint(port, 10, 16); err == nil {
			return port
		}
	}
	return "12112"
}
