package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/process"
)

// program is k6, or the test is skipped with the reason. In CI it is built.
func program(t *testing.T) string {
	t.Helper()
	if k6 := os.Getenv("K6"); k6 != "" {
		return k6
	}
	if k6, err := exec.LookPath("k6"); err == nil {
		return k6
	}
	root, err := process.Root()
	require.NoError(t, err)
	built := filepath.Join(root, "bin", "k6")
	if _, err := os.Stat(built); err == nil {
		return built
	}
	if os.Getenv("CI") != "true" {
		t.Skip("skipped: no k6 on this machine, and building it takes two minutes; make load does it, or set K6 to its path")
	}
	k6, err := buildK6(t.Context(), t.Logf)
	require.NoError(t, err)
	return k6.path
}

// bed is one system for all tests that need one, and k6.
type bed struct {
	*system
	k6 string
}

func setup(t *testing.T) bed {
	t.Helper()
	b := bed{k6: program(t)}
	o, err := parse(nil, func(name string) string {
		return map[string]string{"DATABASE_URL": os.Getenv("TEST_DATABASE_URL")}[name]
	}, io.Discard)
	require.NoError(t, err)
	// Not t.Context(): the system outlives the subtests, which run in parallel.
	b.system, err = here(context.WithoutCancel(t.Context()), o, t.Logf)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Strike(false)) })
	return b
}

// play runs the program itself, as against a system that runs elsewhere, and
// returns its exit status, what it printed and its report.
func (b bed) play(t *testing.T, id, api, simulator string, args ...string) (status int, said string, r report) {
	t.Helper()
	var out bytes.Buffer
	dir := t.TempDir()
	all := append([]string{"-k6", b.k6, "-out", dir, "-run_id", id, "-api_url", api, "-stripesim_url", simulator,
		"-api_key", b.apiKey, "-duration", "2s", "-vus", "4", "-p95_ms", "20000", "-p99_ms", "20000"}, args...)
	status = run(t.Context(), all, func(string) string { return "" }, &out, &out)
	t.Log(out.String())
	if text, err := os.ReadFile(filepath.Join(dir, "summary.json")); err == nil {
		require.NoError(t, json.Unmarshal(text, &r))
		for _, name := range []string{"summary.txt", "report.html"} {
			text, err := os.ReadFile(filepath.Join(dir, name))
			require.NoError(t, err)
			require.Contains(t, string(text), id, name)
		}
	}
	return status, out.String(), r
}

func (r report) broken() (list []string) {
	for _, th := range r.Thresholds {
		if !th.OK {
			list = append(list, th.Metric)
		}
	}
	return list
}

