package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
)

// metricsOf says by the names of metrics to which part a panel belongs: JSON has no comments, and so no marks.
var metricsOf = map[string]*regexp.Regexp{
	"checkouts": regexp.MustCompile(`\bpayonce_(checkout|reservation|stock)`),
	"webhooks":  regexp.MustCompile(`\bpayonce_(deliver|notifier|webhook_deliver)`),
}

// cutPanels removes the queries of a dashboard that read metrics of a part that was left out, and
// the panels that have no other query.
func (s starter) cutPanels(text []byte) ([]byte, error) {
	var board map[string]any
	if err := json.Unmarshal(text, &board); err != nil {
		return nil, fmt.Errorf("read the dashboard: %w", err)
	}
	cutAny := false
	var prune func(list []any) []any
	prune = func(list []any) (kept []any) {
		for _, entry := range list {
			panel, _ := entry.(map[string]any)
			if nested, ok := panel["panels"].([]any); ok {
				panel["panels"] = prune(nested)
			}
			targets, ok := panel["targets"].([]any)
			if !ok {
				kept = append(kept, entry)
				continue
			}
			var stay []any
			for _, target := range targets {
				query, _ := target.(map[string]any)["expr"].(string)
				if s.reads(query) {
					stay = append(stay, target)
				}
			}
			cutAny = cutAny || len(stay) < len(targets)
			if len(stay) > 0 {
				panel["targets"] = stay
				kept = append(kept, entry)
			}
		}
		return kept
	}
	if list, ok := board["panels"].([]any); ok {
		board["panels"] = prune(list)
	}
	if !cutAny {
		return text, nil
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(board)
	return out.Bytes(), err
}

// reads reports whether every metric of a query exists in the starter.
func (s starter) reads(query string) bool {
	for name, metrics := range metricsOf {
		if !s.parts[name] && metrics.MatchString(query) {
			return false
		}
	}
	return true
}
