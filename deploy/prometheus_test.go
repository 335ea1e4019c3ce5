package deploy

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// hurry is how many times as fast as in production the rules are judged in a
// test: ten minutes become ten seconds.
const hurry = 60

var (
	ranges = regexp.MustCompile(`\[(\d+)([mh])\]`)
	delays = regexp.MustCompile(`\b(for:|offset) (\d+)([mh])`)
	ages   = regexp.MustCompile(`([a-z_]+_seconds\)) > (\d+)`)
)

// hurried is the rules with every duration divided: ranges, offsets, the time
// for which a rule must hold, and the bounds on ages. Bounds on counts, rates and
// shares stay as they are, and so does the one on how long a loop may stand still,
// because the loops' own pauses are not divided. Ranges and ages keep at least five
// seconds: five scrapes, and more than an event waits on a busy machine.
func hurried(rules string) string {
	divided := func(number, unit string, least time.Duration) string {
		n, _ := strconv.Atoi(number)
		d := time.Duration(n) * time.Minute
		if unit == "h" {
			d *= 60
		}
		return fmt.Sprintf("%dms", max(d/hurry, least).Milliseconds())
	}
	rules = ranges.ReplaceAllStringFunc(rules, func(s string) string {
		m := ranges.FindStringSubmatch(s)
		return "[" + divided(m[1], m[2], 5*time.Second) + "]"
	})
	rules = delays.ReplaceAllStringFunc(rules, func(s string) string {
		m := delays.FindStringSubmatch(s)
		return m[1] + " " + divided(m[2], m[3], time.Second)
	})
	return ages.ReplaceAllStringFunc(rules, func(s string) string {
		m := ages.FindStringSubmatch(s)
		if strings.Contains(m[1], "timestamp") {
			return s
		}
		n, _ := strconv.ParseFloat(m[2], 64)
		return fmt.Sprintf("%s > %g", m[1], max(5, n/hurry))
	})
}

// prometheus is the real one, running, with our configuration and our rules.
type prometheus struct {
	t     *testing.T
	url   string
	began time.Time
}

// startPrometheus scrapes the targets once a second. It fails the test in CI if
// there is no Prometheus to start; elsewhere it says so and skips.
func startPrometheus(t *testing.T, targets ...string) *prometheus {
	t.Helper()
	program, err := exec.LookPath("prometheus")
	if err != nil {
		require.Empty(t, os.Getenv("CI"), "prometheus is missing; Debian's package prometheus has it")
		t.Skip("SKIPPED: prometheus is not installed (Debian's package prometheus has it), so no rule and no dashboard has met a real one")
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "rules.yml"), []byte(hurried(text(t, rulesFile))), 0o600))
	config := filepath.Join(dir, "prometheus.yml")
	require.NoError(t, os.WriteFile(config, configFor(t, targets), 0o600))
	addr := freeAddr(t)
	cmd := exec.Command(program, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+addr, "--log.level=warn")
	var said strings.Builder
	cmd.Stderr = &said
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(said.String())
		}
	})
	p := &prometheus{t: t, url: "http://" + addr}
	eventually(t, 30*time.Second, "Prometheus is ready", func() bool {
		_, err := ask[any](p, "query", url.Values{"query": {"vector(1)"}})
		return err == nil
	})
	p.began = time.Now()
	return p
}

// configFor is prometheus.yml with other targets, in a hurry.
func configFor(t *testing.T, targets []string) []byte {
	t.Helper()
	var config map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(text(t, "prometheus/prometheus.yml")), &config))
	config["global"] = map[string]any{"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
	found := false
	var jobs []any
	for _, job := range config["scrape_configs"].([]any) {
		if job := job.(map[string]any); job["job_name"] == "payonce" {
			found = true
			delete(job, "dns_sd_configs")
			job["static_configs"] = []any{map[string]any{"targets": targets}}
			jobs = append(jobs, job)
		}
	}
	require.True(t, found, "prometheus.yml does not scrape the service")
	config["scrape_configs"] = jobs // Prometheus itself is somewhere else here, and of no interest.
	out, err := yaml.Marshal(config)
	require.NoError(t, err)
	return out
}

// freeAddr is a port that was free a moment ago.
func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// ask returns what the API answers, or its own words for what is wrong.
func ask[T any](p *prometheus, path string, query url.Values) (data T, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/api/v1/"+path+"?"+query.Encode(), nil)
	if err != nil {
		return data, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return data, err
	}
	defer func() { _ = res.Body.Close() }()
	var answer struct {
		Status, Error string
		Data          T
	}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		return data, err
	}
	if answer.Status != "success" {
		return data, fmt.Errorf("%s: %s", answer.Status, answer.Error)
	}
	return answer.Data, nil
}

// points counts what a query has returned since the beginning: numbers, in all
// series, at every second.
func (p *prometheus) points(query string) (n int, err error) {
	type matrix struct {
		Result []struct{ Values [][2]any }
	}
	data, err := ask[matrix](p, "query_range", url.Values{
		"query": {query}, "step": {"1s"}, "start": {unix(p.began)}, "end": {unix(time.Now())},
	})
	for _, series := range data.Result {
		for _, v := range series.Values {
			if f, err := strconv.ParseFloat(v[1].(string), 64); err == nil && !math.IsNaN(f) {
				n++
			}
		}
	}
	return n, err
}

func unix(t time.Time) string { return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', 3, 64) }

// firing are the alerts that fire now.
func (p *prometheus) firing() map[string]bool {
	type alerts struct {
		Alerts []struct {
			State  string
			Labels map[string]string
		}
	}
	names := map[string]bool{}
	data, err := ask[alerts](p, "alerts", nil)
	require.NoError(p.t, err)
	for _, a := range data.Alerts {
		if a.State == "firing" {
			names[a.Labels["alertname"]] = true
		}
	}
	return names
}

// evaluated is every rule as Prometheus has it, with what was wrong with its
// last evaluation.
func (p *prometheus) evaluated() (rules []evaluatedRule) {
	type groups struct {
		Groups []struct{ Rules []evaluatedRule }
	}
	data, err := ask[groups](p, "rules", nil)
	require.NoError(p.t, err)
	for _, g := range data.Groups {
		rules = append(rules, g.Rules...)
	}
	return rules
}

type evaluatedRule struct {
	Name, Query, Health, LastError string
	EvaluationTime                 float64
}

func eventually(t *testing.T, within time.Duration, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(within); !holds(); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(end) {
			require.FailNow(t, "timed out", "waiting until %s", what)
		}
	}
}
