package stripe_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/stripe"
)

// TestWebhooksAreInTheHandbook: an endpoint that is made as the handbook says has the URL and each type of event that is
// used, and no other.
func TestWebhooksAreInTheHandbook(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(page), "\n## Webhooks from Stripe\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	require.Contains(t, section, "`https://HOST"+stripe.WebhookPath+"`")
	var types []string
	for _, line := range regexp.MustCompile(`(?m)^   - .*$`).FindAllString(section, -1) {
		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(line, -1) {
			types = append(types, name[1])
		}
	}
	require.Equal(t, stripe.WebhookTypes, types)
}
