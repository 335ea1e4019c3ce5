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
	"disputes":  regexp.MustCompile(`\bpayonce_dispute`),
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
		board["panels"] = withoutEmptyRows(list, prune(list))
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

// withoutEmptyRows removes the headings under which no panel is left. A row is a panel like those that follow it.
func withoutEmptyRows(before, after []any) (kept []any) {
	had, has := panelsOfRows(before), panelsOfRows(after)
	for _, entry := range after {
		panel, _ := entry.(map[string]any)
		if panel["type"] == "row" && had[panel["title"]] > 0 && has[panel["title"]] == 0 {
			continue
		}
		kept = append(kept, entry)
	}
	return kept
}

// panelsOfRows counts the panels of each row, by its title.
func panelsOfRows(list []any) map[any]int {
	counts := map[any]int{}
	var row any
	for _, entry := range list {
		panel, _ := entry.(map[string]any)
		if panel["type"] == "row" {
			row = panel["title"]
			nested, _ := panel["panels"].([]any) // of a row that is folded
			counts[row] += len(nested)
			continue
		}
		counts[row]++
	}
	return counts
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
