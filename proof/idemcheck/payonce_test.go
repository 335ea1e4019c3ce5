package idemcheck_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/idemcheck"
	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/world"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// TestPayonceIsClean: a real process, asked everything with the profile of cmd/idemcheck. Responses expire after days, so
// here the database drops them when it is asked to.
func TestPayonceIsClean(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	p := w.Process()
	admin := httptest.NewServer(w.Sim.AdminHandler())
	t.Cleanup(admin.Close)
	text, err := os.ReadFile("../../cmd/idemcheck/payonce.yaml")
	require.NoError(t, err)
	profile, err := idemcheck.Parse([]byte(strings.NewReplacer("${PAYONCE_API_KEY}", w.Tenant.APIKey,
		"${PAYONCE_OTHER_API_KEY}", w.NewTenant().APIKey, "${STRIPESIM_ADMIN}", admin.URL).Replace(string(text))))
	require.NoError(t, err)
	expire := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		w.Exec(`UPDATE idempotency_keys SET answer_version = NULL, answer_status = NULL, answer_headers = NULL,
			answer_body = NULL, answer_dropped_at = clock_timestamp() WHERE finished_at IS NOT NULL AND answer_dropped_at IS NULL`)
	}))
	t.Cleanup(expire.Close)
	profile.Expire, profile.Status.Expired = &idemcheck.Request{Method: http.MethodPost, Path: expire.URL}, http.StatusGone
	report, err := idemcheck.Run(t.Context(), p.Base, profile, false)
	require.NoError(t, err)
	require.NoError(t, report.Print(os.Stdout))
	for _, result := range report.Results {
		require.Equal(t, idemcheck.Holds, result.Verdict, "%s: %s", result.Check, result.Evidence)
	}
}
