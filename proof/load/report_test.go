package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/proof/internal/inventory"
	"example.com/payonce/testkit/process"
)

// scripts is where the scenarios are.
var scripts = filepath.Join("..", "..", "loadtest")

func TestScenarios(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(scripts, "*.js"))
	require.NoError(t, err)
	require.Len(t, files, len(scenarios))
	readme, err := os.ReadFile(filepath.Join(scripts, "README.md"))
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, unpackScripts(dir))
	for _, s := range scenarios {
		text, err := os.ReadFile(filepath.Join(scripts, s.name+".js"))
		require.NoError(t, err)
		script := string(text)
		require.Contains(t, string(readme), "\n| `"+s.name+"` | ", "the table of README.md")

		// The next script will begin as a copy of one of these.
		for of, part := range map[string]string{
			"the thresholds on effects": `export const options = common\(`, "the witnesses": `export const teardown = end;|end\(data\)`,
			"the summary": `export \{ handleSummary \} from './lib/summary\.js';`,
		} {
			require.True(t, regexp.MustCompile(part).MatchString(script), "%s.js has no %s, for %s", s.name, part, of)
		}
		require.Empty(t, regexp.MustCompile(`https?://\S*`).FindAllString(script, 3), "%s.js loads something from elsewhere", s.name)

		unpacked, err := os.ReadFile(filepath.Join(dir, s.name+".js"))
		require.NoError(t, err)
		require.Equal(t, script, string(unpacked))
	}
}

var (
	keyMade = regexp.MustCompile(`keyOf\(([^,)]*)`)
	keySent = regexp.MustCompile(`\bkey: ([^,} ]+)`)
)

// TestKeysCarryTheRun: two runs with one tenant must not meet, so no script makes
// a key by any other means than keyOf, and of nothing but its own run.
func TestKeysCarryTheRun(t *testing.T) {
	t.Parallel()
	for _, s := range scenarios {
		text, err := os.ReadFile(filepath.Join(scripts, s.name+".js"))
		require.NoError(t, err)
		made := keyMade.FindAllStringSubmatch(string(text), -1)
		require.NotEmpty(t, made, s.name)
		for _, m := range made {
			require.Equal(t, "data.run", m[1], "%s: %s", s.name, m[0])
		}
		for _, m := range keySent.FindAllStringSubmatch(string(text), -1) {
			require.Regexp(t, `^(keyOf\(data\.run|data\.run$)`, m[1], "%s: %s", s.name, m[0])
		}
	}
	lib, err := os.ReadFile(filepath.Join(scripts, "lib", "client.js"))
	require.NoError(t, err)
	require.Contains(t, string(lib), "return `${run}-")
}

func TestReport(t *testing.T) {
	t.Parallel()
	line := func(metric string, second, value int, tags string) string {
		return fmt.Sprintf(`{"metric":%q,"type":"Point","data":{"time":"2026-11-01T12:00:%02d.5Z","value":%d,`+
			`"tags":{%s}}}`, metric, second, value, tags)
	}
	write := `"kind":"write","name":"POST /v1/payments"`
	r := report{Run: "r", Scenario: "smoke", thresholdsHeld: true}
	dir := t.TempDir()
	summary := filepath.Join(dir, "summary.json")
	require.NoError(t, os.WriteFile(summary, []byte(`{"state":{"testRunDurationMs":4000},"metrics":{
		"answers_replayed":{"values":{"count":3}}, "duplicates_sent":{"values":{"count":5}},
		"answers_in_flight":{"values":{"count":1}},
		"effects_wrong":{"values":{"count":0},"thresholds":{"count==0":{"ok":true}}}}}`), 0o600))
	samples := gzipped(t, dir, []string{
		`{"type":"Metric","data":{"name":"http_req_duration"},"metric":"http_req_duration"}`,
		line("http_req_duration", 1, 10, write), line("http_req_duration", 1, 30, write),
		line("http_req_duration", 3, 20, write),
		line("http_req_duration", 3, 999, `"kind":"witness","name":"GET simulator/effects"`),
		line("http_req_waiting", 3, 7, write),
		line("answers_replayed", 3, 1, ""), line("payment_settled", 3, 44, ""),
		line("charges_per_key", 4, 1, ""), line("charges_per_key", 4, 1, ""),
		line("charges_per_key", 4, 2, `"who":"k"`), line("charges_per_order", 4, 1, ""),
	})
	require.NoError(t, r.readSummary(summary))
	require.NoError(t, r.readSamples(samples))
	require.NoError(t, r.conclude())

	require.Equal(t, 3, r.Requests, "a witness is not load")
	require.Equal(t, []latency{{"POST /v1/payments", 3, 20, 30, 30, 30}}, r.Latency)
	require.Equal(t, "1 × 2, 2 × 1", r.Charges["per_key"].String())
	require.Equal(t, duplicates{Sent: 5, Suppressed: 4, Replayed: 3, InFlight: 1}, r.Duplicates)
	require.InDelta(t, 0.5, r.Payments, 0.001)
	require.Len(t, r.seconds, 2, "the seconds in which something happened")
	require.True(t, r.OK)
	r.invariants(25, []string{"I1a an order is paid once: x"})
	require.False(t, r.OK, "what the database says counts as well")
	require.NoError(t, r.write(filepath.Join(dir, "out")))
	page, err := os.ReadFile(filepath.Join(dir, "out", "report.html"))
	require.NoError(t, err)
	require.Contains(t, string(page), "FAILED")
	require.Contains(t, string(page), "I1a an order is paid once: x")
	require.Equal(t, 5, strings.Count(string(page), "<svg "))
	require.Empty(t, regexp.MustCompile(`(?i)<script|src=|https?://`).FindAllString(string(page), 3), "one file that loads nothing from elsewhere")
}

