package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/proof/internal/inventory"
)

var (
	brokerParameters = regexp.MustCompile(`CheckSettings\(\w+((?:, "\w+")+)\)`)
	brokerScheme     = regexp.MustCompile(`(?m)^- .((?:\w+):)`)
)

// TestBrokerParametersAreDocumented: the handbook has each parameter that the source of a broker reads from BROKER_URL.
func TestBrokerParametersAreDocumented(t *testing.T) {
	t.Parallel()
	handbook, err := inventory.Read("docs/operations.md")
	require.NoError(t, err)
	_, text, found := strings.Cut(handbook, "### Broker addresses\n")
	require.True(t, found)
	text, _, _ = strings.Cut(text, "\n## ")
	require.Len(t, brokerScheme.FindAllString(text, -1), 7)

	sources, err := filepath.Glob("../../internal/broker/*.go")
	require.NoError(t, err)
	adapters, err := filepath.Glob("../../internal/broker/*/*.go")
	require.NoError(t, err)
	sources = append(sources, adapters...)
	parameters := 0
	for _, path := range sources {
		source, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, m := range brokerParameters.FindAllStringSubmatch(string(source), -1) {
			for name := range strings.SplitSeq(strings.Trim(m[1], `, "`), `", "`) {
				parameters++
				require.Regexp(t, "[`?&]"+name+"=", text, "%s reads %s", filepath.Base(path), name)
			}
		}
	}
	require.Greater(t, parameters, 12, "the parameters were not found")
}
