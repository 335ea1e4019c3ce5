package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/idemcheck"
)

var update = flag.Bool("update", false, "write the table of what an outsider sees into README.md")

// outsiders' profile: all that idemcheck needs to know of a shop in this house.
const outsider = `
name: museum
headers: {Tenant: alice}
setup: [{path: /orders, capture: {order: order_id}}]
intent: {path: /payments, body: '{"order_id":"{{order}}"}'}
effects: {url: '/charges?order={{order}}'}
concurrent: 10
settle: 50ms
`

// What some shops are asked, too.
const (
	tenants    = "other_tenant: {Tenant: bob}\n"
	otherOrder = "setup: [{path: /orders, capture: {order: order_id}}, {path: /orders, capture: {other: order_id}}]\n" +
		"other_body: '{\"order_id\":\"{{other}}\"}'\n"
)

// later has stored responses expire, which are promised to be replayed all the same.
func later(hours int) string {
	return fmt.Sprintf("expire: {path: '/later?hours=%d'}\nstatus: {expired: 201}\n", hours)
}

// fails has a fault each; the client retries after two minutes, or hours later.
func fails(hours int, kinds ...string) string {
	var list []string
	for _, kind := range kinds {
		list = append(list, fmt.Sprintf("{name: '%s', path: '/faults?order={{order}}&kind=%s&hours=%d'}", kind, url.QueryEscape(kind), hours))
	}
	return "faults: [" + strings.Join(list, ", ") + "]\n"
}

// What can go wrong at the provider, once.
const (
	lost         = "the answer of the provider is lost"
	killed       = "the process is killed after the charge"
	killedBefore = "the process is killed before the charge"
	away         = "the provider is away for a moment"
)

var faultsByName = map[string]fault{lost: loseTheAnswer, killed: killAfter, killedBefore: killBefore, away: nothing}

// seen is what an outsider, who has HTTP and the provider's log, sees of an exhibit: the check that is broken, what else
// has to happen, and the evidence.
var seen = map[string]struct{ check, when, asked, evidence string }{
	"check_then_write":        {"in flight", "", "", `([2-9]|10) effects`},
	"for_update_of_nothing":   {"in flight", "", "", `([2-9]|10) effects`},
	"answer_from_nothing":     {"in flight", "", "", `(got|and) 200 .*; 1 effects`},
	"upsert_pending":          {"replay", "", "", "no final response within 2s, the last was 409"},
	"key_without_tenant":      {"scope by tenant", "", tenants, "another tenant got the response of the first: 201"},
	"key_without_fingerprint": {"mismatch", "", otherOrder, "another body under the key: 201"},
	"replay_through_jsonb":    {"replay", "", "", "the first response was 201"},
	"cached_failure":          {"fault", away, fails(0, away), "no final response within 2s, the last was 500"},
	"key_expires":             {"expiry", "after two days", later(50), "2 effects after the expiry"},
	"daily_partitions":        {"expiry", "after midnight", later(24), "2 effects after the expiry"},
	"gateway_in_transaction":  {"fault", killed, fails(0, killed), "2 effects after the fault"},
	"delete_the_stuck_key":    {"fault", killed, fails(0, killed), "2 effects after the fault"},
	"exists_means_done":       {"fault", killedBefore, fails(0, killedBefore), "0 effects after the fault"},
	"timeout_runs_again":      {"fault", lost, fails(0, lost), "2 effects after the fault"},
	"timeout_means_declined":  {"fault", lost, fails(0, lost), "no success after the fault .*402"},
	"new_key_per_attempt":     {"fault", lost, fails(0, lost), "2 effects after the fault"},
	"provider_forgets":        {"fault", lost + ", and the retry comes the day after", fails(25, lost), "2 effects after the fault"},
}

// unseen are the exhibits of which an outsider sees nothing, and why.
var unseen = map[string]string{
	"takeover_without_fence": "the first process would have to be paused for longer than its lease",
	"lease_by_app_clock":     "one process would need a clock that is an hour ahead",
	"Events out":             "what is wrong is between the database and the broker, and no response shows it",
	"Events in":              "what is wrong is between the broker and the database, and no response shows it",
	"The client":             "the API is right, and its client is wrong",
}

// shopfront serves a shop over HTTP, and next to it what an outsider needs: orders, the provider's log, faults, and time.
type shopfront struct {
	s *side

	mu     sync.Mutex
	orders map[string]int            // amounts
	faults map[string]faultOfAnOrder // of orders
}

type faultOfAnOrder struct {
	kind  string
	after time.Duration // passes before the client retries
}

func (f *shopfront) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	hours, _ := strconv.Atoi(r.FormValue("hours"))
	switch r.URL.Path {
	case "/orders":
		f.mu.Lock()
		defer f.mu.Unlock()
		order := f.s.customer(r.Header.Get("Tenant"), "")
		f.orders[order.Order] = order.Amount
		_, _ = fmt.Fprintf(w, `{"order_id":%q}`, order.Order)
	case "/charges":
		f.s.provider.mu.Lock()
		defer f.s.provider.mu.Unlock()
		n := 0
		for _, c := range f.s.provider.log {
			if c.Order == r.FormValue("order") {
				n++
			}
		}
		_, _ = fmt.Fprint(w, n)
	case "/later":
		f.s.timePasses(time.Duration(hours) * time.Hour)
	case "/faults":
		f.mu.Lock()
		defer f.mu.Unlock()
		f.faults[r.FormValue("order")] = faultOfAnOrder{r.FormValue("kind"), 2*time.Minute + time.Duration(hours)*time.Hour}
	case "/payments":
		f.pay(w, r)
	}
}

