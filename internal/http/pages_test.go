package http_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLargeObjectsComeInMorePages: whoever follows has_more gets each object once, in order, also if the pages end early.
func TestLargeObjectsComeInMorePages(t *testing.T) {
	t.Parallel()
	const orders, each = 12, 106_000
	b := setup(t)
	var metadata, items []string
	for i := range 20 {
		metadata = append(metadata, fmt.Sprintf(`"%s%02d":%q`, strings.Repeat("<", 38), i, strings.Repeat("<", 500)))
	}
	for i := range 100 {
		items = append(items, fmt.Sprintf(`{"sku":"%s%03d","quantity":1,"unit_amount":100}`, strings.Repeat("<", 61), i))
	}
	var made []string
	for i := range orders {
		a := b.post("/v1/orders", fmt.Sprint("order-", i), fmt.Sprintf(`{"currency":"usd","items":[%s],"metadata":{%s}}`,
			strings.Join(items, ","), strings.Join(metadata, ",")))
		require.Equal(t, http.StatusCreated, a.status)
		require.Greater(t, len(a.body), each)
		made = append(made, a.id())
	}
	for path, id := range map[string]func(object map[string]any) string{
		"/v1/orders?limit=100&starting_after=": func(o map[string]any) string { return o["id"].(string) },
		"/v1/events?limit=100&after=":          func(o map[string]any) string { return o["subject"].(string) }, // part: events
	} {
		var seen []string
		pages, cursor := 0, ""
		for more := true; more; pages++ {
			a := b.get(strings.TrimSuffix(path+cursor, "&"+path[strings.LastIndex(path, "&")+1:]))
			require.Equal(t, http.StatusOK, a.status, a.body)
			require.LessOrEqual(t, len(a.body), 1<<20+100)
			for _, object := range a.object["data"].([]any) {
				o := object.(map[string]any)
				seen, cursor = append(seen, id(o)), o["id"].(string)
			}
			more = a.object["has_more"].(bool)
		}
		require.Equal(t, 2, pages, path)
		require.ElementsMatch(t, made, seen, path)
	}
}
