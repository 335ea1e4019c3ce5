package payments_test

import (
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/logs"
	"example.com/payonce/testkit/world"
)

// overtaken is a payment whose first holder stood still while Stripe had done
// its part, and lost its lease to a second. It returns what each was told.
type overtaken struct {
	w             *world.World
	first, second *world.Local
	order         string
	firstAnswer   world.Answer
	secondAnswer  world.Answer
}

// overtake plays the scene. When the first holder goes on, the second has
// either finished, or is still at work and has decided nothing.
func overtake(w *world.World, first, second *world.Local, secondFinishes bool) overtaken {
	w.T.Helper()
	o := overtaken{w: w, first: first, second: second, order: first.Order()}
	moved := w.Sim.Hold(stripesim.Selector{Op: "intent.confirm", OrderID: o.order}, stripesim.AfterEffect)
	firstAnswer := world.Async(func() world.Answer { return first.Pay("k", o.order, "pm_card_visa") })
	world.WaitHeld(w.T, moved)
	w.ExpireLeases()
	looks := w.Sim.Hold(stripesim.Selector{Op: "intent.get", OrderID: o.order}, stripesim.BeforeEffect)
	secondAnswer := world.Async(func() world.Answer { return second.Pay("k", o.order, "pm_card_visa") })
	world.WaitHeld(w.T, looks)
	if secondFinishes {
		looks.Release()
		o.secondAnswer = <-secondAnswer
		moved.Release()
		o.firstAnswer = <-firstAnswer
		return o
	}
	moved.Release()
	o.firstAnswer = <-firstAnswer
	looks.Release()
	o.secondAnswer = <-secondAnswer
	return o
}

func TestStaleHolder(t *testing.T) {
	t.Parallel()

	t.Run("GetsTheWinnersAnswer", func(t *testing.T) {
		t.Parallel()
		w := world.New(t)
		w.WatchHolders()
		log := &logs.Buffer{}
		options := world.LocalOptions{Name: "first"}
		options.Log = log.Logger(slog.LevelError)
		o := overtake(w, w.Local(options), w.Local(world.LocalOptions{Name: "second"}), true)
		require.Empty(t, log.String(), "to have lost is no failure")
		require.Equal(t, http.StatusCreated, o.secondAnswer.Status, o.secondAnswer)
		require.False(t, o.secondAnswer.Replayed())
		require.Equal(t, o.secondAnswer.Identity(), o.firstAnswer.Identity())
		require.True(t, o.firstAnswer.Replayed())
		require.Positive(t, o.first.Metric("payonce_fenced_writes_total"))
		require.Zero(t, o.second.Metric("payonce_fenced_writes_total"))
		require.Zero(t, o.first.Metric("payonce_commits_in_doubt_total"), "to have lost is no doubt")
		w.RequireChargedOnce(o.order)
	})

	t.Run("LeavesTheDecisionToTheHolder", func(t *testing.T) {
		t.Parallel()
		w := world.New(t)
		w.WatchHolders()
		o := overtake(w, w.Local(world.LocalOptions{Name: "first"}), w.Local(world.LocalOptions{Name: "second"}), false)
		require.Equal(t, "idempotency-key-in-flight", o.firstAnswer.Code(), o.firstAnswer)
		require.Equal(t, http.StatusCreated, o.secondAnswer.Status, o.secondAnswer)
		require.Positive(t, o.first.Metric("payonce_fenced_writes_total"))
		w.RequireChargedOnce(o.order)
	})
}

