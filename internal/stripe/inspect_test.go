package stripe_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/stripe"
)

// TestWebhooksAreOnTheirPage: the page has the URL, and each type of event that an endpoint is sent, and no other.
func TestWebhooksAreOnTheirPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/webhooks-from-stripe.md")
	require.NoError(t, err)
	require.Contains(t, string(page), "-url https://HOST"+stripe.WebhookPath+"\n")
	_, section, found := strings.Cut(string(page), "\n## Which events\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	var types []string
	for _, line := range regexp.MustCompile("(?m)^\\| `[^|]*").FindAllString(section, -1) {
		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(line, -1) {
			types = append(types, name[1])
		}
	}
	require.Equal(t, stripe.WebhookTypes, types)
}
