package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	httpapi "example.com/payonce/internal/http"
	"example.com/payonce/proof/internal/inventory"
	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/process"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// TestAttacksSucceedWhereNothingStopsThem: a server that lets everybody do everything, and shows everything, is found
// broken by each.
func TestAttacksSucceedWhereNothingStopsThem(t *testing.T) {
	t.Parallel()
	s := &site{api: &process.API{}, pool: dbtest.New(t)}
	s.service = s.pool.Raw().Config().ConnString()
	s.owned = owned{order: "ord_of_victim", payment: "pay_of_victim", refund: "rfd_of_victim", checkout: "chk_of_victim",
		endpoint: "whe_of_victim", delivery: "whd_of_victim",
		key: "key-of-victim", sku: "sku-of-victim"}
	spec, err := inventory.Read("internal/http/openapi.yaml")
	require.NoError(t, err)
	var paths []string
	for _, m := range regexp.MustCompile(`(?m)^  (/\S*):$`).FindAllStringSubmatch(spec, -1) {
		paths = append(paths, fmt.Sprintf(`%q:{"get":{},"post":{}}`, m[1]))
	}
	slow := time.Duration(0)
	open := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/openapi.json":
			_, _ = fmt.Fprintf(w, `{"paths":{%s}}`, strings.Join(paths, ","))
		case r.URL.Path == "/operator/login":
			w.Header().Set("Set-Cookie", "payonce_operator=a; HttpOnly; SameSite=Strict")
			w.WriteHeader(http.StatusSeeOther)
		case r.Method == "POST" && r.URL.Path == "/v1/orders" && r.Header.Get("Authorization") != "":
			time.Sleep(slow)
			w.WriteHeader(http.StatusCreated)
			_, _ = fmt.Fprintf(w, `{"id":%q}`, time.Now().String())
		default:
			_, _ = fmt.Fprintf(w, `{"id":"ord_of_victim","available":9,"next_action":{"client_secret":"s"}} <script>alert(1)</script>`)
		}
	}))
	t.Cleanup(open.Close)
	s.api.URL, s.api.Admin = open.URL, strings.TrimPrefix(open.URL, "http://")
	for _, who := range []*tenant{&s.victim, &s.attacker} {
		id := fmt.Sprintf("ten_%d", len(s.victim.id))
		key, _, _ := httpapi.NewAPIKey(id)
		*who = tenant{id, client{base: open.URL, key: key}}
	}
	needsAService := []string{ // which makes what they look at
		"replayed webhook", "scripts in text", "secrets in outputs", "slow clients", "escapes in the terminal",
		"broker forgery", "internal addresses", "hostile endpoints", "hostile answers of Stripe", "hostile broker", "read-only server", "connection slots", "full disk",
		"memory", "unfinished headers", "unread answers", "half-sent bodies",
	}
	for _, a := range attacks {
		if slices.Contains(needsAService, a.name) || strings.HasPrefix(a.name, "flood of ") {
			continue
		}
		_, err := a.run(t.Context(), s)
		require.ErrorIs(t, err, errDidNotHold, a.name)
	}
}

// TestVerdict: one that succeeded counts more than one that could not be tried.
func TestVerdict(t *testing.T) {
	t.Parallel()
	held, broken, untried := tried{}, tried{err: didNotHold("x")}, tried{err: errors.New("no database")}
	require.Equal(t, 0, verdict([]tried{held, held}))
	require.Equal(t, exitBroken, verdict([]tried{held, untried, broken}))
	require.Equal(t, exitNotTried, verdict([]tried{untried, held}))
}

func TestRun(t *testing.T) {
	t.Parallel()
	said := func(code int, args ...string) string {
		t.Helper()
		var out, err bytes.Buffer
		require.Equal(t, code, run(context.Background(), args, &out, &err), err.String())
		return out.String() + err.String()
	}
	require.Contains(t, said(0, "-list"), "forged webhooks")
	require.NotContains(t, said(0, "-list", "-only", "tenancy"), "forged webhooks")
	require.Contains(t, said(exitNotTried, "-only", "no such attack"), "no attack has such a name")
	require.Contains(t, said(exitNotTried, "-only", "("), "missing closing )")
	require.NotContains(t, said(0, "-list", "-skip", "^flood of"), "flood of")
	require.Contains(t, said(0, "-list", "-skip", "^flood of"), "forged webhooks")
	require.Contains(t, said(exitNotTried, "-skip", "("), "missing closing )")
	require.Contains(t, said(exitNotTried, "-skip", "flood", "-write", "docs"), "-write is for all attacks")
	require.Contains(t, said(exitNotTried, "-fast"), "not defined")
	require.Contains(t, said(0, "-list", "-long"), "forged webhooks")
}