// A holder that stood still before it sent anything is turned away by Stripe
// when it wakes up. What it then knows of the call, "not executed", is true of
// its own attempt and wrong about its successor's, whose answer was lost.
func TestStaleHolderDoesNotClearDoubt(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.WatchHolders()
	stopped, goOn := make(chan struct{}), make(chan struct{})
	o := world.LocalOptions{Name: "first"}
	o.Boundary = func(operation, point string) {
		if operation == "create_payment" && point == "intent_recorded" {
			close(stopped)
			<-goOn
		}
	}
	first, second := w.Local(o), w.Local(world.LocalOptions{Name: "second"})
	order := first.Order()
	firstAnswer := world.Async(func() world.Answer { return first.Pay("k", order, "pm_card_visa") })
	<-stopped
	w.ExpireLeases()
	w.Sim.Inject(stripesim.Fault{Op: "intent.confirm", Kind: stripesim.Drop})
	require.Equal(t, http.StatusAccepted, second.Pay("k", order, "pm_card_visa").Status)
	doubt := func() string {
		return w.Text(`SELECT outcome || ' ' || in_doubt FROM stripe_calls WHERE operation = 'confirm'`)
	}
	require.Equal(t, "unknown true", doubt())

	turnedAway := w.Sim.Inject(stripesim.Fault{Op: "intent.confirm", Kind: stripesim.RateLimited, Times: 3})
	close(goOn)
	a := <-firstAnswer
	require.Equal(t, 1, w.Sim.FaultsFired()[turnedAway], "a holder that has lost sends no more")
	require.Positive(t, first.Metric("payonce_fenced_writes_total"))
	w.Sim.ClearFaults()
	// It was told that it had lost, looked again, and did what anybody may: it took the claim that waits, and resumed.
	require.Equal(t, http.StatusCreated, a.Status, a)
	require.Equal(t, "2", w.Text(`SELECT count(*) FROM (SELECT unnest(history) step FROM idempotency_keys
		WHERE key = 'k') t WHERE step LIKE '%resumed%' OR step LIKE '%taken_over%'`))
	w.RequireChargedOnce(order)
}

// A holder that is at work is nobody's to take over, however long Stripe lets it
// wait, until the database says that its lease has run out.
func TestLiveLeaseIsNotTakenOver(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.WatchHolders()
	first, second := w.Local(world.LocalOptions{Name: "first"}), w.Local(world.LocalOptions{Name: "second"})
	order := first.Order()
	moving := w.Sim.Hold(stripesim.Selector{Op: "intent.confirm", OrderID: order}, stripesim.AfterEffect)
	answer := world.Async(func() world.Answer { return first.Pay("k", order, visa) })
	world.WaitHeld(w.T, moving)
	taken, err := second.Completer.RunOnce(t.Context())
	require.NoError(t, err)
	require.Zero(t, taken, "a living holder was taken over, long before its lease ran out")
	require.Equal(t, "idempotency-key-in-flight", second.Pay("k", order, visa).Code())
	moving.Release()
	require.Equal(t, http.StatusCreated, (<-answer).Status)
	require.Zero(t, first.Metric("payonce_fenced_writes_total"))
	w.RequireChargedOnce(order)
}

// Two operations of their own, each with a lawful claim, end one payment: the
// customer cancels it while its own operation reads at Stripe that it is
// canceled. The row lock and the version decide who writes; the other reads again.
func TestConcurrentEndsOfOnePayment(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	first, second := w.Local(world.LocalOptions{Name: "first"}), w.Local(world.LocalOptions{Name: "second"})
	order := first.Order()
	waits := first.Pay("k", order, careful)
	require.Equal(t, "requires_action", waits.Get("status"), waits)
	looks := w.Sim.Hold(stripesim.Selector{Op: "intent.get", OrderID: order}, stripesim.BeforeEffect)
	late := world.Async(func() world.Answer { return first.Pay("k", order, careful) })
	world.WaitHeld(w.T, looks)
	canceled := second.Post("/v1/payments/"+waits.ID()+"/cancel", "c", "")
	require.Equal(t, http.StatusOK, canceled.Status, canceled)
	looks.Release()
	final := <-late
	w.RequireSound()
	require.Equal(t, http.StatusPaymentRequired, final.Status, final)
	require.Equal(t, "canceled", final.Problem().Payment["status"])
	require.Equal(t, final.Identity(), second.Pay("k", order, careful).Identity())
	require.Equal(t, 1, w.Count(`SELECT count(*) FROM outbox_events WHERE aggregate_id = $1
		AND type = 'payment.canceled'`, waits.ID()))
}

