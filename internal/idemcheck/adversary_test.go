package idemcheck_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/idemcheck"
)

// thing is what an adversary is sent.
type thing struct {
	key, id, body, colour string
	r                     *http.Request
}

// adversary is a server whose requests are answered by a function. It counts what the function says has happened.
type adversary struct {
	mu      sync.Mutex
	effects map[string]int
	made    map[string]*made
	expired bool
	serve   func(a *adversary, w http.ResponseWriter, t thing)
}

type made struct {
	body, answer string
	done         bool
}

func (a *adversary) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/effects" {
		a.mu.Lock()
		defer a.mu.Unlock()
		_, _ = fmt.Fprint(w, a.effects[r.URL.Query().Get("thing")])
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var t struct{ Thing, Colour string }
	_ = json.Unmarshal(body, &t)
	a.serve(a, w, thing{r.Header.Get("Idempotency-Key"), t.Thing, string(body), t.Colour, r})
}

func (a *adversary) did(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.effects[id]++
}

// once makes a thing once for a key, and answers with the status.
func (a *adversary) once(w http.ResponseWriter, t thing, key string, status int, work time.Duration) {
	a.mu.Lock()
	m := a.made[key]
	switch {
	case m != nil && !m.done:
		a.mu.Unlock()
		w.WriteHeader(http.StatusConflict)
		return
	case m != nil:
		defer a.mu.Unlock()
		if m.body != t.body {
			w.WriteHeader(http.StatusUnprocessableEntity)
			return
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, m.answer)
		return
	}
	m = &made{body: t.body, answer: "made " + t.id}
	a.made[key] = m
	a.mu.Unlock()
	time.Sleep(work)
	a.did(t.id)
	a.mu.Lock()
	m.done = true
	a.mu.Unlock()
	w.WriteHeader(status)
	_, _ = io.WriteString(w, m.answer)
}

const small = `
name: an adversary
key: {optional: true}
intent: {path: /things, body: '{"thing":"{{n}}"}'}
effects: {url: '/effects?thing={{n}}'}
within: 30s
settle: 25ms
concurrent: 10
`

// meet asks an adversary, and returns the verdicts with their evidence, by check.
func meet(t *testing.T, text string, serve func(*adversary, http.ResponseWriter, thing)) (map[string]idemcheck.Result, error) {
	t.Helper()
	server := httptest.NewServer(&adversary{effects: map[string]int{}, made: map[string]*made{}, serve: serve})
	t.Cleanup(server.Close)
	p, err := idemcheck.Parse([]byte(text))
	require.NoError(t, err)
	report, err := idemcheck.Run(t.Context(), server.URL, p, false)
	results := map[string]idemcheck.Result{}
	for _, r := range report.Results {
		results[r.Check] = r
	}
	return results, err
}

// TestGoodServersAreClean: nothing is broken at a server that keeps the promises of its profile, however it keeps them.
func TestGoodServersAreClean(t *testing.T) {
	t.Parallel()
	const work = 5 * time.Millisecond
	created := func(a *adversary, w http.ResponseWriter, t thing) { a.once(w, t, t.key, http.StatusCreated, work) }
	for name, c := range map[string]struct {
		profile string
		asked   []string
		serve   func(a *adversary, w http.ResponseWriter, t thing)
	}{
		"bare keys": {"", nil, created},
		"slow":      {"", nil, func(a *adversary, w http.ResponseWriter, t thing) { a.once(w, t, t.key, 200, 100*time.Millisecond) }},
		"closes": {"", nil, func(a *adversary, w http.ResponseWriter, t thing) {
			w.Header().Set("Connection", "close")
			created(a, w, t)
		}},
		"202 is final":  {"status: {success: [202]}", nil, func(a *adversary, w http.ResponseWriter, t thing) { a.once(w, t, t.key, 202, work) }},
		"425 in flight": {"status: {in_flight: [425]}", nil, func(a *adversary, w http.ResponseWriter, t thing) { a.once(with425{w}, t, t.key, 201, work) }},
		"refuses with 409": {"refused_body: '{\"thing\":\"{{n}}\",\"colour\":\"none\"}'\nrefused_status: 409", []string{"refusal"},
			func(a *adversary, w http.ResponseWriter, t thing) {
				if t.colour == "none" {
					w.WriteHeader(http.StatusConflict)
					return
				}
				created(a, w, t)
			}},
		"another endpoint is a 409": {"other_endpoint: {path: /others, body: '{\"thing\":\"{{n}}\"}', refused: true}\nstatus: {mismatch: 409}",
			[]string{"scope by endpoint"}, func(a *adversary, w http.ResponseWriter, t thing) {
				if t.r.URL.Path == "/others" {
					w.WriteHeader(http.StatusConflict)
					return
				}
				created(a, w, t)
			}},
		"a failure before the effect is kept": {"faults: [{name: 500, path: /fail, status: 500}]", []string{"fault"},
			func(a *adversary, w http.ResponseWriter, t thing) {
				a.mu.Lock()
				if t.r.URL.Path == "/fail" {
					a.expired = true
				}
				failed := a.expired && a.made[t.key] == nil
				a.mu.Unlock()
				switch {
				case t.r.URL.Path == "/fail":
				case failed:
					w.WriteHeader(http.StatusInternalServerError)
				default:
					created(a, w, t)
				}
			}},
		"keys have no capitals": {"", nil, func(a *adversary, w http.ResponseWriter, t thing) {
			if t.key != strings.ToLower(t.key) {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			created(a, w, t)
		}},
		"a host of its own": {"headers: {Host: shop.example}", nil, func(a *adversary, w http.ResponseWriter, t thing) {
			if t.r.Host != "shop.example" {
				w.WriteHeader(http.StatusMisdirectedRequest)
				return
			}
			created(a, w, t)
		}},
		"a step's own key": {"setup: [{path: /setup, headers: {idempotency-key: 'own-{{n}}'}}]", nil,
			func(a *adversary, w http.ResponseWriter, t thing) {
				if t.r.URL.Path == "/setup" {
					if !strings.HasPrefix(t.key, "own-") {
						w.WriteHeader(http.StatusBadRequest)
					}
					return
				}
				created(a, w, t)
			}},
		"expired is a 409": {"expire: {path: /expire}\nstatus: {expired: 409}", []string{"expiry"},
			func(a *adversary, w http.ResponseWriter, t thing) {
				a.mu.Lock()
				if t.r.URL.Path == "/expire" {
					a.expired = true
				}
				expired := a.expired
				a.mu.Unlock()
				switch {
				case t.r.URL.Path == "/expire":
				case expired:
					w.WriteHeader(http.StatusConflict)
				default:
					created(a, w, t)
				}
			}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			results, err := meet(t, small+c.profile, c.serve)
			require.NoError(t, err)
			for check, r := range results {
				require.NotEqual(t, idemcheck.Broken, r.Verdict, "%s: %s", check, r.Evidence)
			}
			for _, check := range append([]string{"replay", "in flight", "client gone"}, c.asked...) {
				require.Equal(t, idemcheck.Holds, results[check].Verdict, "%+v", results[check])
			}
		})
	}
}

