package stripe_test

import (
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/stripe"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/flood"
)

// TestLongAnswersAreNotHeld: one of 300 MB is an outcome that is unknown, after a few of them.
func TestLongAnswersAreNotHeld(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusOK, http.StatusInternalServerError} {
		server := flood.Start(t, status)
		gateway := stripe.New(stripe.Options{
			SecretKey: stripesim.DefaultKey, BaseURL: server.URL, Timeout: time.Minute, Limits: stripe.NewLimits(0, nil),
			Metrics: stripe.NewMetrics(nil), Log: slog.New(slog.DiscardHandler),
		})
		out := gateway.ConfirmIntent(t.Context(), stripe.Call{Key: "k"}, "pi_1", "pm_card_visa")
		require.Equal(t, stripe.Unknown, out.Effect, "it may have charged")
		_, err := gateway.GetIntent(t.Context(), stripe.NoTenant, "pi_1")
		require.Error(t, err)
		require.NotErrorIs(t, err, stripe.ErrNoSuchObject)
		require.Less(t, server.Sent(), int64(flood.Length), "responses were read for longer than they may be")
	}
}