// k6's exit status and its summary are two witnesses, too.
func TestReportRefusesADisagreement(t *testing.T) {
	t.Parallel()
	r := report{thresholdsHeld: false}
	file := filepath.Join(t.TempDir(), "summary.json")
	require.NoError(t, os.WriteFile(file,
		[]byte(`{"metrics":{"effects_wrong":{"thresholds":{"count==0":{"ok":true}}}}}`), 0o600))
	require.NoError(t, r.readSummary(file))
	require.ErrorContains(t, r.conclude(), "do not agree")
	require.ErrorContains(t, (&report{thresholdsHeld: true}).conclude(), "could not fail")
}

func TestParse(t *testing.T) {
	t.Parallel()
	none := func(string) string { return "" }
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-scenario", "none"}, `no scenario is called "none"`},
		{[]string{"-duration", "5"}, "DURATION is 5"},
		{[]string{"-duration", "10ms"}, "DURATION is 10ms"},
		{[]string{"-vus", "0"}, "VUS is 0"},
		{[]string{"-rate", "many"}, "RATE is many"},
		{[]string{"-api_url", "http://127.0.0.1:1"}, "API_URL needs STRIPESIM_URL"},
		{[]string{"-api_url", "http://127.0.0.1:1", "-stripesim_url", "http://127.0.0.1:2"},
			"API_URL needs DATABASE_URL"},
		{[]string{"smoke"}, `unexpected argument "smoke"`},
	} {
		_, err := parse(c.args, none, io.Discard)
		require.ErrorContains(t, err, c.want)
	}
	o, err := parse([]string{"-vus", "7"}, func(name string) string {
		return map[string]string{"SCENARIO": "soak", "DURATION": "1m30s", "VUS": "3"}[name]
	}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, "soak", o.scenario)
	require.Equal(t, map[string]string{"DURATION": "1m30s", "VUS": "7"}, o.script, "a flag wins")
	require.Equal(t, inventory.Path("out/load/soak"), o.out)

	var out bytes.Buffer
	require.Equal(t, 0, run(t.Context(), []string{"-list"}, none, &out, io.Discard))
	require.Equal(t, len(scenarios), strings.Count(out.String(), "\n"))
}

// TestSettings: what the program hands to the scripts is what they read.
func TestSettings(t *testing.T) {
	t.Parallel()
	var all strings.Builder
	files, err := inventory.Files(".js")
	require.NoError(t, err)
	for _, f := range files {
		if strings.HasPrefix(f, "loadtest/") {
			text, err := inventory.Read(f)
			require.NoError(t, err)
			all.WriteString(text)
		}
	}
	for _, s := range scripted {
		name := strings.ToUpper(s.name)
		used := regexp.MustCompile(`number\('` + name + `'|__ENV\.` + name + `\b`).MatchString(all.String())
		require.True(t, used, "no script reads %s", name)
	}
	for _, m := range regexp.MustCompile(`number\('(\w+)'`).FindAllStringSubmatch(all.String(), -1) {
		require.Contains(t, fmt.Sprint(scripted), strings.ToLower(m[1]), "a setting without a flag")
	}
}

func TestFindK6RefusesWhatIsNone(t *testing.T) {
	t.Parallel()
	fake := filepath.Join(t.TempDir(), "k6")
	for says, want := range map[string]string{"k6 v0.49.0 (go1.21)": "must be k6 v1 or later",
		"busybox": "must be k6 v1 or later"} {
		require.NoError(t, process.WriteProgram(fake, []byte("#!/bin/sh\necho '"+says+"'\n")))
		_, err := findK6(t.Context(), fake, t.Logf)
		require.ErrorContains(t, err, want)
	}
	_, err := findK6(t.Context(), fake+"-not-there", t.Logf)
	require.Error(t, err)
	require.Equal(t, exitNotRun,
		run(t.Context(), []string{"-k6", fake}, func(string) string { return "" }, io.Discard, io.Discard))
}

func gzipped(t *testing.T, dir string, lines []string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := z.Write([]byte(strings.Join(lines, "\n") + "\n"))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	name := filepath.Join(dir, "samples.json.gz")
	require.NoError(t, os.WriteFile(name, b.Bytes(), 0o600))
	return name
}
