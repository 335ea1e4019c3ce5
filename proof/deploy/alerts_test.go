package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"example.com/payonce/proof/internal/prometheus"
)

const (
	rulesFile      = "../../deploy/prometheus/rules.yml"
	rulesTestFile  = "../../deploy/prometheus/rules_test.yml"
	operationsFile = "../../docs/operations.md"
)

func readRules(t *testing.T) []prometheus.Rule {
	t.Helper()
	rules, err := prometheus.Rules()
	require.NoError(t, err)
	require.NotEmpty(t, rules)
	return rules
}

func alerts(t *testing.T) (list []prometheus.Rule) {
	t.Helper()
	for _, r := range readRules(t) {
		if r.Alert != "" {
			list = append(list, r)
		}
	}
	return list
}

func TestAlerts(t *testing.T) {
	t.Parallel()

	t.Run("AskForMetricsThatExist", func(t *testing.T) {
		t.Parallel()
		known := readCatalogue(t)
		for _, r := range readRules(t) {
			known.require(t, "rule "+r.Alert+r.Record, r.Expr)
		}
	})

	t.Run("SayHowUrgentTheyAreAndWhatToDo", func(t *testing.T) {
		t.Parallel()
		for _, r := range alerts(t) {
			require.Contains(t, []string{"page", "ticket"}, r.Labels["severity"], r.Alert)
			require.NotEmpty(t, r.Annotations["summary"], r.Alert)
			require.Equal(t, "docs/operations.md#"+strings.ToLower(r.Alert), r.Annotations["runbook"])
		}
	})

	// An entry without a query sends its reader searching, which is what it is there to spare him.
	t.Run("HaveAnEntryThatBeginsWithAQuery", func(t *testing.T) {
		t.Parallel()
		entries := map[string]string{}
		for _, section := range strings.Split(text(t, operationsFile), "\n### ")[1:] {
			title, body, _ := strings.Cut(section, "\n")
			body, _, _ = strings.Cut(body, "\n## ")
			entries[title] = body
		}
		known := map[string]bool{}
		for _, r := range alerts(t) {
			known[r.Alert] = true
			require.Contains(t, entries, r.Alert, "no entry in docs/operations.md")
			require.Regexp(t, "(?s)```(sql|sh)\n.+\n```.*\n\\*\\*Do\\.\\*\\* ", entries[r.Alert],
				"%s: first what to look at, then what to do", r.Alert)
		}
		for title := range entries {
			if strings.HasPrefix(title, "Payonce") {
				require.True(t, known[title], "docs/operations.md explains %s, and no rule raises it", title)
			}
		}
	})

	t.Run("HaveAPanelOfTheOperatorsPage", func(t *testing.T) {
		t.Parallel()
		_, section, found := strings.Cut(text(t, operationsFile), "\n| alert | panel |\n")
		require.True(t, found)
		section, _, _ = strings.Cut(section, "\n\n")
		var in []string
		for line := range strings.Lines(section) {
			cell, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " |")
			if strings.HasPrefix(cell, "Payonce") {
				in = append(in, strings.Split(cell, ", ")...)
			}
		}
		var all []string
		for _, r := range alerts(t) {
			all = append(all, r.Alert)
		}
		require.ElementsMatch(t, all, in, "the table in docs/operations.md, The operator's page")
	})

	t.Run("FireAndDoNotFireInATest", func(t *testing.T) {
		t.Parallel()
		var file struct {
			Tests []struct {
				Cases []struct {
					Alertname string         `yaml:"alertname"`
					Alerts    []any          `yaml:"exp_alerts"`
					Rest      map[string]any `yaml:",inline"`
				} `yaml:"alert_rule_test"`
			}
		}
		require.NoError(t, yaml.Unmarshal([]byte(text(t, rulesTestFile)), &file))
		fires, quiet := map[string]bool{}, map[string]bool{}
		for _, test := range file.Tests {
			for _, c := range test.Cases {
				if len(c.Alerts) > 0 {
					fires[c.Alertname] = true
				} else {
					quiet[c.Alertname] = true
				}
			}
		}
		for _, r := range alerts(t) {
			require.True(t, fires[r.Alert], "no test in which %s fires", r.Alert)
			require.True(t, quiet[r.Alert], "no test in which %s does not", r.Alert)
		}
	})

	t.Run("PassTheirOwnTests", func(t *testing.T) {
		t.Parallel()
		promtool(t, "check", "rules", rulesFile)
		promtool(t, "test", "rules", rulesTestFile)
		promtool(t, "check", "config", "../../deploy/prometheus/prometheus.yml")
	})
}

// promtool comes with Prometheus. CI must have it.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	if _, err := exec.LookPath("promtool"); err != nil {
		require.Empty(t, os.Getenv("CI"), "promtool is missing; Debian's package prometheus has it")
		t.Skip("SKIPPED: promtool is not installed (Debian's package prometheus has it), so the alerts were not evaluated")
	}
	out, err := exec.CommandContext(t.Context(), "promtool", args...).CombinedOutput()
	require.NoError(t, err, "promtool %s\n%s", strings.Join(args, " "), out)
}

// parses has promtool parse queries, by making a rule of each.
func parses(t *testing.T, queries []string) {
	t.Helper()
	var rules []any
	for _, q := range queries {
		rules = append(rules, map[string]string{"record": "some:query",
			"expr": prometheus.Variable.ReplaceAllString(q, "5m")})
	}
	file, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "queries", "rules": rules}}})
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "queries.yml")
	require.NoError(t, os.WriteFile(path, file, 0o600))
	promtool(t, "check", "rules", "--lint=none", path)
}
