package disputes_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/disputes"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/stripe"
	"example.com/payonce/testkit/world"
)

var hourAgo = time.Now().Add(-time.Hour)

// failuresIn counts the disputes that could not be recorded.
func failuresIn(t *testing.T, metrics prometheus.Gatherer) float64 {
	t.Helper()
	families, err := metrics.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == "payonce_dispute_failures_total" {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	require.Fail(t, "there is no such metric")
	return 0
}

// TestRoundOfDisputes: what Stripe does not respond about is read again, and once it does not respond about three in a
// row it is away.
func TestRoundOfDisputes(t *testing.T) {
	t.Parallel()
	// responses are those of GetDispute, one after the other: nil is the dispute itself.
	run := func(t *testing.T, responses ...error) (n int, failures float64, read int, err error) {
		b := paid(t)
		for range responses {
			b.dispute(true)
		}
		metrics := prometheus.NewRegistry()
		s, gateway := b.tap(disputes.Options{Metrics: disputes.NewMetrics(metrics)})
		gateway.dispute = func(d stripe.Dispute, err error) (stripe.Dispute, error) {
			require.NoError(t, err)
			why := responses[read]
			read++
			return d, why
		}
		n, err = s.RunOnce(t.Context())
		return n, failuresIn(t, metrics), read, err
	}

	t.Run("GoesOnAfterTwoWithoutAResponse", func(t *testing.T) {
		t.Parallel()
		n, failures, read, err := run(t, stripe.ErrAway, stripe.ErrAway, nil, stripe.ErrAway,
			stripe.ErrNotShown, stripe.ErrAway, stripe.ErrAway)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.EqualValues(t, 6, failures)
		require.Equal(t, 7, read)
	})

	t.Run("EndsAtTheThirdInARow", func(t *testing.T) {
		t.Parallel()
		_, failures, read, err := run(t, stripe.ErrAway, stripe.ErrAway, stripe.ErrAway, nil)
		require.ErrorIs(t, err, stripe.ErrAway)
		require.EqualValues(t, 2, failures)
		require.Equal(t, 3, read)
	})

	t.Run("EndsAtWhatIsAboutNoDispute", func(t *testing.T) {
		t.Parallel()
		_, failures, read, err := run(t, context.DeadlineExceeded, nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Zero(t, failures)
		require.Equal(t, 1, read)
	})
}

// TestRoundThatCannotRecordWhatItHasRead reports it.
func TestRoundThatCannotRecordWhatItHasRead(t *testing.T) {
	t.Parallel()
	w, api, proxy := world.Proxied(t, world.LocalOptions{})
	require.Equal(t, http.StatusCreated, api.Pay("k", api.Order(), "pm_card_visa").Status)
	_, err := w.Sim.OpenDispute(w.Text("SELECT charge_id FROM payments"), "fraudulent", false)
	require.NoError(t, err)
	_, err = api.Disputes.RunOnce(t.Context())
	require.NoError(t, err)
	for statement, reported := range map[string]string{
		"DisputeLock": "lock dispute", "DisputeReadAgain": "record that dispute",
	} {
		w.Exec("UPDATE disputes SET next_read_at = now() - interval '1 day'")
		proxy.Fail("name: "+statement+" ", 1)
		_, err = api.Disputes.RunOnce(t.Context())
		require.ErrorContains(t, err, reported)
	}
}

// TestRoundWhoseWindowAnotherProcessClaims reads the next window, without an error.
func TestRoundWhoseWindowAnotherProcessClaims(t *testing.T) {
	t.Parallel()
	world.RequireRoundGoesOn(t, "disputes recent", "disputes month", func(api *world.Local) (int, error) {
		return api.Disputes.RunOnce(t.Context())
	})
}

// TestRoundThatIsCanceledCountsNoFailure: Stripe has not refused anything.
func TestRoundThatIsCanceledCountsNoFailure(t *testing.T) {
	t.Parallel()
	b := paid(t)
	b.dispute(false)
	metrics := prometheus.NewRegistry()
	s, gateway := b.tap(disputes.Options{Metrics: disputes.NewMetrics(metrics)})
	ctx, cancel := context.WithCancel(t.Context())
	gateway.dispute = func(d stripe.Dispute, _ error) (stripe.Dispute, error) {
		cancel()
		return d, stripe.ErrAway
	}
	_, err := s.RunOnce(ctx)
	require.ErrorIs(t, err, stripe.ErrAway)
	require.Zero(t, failuresIn(t, metrics))
	require.Zero(t, b.Count("SELECT count(*) FROM reconciliation_windows WHERE covered_through IS NOT NULL"))
}

// windowCovered reports whether the first window was read to its end.
func (b bench) windowCovered() bool {
	b.t.Helper()
	return b.Count(`SELECT count(covered_through) FROM reconciliation_windows WHERE name = 'disputes recent'`) == 1
}

// TestWindowOfDisputes is covered once all of it is recorded.
func TestWindowOfDisputes(t *testing.T) {
	t.Parallel()

	t.Run("AndReadAgainIn10SecondsIfItCouldNotBeRead", func(t *testing.T) {
		t.Parallel()
		b := paid(t)
		s, gateway := b.tap(disputes.Options{})
		gateway.list = func(page stripe.Page[stripe.Dispute], _ error) (stripe.Page[stripe.Dispute], error) {
			return page, stripe.ErrAway
		}
		b.RequireWindowDueIn("disputes recent", 10*time.Second, func() {
			_, err := s.RunOnce(t.Context())
			require.ErrorIs(t, err, stripe.ErrAway)
		})
		require.False(t, b.windowCovered())
	})

	t.Run("AndReadAgainIn2MinutesIfOneCouldNotBeRecorded", func(t *testing.T) {
		t.Parallel()
		b := paid(t)
		b.dispute(false)
		s, gateway := b.tap(disputes.Options{})
		gateway.dispute = func(d stripe.Dispute, _ error) (stripe.Dispute, error) { return d, stripe.ErrNotShown }
		b.RequireWindowDueIn("disputes recent", 2*time.Minute, func() {
			_, err := s.RunOnce(t.Context())
			require.NoError(t, err)
		})
		require.False(t, b.windowCovered())
		gateway.dispute = nil
		b.Exec("UPDATE reconciliation_windows SET next_at = '-infinity'")
		_, err := s.RunOnce(t.Context())
		require.NoError(t, err)
		require.True(t, b.windowCovered())
	})

	t.Run("AlsoIfOnesThatAreListedAfterItAreRecorded", func(t *testing.T) {
		t.Parallel()
		b := paid(t)
		b.dispute(false)
		b.Sim.Advance(time.Second) // The later one is listed first.
		later := b.other().dispute(false)
		s, gateway := b.tap(disputes.Options{})
		gateway.dispute = func(d stripe.Dispute, err error) (stripe.Dispute, error) {
			if d.ID == later {
				err = stripe.ErrNotShown
			}
			return d, err
		}
		_, err := s.RunOnce(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, b.Count("SELECT count(*) FROM disputes"))
		require.False(t, b.windowCovered())
	})

	t.Run("UnlessAnotherProcessHasItByNow", func(t *testing.T) {
		t.Parallel()
		b := paid(t)
		s, gateway := b.tap(disputes.Options{})
		gateway.list = func(page stripe.Page[stripe.Dispute], err error) (stripe.Page[stripe.Dispute], error) {
			b.Exec("UPDATE reconciliation_windows SET lease_token = lease_token + 1")
			return page, err
		}
		_, err := s.RunOnce(t.Context())
		require.ErrorContains(t, err, "the lease of the window was lost")
		require.Zero(t, b.Count("SELECT count(*) FROM reconciliation_windows WHERE covered_through IS NOT NULL"))
	})
}

// TestAuditOfDisputesAsksForEachOnce, and not for those that a list has shown.
func TestAuditOfDisputesAsksForEachOnce(t *testing.T) {
	t.Parallel()
	b := paid(t)
	open, lost := b.dispute(false), b.dispute(false)
	b.evidence(lost, "losing_evidence")
	b.rounds()
	s, gateway := b.tap(disputes.Options{})
	_, err := s.Compare(t.Context(), hourAgo)
	require.NoError(t, err)
	require.Equal(t, []string{"list"}, gateway.asked)
	gateway.asked = nil
	_, err = s.Compare(t.Context(), time.Now().Add(time.Hour))
	require.NoError(t, err)
	require.Equal(t, []string{"list", "dispute " + open, "list"}, gateway.asked,
		"the list of all shows one that has ended")
}

// TestAuditOfDisputesWithoutAResponse compares once more what Stripe gave no response about.
func TestAuditOfDisputesWithoutAResponse(t *testing.T) {
	t.Parallel()
	var last string // that Stripe was asked for
	compare := func(t *testing.T, answer func(asked int, cancel func()) error) (string, error) {
		b := paid(t)
		b.dispute(false)
		b.rounds()
		s, gateway := b.tap(disputes.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		asked := 0
		gateway.dispute = func(d stripe.Dispute, _ error) (stripe.Dispute, error) {
			asked++
			return d, answer(asked, cancel)
		}
		found, err := s.Compare(ctx, time.Now().Add(time.Hour))
		last = gateway.asked[len(gateway.asked)-1]
		return details(found), err
	}

	t.Run("AndFindsThatItAgrees", func(t *testing.T) {
		found, err := compare(t, func(asked int, _ func()) error {
			if asked == 1 {
				return stripe.ErrAway
			}
			return nil
		})
		require.NoError(t, err)
		require.Empty(t, found)
	})

	t.Run("AndNamesItIfThereIsNoneAgain", func(t *testing.T) {
		found, err := compare(t, func(int, func()) error { return stripe.ErrAway })
		require.NoError(t, err)
		require.Contains(t, found, "not compared, Stripe gave no response twice: ")
	})

	t.Run("AndNamesEachIfThereAreSeveral", func(t *testing.T) {
		b := paid(t)
		b.dispute(false)
		b.other().dispute(false)
		b.rounds()
		s, gateway := b.tap(disputes.Options{})
		gateway.dispute = func(d stripe.Dispute, _ error) (stripe.Dispute, error) { return d, stripe.ErrAway }
		found, err := s.Compare(t.Context(), time.Now().Add(time.Hour))
		require.NoError(t, err)
		require.Equal(t, 2, strings.Count(details(found), "not compared, Stripe gave no response twice: "))
	})

	t.Run("AndFailsIfItIsCanceledMeanwhile", func(t *testing.T) {
		for first := range 2 {
			found, err := compare(t, func(asked int, cancel func()) error {
				if asked > first {
					cancel()
				}
				return stripe.ErrAway
			})
			require.ErrorIs(t, err, stripe.ErrAway)
			require.Empty(t, found, "the audit was canceled, so that nothing is known about it")
			require.Contains(t, last, "dispute ", "and Stripe is asked for nothing more")
		}
	})
}

func details(found []postgres.Violation) string {
	var all []string
	for _, v := range found {
		all = append(all, v.Detail)
	}
	return strings.Join(all, "\n")
}

// TestAuditLeavesAPaymentThatHasNotSucceededToTheReconciler: it shows the intent, until it is adopted.
func TestAuditLeavesAPaymentThatHasNotSucceededToTheReconciler(t *testing.T) {
	t.Parallel()
	b, _, _, _ := disputedUnseen(t)
	found, err := b.api.Disputes.Compare(t.Context(), hourAgo)
	require.NoError(t, err)
	require.Empty(t, found, fmt.Sprint(found))
}
