package deploy_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestProfileObserve asks the containers of the profile observe for what they are
// there for: Grafana for every panel of every dashboard, Jaeger for the trace of a
// payment. What is typed before it, in step containers of .ci/run, starts them and plays
// the demo; elsewhere it says so and skips.
func TestProfileObserve(t *testing.T) {
	t.Parallel()

	t.Run("GrafanaAnswersEveryPanel", func(t *testing.T) {
		t.Parallel()
		g := observedAt(t, "GRAFANA_URL")
		want := map[string]string{}
		for _, d := range readDashboards(t) {
			want[d.UID] = d.Title
		}
		found := map[string]string{}
		for _, d := range get[[]struct{ UID, Title, FolderTitle string }](t, g+"/api/search?type=dash-db") {
			found[d.UID] = d.Title
			require.Equal(t, "payonce", d.FolderTitle, d.Title)
		}
		require.Equal(t, want, found)
		require.Equal(t, readDashboards(t)["grafana/dashboards/overview.json"].Title,
			get[struct{ Dashboard struct{ Title string } }](t, g+"/api/dashboards/home").Dashboard.Title)
		for _, source := range []string{"prometheus", "jaeger"} {
			require.Equal(t, "OK", get[struct{ Status string }](t, g+"/api/datasources/uid/"+source+"/health").Status,
				source)
		}

		queries := 0
		end := time.Now().Add(time.Minute) // A rate has two scrapes, and what is recorded comes after them.
		for _, d := range readDashboards(t) {
			for _, p := range d.Panels {
				for _, target := range p.Targets {
					queries++
					why := askPanel(t, g, p.Datasource.UID, target.Expr)
					for ; why != "" && time.Now().Before(end); time.Sleep(time.Second) {
						why = askPanel(t, g, p.Datasource.UID, target.Expr)
					}
					require.Empty(t, why, "%s: %s: %s", d.Title, p.Title, target.Expr)
				}
			}
		}
		t.Logf("%s answers all %d queries of %d dashboards", g, queries, len(found))
	})

	t.Run("GrafanaRejectsAnonymousAndDefaultLogins", func(t *testing.T) {
		t.Parallel()
		g := observedAt(t, "GRAFANA_URL")
		for _, who := range []*url.Userinfo{nil, url.UserPassword("admin", "admin")} { // its own first password
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, g+"/api/org/users", nil)
			require.NoError(t, err)
			req.URL.User = who
			res, err := http.DefaultClient.Do(req)
			require.NoError(t, err)
			require.NoError(t, res.Body.Close())
			require.Contains(t, []int{http.StatusUnauthorized, http.StatusForbidden}, res.StatusCode, who)
		}
	})

	t.Run("JaegerHasAPaymentAsOneTrace", func(t *testing.T) {
		t.Parallel()
		j := observedAt(t, "JAEGER_URL")
		for _, name := range []string{
			"phase payment_recorded", "stripe create_intent", "phase intent_recorded", "stripe confirm",
			"phase finished",
			"publish payment.created", "publish payment.succeeded", "publish order.paid", "consume payment.succeeded",
			"consume order.paid",
		} {
			waitForTrace(t, j, "POST /v1/payments", "a payment has the span "+name,
				func(s jaegerTrace) bool { return s.has(name) })
		}
		whole := waitForTrace(t, j, "POST /v1/payments", "a payment has them all, under the request",
			func(s jaegerTrace) bool {
				return s.has("stripe confirm") && s.has("phase finished") && s.has("publish payment.succeeded") &&
					s.has("consume payment.succeeded") && s.childrenOf("POST /v1/payments") >= 8
			})
		t.Logf("%s/trace/%s:\n%s", j, whole.TraceID, whole)
		completed := waitForTrace(t, j, "complete create_payment", "the completer's trace is linked to a request",
			func(s jaegerTrace) bool { return s.follows() != "" })
		request := get[traceList](t, j+"/api/traces/"+completed.follows()).Data
		require.Len(t, request, 1)
		require.True(t, request[0].has("POST /v1/payments"), request[0])
	})
}

