package idemcheck_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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

	met atomic.Bool // two requests with one key, between the check and the write
}

type kept struct {
	body    string // of the request
	done    bool
	status  int
	answer  string
	expired bool
	second  chan struct{} // closed by the second request of the key
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
	case "/nowhere":
		w.WriteHeader(http.StatusNotFound)
	case "/expire":
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, k := range s.keys {
			k.expired = true
		}
	case "/things", "/others":
		key := r.Header.Get("Idempotency-Key")
		switch {
		case r.Method == http.MethodGet && s.is("a key on a GET is looked up") && key != "":
			w.WriteHeader(http.StatusUnprocessableEntity)
			return
		case r.Method == http.MethodGet && s.is("a GET with a key is executed") && key != "":
			s.did(r.Header.Get("Tenant"), r.URL.Query().Get("thing"))
		}
		if r.Method == http.MethodGet {
			_, _ = io.WriteString(w, "[]")
			return
		}
		s.make(w, r)
	}
}

// refuse refuses a key, and explains why.
func (s *shop) refuse(w http.ResponseWriter, status int, why string) {
	if !s.is(why + " is not explained") {
		w.Header().Set("Content-Type", "application/problem+json")
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, `{"title":"the key"}`)
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
	if s.is("bare keys are refused") && key != "" && !strings.HasPrefix(key, `"`) {
		s.refuse(w, http.StatusBadRequest, "an invalid key")
		return
	}
	if !s.is("a quoted key is another") {
		key = strings.Trim(key, `"`)
	}
	_, sent := r.Header["Idempotency-Key"]
	switch {
	case !sent && !s.is("a key may be missing"):
		s.refuse(w, http.StatusBadRequest, "a missing key")
		return
	case sent && key == "" && !s.is("a key may be empty"),
		len(key) > 200 && !s.is("keys may be long"), strings.Contains(key, ",") && !s.is("keys may be lists"):
		s.refuse(w, http.StatusBadRequest, "an invalid key")
		return
	}
	name := r.URL.Path + " " + tenant + " " + key
	if s.is("a key of all tenants") {
		name = key
	}
	if s.is("a key of all endpoints") {
		name = tenant + " " + key
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
		s.refuse(w, http.StatusUnprocessableEntity, "a mismatch")
		return
	case k != nil && !k.done && !s.is("check then write"):
		s.mu.Unlock()
		switch {
		case s.is("duplicates get 500"):
			w.WriteHeader(http.StatusInternalServerError)
			return
		case s.is("duplicates get 429"):
			w.WriteHeader(http.StatusTooManyRequests)
			return
		case s.is("duplicates are executed late"):
			time.AfterFunc(late, func() { s.did(tenant, thing.Thing) })
		}
		s.refuse(w, http.StatusConflict, "a duplicate")
		return
	case k != nil && k.done:
		status, answer := k.status, k.answer
		s.mu.Unlock()
		if s.is("a replay is another response") {
			answer = strings.Replace(answer, "made", "mode", 1)
		}
		if s.is("a replay has another status") {
			status = http.StatusOK
		}
		if s.is("a replay is executed") {
			s.did(tenant, thing.Thing)
		}
		if s.is("a replay is executed late") {
			time.AfterFunc(late, func() { s.did(tenant, thing.Thing) })
		}
		if !s.is("a replay is not marked") {
			w.Header().Set("Replayed", "true")
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, answer)
		return
	}
	if s.is("check then write") && k != nil { // the first has not written yet
		close(k.second)
		k.second = make(chan struct{})
	}
	k = &kept{body: string(body), second: make(chan struct{})}
	second := k.second
	fault := s.fault
	s.fault = false
	if !s.is("keys are not stored") {
		s.keys[name] = k
	}
	s.mu.Unlock()
	if s.is("check then write") && !s.met.Load() { // they meet once, so that it is found in every run
		select {
		case <-second:
			s.met.Store(true)
		case <-time.After(200 * time.Millisecond):
		}
	}
	time.Sleep(work)
	k.status, k.answer = http.StatusCreated, fmt.Sprintf(`{"made":%q}`, tenant+thing.Thing)
	if thing.Colour == "none" {
		k.status, k.answer = http.StatusPaymentRequired, `{"declined":true}`
	}
	if k.status == http.StatusCreated && !s.is("nothing is made") || s.is("a refusal has its effect") {
		s.did(tenant, thing.Thing)
	}
	if s.is("a client that goes frees its key") && r.Context().Err() != nil || fault && s.is("a failure frees the key") {
		s.mu.Lock()
		delete(s.keys, name)
		s.mu.Unlock()
	}
	if s.is("a client that goes gets another response") && r.Context().Err() != nil {
		time.AfterFunc(3*work, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			k.answer = strings.Replace(k.answer, "made", "mode", 1)
		})
	}
	s.mu.Lock()
	k.done = !s.is("nothing is ever done")
	status, answer := k.status, k.answer
	s.mu.Unlock()
	if fault {
		w.WriteHeader(http.StatusInternalServerError)
		if s.is("a failure is kept") {
			s.mu.Lock()
			k.status, k.answer = http.StatusInternalServerError, ""
			s.mu.Unlock()
		}
		return
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, answer)
}

