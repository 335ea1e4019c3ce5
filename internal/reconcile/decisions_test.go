package reconcile

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/stripe"
)

// TestErrorOfOneObject: what would recur with everything working becomes a discrepancy, and everything else ends the
// round.
func TestErrorOfOneObject(t *testing.T) {
	t.Parallel()
	bug := guarded(func() error { panic("a nil charge") })
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		name     string
		err      error
		recurs   bool
		recorded string
	}{
		{"Stripe refuses to show it", fmt.Errorf("400: %w", stripe.ErrNotShown), true, "Stripe does not show it: 400: "},
		{"Stripe has no such object", stripe.ErrNoSuchObject, true, "Stripe does not show it: "},
		{"more refunds than the payment", payments.ErrRefundExceedsPayment, true, "Stripe does not show it: "},
		{"a bug", bug, true, "not compared: bug: a nil charge"},
		{"the database rejects the row", &pgconn.PgError{Code: "23514"}, true, "Stripe does not show it: "},
		{"a search for the object takes too long", &pgconn.PgError{Code: "57014"}, true, "not compared: "},
		{"the database has too many clients", &pgconn.PgError{Code: "53300"}, false, ""},
		{"a COMMIT without a response", fmt.Errorf("%w: %w", postgres.ErrInDoubt, &pgconn.PgError{Code: "23514"}), false, ""},
		{"Stripe is away", stripe.ErrAway, false, ""},
		{"anything else", errors.New("connection reset"), false, ""},
	} {
		require.Equal(t, c.recurs, ofTheObject(t.Context(), c.err), c.name)
		require.False(t, ofTheObject(canceled, c.err), "%s while the process stops", c.name)
		if c.recurs {
			require.Contains(t, unreadable("refund", localRef{}, c.err).Detail, c.recorded, c.name)
		}
	}
}

// TestSkip: a run leaves out two objects that Stripe gives no response about. At the third Stripe is taken to be away.
func TestSkip(t *testing.T) {
	t.Parallel()
	away := fmt.Errorf("read an intent: %w", stripe.ErrAway)
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	round, audit := &walker{skipMax: skipMax}, &walker{}
	require.False(t, round.skip(t.Context(), nil))
	require.False(t, round.skip(t.Context(), stripe.ErrNotShown), "that is a response")
	require.False(t, round.skip(canceled, away), "the process stops")
	require.Empty(t, round.skipped)
	for range skipMax - 1 {
		require.True(t, round.skip(t.Context(), away))
	}
	require.False(t, round.skip(t.Context(), away))
	require.Equal(t, []error{away, away}, round.skipped)
	require.False(t, audit.skip(t.Context(), away), "the audit names each of them")
}

// TestWindowBegins where the last one ended if it continues, so that what a restored database has lost is read first.
func TestWindowBegins(t *testing.T) {
	t.Parallel()
	now := time.Now()
	covered := now.Add(-time.Hour)
	recent, days := scanWindows[1], scanWindows[2]
	for _, c := range []struct {
		name    string
		window  scanWindow
		covered *time.Time
		ago     time.Duration
	}{
		{"recent, first", recent, nil, recent.back},
		{"recent, again", recent, &covered, time.Hour + recent.back},
		{"days, first", days, nil, days.back},
		{"days, again", days, &covered, days.back},
	} {
		require.Equal(t, c.ago, now.Sub(c.window.from(db.ReconcileClaimRow{Now: now, CoveredThrough: c.covered})), c.name)
	}
}