// TestStatementsCheckTheVersionRead: each changes the row that was read and no other
// state of it, whoever asks and however late.
func TestStatementsCheckTheVersionRead(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	api, ctx := w.Local(world.LocalOptions{}), t.Context()
	order := api.Order()
	require.Equal(t, "requires_action", api.Pay("k", order, careful).Get("status"))
	p, err := w.DB.PaymentByKey(ctx, db.PaymentByKeyParams{TenantID: w.Tenant.ID, IdempotencyKey: "k"})
	require.NoError(t, err)
	token := int64(w.Count(`SELECT lease_token FROM idempotency_keys WHERE key = 'k'`))
	create := w.Text(`SELECT stripe_key FROM stripe_calls WHERE operation = 'create_intent'
		OR stripe_key LIKE '%:intent:1'`)

	done, err := w.DB.PaymentIntentRecord(ctx, db.PaymentIntentRecordParams{
		TenantIds: []string{w.Tenant.ID}, Keys: []string{"k"}, LeaseTokens: []int64{token - 1},
		RecoveryPoints: []string{"intent_recorded"}, PaymentIds: []string{p.ID}, IntentIds: []string{*p.IntentID},
		CreateKeys: []string{create}, StripeRequestIds: []string{"req"},
	})
	require.NoError(t, err)
	require.Empty(t, done)
	require.Equal(t, "action_required", w.RecoveryPoint("k"), "a stale T1b moves nothing back")

	_, err = w.DB.PaymentSettle(ctx,
		db.PaymentSettleParams{TenantID: w.Tenant.ID, ID: p.ID, SeenVersion: p.Version - 1,
			Status: db.PaymentStatusCanceled, IntentClosed: true})
	require.ErrorIs(t, err, postgres.ErrNoRows, "it is not where it was seen")

	none := []string{""}
	done, err = w.DB.PaymentFinish(ctx, db.PaymentFinishParams{
		TenantIds: []string{w.Tenant.ID}, Keys: []string{"k"}, LeaseTokens: []int64{token}, PaymentIds: []string{p.ID},
		PaymentVersions: []int64{p.Version}, Statuses: []string{"succeeded"}, OrderIds: []string{order},
		OrderVersions: []int64{0}, PaysOrders: []bool{true}, IntentsClosed: []bool{false}, ChargeIds: none,
		FailureCodes: none, FailureDeclineCodes: none, FailureMessages: none, AnswerVersions: []int16{1},
		AnswerStatuses: []int16{201}, AnswerHeaders: [][]byte{[]byte(`{}`)}, AnswerBodies: [][]byte{[]byte(`{}`)},
		PaymentEvents: [][]byte{[]byte(`{}`)}, OrderEvents: [][]byte{[]byte(`{}`)}, Traceparents: none,
		StripeKeys: []string{create}, StripeOutcomes: []string{"done"}, HttpStatuses: []int16{200},
		ErrorCodes: []string{"late"}, ObjectIds: none, StripeRequestIds: none, StripeOperations: none,
		StripeResourceIds: none, ParamsSha256s: [][]byte{nil},
	})
	require.NoError(t, err)
	require.Empty(t, done, "the order is not as it was seen")

	w.Exec(`UPDATE orders SET canceling_key = 'theirs' WHERE id = $1`, order)
	ours := "ours"
	require.NoError(t, w.DB.OrderCancelAbort(ctx,
		db.OrderCancelAbortParams{TenantID: w.Tenant.ID, ID: order, CancelingKey: &ours}))
	require.Equal(t, "theirs", w.Text(`SELECT canceling_key FROM orders WHERE id = $1`, order),
		"a cancel gives up its own and nobody else's")

	paid := api.Order()
	require.Equal(t, http.StatusCreated, api.Pay("paid", paid, visa).Status)
	n, err := w.DB.OrderCancelBegin(ctx, db.OrderCancelBeginParams{TenantID: w.Tenant.ID, ID: paid, CancelingKey: &ours})
	require.NoError(t, err)
	require.Zero(t, n, "what is paid is not canceled")
	w.RequireSound()
}

