package idemcheck_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
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

// shop is an API in memory that keeps its promises, but for one defect.
type shop struct {
	defect string

	mu      sync.Mutex
	keys    map[string]*kept
	effects map[string]int // by thing
	fault   bool
}

type kept struct {
	body    string // of the request
	done    bool
	status  int
	answer  string
	expired bool
}

func (s *shop) is(defect string) bool { return s.defect == defect }

func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/effects":
		s.mu.Lock()
		defer s.mu.Unlock()
		_, _ = fmt.Fprintf(w, `{"made":{"count":%d}}`, s.effects[r.Header.Get("Tenant")+r.URL.Query().Get("thing")])
	case "/fail":
		s.mu.Lock()
		defer s.mu.Unlock()
		s.fault = true
	case "/expire":
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, k := range s.keys {
			k.expired = true
		}
	case "/things":
		if r.Method == http.MethodGet {
			if s.is("a key on a GET is looked up") && r.Header.Get("Idempotency-Key") != "" {
				w.WriteHeader(http.StatusUnprocessableEntity)
				return
			}
			_, _ = io.WriteString(w, "[]")
			return
		}
		s.make(w, r)
	}
}

// make is POST /things.
func (s *shop) make(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var thing struct{ Thing, Colour string }
	_ = json.Unmarshal(body, &thing)
	key, tenant := r.Header.Get("Idempotency-Key"), r.Header.Get("Tenant")
	switch {
	case key == "" && !s.is("a key may be missing"):
		w.WriteHeader(http.StatusBadRequest)
		return
	case len(key) > 200 && !s.is("keys may be long"):
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	name := tenant + " " + key
	if s.is("a key of all tenants") {
		name = key
	}
	s.mu.Lock()
	k := s.keys[name]
	switch {
	case k != nil && k.expired:
		s.mu.Unlock()
		if s.is("an expired key is executed again") {
			s.did(tenant, thing.Thing)
			w.WriteHeader(http.StatusCreated)
			return
		}
		w.WriteHeader(http.StatusGone)
		return
	case k != nil && k.body != string(body) && !s.is("bodies are not compared"):
		s.mu.Unlock()
		w.WriteHeader(http.StatusUnprocessableEntity)
		return
	case k != nil && !k.done && !s.is("check then write"):
		s.mu.Unlock()
		w.WriteHeader(http.StatusConflict)
		return
	case k != nil && k.done:
		status, answer := k.status, k.answer
		s.mu.Unlock()
		if s.is("a replay is another response") {
			answer = strings.Replace(answer, "made", "mode", 1)
		}
		if s.is("a replay is executed") {
			s.did(tenant, thing.Thing)
		}
		if !s.is("a replay is not marked") {
			w.Header().Set("Replayed", "true")
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, answer)
		return
	}
	k = &kept{body: string(body)}
	fault := s.fault
	s.fault = false
	if !s.is("keys are not stored") {
		s.keys[name] = k
	}
	s.mu.Unlock()
	time.Sleep(5 * time.Millisecond)
	k.status, k.answer = http.StatusCreated, fmt.Sprintf(`{"made":%q}`, tenant+thing.Thing)
	if thing.Colour == "none" {
		k.status, k.answer = http.StatusPaymentRequired, `{"declined":true}`
	}
	if k.status == http.StatusCreated || s.is("a refusal has its effect") {
		s.did(tenant, thing.Thing)
	}
	if s.is("a client that goes frees its key") && r.Context().Err() != nil || fault && s.is("a failure frees the key") {
		s.mu.Lock()
		delete(s.keys, name)
		s.mu.Unlock()
	}
	s.mu.Lock()
	k.done = true
	s.mu.Unlock()
	if fault {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	w.WriteHeader(k.status)
	_, _ = io.WriteString(w, k.answer)
}

func (s *shop) did(tenant, thing string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.effects[tenant+thing]++
}

const profile = `
name: a shop
headers: {Tenant: one}
other_tenant: {Tenant: two}
key: {longest: 200}
intent: {path: /things, body: '{"thing":"{{n}}"}'}
other_body: '{"thing":"{{n}}","colour":"red"}'
refused_body: '{"thing":"{{n}}","colour":"none"}'
refused_status: 402
safe: {path: /things}
effects: {url: '/effects?thing={{n}}', count: made.count}
status: {expired: 410}
replay: {marker: {Replayed: "true"}}
faults: [{name: 500 after the effect, path: /fail}]
expire: {path: /expire}
within: 5s
`

func ask(t *testing.T, defect, text string) idemcheck.Report {
	t.Helper()
	server := httptest.NewServer(&shop{defect: defect, keys: map[string]*kept{}, effects: map[string]int{}})
	t.Cleanup(server.Close)
	p, err := idemcheck.Parse([]byte(text))
	require.NoError(t, err)
	report, err := idemcheck.Run(t.Context(), server.URL, p, false)
	require.NoError(t, err)
	return report
}

// TestRunFindsEachDefect: an API without a defect is clean, and each defect breaks its check.
func TestRunFindsEachDefect(t *testing.T) {
	t.Parallel()
	for defect, check := range map[string]string{
		"":                                 "",
		"a key may be missing":             "missing key",
		"keys may be long":                 "invalid key",
		"a replay is another response":     "replay",
		"a replay is executed":             "replay",
		"a replay is not marked":           "replay",
		"keys are not stored":              "replay",
		"bodies are not compared":          "mismatch",
		"a refusal has its effect":         "refusal",
		"check then write":                 "in flight",
		"a client that goes frees its key": "client gone",
		"a failure frees the key":          "fault after the effect",
		"a key of all tenants":             "scope by tenant",
		"a key on a GET is looked up":      "safe methods",
		"an expired key is executed again": "expiry",
	} {
		t.Run(defect, func(t *testing.T) {
			t.Parallel()
			report := ask(t, defect, profile)
			require.Zero(t, report.Count(idemcheck.NotAsked))
			for _, result := range report.Results {
				if result.Check == check {
					require.Equal(t, idemcheck.Broken, result.Verdict, "%+v", result)
				}
			}
			if defect == "" {
				require.Zero(t, report.Count(idemcheck.Broken), "%+v", report.Results)
			}
		})
	}
}

// TestNothingIsBelieved: where effects cannot be counted, what they decide is not asked.
func TestNothingIsBelieved(t *testing.T) {
	t.Parallel()
	report := ask(t, "a replay is executed", strings.Replace(profile, "effects:", "#", 1))
	for _, result := range report.Results {
		if result.Check == "replay" || result.Check == "in flight" || result.Check == "client gone" {
			require.Equal(t, idemcheck.NotAsked, result.Verdict, result.Check)
		}
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                           "name is missing",
		"name: a":                    "intent.path is missing",
		"name: a\nintnet: {}":        "line 2: field intnet not found",
		profile + "\nconcurrent: 1":  "concurrent must be from 2 to 1000",
		profile + "\nconcurrent: 1e": "line 18",
		strings.Replace(profile, "within: 5s", "within: 9m", 1):                    "within must be at most 5m",
		strings.Replace(profile, "refused_status: 402", "", 1):                     "refused_body needs refused_status",
		strings.Replace(profile, "count: made.count", "command: [echo, \"1\"]", 1): "not both",
	} {
		_, err := idemcheck.Parse([]byte(text))
		require.ErrorContains(t, err, want)
	}
}

// TestRunAsksOnlyThisMachine: the traffic is not for others, unless somebody says that it may be.
func TestRunAsksOnlyThisMachine(t *testing.T) {
	t.Parallel()
	p, err := idemcheck.Parse([]byte(profile))
	require.NoError(t, err)
	for _, address := range []string{"https://api.example", "http://192.0.2.1", "http://localhost.example", "::"} {
		_, err = idemcheck.Run(t.Context(), address, p, false)
		require.ErrorIs(t, err, idemcheck.ErrNotLoopback, address)
	}
}

func TestOutputs(t *testing.T) {
	t.Parallel()
	report := ask(t, "bodies are not compared", profile)
	var b bytes.Buffer
	require.NoError(t, report.Print(&b))
	require.Regexp(t, `(?m)^broken +mismatch +another body under the key: 201`, b.String())
	require.Contains(t, b.String(), "10 hold, 1 broken, 0 not asked")
	b.Reset()
	require.NoError(t, report.JUnit(&b))
	var suite struct {
		Failures int        `xml:"failures,attr"`
		Cases    []struct{} `xml:"testcase"`
	}
	require.NoError(t, xml.Unmarshal(b.Bytes(), &suite))
	require.Equal(t, 1, suite.Failures)
	require.Len(t, suite.Cases, 11)
	b.Reset()
	require.NoError(t, report.JSON(&b))
	require.Contains(t, b.String(), `"verdict": "broken"`)
	b.Reset()
	require.NoError(t, report.Badge(&b))
	require.Contains(t, b.String(), "1 broken")
	require.NoError(t, xml.Unmarshal(b.Bytes(), new(any)))
}
