package prometheus

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"example.com/payonce/deploy"
)

// Rule of rules.yml: an alert, or a series that is recorded.
type Rule struct {
	Record, Alert, Expr string
	For                 string
	Labels, Annotations map[string]string
}

// Name is the alert's, or that of the series.
func (r Rule) Name() string { return r.Alert + r.Record }

// Rules are those of rules.yml, as production has them.
func Rules() (rules []Rule, err error) {
	var file struct {
		Groups []struct{ Rules []Rule }
	}
	err = yaml.Unmarshal([]byte(deploy.Rules), &file)
	for _, group := range file.Groups {
		rules = append(rules, group.Rules...)
	}
	return rules, err
}

// Dashboard is as much of one of Grafana's as its queries and its tests need.
type Dashboard struct {
	UID, Title    string
	SchemaVersion int
	Panels        []struct {
		ID                       int
		Type, Title, Description string
		GridPos                  struct{ X, Y, W, H int }
		Datasource               struct{ UID string }
		Targets                  []struct {
			RefID, Expr, LegendFormat string
			Datasource                struct{ UID string }
		}
		FieldConfig struct{ Defaults struct{ Unit string } }
	}
}

// Dashboards are those that are provisioned, by file.
func Dashboards() (map[string]Dashboard, error) {
	files, err := fs.Glob(deploy.Dashboards, "grafana/dashboards/*.json")
	if err != nil {
		return nil, err
	}
	all := map[string]Dashboard{}
	for _, file := range files {
		b, err := deploy.Dashboards.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var d Dashboard
		if err := json.Unmarshal(b, &d); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all[file] = d
	}
	return all, nil
}

// Selector matches what a query reads: a recorded series, or one of the service's
// with or without labels.
var Selector = regexp.MustCompile(`([a-z]+:)?(payonce_[a-z_]+)(:\w+)?(?:\{((?:[^"}]|"[^"]*")*)\})?`)

// Variable matches Grafana's variables in a query.
var Variable = regexp.MustCompile(`\$(__rate_interval|__interval|__range)`)

// Seen is what Prometheus had for the rules and the panels to look at.
type Seen struct {
	Rules   int      `json:"rules"`
	Queries int      `json:"queries_of_panels"`
	Blind   []string `json:"blind"` // which of them had nothing, and why
}

// Seen holds every rule to what Prometheus has of it, evaluated, without an error,
// on series that exist, each with each of its labels; and asks every query of every
// panel, without the zero that some of them show for nothing.
func (p *Prometheus) Seen(ctx context.Context) (s Seen, err error) {
	rules, err := Rules()
	if err != nil {
		return s, err
	}
	evaluated, err := p.evaluated(ctx)
	if err != nil {
		return s, err
	}
	for _, r := range rules {
		s.Rules++
		was, ok := evaluated[r.Name()]
		switch {
		case !ok:
			s.Blind = append(s.Blind, r.Name()+" is unknown to Prometheus")
		case was.Health != "ok":
			s.Blind = append(s.Blind, r.Name()+" is "+was.Health+": "+was.LastError)
		}
		for _, selector := range reads(r.Expr) {
			n, err := p.Points(ctx, selector)
			if err != nil {
				return s, fmt.Errorf("%s: %w", selector, err)
			}
			if n == 0 {
				s.Blind = append(s.Blind, r.Name()+" listens for "+selector+", which the service never said")
			}
		}
	}
	dashboards, err := Dashboards()
	if err != nil {
		return s, err
	}
	for _, d := range dashboards {
		for _, panel := range d.Panels {
			for _, target := range panel.Targets {
				s.Queries++
				query := strings.TrimSuffix(Variable.ReplaceAllString(target.Expr, "5s"), " or vector(0)")
				n, err := p.Points(ctx, query)
				if err != nil {
					return s, fmt.Errorf("%s: %s: %w", panel.Title, query, err)
				}
				if n == 0 {
					s.Blind = append(s.Blind, fmt.Sprintf("%s: %s stayed blank: %s", d.Title, panel.Title, query))
				}
			}
		}
	}
	return s, nil
}

// reads is what a rule reads: the service's series, and whether it is up.
func reads(expr string) (selectors []string) {
	selectors = Selector.FindAllString(expr, -1)
	if up := `up{job="` + job + `"}`; strings.Contains(expr, up) {
		selectors = append(selectors, up)
	}
	return selectors
}

// Explain is all that Prometheus can say of an alert, to find out why it
// does not fire or does not go: the rule as it evaluates it, and what the rule and
// each series that it reads are now.
func (p *Prometheus) Explain(ctx context.Context, alert string) string {
	rules, err := p.evaluated(ctx)
	if err != nil {
		return alert + ": " + err.Error()
	}
	r := rules[alert]
	said := fmt.Sprintf("%s is %s (%s %s) by\n  %s", alert, r.State, r.Health, r.LastError, r.Query)
	series := reads(r.Query)
	slices.Sort(series)
	for _, query := range append([]string{r.Query}, slices.Compact(series)...) {
		now, err := ask[struct{ Result json.RawMessage }](ctx, p, "query", url.Values{"query": {query}})
		if err != nil {
			now.Result = json.RawMessage(err.Error())
		}
		said += fmt.Sprintf("\n  %s\n    is now %.2000s", query, now.Result)
	}
	return said
}

type evaluation struct {
	Name, Health, LastError string
	Query                   string
	State                   string // of an alert: inactive, pending or firing
}

// evaluated is every rule as Prometheus has it, with what was wrong with its last
// evaluation.
func (p *Prometheus) evaluated(ctx context.Context) (map[string]evaluation, error) {
	data, err := ask[struct {
		Groups []struct{ Rules []evaluation }
	}](ctx, p, "rules", nil)
	rules := map[string]evaluation{}
	for _, g := range data.Groups {
		for _, r := range g.Rules {
			rules[r.Name] = r
		}
	}
	return rules, err
}
