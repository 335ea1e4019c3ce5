package calls_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/calls"
	"example.com/payonce/internal/stripe"
	"example.com/payonce/testkit/world"
)

// recorded is the confirm of a payment that waits for its customer: a call whose
// attempts a test may record as it likes.
type recorded struct {
	w          *world.World
	token      int64
	stripeKey  string
	resourceID string
}

func newRecorded(t *testing.T) recorded {
	t.Helper()
	w := world.New(t)
	api := w.Local(world.LocalOptions{})
	payment := api.Pay("k", api.Order(), "pm_card_threeDSecure2Required").ID()
	return recorded{
		w: w, resourceID: payment,
		token:     int64(w.Count(`SELECT lease_token FROM idempotency_keys WHERE key = 'k'`)),
		stripeKey: w.Text(`SELECT stripe_key FROM stripe_calls WHERE operation = 'confirm'`),
	}
}

func (r recorded) call() calls.Call {
	return calls.Call{Operation: stripe.OpConfirm, Key: r.stripeKey, ResourceID: r.resourceID}
}

func (r recorded) attempt(t *testing.T) db.StripeCallRecordAttemptRow {
	t.Helper()
	row, err := r.w.DB.StripeCallRecordAttempt(t.Context(), db.StripeCallRecordAttemptParams{
		TenantID: r.w.Tenant.ID, Key: "k", LeaseToken: r.token, StripeKey: r.stripeKey, Operation: "confirm",
		ResourceID: r.resourceID, ParamsSha256: make([]byte, 32), ResendWithin: calls.ResendWithin,
	})
	require.NoError(t, err)
	return row
}

// outcome records that the attempt ended so, as Recorder.RecordAttempt does.
func (r recorded) outcome(t *testing.T, out stripe.Outcome) {
	t.Helper()
	n, err := r.w.DB.StripeCallRecordAttemptOutcome(t.Context(), db.StripeCallRecordAttemptOutcomeParams{
		TenantID: r.w.Tenant.ID, Key: "k", LeaseToken: r.token, StripeKey: r.stripeKey, Operation: "confirm",
		ResourceID: r.resourceID, Outcome: calls.Stored(out),
		InDoubt: out.Effect == stripe.Unknown, ErrorCached: out.ErrorCached,
	})
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
}

var (
	unknown     = stripe.Outcome{Effect: stripe.Unknown}
	notExecuted = stripe.Outcome{Effect: stripe.NotExecuted}
	cachedError = stripe.Outcome{Effect: stripe.Unknown, ErrorCached: true}
)

// TestDoubtOutlastsLaterAttempts: an attempt of unknown outcome may have moved the
// money. What Stripe says of a later attempt is no news of that one, so a refusal
// after it must not be taken for the payment's failure.
func TestDoubtOutlastsLaterAttempts(t *testing.T) {
	t.Parallel()
	r := newRecorded(t)
	r.w.Exec(`UPDATE stripe_calls SET outcome = 'not_executed' WHERE stripe_key = $1`, r.stripeKey)
	require.False(t, r.attempt(t).InDoubt, "every attempt before had a definite outcome")
	r.outcome(t, unknown)
	require.True(t, r.attempt(t).InDoubt, "the first attempt is of unknown outcome")
	r.outcome(t, notExecuted)
	require.True(t, r.attempt(t).InDoubt, "and still is after a later one was not executed")
	r.outcome(t, notExecuted)
	require.True(t, r.attempt(t).InDoubt)
}

// TestAttemptWithoutOutcomeIsInDoubt: the process that sent it exited.
func TestAttemptWithoutOutcomeIsInDoubt(t *testing.T) {
	t.Parallel()
	r := newRecorded(t)
	r.w.Exec(`UPDATE stripe_calls SET outcome = 'not_executed' WHERE stripe_key = $1`, r.stripeKey)
	require.False(t, r.attempt(t).InDoubt)
	require.True(t, r.attempt(t).InDoubt)
}