// observedAt is where one of them was started.
func observedAt(t *testing.T, setting string) string {
	t.Helper()
	at := strings.TrimSuffix(os.Getenv(setting), "/")
	if at == "" {
		t.Skip("SKIPPED: " + setting + " names none; step containers of .ci/run starts one")
	}
	return at
}

// askPanel asks Grafana as a panel does, which asks Prometheus. It is empty if there
// are numbers, and says otherwise why there are none.
func askPanel(t *testing.T, grafana, source, expr string) string {
	t.Helper()
	body, err := json.Marshal(map[string]any{"from": "now-15m", "to": "now", "queries": []any{map[string]any{
		"refId": "A", "datasource": map[string]string{"uid": source}, "expr": expr, "range": true, "intervalMs": 5000,
		"maxDataPoints": 200,
	}}})
	require.NoError(t, err)
	res, err := http.Post(grafana+"/api/ds/query", "application/json", bytes.NewReader(body))
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	said, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	var answer struct {
		Results map[string]struct {
			Error  string
			Frames []struct{ Data struct{ Values [][]any } }
		}
	}
	if err := json.Unmarshal(said,
		&answer); err != nil || res.StatusCode != http.StatusOK || answer.Results["A"].Error != "" {
		return fmt.Sprintf("%s: %.300s", res.Status, said)
	}
	for _, frame := range answer.Results["A"].Frames {
		if len(frame.Data.Values) == 2 && len(frame.Data.Values[1]) > 0 {
			return ""
		}
	}
	return "nothing"
}

type traceList struct{ Data []jaegerTrace }

// jaegerTrace is a trace, as Jaeger returns it.
type jaegerTrace struct {
	TraceID string
	Spans   []struct {
		SpanID, OperationName string
		References            []struct{ RefType, TraceID, SpanID string }
	}
}

func (s jaegerTrace) has(name string) bool { return len(s.named(name)) > 0 }

func (s jaegerTrace) named(name string) (ids []string) {
	for _, span := range s.Spans {
		if span.OperationName == name {
			ids = append(ids, span.SpanID)
		}
	}
	return ids
}

// childrenOf counts the spans right under that one.
func (s jaegerTrace) childrenOf(name string) (n int) {
	parents := s.named(name)
	for _, span := range s.Spans {
		for _, r := range span.References {
			if r.RefType == "CHILD_OF" && slices.Contains(parents, r.SpanID) {
				n++
			}
		}
	}
	return n
}

// follows is another trace that this one is linked to.
func (s jaegerTrace) follows() string {
	for _, span := range s.Spans {
		for _, r := range span.References {
			if r.RefType == "FOLLOWS_FROM" && r.TraceID != s.TraceID {
				return r.TraceID
			}
		}
	}
	return ""
}

func (s jaegerTrace) String() string {
	names := map[string]int{}
	for _, span := range s.Spans {
		names[span.OperationName]++
	}
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(names)) {
		_, _ = fmt.Fprintf(&text, "%3d %s\n", names[name], name)
	}
	return text.String()
}

// waitForTrace waits for a trace with a span of that name of which holds is true: spans
// are sent every few seconds, and those of consumers come last.
func waitForTrace(t *testing.T, jaeger, operation, what string, holds func(jaegerTrace) bool) jaegerTrace {
	t.Helper()
	query := url.Values{"service": {"payonce"}, "operation": {operation}, "limit": {"200"}, "lookback": {"1h"}}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Second) {
		found := get[traceList](t, jaeger+"/api/traces?"+query.Encode()).Data
		if i := slices.IndexFunc(found, holds); i >= 0 {
			return found[i]
		}
		require.True(t, time.Now().Before(end), "none of %d: %s", len(found), what)
	}
}

func get[T any](t *testing.T, url string) (answer T) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	said, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, res.StatusCode, "%s: %.300s", url, said)
	require.NoError(t, json.Unmarshal(said, &answer), "%s: %.300s", url, said)
	return answer
}