// TestFencesBetweenPhases tries what a holder writes between its phases with the
// token of a holder before it: nothing is written. With its own it is, so that the
// statement was one that could have.
func TestFencesBetweenPhases(t *testing.T) {
	t.Parallel()
	w, ctx := world.New(t), t.Context()
	api := w.Local(world.LocalOptions{})
	payment := api.Pay("k", api.Order(), careful).ID()
	tenant, token := w.Tenant.ID, int64(w.Count(`SELECT lease_token FROM idempotency_keys WHERE key = 'k'`))
	confirm := w.Text(`SELECT stripe_key FROM stripe_calls WHERE operation = 'confirm'`)
	all := func() string {
		return w.Text(`SELECT concat_ws(' ', (SELECT array_agg(c ORDER BY c.stripe_key) FROM stripe_calls c),
			(SELECT array_agg(l) FROM intent_searches l))`)
	}
	later := time.Now().Add(time.Minute)

	send := func(token int64) (db.StripeCallRecordAttemptRow, error) {
		return w.DB.StripeCallRecordAttempt(ctx,
			db.StripeCallRecordAttemptParams{TenantID: tenant, Key: "k", LeaseToken: token, StripeKey: confirm,
				Operation:  "confirm",
				ResourceID: payment, ParamsSha256: make([]byte, 32), ResendWithin: time.Hour})
	}
	answered := func(token int64) (int64, error) {
		return w.DB.StripeCallRecordAttemptOutcome(ctx,
			db.StripeCallRecordAttemptOutcomeParams{TenantID: tenant, Key: "k", LeaseToken: token, StripeKey: confirm,
				Operation: "confirm", ResourceID: payment, Outcome: db.StripeOutcomeUnknown})
	}
	for _, statement := range []struct {
		name string
		run  func(token int64) (rows int64, err error)
	}{
		{"an attempt is recorded", func(token int64) (int64, error) {
			_, err := send(token)
			return 1, err
		}},
		{"an attempt's outcome is recorded", answered},
		{"a search begins", func(token int64) (int64, error) {
			_, err := w.DB.IntentSearchBegin(ctx,
				db.IntentSearchBeginParams{TenantID: tenant, Key: "k", LeaseToken: token, StripeKey: confirm,
					FromAt: time.Now(), UntilAt: later})
			return 1, err
		}},
		{"a page of a search is recorded", func(token int64) (int64, error) {
			_, err := w.DB.IntentSearchRead(ctx,
				db.IntentSearchReadParams{TenantID: tenant, Key: "k", LeaseToken: token, StripeKey: confirm,
					Found: []string{"pi_1"}, FromAt: time.Now(), UntilAt: later})
			return 1, err
		}},
	} {
		before := all()
		n, err := statement.run(token - 1)
		if err != nil {
			require.ErrorIs(t, err, postgres.ErrNoRows, statement.name)
		} else {
			require.Zero(t, n, statement.name)
		}
		require.Equal(t, before, all(), statement.name)
		n, err = statement.run(token)
		require.NoError(t, err, statement.name)
		require.Equal(t, int64(1), n, statement.name)
		require.NotEqual(t, before, all(), statement.name)
	}
	doubtful := func() bool {
		return w.Count(`SELECT count(*) FROM stripe_calls WHERE stripe_key = $1 AND in_doubt`, confirm) == 1
	}
	require.False(t, doubtful())
	sent, err := send(token)
	require.NoError(t, err)
	require.True(t, sent.InDoubt, "the attempt before it is of unknown outcome")
	_, err = answered(token)
	require.NoError(t, err)
	require.True(t, doubtful(), "an answer to this attempt says nothing about those before it")
}

// TestRefundStatementsCheckTheVersionRead is the same for what is done to a refund by its version.
func TestRefundStatementsCheckTheVersionRead(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	api, ctx := w.Local(world.LocalOptions{}), t.Context()
	payment := api.Pay("p", api.Order(), visa).ID()
	require.Equal(t, http.StatusCreated, refund(api, "r", payment).Status)
	row := func() string { return w.Text(`SELECT r::text FROM refunds r`) }
	before, id, version := row(), w.Text(`SELECT id FROM refunds`), int64(w.Count(`SELECT version FROM refunds`))
	_, err := w.DB.RefundSettle(ctx,
		db.RefundSettleParams{TenantID: w.Tenant.ID, ID: id, SeenVersion: version - 1,
			Status: db.RefundStatusSucceeded})
	require.ErrorIs(t, err, postgres.ErrNoRows)
	require.NoError(t, w.DB.RefundSetStripeID(ctx,
		db.RefundSetStripeIDParams{TenantID: w.Tenant.ID, ID: id, StripeRefundID: new("re_another")}))
	require.Equal(t, before, row(), "a refund is one refund at Stripe")
}