// TestCachedErrorStaysCached: Stripe repeats it for this key, whatever a later attempt
// got, so the call is not sent for ever.
func TestCachedErrorStaysCached(t *testing.T) {
	t.Parallel()
	r := newRecorded(t)
	r.attempt(t)
	r.outcome(t, cachedError)
	r.attempt(t)
	r.outcome(t, notExecuted)
	last, err := calls.NewRecorder(r.w.DB).Last(t.Context(), r.w.Tenant.ID, r.call())
	require.NoError(t, err)
	require.True(t, last.ErrorCached)
	require.True(t, calls.Exhausted(last))
}

// TestBeganHere: a request that this database does not have may have come before those that it has.
func TestBeganHere(t *testing.T) {
	t.Parallel()
	r := newRecorded(t)
	r.w.Exec(`UPDATE stripe_calls SET request_ids = '{req_1,"",req_2}' WHERE stripe_key = $1`, r.stripeKey)
	for original, want := range map[string]bool{"req_1": true, "req_2": true, "req_lost": false, "": false} {
		ours, err := calls.NewRecorder(r.w.DB).BeganHere(t.Context(), r.w.Tenant.ID, r.call(),
			stripe.Outcome{OriginalRequestID: original})
		require.NoError(t, err)
		require.Equal(t, want, ours, "%q", original)
	}
}

// TestAttemptPastTheCutoffIsNotRecorded: Stripe may have forgotten the key.
func TestAttemptPastTheCutoffIsNotRecorded(t *testing.T) {
	t.Parallel()
	r := newRecorded(t)
	attempts := func() int {
		return r.w.Count(`SELECT attempts FROM stripe_calls WHERE stripe_key = $1`, r.stripeKey)
	}
	r.w.Exec(`ALTER TABLE stripe_call_rows DISABLE TRIGGER USER`)
	age := func(d time.Duration) {
		r.w.Exec(`UPDATE stripe_calls SET first_sent_at = clock_timestamp() - $1::interval`, d)
	}
	age(calls.ResendWithin - time.Minute)
	require.False(t, r.attempt(t).PastResendCutoff)
	before := attempts()
	age(calls.ResendWithin + time.Minute)
	past := r.attempt(t)
	require.True(t, past.PastResendCutoff)
	require.True(t, past.InDoubt, "what came of the earlier attempts cannot be asked under this key")
	require.Equal(t, before, attempts())
}

func TestExhausted(t *testing.T) {
	t.Parallel()
	cutoff := calls.ResendWithin.Seconds()
	for name, c := range map[string]struct {
		last db.StripeCallGetRow
		want bool
	}{
		"SentOnce":                    {db.StripeCallGetRow{Attempts: 1, AgeSeconds: cutoff}, false},
		"SentOftenWithoutCachedError": {db.StripeCallGetRow{Attempts: 9}, false},
		"CachedErrorOnce":             {db.StripeCallGetRow{Attempts: 1, ErrorCached: true}, false},
		"CachedErrorTwice":            {db.StripeCallGetRow{Attempts: 2, ErrorCached: true}, true},
		"TooOld":                      {db.StripeCallGetRow{Attempts: 1, AgeSeconds: cutoff + 1}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, calls.Exhausted(c.last))
		})
	}
}

// TestStored: every effect has its place in the table, and unknown is never a refusal.
func TestStored(t *testing.T) {
	t.Parallel()
	for effect, stored := range map[stripe.Effect]db.StripeOutcome{
		stripe.Done: db.StripeOutcomeDone, stripe.Refused: db.StripeOutcomeRefused, stripe.Conflict: db.StripeOutcomeRefused,
		stripe.NotExecuted: db.StripeOutcomeNotExecuted, stripe.Unknown: db.StripeOutcomeUnknown,
	} {
		require.Equal(t, stored, calls.Stored(stripe.Outcome{Effect: effect}))
	}
}

// TestNew: the parameters' hash is the same on every attempt, and no two lists of
// parameters share one.
func TestNew(t *testing.T) {
	t.Parallel()
	call := calls.New(stripe.OpConfirm, "pay_1", "key", "a", "b")
	require.Equal(t, call, calls.New(stripe.OpConfirm, "pay_1", "key", "a", "b"))
	require.NotEqual(t, call.Params, calls.New(stripe.OpConfirm, "pay_1", "key", "ab").Params)
	require.NotEqual(t, call.Params, calls.New(stripe.OpConfirm, "pay_1", "key", "b", "a").Params)
	require.Len(t, call.Params, 32)
}
