package deploy_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/proof/internal/inventory"
	"example.com/payonce/proof/internal/prometheus"
)

// catalogue is what a query may ask for: the metrics of the service with their
// labels, and the words that the code uses as labels' values.
type catalogue struct {
	metrics map[string]inventory.Metric
	code    string
}

func readCatalogue(t *testing.T) catalogue {
	t.Helper()
	metrics, err := inventory.FindMetrics()
	require.NoError(t, err)
	require.NotEmpty(t, metrics)
	files, err := inventory.Files(".go", ".sql")
	require.NoError(t, err)
	var code strings.Builder
	for _, file := range files {
		if !strings.HasSuffix(file, "_test.go") {
			text, err := inventory.Read(file)
			require.NoError(t, err)
			code.WriteString(text)
		}
	}
	return catalogue{metrics, code.String()}
}

var (
	matcher  = regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)\s*"([^"]*)"`)
	aggregat = regexp.MustCompile(`\b(?:by|without|on|ignoring)\s*\(([^)]*)\)`)
	suffix   = regexp.MustCompile(`_(bucket|sum|count)$`)
)

// require fails the test if a query asks for a metric, a label or a label's value
// that the service does not have. A query of nothing is always quiet.
func (c catalogue) require(t *testing.T, where, query string) {
	t.Helper()
	labels := []string{"instance", "job", "le"}
	asked := 0
	for _, found := range prometheus.Selector.FindAllStringSubmatch(query, -1) {
		if found[1] != "" || found[3] != "" {
			asked++ // a recorded series: its own rule is checked
			labels = append(labels, "operation")
			continue
		}
		name := found[2]
		m, ok := c.metrics[name]
		if !ok {
			m, ok = c.metrics[suffix.ReplaceAllString(name, "")]
			ok = ok && m.Histogram
		}
		require.True(t, ok, "%s asks for %s, which is not registered", where, name)
		require.False(t, m.Histogram && !suffix.MatchString(name),
			"%s: %s is a histogram, so it has no series of that name", where, name)
		asked++
		labels = append(labels, m.Labels...)
		for _, pair := range matcher.FindAllStringSubmatch(found[4], -1) {
			require.Contains(t, append([]string{"instance", "job", "le"}, m.Labels...), pair[1], "%s: a label of %s",
				where, name)
			for value := range strings.SplitSeq(pair[2], "|") {
				c.requireValue(t, where, pair[1], value)
			}
		}
	}
	if strings.Contains(query, "payonce") && !strings.Contains(query, `job="payonce"`) {
		require.NotZero(t, asked, "%s: %s", where, query)
	}
	for _, list := range aggregat.FindAllStringSubmatch(query, -1) {
		for label := range strings.SplitSeq(list[1], ",") {
			if label = strings.TrimSpace(label); label != "" {
				require.Contains(t, labels, label, "%s: %s", where, query)
			}
		}
	}
}

var notAWord = regexp.MustCompile(`^$|^\d+$|[\[\].*+$]|^/`)

// requireValue believes numbers, patterns and variables, and looks for the rest.
func (c catalogue) requireValue(t *testing.T, where, label, value string) {
	t.Helper()
	if label == "route" && strings.HasPrefix(value, "/") && !strings.ContainsAny(value, ".*+$") {
		require.Contains(t, c.code, `"`+value+`"`, "%s: no such route", where)
		return
	}
	if notAWord.MatchString(value) || slices.Contains([]string{"instance", "job", "le"}, label) {
		return
	}
	require.Contains(t, c.code, `"`+value+`"`, "%s: %s is never %q", where, label, value)
}