const (
	work = 20 * time.Millisecond // of an intent
	late = 50 * time.Millisecond // after the response
)

func (s *shop) did(tenant, thing string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.effects[tenant+thing]++
}

const profile = `
name: a shop
headers: {Tenant: one}
other_tenant: {Tenant: two}
key: {longest: 200, invalid: ['a,b'], syntax: both}
intent: {path: /things, body: '{"thing":"{{n}}"}'}
other_body: '{"thing":"{{n}}","colour":"red"}'
refused_body: '{"thing":"{{n}}","colour":"none"}'
refused_status: 402
other_endpoint: {path: /others, body: '{"thing":"{{n}}"}'}
safe: {path: '/things?thing={{n}}'}
problems: true
effects: {url: '/effects?thing={{n}}', count: made.count}
status: {expired: 410}
replay: {marker: {Replayed: "true"}}
faults: [{name: 500 after the effect, path: /fail}]
expire: {path: /expire}
within: 30s
settle: 25ms
concurrent: 20
`

// short is a profile with which nothing is asked but what is asked of every API. It has no settle.
const short = `
name: a shop
intent: {path: /things, body: '{"thing":"{{n}}"}'}
effects: {url: '/effects?thing={{n}}', count: made.count}
within: 30s
concurrent: 20
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

// defects of the shop, and the check that finds each.
var defects = map[string]string{
	"":                                         "",
	"a key may be missing":                     "missing key",
	"keys may be long":                         "invalid key",
	"a key may be empty":                       "invalid key",
	"keys may be lists":                        "invalid key",
	"a missing key is not explained":           "missing key",
	"an invalid key is not explained":          "invalid key",
	"a mismatch is not explained":              "mismatch",
	"a duplicate is not explained":             "in flight",
	"nothing is made":                          "replay",
	"a quoted key is another":                  "syntax",
	"a replay is another response":             "replay",
	"a replay has another status":              "replay",
	"a replay is executed":                     "replay",
	"a replay is not marked":                   "replay",
	"keys are not stored":                      "replay",
	"bodies are not compared":                  "mismatch",
	"a refusal has its effect":                 "refusal",
	"check then write":                         "in flight",
	"duplicates get 500":                       "in flight",
	"duplicates get 429":                       "in flight",
	"a client that goes frees its key":         "client gone",
	"a client that goes gets another response": "client gone",
	"a failure frees the key":                  "fault",
	"a key of all tenants":                     "scope by tenant",
	"a key of all endpoints":                   "scope by endpoint",
	"a key on a GET is looked up":              "safe methods",
	"a GET with a key is executed":             "safe methods",
	"an expired key is executed again":         "expiry",
}

// TestRunFindsEachDefect: an API without a defect is clean, and each defect breaks its check.
func TestRunFindsEachDefect(t *testing.T) {
	t.Parallel()
	for defect, check := range defects {
		t.Run(defect, func(t *testing.T) {
			t.Parallel()
			report := ask(t, defect, profile)
			require.Zero(t, report.Count(idemcheck.NotAsked), "%+v", report.Results)
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

// TestLateEffects: effects that come after the response are seen, if the profile says how late they may be.
func TestLateEffects(t *testing.T) {
	t.Parallel()
	for defect, check := range map[string]string{
		"a replay is executed late":    "replay",
		"duplicates are executed late": "in flight",
	} {
		t.Run(defect, func(t *testing.T) {
			t.Parallel()
			report := ask(t, defect, short+"settle: 400ms\n")
			i := slices.IndexFunc(report.Results, func(r idemcheck.Result) bool { return r.Check == check })
			require.Equal(t, idemcheck.Broken, report.Results[i].Verdict, "%+v", report.Results[i])
		})
	}
}

// TestEffectsOfACommand: a number that a command prints is counted, with the intent's variables in its arguments.
func TestEffectsOfACommand(t *testing.T) {
	t.Parallel()
	report := ask(t, "", strings.Replace(profile, "url: '/effects?thing={{n}}', count: made.count",
		`command: [sh, -c, "test -n $0 && echo 1", "{{n}}"]`, 1))
	for _, result := range report.Results {
		switch result.Check {
		case "replay", "in flight", "client gone":
			require.Equal(t, idemcheck.Holds, result.Verdict, "%+v", result)
		case "missing key":
			require.Equal(t, "1 effects after a request without a key, expected 0", result.Evidence)
		}
	}
}

// TestOtherPromises: what one API promises is a defect of another, so the profile decides.
func TestOtherPromises(t *testing.T) {
	t.Parallel()
	for _, p := range []struct{ kept, check, old, new string }{
		{"bare keys are refused", "syntax", "syntax: both", "syntax: quoted"},
		{"a key of all endpoints", "scope by endpoint", "other_endpoint: {", "other_endpoint: {refused: true, "},
	} {
		text := strings.Replace(profile, p.old, p.new, 1)
		t.Run(p.check+"/kept", func(t *testing.T) {
			t.Parallel()
			require.Zero(t, ask(t, p.kept, text).Count(idemcheck.Broken))
		})
		t.Run(p.check+"/broken", func(t *testing.T) {
			t.Parallel()
			report := ask(t, "", text)
			i := slices.IndexFunc(report.Results, func(r idemcheck.Result) bool { return r.Check == p.check })
			require.Equal(t, idemcheck.Broken, report.Results[i].Verdict, "%+v", report.Results[i])
		})
	}
}

// TestFailureIsKept: the draft allows that a failure is the response that a retry gets, if the profile promises it.
func TestFailureIsKept(t *testing.T) {
	t.Parallel()
	kept := strings.Replace(strings.Replace(profile, "path: /fail", "path: /fail, status: 500", 1),
		"replay: {marker: {Replayed: \"true\"}}", "", 1)
	for defect, want := range map[string]idemcheck.Verdict{"a failure is kept": idemcheck.Holds, "": idemcheck.Broken} {
		t.Run(defect, func(t *testing.T) {
			t.Parallel()
			report := ask(t, defect, kept)
			i := slices.IndexFunc(report.Results, func(r idemcheck.Result) bool { return r.Check == "fault" })
			require.Equal(t, want, report.Results[i].Verdict, "%+v", report.Results[i])
		})
	}
}

// TestNoFinalResponse: an API that has a client wait for ever breaks a promise; it is asked on.
func TestNoFinalResponse(t *testing.T) {
	t.Parallel()
	// Each request must have its response within this time as well, on a busy machine too.
	report := ask(t, "nothing is ever done", strings.Replace(short, "within: 30s", "within: 2s\nsettle: 25ms", 1))
	i := slices.IndexFunc(report.Results, func(r idemcheck.Result) bool { return r.Check == "replay" })
	require.Equal(t, idemcheck.Broken, report.Results[i].Verdict)
	require.Contains(t, report.Results[i].Evidence, "no final response within 2s")
}

// TestNothingIsBelieved: where effects cannot be counted, nothing is asked.
func TestNothingIsBelieved(t *testing.T) {
	t.Parallel()
	report := ask(t, "", strings.Replace(profile, "effects:", "#", 1))
	require.Equal(t, len(report.Results), report.Count(idemcheck.NotAsked))
	require.False(t, report.Essential())
}

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                    "name is missing",
		"name: a":             "intent.path is missing",
		"name: a\nintnet: {}": "line 2: field intnet not found",
		profile + "---\n{}":   "one YAML document",
		profile + "---":       "one YAML document",
		strings.Replace(profile, "concurrent: 20", "concurrent: 1", 1):                 "concurrent must be from 2 to 1000",
		strings.Replace(profile, "concurrent: 20", "concurrent: 1e", 1):                "line 20",
		strings.Replace(profile, "settle: 25ms", "settle: 2m", 1):                      "settle must be at most 1m",
		strings.Replace(profile, "syntax: both", "syntax: raw", 1):                     "key.syntax must be",
		strings.Replace(profile, "syntax: both", "prefix: a, uuid: true", 1):           "has no prefix",
		strings.Replace(profile, "count: made.count", "timeout: 9m", 1):                "effects.timeout must be at most 1m",
		strings.Replace(profile, "within: 30s", "within: 9m", 1):                       "within must be at most 5m",
		strings.Replace(profile, "refused_status: 402", "", 1):                         "refused_body needs refused_status",
		strings.Replace(profile, "body: '{\"thing\":\"{{n}}\"}'", "body: '{{nn}}'", 1): "intent has {{nn}}, which is no variable; there are {{n}}",
		strings.Replace(profile, "colour\":\"red", "colour\":\"{{ n }}", 1):            "other_body has {{ n }}, which is no variable",
		strings.Replace(profile, "?thing={{n}}', count", "', count", 1):                "effects has no variable, such as {{n}}",
		strings.Replace(profile, "{Tenant: two}", "{Tenant: '{{shop}}'}", 1):           "other_tenant has {{shop}}",
		profile + "setup: [{path: '/{{id}}', capture: {id: id}}]":                      "setup 1 has {{id}}, which is no variable",
		strings.Replace(profile, "count: made.count", "command: [echo, \"1\"]", 1):     "not both",
	} {
		_, err := idemcheck.Parse([]byte(text))
		require.ErrorContains(t, err, want)
	}
}

// TestVariables: those that a step captures are known after it, and braces that are no variable are left alone.
func TestVariables(t *testing.T) {
	t.Parallel()
	_, err := idemcheck.Parse([]byte("name: a\nsetup: [{path: /a, capture: {id: id}}, {path: '/{{id}}'}]\n" +
		"intent: {path: '/{{id}}'}\neffects: {command: [docker, ps, '{{.Names}}', '{{ .ID }}', '{{id}}']}"))
	require.NoError(t, err)
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

// TestProfileStaysOnThisMachine: whole addresses in a profile are bound by the same rule, and redirects are not followed.
func TestProfileStaysOnThisMachine(t *testing.T) {
	t.Parallel()
	away := "http://192.0.2.1:9"
	for _, text := range []string{
		strings.Replace(profile, "url: '/effects", "url: '"+away+"/effects", 1),
		strings.Replace(profile, "path: /fail", "path: "+away, 1),
		strings.Replace(profile, "path: /things,", "path: "+away+",", 1),
		strings.Replace(profile, "path: /others,", "path: "+away+",", 1),
		profile + "setup: [{path: '" + away + "'}]",
	} {
		server := httptest.NewServer(&shop{keys: map[string]*kept{}, effects: map[string]int{}})
		t.Cleanup(server.Close)
		p, err := idemcheck.Parse([]byte(text))
		require.NoError(t, err)
		_, err = idemcheck.Run(t.Context(), server.URL, p, false)
		require.ErrorIs(t, err, idemcheck.ErrNotLoopback, text)
	}
	redirect := httptest.NewServer(http.RedirectHandler(away, http.StatusTemporaryRedirect))
	t.Cleanup(redirect.Close)
	p, err := idemcheck.Parse([]byte(profile + "setup: [{path: /}]"))
	require.NoError(t, err)
	_, err = idemcheck.Run(t.Context(), redirect.URL, p, false)
	require.ErrorContains(t, err, "setup 1: 307")
}

// TestErrorsSayWhy: what could not be asked says what came back.
func TestErrorsSayWhy(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		strings.Replace(profile, "path: /fail", "path: /nowhere", 1):   `inject "500 after the effect": POST /nowhere: 404`,
		strings.Replace(profile, "path: /expire", "path: /nowhere", 1): "have responses expire: POST /nowhere: 404",
		strings.Replace(profile, "url: '/effects?thing={{n}}', count: made.count",
			`command: [sh, -c, "sleep 60", "{{n}}"], timeout: 100ms`, 1): "the command took longer than 100ms",
		strings.Replace(profile, "url: '/effects?thing={{n}}', count: made.count",
			`command: [sh, -c, "echo many", "{{n}}"]`, 1): `the command printed "many\n", which is no number`,
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(&shop{keys: map[string]*kept{}, effects: map[string]int{}})
			t.Cleanup(server.Close)
			p, err := idemcheck.Parse([]byte(text))
			require.NoError(t, err)
			began := time.Now()
			_, err = idemcheck.Run(t.Context(), server.URL, p, false)
			require.ErrorContains(t, err, want)
			require.NotContains(t, err.Error(), "%!")
			require.Less(t, time.Since(began), time.Minute, "the command was not waited for")
		})
	}
}

func TestOutputs(t *testing.T) {
	t.Parallel()
	report := ask(t, "bodies are not compared", profile)
	var b bytes.Buffer
	require.NoError(t, report.Print(&b))
	require.Regexp(t, `(?m)^broken +mismatch +another body under the key: 201`, b.String())
	require.Contains(t, b.String(), "12 hold, 1 broken, 0 not asked")
	b.Reset()
	require.NoError(t, report.JUnit(&b))
	var suite struct {
		Failures int        `xml:"failures,attr"`
		Cases    []struct{} `xml:"testcase"`
	}
	require.NoError(t, xml.Unmarshal(b.Bytes(), &suite))
	require.Equal(t, 1, suite.Failures)
	require.Len(t, suite.Cases, 13)
	b.Reset()
	require.NoError(t, report.JSON(&b))
	require.Contains(t, b.String(), `"verdict": "broken"`)
	b.Reset()
	require.NoError(t, report.Badge(&b))
	require.Contains(t, b.String(), "1 broken, 12 of 13 hold")
	require.NoError(t, xml.Unmarshal(b.Bytes(), new(any)))
}