// pay is POST /payments. A shop runs to its end when its client has gone, as most frameworks let it.
func (f *shopfront) pay(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Order string `json:"order_id"`
	}
	key := r.Header.Get("Idempotency-Key")
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil || key == "" {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	f.mu.Lock()
	amount, planned := f.orders[body.Order], f.faults[body.Order]
	delete(f.faults, body.Order)
	f.mu.Unlock()
	if planned.kind != "" {
		f.s.provider.next(body.Order, faultsByName[planned.kind])
		f.s.provider.outage(planned.kind == away)
	}
	var a answer
	err := process(func() {
		a = f.s.shop.Pay(f.s.ctx, request{Tenant: r.Header.Get("Tenant"), Key: key, Order: body.Order, Amount: amount, Clock: time.Now()})
	})
	if planned.kind != "" {
		f.s.provider.outage(false)
		f.s.timePasses(planned.after)
	}
	switch {
	case errors.Is(err, errKilled):
		panic(http.ErrAbortHandler) // no response, and the connection breaks
	case err != nil:
		a = refusal(http.StatusInternalServerError, "bug")
	}
	w.WriteHeader(a.Status)
	_, _ = w.Write(a.Body)
}

// fromOutside asks a shop of the exhibit over HTTP.
func (m *museum) fromOutside(t *testing.T, at *place, e exhibit, shop func(*side) shop, asked string) idemcheck.Report {
	t.Helper()
	text := outsider + asked
	if strings.Contains(asked, "setup:") {
		text = strings.Replace(text, "setup: [{path: /orders, capture: {order: order_id}}]\n", "", 1)
	}
	profile, err := idemcheck.Parse([]byte(text))
	require.NoError(t, err)
	var report idemcheck.Report
	e.scenario = func(s *side) {
		s.provider.takes = 20 * time.Millisecond
		server := httptest.NewServer(&shopfront{s: s, orders: map[string]int{}, faults: map[string]faultOfAnOrder{}})
		defer server.Close()
		report, err = idemcheck.Run(t.Context(), server.URL, profile, false)
		must(err)
	}
	_, err = m.play(t.Context(), at, e, shop)
	require.NoError(t, err)
	return report
}

// TestOutsider: idemcheck finds each exhibit whose damage an outsider can see, by the check that README.md names, and
// nothing in payonce, which is asked all of it in the same house.
func TestOutsider(t *testing.T) {
	t.Parallel()
	m := setup(t)
	table := strings.Builder{}
	table.WriteString("\n| exhibit | seen from outside by | when, or why not |\n| --- | --- | --- |\n")
	for _, room := range rooms {
		if why := unseen[room.title]; why != "" {
			fmt.Fprintf(&table, "| %s: each of %d | no | %s |\n", room.title, len(room.exhibits), why)
			continue
		}
		for _, e := range room.exhibits {
			look, isSeen := seen[e.name]
			why := unseen[e.name]
			require.NotEqual(t, isSeen, why != "", "%s is either seen, or there is a reason", e.name)
			if !isSeen {
				fmt.Fprintf(&table, "| [%s](%s.go) | no | %s |\n", escape(e.pattern), e.name, why)
				continue
			}
			fmt.Fprintf(&table, "| [%s](%s.go) | %s | %s |\n", escape(e.pattern), e.name, look.check, look.when)
			t.Run(e.name, func(t *testing.T) {
				report := m.fromOutside(t, m.wrong, e, e.wrong, look.asked+"within: 2s\n")
				i := slices.IndexFunc(report.Results, func(r idemcheck.Result) bool { return r.Check == look.check })
				require.Equal(t, idemcheck.Broken, report.Results[i].Verdict, "%+v", report.Results)
				require.Regexp(t, look.evidence, report.Results[i].Evidence)
			})
		}
	}
	t.Run("payonce", func(t *testing.T) {
		day := strings.TrimPrefix(fails(25, lost), "faults: [")
		asked := tenants + otherOrder + later(50) + strings.Replace(fails(0, lost, killed, killedBefore, away), "]\n", ", "+day, 1)
		report := m.fromOutside(t, m.payonce, checkThenWrite, m.right, asked+"within: 30s\n")
		require.Zero(t, report.Count(idemcheck.Broken), "%+v", report.Results)
		for _, look := range seen {
			i := slices.IndexFunc(report.Results, func(r idemcheck.Result) bool { return r.Check == look.check })
			require.Equal(t, idemcheck.Holds, report.Results[i].Verdict, "%+v", report.Results[i])
		}
	})

	const begins, ends = "<!-- table: written by go test -C proof ./museum -run TestOutsider -update -->\n", "\n<!-- end of what is seen -->"
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(text), begins)
	require.True(t, found)
	old, after, found := strings.Cut(rest, ends)
	require.True(t, found)
	if *update {
		require.NoError(t, os.WriteFile("README.md", []byte(before+begins+table.String()+ends+after), 0o644))
		return
	}
	require.Equal(t, table.String(), old, "README.md is older than the exhibits: -update")
}