// with425 has duplicates in flight get 425.
type with425 struct{ http.ResponseWriter }

func (w with425) WriteHeader(status int) {
	if status == http.StatusConflict {
		status = http.StatusTooEarly
	}
	w.ResponseWriter.WriteHeader(status)
}

// TestCheatsAreFound: each server of which a check must say that a promise is broken.
func TestCheatsAreFound(t *testing.T) {
	t.Parallel()
	const work = 5 * time.Millisecond
	for name, c := range map[string]struct {
		check string
		serve func(a *adversary, w http.ResponseWriter, t thing)
	}{
		"a key of a connection": {"in flight", func(a *adversary, w http.ResponseWriter, t thing) { a.once(w, t, t.key+t.r.RemoteAddr, 201, work) }},
		"a key of its first characters": {"in flight", func(a *adversary, w http.ResponseWriter, t thing) {
			a.once(w, t, t.key[:min(len(t.key), 20)], 201, work)
		}},
		"the path is the key": {"in flight", func(a *adversary, w http.ResponseWriter, t thing) { a.once(w, t, t.r.URL.Path, 201, work) }},
		"keys that differ in case are one": {"replay", func(a *adversary, w http.ResponseWriter, t thing) {
			a.once(w, t, strings.ToLower(t.key), 201, work)
		}},
		"keys that differ in case are one, and bodies are not compared": {"replay",
			func(a *adversary, w http.ResponseWriter, t thing) {
				t.body = ""
				a.once(w, t, strings.ToLower(t.key), 201, work)
			}},
		"all get one response, and two are executed": {"in flight", func(a *adversary, w http.ResponseWriter, t thing) {
			time.Sleep(work)
			a.mu.Lock()
			defer a.mu.Unlock()
			if a.effects[t.id] < 2 {
				a.effects[t.id]++
			}
			_, _ = io.WriteString(w, "made "+t.id)
		}},
		"executed again when the client leaves": {"client gone", func(a *adversary, w http.ResponseWriter, t thing) {
			a.once(w, t, t.key, 201, work)
			select {
			case <-t.r.Context().Done(): // which a busy machine notices late
				a.did(t.id)
			case <-time.After(100 * time.Millisecond):
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			results, err := meet(t, small, c.serve)
			require.NoError(t, err)
			require.Equal(t, idemcheck.Broken, results[c.check].Verdict, "%+v", results[c.check])
		})
	}
}

// TestIncompleteReportProvesNothing: one that ends because something could not be asked says what, and has no green badge.
func TestIncompleteReportProvesNothing(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(&adversary{effects: map[string]int{}, made: map[string]*made{},
		serve: func(a *adversary, w http.ResponseWriter, t thing) {
			if t.r.URL.Path == "/fail" {
				w.WriteHeader(http.StatusNotFound)
				return
			}
			a.once(w, t, t.key, http.StatusCreated, 5*time.Millisecond)
		}})
	t.Cleanup(server.Close)
	p, err := idemcheck.Parse([]byte(small + "faults: [{name: a 500, path: /fail}]"))
	require.NoError(t, err)
	report, err := idemcheck.Run(t.Context(), server.URL, p, false)
	require.ErrorContains(t, err, "fault: inject")
	require.False(t, report.Essential())
	last := report.Results[len(report.Results)-1]
	require.Equal(t, idemcheck.NotAsked, last.Verdict)
	require.Contains(t, last.Evidence, `it could not be asked: inject "a 500": POST /fail: 404`)
	var badge strings.Builder
	require.NoError(t, report.Badge(&badge))
	require.Contains(t, badge.String(), "#777")
}

// TestCountsAreNumbersOfEffects: half an effect is a mistake in the profile or the API, and not none.
func TestCountsAreNumbersOfEffects(t *testing.T) {
	t.Parallel()
	for _, count := range []string{"0.5", "-1", "1e30"} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/effects" {
				_, _ = io.WriteString(w, count)
			}
		}))
		t.Cleanup(server.Close)
		p, err := idemcheck.Parse([]byte(small))
		require.NoError(t, err)
		_, err = idemcheck.Run(t.Context(), server.URL, p, false)
		require.ErrorContains(t, err, "is no number of effects", count)
	}
}