// TestLoad runs the scripts. A load test that cannot fail is worth nothing, so
// most of it breaks something: the service as its clients see it, or the count.
func TestLoad(t *testing.T) {
	t.Parallel()
	b := setup(t)

	t.Run("SmokeIsGreenAndEveryKeyCarriesItsRun", func(t *testing.T) {
		t.Parallel()
		status, said, r := b.play(t, "green", b.apiURL, b.simulator)
		require.Equal(t, 0, status, said)
		require.True(t, r.OK)
		require.Positive(t, r.Charges["per_key"][1])
		require.Equal(t, r.Charges["per_key"].sum(), r.Charges["per_key"][1], "charged once")
		require.Positive(t, r.Duplicates.Replayed)
		require.Contains(t, said, "invariants  not checked", "no DATABASE_URL was given")

		// As no other run of this test names its keys: what does not begin with a run's name is counted here.
		var stray int
		require.NoError(t, b.pool.Raw().QueryRow(t.Context(),
			`SELECT count(*) FROM idempotency_keys WHERE key !~ '^(green|twice|missing|bytes|fresh|blind)-'
				AND key !~ ' '`).Scan(&stray)) // with a blank: the service's own
		require.Zero(t, stray)
	})

	t.Run("IsRedWhenAChargeIsThereTwice", func(t *testing.T) {
		t.Parallel()
		books := falseBooks(t, b.simulator, "twice", func(all []stripesim.Effect, ours int) []stripesim.Effect {
			return append(all, all[ours])
		})
		status, said, r := b.play(t, "twice", b.apiURL, books)
		require.Equal(t, exitBroken, status, said)
		require.Subset(t, r.broken(), []string{"charges_per_key", "charges_per_order", "effects_wrong"})
		require.Equal(t, 1, r.Charges["per_key"][2])
		require.Contains(t, said, "charged 2 times at Stripe")
	})

	t.Run("IsRedWhenAChargeIsMissing", func(t *testing.T) {
		t.Parallel()
		books := falseBooks(t, b.simulator, "missing", func(all []stripesim.Effect, ours int) []stripesim.Effect {
			return append(all[:ours:ours], all[ours+1:]...)
		})
		status, said, r := b.play(t, "missing", b.apiURL, books)
		require.Equal(t, exitBroken, status, said)
		require.Subset(t, r.broken(), []string{"charges_per_key", "charges_per_order", "effects_wrong"})
		require.Equal(t, 1, r.Charges["per_key"][0])
	})

	t.Run("FailsWithoutTheEffectLog", func(t *testing.T) {
		t.Parallel()
		var asked atomic.Int64
		books := proxy(t, b.simulator, nil, func(res *http.Response) error {
			if asked.Add(1) > 1 { // the first is before the run
				res.StatusCode = http.StatusBadGateway
			}
			return nil
		})
		status, said, _ := b.play(t, "blind", b.apiURL, books)
		require.NotEqual(t, 0, status, said)
		require.Contains(t, said, "the charges cannot be counted")
	})

	t.Run("IsRedWhenAReplayHasOtherBytes", func(t *testing.T) {
		t.Parallel()
		api := proxy(t, first(b.apiURL), nil, func(res *http.Response) error {
			if res.Header.Get("Idempotent-Replayed") == "true" {
				return rewrite(res,
					func(body []byte) []byte { return append(body, ' ') }) // as if decoded and encoded again
			}
			return nil
		})
		status, said, r := b.play(t, "bytes", api, b.simulator)
		require.Equal(t, exitBroken, status, said)
		require.Contains(t, r.broken(), "answers_that_differ")
	})

	t.Run("IsRedWhenEachRetryIsANewRequest", func(t *testing.T) {
		t.Parallel()
		var n atomic.Int64
		api := proxy(t, first(b.apiURL), func(req *http.Request) {
			if key := req.Header.Get("Idempotency-Key"); key != "" {
				req.Header.Set("Idempotency-Key", key+"-"+string(rune('a'+n.Add(1)%26))+noise(3))
			}
		}, nil)
		status, said, r := b.play(t, "fresh", api, b.simulator, "-scenario", "duplicate-storm", "-copies", "6")
		require.Equal(t, exitBroken, status, said)
		require.Subset(t, r.broken(), []string{"charges_per_key", "answers_unexpected", "effects_wrong"})
	})
}

// first of several processes.
func first(urls string) string {
	url, _, _ := strings.Cut(urls, ",")
	return url
}

// falseBooks is the simulator's admin port with an effect log that was
// falsified. ours is the place of a charge of the run.
func falseBooks(t *testing.T, simulator, run string,
	falsify func(all []stripesim.Effect, ours int) []stripesim.Effect) string {
	t.Helper()
	return proxy(t, simulator, nil, func(res *http.Response) error {
		return rewrite(res, func(body []byte) []byte {
			var all []stripesim.Effect
			if json.Unmarshal(body, &all) != nil {
				return body
			}
			for i, e := range all {
				if strings.Contains(e.Key, ":"+run+"-") {
					body, _ = json.Marshal(falsify(all, i))
					break
				}
			}
			return body
		})
	})
}

// proxy stands between k6 and something, and lies.
func proxy(t *testing.T, to string, request func(*http.Request), response func(*http.Response) error) string {
	t.Helper()
	target, err := url.Parse(to)
	require.NoError(t, err)
	p := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			if request != nil {
				request(r.Out)
			}
		},
		ModifyResponse: response,
	})
	t.Cleanup(p.Close)
	return p.URL
}

func rewrite(res *http.Response, change func([]byte) []byte) error {
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	body = change(body)
	res.Body, res.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	res.Header.Del("Content-Length")
	return nil
}