func TestPage(t *testing.T) {
	t.Parallel()
	page, err := inventory.Read("docs/security.md")
	require.NoError(t, err)
	on := occasion{time.Date(2026, 11, 25, 0, 0, 0, 0, time.UTC), "0123abc with changes", 2}
	written, err := withTable("a\n"+pageBegin+"old\n"+pageEnd+"b\n",
		[]tried{{attack: attack{name: "n", who: "w", tries: "t", holds: "h"}, seen: "s"},
			{attack: attack{name: "flood", who: "w", tries: "t", holds: doesNotSlow + "; and more"}, seen: "s"}}, on)
	require.NoError(t, err)
	require.Contains(t, written, "a\n"+pageBegin+"Tried on 2026-11-25 at commit 0123abc with changes, on 2 processors. ")
	require.Contains(t, written, "\n\n| attack | by | tried | must hold | seen |\n| --- | --- | --- | --- | --- |\n"+
		"| n | w | t | h | s |\n| flood | w | t | as above; and more | s |\n"+pageEnd+"b\n")
	require.Equal(t, 1, strings.Count(written, doesNotSlow), "it is said once")
	if _, err := os.Stat(inventory.Path(".git")); err == nil {
		now, err := thisOccasion(t.Context())
		require.NoError(t, err)
		require.Regexp(t, `^[0-9a-f]{7,}( with changes)?$`, now.version)
	}
	_, err = withTable("a", nil, on)
	require.ErrorContains(t, err, "no place")
	require.ErrorContains(t, write("x", []tried{{err: didNotHold("x")}}, on), "not written")

	model, table, found := strings.Cut(page, pageBegin)
	require.True(t, found)
	names := map[string]bool{}
	for _, a := range attacks {
		names[a.name] = true
		require.Contains(t, model, a.name, "the threat model does not name the attack")
		require.Contains(t, table, "| "+a.name+" | "+a.who+" | "+a.tries+" | "+a.mustHold()+" |",
			"go run -C proof ./attack -write docs")
	}
	lines := 0
	for line := range strings.Lines(model) {
		cells := strings.Split(strings.Trim(line, "|\n "), " | ")
		if len(cells) != 5 || cells[0] == "who" || cells[0] == "---" {
			continue
		}
		lines++
		for _, name := range strings.Split(cells[4], ", ") {
			require.True(t, names[name], "the threat model names %q, which is no attack, on the line of %s", name, cells[0])
		}
	}
	require.Greater(t, lines, 15, "the threat model was not read")
}

// TestSlowedVictim: a median eleven times as long, a failed request, a webhook that is refused and a probe that says no are each
// seen.
// TestLookout: a secret is found in the last row of a table, in its text and in its bytes, unless it is used from there.
func TestLookout(t *testing.T) {
	t.Parallel()
	const secret = "0123456789abcdef0123456789abcdef"
	l := lookout{secrets: map[string]string{"a client's secret": secret}, outputs: map[string]bool{}}
	for name, bytes := range map[string]string{"named " + secret: strings.Repeat("a", 32), "named": secret} {
		s := &site{pool: dbtest.New(t)}
		require.NoError(t, s.tables(t.Context(), l))
		require.True(t, l.outputs["table tenants"], "it is empty, and was read")
		_, err := s.pool.Raw().Exec(t.Context(), "INSERT INTO tenants (id, name, fingerprint_secret) VALUES "+
			"('ten_1', 'first', $1), ('ten_2', $2, $3)", make([]byte, 32), name, []byte(bytes))
		require.NoError(t, err)
		err = s.tables(t.Context(), l)
		require.ErrorIs(t, err, errDidNotHold)
		require.ErrorContains(t, err, "a client's secret is in table tenants")
	}
	require.NoError(t, l.read("payments", secret), "it is used from there")
	require.ErrorIs(t, l.read("the log", "with "+secret), errDidNotHold)
	require.ErrorContains(t, l.read("the log", ""), "nothing was read")
}

func TestSlowedVictim(t *testing.T) {
	t.Parallel()
	var slow, failing, unready, refusing atomic.Bool
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/readyz":
			if unready.Load() {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		case r.Method == "GET":
			if failing.Load() {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			_, _ = w.Write([]byte(`{"id":"a"}`))
		case r.URL.Path == "/v1/webhooks/stripe":
			if refusing.Load() {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		default:
			time.Sleep(time.Millisecond)
			if slow.Load() {
				time.Sleep(100 * time.Millisecond)
			}
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write([]byte(`{"id":"a"}`))
		}
	}))
	t.Cleanup(service.Close)
	s := &site{api: &process.API{URL: service.URL}, victim: tenant{client: client{base: service.URL}}}
	amid := func(what *atomic.Bool) error {
		_, err := s.amid(t.Context(), 0, func() (func() error, error) {
			what.Store(true)
			return func() error { what.Store(false); return nil }, nil
		})
		return err
	}
	require.NoError(t, amid(new(atomic.Bool)))
	require.ErrorIs(t, amid(&failing), errDidNotHold)
	require.ErrorIs(t, amid(&unready), errDidNotHold)
	require.ErrorIs(t, amid(&slow), errDidNotHold)
	require.ErrorIs(t, amid(&refusing), errDidNotHold)
}

// TestFlood: it is sent over all its connections, each request differs where it should, and its answers are counted.
func TestFlood(t *testing.T) {
	t.Parallel()
	var keys sync.Map
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, twice := keys.LoadOrStore(r.Header.Get("Idempotency-Key"), true)
		if twice || len(r.Header.Get("Idempotency-Key")) != len(random) {
			w.WriteHeader(http.StatusConflict)
		}
	}))
	t.Cleanup(service.Close)
	in, feed := io.Pipe()
	go func() {
		_ = json.NewEncoder(feed).Encode(flood{Addr: strings.TrimPrefix(service.URL, "http://"), Connections: 10,
			Requests: []string{raw("POST", "/", "", random, "{}")}})
		time.Sleep(200 * time.Millisecond)
		_ = feed.Close()
	}()
	var out bytes.Buffer
	require.NoError(t, sendFlood(in, &out))
	require.Regexp(t, `^\{"200":\d+\}\n$`, out.String())
}
