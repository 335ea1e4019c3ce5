package deploy_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"example.com/payonce/proof/internal/prometheus"
)

func readDashboards(t *testing.T) map[string]prometheus.Dashboard {
	t.Helper()
	all, err := prometheus.Dashboards()
	require.NoError(t, err)
	require.NotEmpty(t, all)
	return all
}

func TestDashboards(t *testing.T) {
	t.Parallel()

	t.Run("AskForMetricsThatExist", func(t *testing.T) {
		t.Parallel()
		known := readCatalogue(t)
		for file, d := range readDashboards(t) {
			for _, p := range d.Panels {
				for _, target := range p.Targets {
					known.require(t, file+": "+p.Title, target.Expr)
				}
			}
		}
	})

	t.Run("ShowEveryMetric", func(t *testing.T) {
		t.Parallel()
		var all strings.Builder
		for _, d := range readDashboards(t) {
			for _, p := range d.Panels {
				for _, target := range p.Targets {
					all.WriteString(target.Expr + "\n")
				}
			}
		}
		for _, r := range readRules(t) {
			all.WriteString(r.Expr + "\n")
		}
		for name := range readCatalogue(t).metrics {
			require.True(t, strings.Contains(all.String(), name), "%s: no panel and no alert uses this metric", name)
		}
	})

	t.Run("ExplainEveryPanel", func(t *testing.T) {
		t.Parallel()
		uids := map[string]bool{}
		for file, d := range readDashboards(t) {
			require.NotEmpty(t, d.UID, file)
			require.False(t, uids[d.UID], "%s: the uid of another", file)
			uids[d.UID] = true
			for _, p := range d.Panels {
				if p.Type == "row" {
					continue
				}
				require.NotEmpty(t, p.Description, "%s: %s", file, p.Title)
				require.NotEmpty(t, p.FieldConfig.Defaults.Unit, "%s: %s", file, p.Title)
				require.NotEmpty(t, p.Targets, "%s: %s", file, p.Title)
				require.Equal(t, "prometheus", p.Datasource.UID, "%s: %s", file, p.Title)
			}
		}
	})

	// What Grafana takes without a word and shows wrong.
	t.Run("AreShownAsTheyAreMeant", func(t *testing.T) {
		t.Parallel()
		for file, d := range readDashboards(t) {
			require.GreaterOrEqual(t, d.SchemaVersion, 36, "%s: before it, a datasource was a name", file)
			ids, taken := map[int]bool{}, map[[2]int]string{}
			for _, p := range d.Panels {
				require.False(t, ids[p.ID] || p.ID == 0, "%s: %s: the id of another", file, p.Title)
				ids[p.ID] = true
				for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
					require.Less(t, x, 24, "%s: %s: out of the page", file, p.Title)
					for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
						require.Empty(t, taken[[2]int{x, y}], "%s: %s: covered", file, p.Title)
						taken[[2]int{x, y}] = p.Title
					}
				}
				require.LessOrEqual(t, len(p.Title), 8*p.GridPos.W-12, "%s: %s: cut off, at 1600 points", file, p.Title)
				refs := map[string]bool{}
				for _, target := range p.Targets {
					require.False(t, refs[target.RefID] || target.RefID == "", "%s: %s: the letter of another query",
						file, p.Title)
					refs[target.RefID] = true
					require.Equal(t, p.Datasource.UID, target.Datasource.UID, "%s: %s", file, p.Title)
					require.NotRegexp(t, `\bby \(.*or vector\(0\)$`, target.Expr,
						"%s: %s: a line called Value beside those with labels", file, p.Title)
				}
			}
		}
	})

	t.Run("AreProvisioned", func(t *testing.T) {
		t.Parallel()
		var sources struct {
			Datasources []struct{ UID, URL string }
		}
		require.NoError(t, yaml.Unmarshal([]byte(text(t, "../../deploy/grafana/provisioning/datasources/payonce.yml")),
			&sources))
		require.Equal(t, "prometheus", sources.Datasources[0].UID)
		for _, source := range sources.Datasources { // each is a service that runs beside it
			at, err := url.Parse(source.URL)
			require.NoError(t, err)
			require.Contains(t, load(t).Services, at.Hostname())
			require.Contains(t, load(t).Services[at.Hostname()].Profiles, "observe")
		}
		var providers struct {
			Providers []struct{ Options struct{ Path string } }
		}
		require.NoError(t, yaml.Unmarshal([]byte(text(t, "../../deploy/grafana/provisioning/dashboards/payonce.yml")),
			&providers))
		project := load(t)
		mounted := map[string]bool{}
		for _, v := range project.Services["grafana"].Volumes {
			mounted[v.Target] = true
		}
		require.True(t, mounted[providers.Providers[0].Options.Path],
			"the folder of the dashboards is not in the container")
		require.True(t, mounted["/etc/grafana/provisioning/datasources"])
		require.True(t, mounted["/etc/grafana/provisioning/dashboards"])
		require.False(t, mounted["/etc/grafana/provisioning"],
			"hides the image's other folders, which Grafana calls an error")
		require.Equal(t, "http://prometheus:9090", sources.Datasources[0].URL)
		require.Contains(t, project.Services, "prometheus")
	})

	t.Run("AreParsed", func(t *testing.T) {
		t.Parallel()
		var queries []string
		for _, d := range readDashboards(t) {
			for _, p := range d.Panels {
				for _, target := range p.Targets {
					queries = append(queries, target.Expr)
				}
			}
		}
		parses(t, queries)
	})
}
