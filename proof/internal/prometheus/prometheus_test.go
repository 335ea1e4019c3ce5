package prometheus

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/deploy"
)

func TestAccelerated(t *testing.T) {
	t.Parallel()
	for rule, want := range map[string]string{
		"rate(a_total[5m])":                    "rate(a_total[5000ms])",
		"increase(a_total[10m]) > 3":           "increase(a_total[10000ms]) > 3", // how many is no duration
		"avg_over_time(a[1h] offset 10m)":      "avg_over_time(a[60000ms] offset 10000ms)",
		"for: 1m":                              "for: 1000ms",
		"for: 10m":                             "for: 10000ms",
		"max(a_oldest_seconds) > 300":          "max(a_oldest_seconds) > 5",
		"max(a_oldest_seconds) > 30":           "max(a_oldest_seconds) > 5", // an event may wait that long on a busy machine
		"max(payonce_loop_idle_seconds) > 600": "max(payonce_loop_idle_seconds) > 600",
	} {
		require.Equal(t, want, Accelerated(rule))
	}
	require.Empty(t, regexp.MustCompile(`(\[|offset |for: )\d+[mh]\b`).FindAllString(Accelerated(deploy.Rules), -1),
		"as long as in production")
}

func TestConfigScrapesTheTargets(t *testing.T) {
	t.Parallel()
	config, err := configFor([]string{"127.0.0.1:1", "127.0.0.1:2"})
	require.NoError(t, err)
	require.Contains(t, string(config), "127.0.0.1:1")
	require.Contains(t, string(config), "job_name: "+job)
	require.NotContains(t, string(config), "dns_sd_configs")
}

// An alert that goes and comes again has fired twice; one that fires still has
// not gone.
func TestFirings(t *testing.T) {
	t.Parallel()
	line := func(alert string, seconds ...float64) (s series) {
		s.Metric = map[string]string{"alertname": alert}
		for _, at := range seconds {
			s.Values = append(s.Values, [2]any{at, "1"})
		}
		return s
	}
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	require.Equal(t, []Firing{
		{"Late", at(3), at(4), false}, {"Twice", at(5), at(7), true}, {"Twice", at(9), at(9), true},
	}, firings([]series{line("Twice", 5, 6, 7, 9), line("Late", 3, 4), line("Never")}, map[string]bool{"Late": true}))
}

// fake is a Prometheus that says the same of every query and of every rule.
func fake(t *testing.T, values, health string, unknown string) *Prometheus {
	t.Helper()
	rules, err := Rules()
	require.NoError(t, err)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/query_range"):
			_, _ = fmt.Fprintf(w, `{"status":"success","data":{"result":[{"metric":{},"values":[%s]}]}}`, values)
		case strings.HasSuffix(r.URL.Path, "/rules"):
			var list []string
			for _, rule := range rules {
				if rule.Name() != unknown {
					list = append(list,
						fmt.Sprintf(`{"name":%q,"health":%q,"lastError":"it says"}`, rule.Name(), health))
				}
			}
			_, _ = fmt.Fprintf(w, `{"status":"success","data":{"groups":[{"rules":[%s]}]}}`, strings.Join(list, ","))
		default:
			_, _ = fmt.Fprint(w, `{"status":"error","error":"no such thing"}`)
		}
	}))
	t.Cleanup(server.Close)
	return &Prometheus{url: server.URL, began: time.Now()}
}

// A check that never fails checks nothing: a series that does not exist, a number
// that is none, a rule that fails and one that is missing are all found.
func TestSeen(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	seen, err := fake(t, `[1,"0"]`, "ok", "").Seen(ctx)
	require.NoError(t, err)
	require.Empty(t, seen.Blind)
	require.Greater(t, seen.Rules, 20)
	require.Greater(t, seen.Queries, 40)

	for name, blind := range map[string]*Prometheus{
		"no series": fake(t, "", "ok", ""), "no numbers": fake(t, `[1,"NaN"]`, "ok", ""),
	} {
		got, err := blind.Seen(ctx)
		require.NoError(t, err)
		require.GreaterOrEqual(t, len(got.Blind), seen.Rules+seen.Queries, name)
	}
	got, err := fake(t, `[1,"0"]`, "err", "").Seen(ctx)
	require.NoError(t, err)
	require.Len(t, got.Blind, seen.Rules)
	require.Contains(t, got.Blind[0], "is err: it says")

	got, err = fake(t, `[1,"0"]`, "ok", "PayonceMoneyDrift").Seen(ctx)
	require.NoError(t, err)
	require.Equal(t, []string{"PayonceMoneyDrift is unknown to Prometheus"}, got.Blind)

	why := fake(t, "", "err", "").Explain(ctx, "PayonceMoneyDrift")
	require.Contains(t, why, "(err it says)")
	require.Contains(t, why, "no such thing")
	_, err = fake(t, "", "ok", "").Firing(ctx)
	require.ErrorContains(t, err, "no such thing")
}

// An alert that is about to fire does not fire, and it is not calm either.
func TestCalm(t *testing.T) {
	t.Parallel()
	for states, want := range map[string]struct{ firing, calm bool }{
		``:                   {false, true},
		`"pending"`:          {false, false},
		`"pending","firing"`: {true, false},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			var list []string
			for state := range strings.SplitSeq(states, ",") {
				if state != "" {
					list = append(list, fmt.Sprintf(`{"state":%s,"labels":{"alertname":"A"}}`, state))
				}
			}
			_, _ = fmt.Fprintf(w, `{"status":"success","data":{"alerts":[%s]}}`, strings.Join(list, ","))
		}))
		t.Cleanup(server.Close)
		p := &Prometheus{url: server.URL}
		firing, err := p.Firing(t.Context())
		require.NoError(t, err)
		require.Equal(t, want.firing, firing["A"], states)
		calm, err := p.Calm(t.Context())
		require.NoError(t, err)
		require.Equal(t, want.calm, calm, states)
	}
}
