package payments_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	stripego "github.com/stripe/stripe-go/v76"
	"github.com/stripe/stripe-go/v76/client"

	"example.com/payonce/db"
	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/reconcile"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

// books is a world whose reconciler and audit are at hand.
type books struct {
	*world.World
	api        *world.Local
	reconciler *reconcile.Reconciler
	stripe     *client.API // somebody at Stripe's dashboard, or a database that is no more
}

func newBooks(t *testing.T) *books { return booksOn(world.New(t)) }

func booksOn(w *world.World) *books { return booksWith(w, world.LocalOptions{}) }

func booksWith(w *world.World, o world.LocalOptions) *books {
	api := w.Local(o)
	return &books{
		World: w, api: api, reconciler: api.NewReconciler(reconcile.NewMetrics(api.Metrics)),
		stripe: client.New(stripesim.DefaultKey, stripego.NewBackendsWithConfig(&stripego.BackendConfig{
			URL: stripego.String(w.StripeURL), MaxNetworkRetries: stripego.Int64(0), EnableTelemetry: stripego.Bool(false), LeveledLogger: &stripego.LeveledLogger{},
		})),
	}
}

// reconcile goes through every window once.
func (b *books) reconcile() {
	b.T.Helper()
	b.Exec("UPDATE reconciliation_windows SET next_at = '-infinity'")
	for {
		n, err := b.reconciler.RunOnce(context.Background())
		require.NoError(b.T, err)
		if n == 0 {
			return
		}
	}
}

// report is what `api audit -json` prints.
type report struct {
	OK     bool
	Checks []struct {
		ID, Name   string
		Violations int
		Rows       []struct{ Subject, Detail string }
	}
	MoneyDrift []struct {
		Currency string
		Minor    int64
	} `json:"money_drift"`
}

// audit runs the program, and expects its exit status to say what its report does.
func (b *books) audit() (r report) {
	b.T.Helper()
	cmd := b.Command([]string{"audit", "-json"})
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil {
		require.True(b.T, errors.As(err, &exit), "%v", err)
		require.Equal(b.T, 1, exit.ExitCode(), "%s", exit.Stderr)
	}
	require.NoError(b.T, json.Unmarshal(out, &r), "%s", out)
	require.Equal(b.T, r.OK, err == nil, "the exit status is the verdict")
	return r
}

// offends is what the audit complains about: its checks and the subjects' rows.
func (r report) offends() map[string]int {
	found := map[string]int{}
	for _, c := range r.Checks {
		if c.Violations > 0 {
			found[c.ID] = c.Violations
		}
	}
	return found
}

func (r report) drift() (total int64) {
	for _, d := range r.MoneyDrift {
		total += d.Minor
	}
	return total
}

func (b *books) requireClean() {
	b.T.Helper()
	r := b.audit()
	require.Empty(b.T, r.offends(), "%+v", r)
	require.Zero(b.T, r.drift())
	require.True(b.T, r.OK)
}

// ghost pays at Stripe what no row here knows of, as a database does that is
// then restored from an older one.
func (b *books) ghost(order string, change ...func(*stripego.PaymentIntentParams)) *stripego.PaymentIntent {
	b.T.Helper()
	p := &stripego.PaymentIntentParams{
		Amount: stripego.Int64(1000), Currency: stripego.String("usd"), PaymentMethodTypes: stripego.StringSlice([]string{"card"}),
		PaymentMethod: stripego.String("pm_card_visa"), Confirm: stripego.Bool(true),
	}
	p.Metadata = map[string]string{"tenant_id": b.Tenant.ID, "order_id": order}
	p.IdempotencyKey = stripego.String(uuid.NewString())
	for _, f := range change {
		f(p)
	}
	pi, err := b.stripe.PaymentIntents.New(p)
	require.NoError(b.T, err)
	return pi
}

func (b *books) findings() string {
	return b.Text(`SELECT string_agg(concat_ws(' ', kind, object_id, drift_minor, currency), '; ' ORDER BY found_at) FROM discrepancies WHERE resolved_at IS NULL`)
}

func TestReconciler(t *testing.T) {
	t.Parallel()

	t.Run("FindsNothingWhereNothingIsWrong", func(t *testing.T) {
		t.Parallel()
		b := newBooks(t)
		paid := b.api.Order()
		payment := b.api.Pay("paid", paid, "pm_card_visa")
		require.Equal(t, http.StatusCreated, payment.Status, payment)
		require.Equal(t, http.StatusPaymentRequired, b.api.Pay("declined", b.api.Order(), "pm_card_visa_chargeDeclined").Status)
		require.Equal(t, http.StatusAccepted, b.api.Pay("waits", b.api.Order(), "pm_card_threeDSecure2Required").Status)
		require.Equal(t, http.StatusCreated, b.api.Post("/v1/payments/"+payment.ID()+"/refunds", "refund", `{"amount":300}`).Status)
		rows := b.Text("SELECT string_agg(id || version, ' ' ORDER BY id) FROM payments")
		b.reconcile()
		require.Empty(t, b.findings())
		require.Equal(t, rows, b.Text("SELECT string_agg(id || version, ' ' ORDER BY id) FROM payments"), "nothing was touched")
		require.Zero(t, b.api.Metric("payonce_reconciled_total"))
		b.requireClean()
	})

	t.Run("AdoptsWhatIsOurs", func(t *testing.T) {
		t.Parallel()
		b := newBooks(t)
		order := b.api.Order()
		pi := b.ghost(order)
		r := b.audit()
		require.Equal(t, map[string]int{"I8e": 1}, r.offends(), "the audit tells and does not touch")
		require.EqualValues(t, 1000, r.drift())
		require.Zero(t, b.Count("SELECT count(*) FROM payments"))

		b.reconcile()
		b.reconcile()
		require.Equal(t, "succeeded "+pi.ID+" "+pi.LatestCharge.ID, b.Text("SELECT concat_ws(' ', status, intent_id, charge_id) FROM payments WHERE order_id = $1", order))
		require.Equal(t, "paid", b.api.Get("/v1/orders/"+order).Get("status"))
		require.Equal(t, "order.created order.paid payment.created payment.succeeded",
			b.Text("SELECT string_agg(type, ' ' ORDER BY type) FROM outbox_events"), "told once, from the beginning")
		require.Empty(t, b.findings())
		require.Zero(t, b.api.Metric("payonce_money_drift_minor"))
		b.requireClean()

		late := b.api.Pay("lost-its-answer", order, "pm_card_visa")
		require.Equal(t, "order-already-paid", late.Code(), late)
		require.Equal(t, 1, b.Sim.ChargeCount(order))
	})

	t.Run("AdoptsOnceHoweverManyRun", func(t *testing.T) {
		t.Parallel()
		b := newBooks(t)
		order := b.api.Order()
		pi := b.ghost(order)
		found := payments.IntentForTest(t, b.api.Gateway, pi.ID)
		adopted := world.Together(6, func(int) string {
			id, err := b.api.Payments.AdoptForTest(context.Background(), found)
			require.NoError(t, err)
			return id
		})
		require.Len(t, strings.Fields(strings.Join(adopted, " ")), 1)
		b.requireClean()
	})

	t.Run("ParksWhatItCannotProve", func(t *testing.T) {
		t.Parallel()
		for _, c := range []struct {
			name  string
			make  func(*books) *stripego.PaymentIntent
			finds string // after its object's id
			check string
			drift int64
		}{
			{"AnOrderThatIsNotHere", func(b *books) *stripego.PaymentIntent { return b.ghost("ord_000000000000000000000gone") }, "1000 usd", "I8e", 1000},
			{"AnOrderPaidTwice", func(b *books) *stripego.PaymentIntent {
				order := b.api.Order()
				require.Equal(t, http.StatusCreated, b.api.Pay("k", order, "pm_card_visa").Status)
				return b.ghost(order)
			}, "1000 usd", "I8e", 1000},
			{"AnotherAmount", func(b *books) *stripego.PaymentIntent {
				return b.ghost(b.api.Order(), func(p *stripego.PaymentIntentParams) { p.Amount = stripego.Int64(999) })
			}, "999 usd", "I8g", 999},
			{"AnotherCurrency", func(b *books) *stripego.PaymentIntent {
				return b.ghost(b.api.Order(), func(p *stripego.PaymentIntentParams) { p.Currency = stripego.String("eur") })
			}, "1000 eur", "I8g", 1000},
		} {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				b := newBooks(t)
				pi := c.make(b)
				before := b.Count("SELECT count(*) FROM payments")
				b.reconcile()
				b.reconcile()
				require.True(t, strings.HasSuffix(b.findings(), pi.ID+" "+c.finds), b.findings())
				require.Equal(t, before, b.Count("SELECT count(*) FROM payments"))
				r := b.audit()
				require.Equal(t, map[string]int{c.check: 1}, r.offends())
				require.Equal(t, c.drift, r.drift())
				require.EqualValues(t, c.drift, b.driftShown())

				// A person gives the money back, in Stripe's dashboard.
				_, err := b.stripe.Refunds.New(&stripego.RefundParams{PaymentIntent: &pi.ID})
				require.NoError(t, err)
				b.reconcile()
				require.Empty(t, b.findings())
				require.Zero(t, b.driftShown())
				b.requireClean()
			})
		}
	})

	t.Run("LeavesOthersAlone", func(t *testing.T) {
		t.Parallel()
		b := newBooks(t)
		order := b.api.Order()
		b.ghost(order, func(p *stripego.PaymentIntentParams) { p.Metadata = nil })
		b.ghost(order, func(p *stripego.PaymentIntentParams) { p.Metadata["tenant_id"] = ids.New(ids.Tenant) })
		other := b.NewTenant()
		b.reconcile()
		b.requireClean()
		b.ghost(order, func(p *stripego.PaymentIntentParams) { p.Metadata["tenant_id"] = other.ID }) // whose order it is not
		b.reconcile()
		require.Contains(t, b.findings(), "unmatched_at_stripe")
		require.Equal(t, "open", b.api.Get("/v1/orders/"+order).Get("status"))
	})

	t.Run("RefundsWhatCameTooLate", func(t *testing.T) {
		t.Parallel()
		b := newBooks(t)
		order := b.api.Order()
		require.Equal(t, http.StatusOK, b.api.Post("/v1/orders/"+order+"/cancel", "cancel", `{}`).Status)
		b.ghost(order)
		b.reconcile()
		b.api.Complete()
		require.Equal(t, "succeeded", b.Text("SELECT status FROM refunds WHERE order_id = $1", order))
		require.Equal(t, "canceled", b.api.Get("/v1/orders/"+order).Get("status"))
		b.reconcile()
		b.requireClean()
	})

	t.Run("HurriesWhoIsAtIt", func(t *testing.T) {
		t.Parallel()
		b := newBooks(t)
		order := b.api.Order()
		b.Sim.Inject(stripesim.Fault{Op: "intent.confirm", Kind: stripesim.Drop})
		b.Sim.Inject(stripesim.Fault{Op: "intent.get", Kind: stripesim.Reset})
		require.Equal(t, http.StatusAccepted, b.api.Pay("k", order, "pm_card_visa").Status)
		b.Sim.ClearFaults()
		b.Exec("UPDATE idempotency_keys SET next_attempt_at = clock_timestamp() + interval '1 hour' WHERE key = 'k'")
		b.requireClean() // On its way is not lost.
		require.Zero(t, b.driftShown())
		require.EqualValues(t, 1, b.api.Metric("payonce_keys_unfinished"))
		require.Positive(t, b.api.Metric("payonce_unknown_outcomes_oldest_seconds"))
		b.reconcile()
		require.Empty(t, b.findings())
		n, err := b.api.Completer.RunOnce(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, n)
		b.RequireChargedOnce(order)
	})

	t.Run("HurriesAndReportsWhatIsParked", func(t *testing.T) {
		t.Parallel()
		b := newBooks(t)
		order := b.api.Order()
		b.Sim.Inject(stripesim.Fault{Op: "intent.confirm", Kind: stripesim.Drop})
		require.Equal(t, http.StatusAccepted, b.api.Pay("k", order, "pm_card_visa").Status)
		b.Exec("UPDATE idempotency_keys SET parked_at = clock_timestamp(), next_attempt_at = 'infinity', leased_until = '-infinity' WHERE key = 'k'")
		require.Equal(t, map[string]int{"I5b": 1, "I8e": 1}, b.audit().offends())
		require.Zero(t, b.driftShown(), "nobody has looked yet")
		require.EqualValues(t, 1, b.api.Metric("payonce_keys_parked"))
		b.reconcile()
		require.EqualValues(t, 1000, b.driftShown())
		b.api.Complete()
		b.reconcile()
		b.RequireChargedOnce(order)
		require.Zero(t, b.driftShown())
		b.requireClean()
	})

	t.Run("ReportsWhatStripeDoesNotHave", func(t *testing.T) {
		t.Parallel()
		b := newBooks(t)
		order := b.api.Order()
		require.Equal(t, http.StatusCreated, b.api.Pay("k", order, "pm_card_visa").Status)
		b.Exec("UPDATE payments SET intent_id = 'pi_of_another_account' WHERE order_id = $1", order)
		b.reconcile()
		require.Contains(t, b.findings(), "missing_at_stripe pi_of_another_account -1000 usd")
		require.Equal(t, 1, b.audit().offends()["I8f"])
	})

	t.Run("AppliesARefundThatFailedUnheard", func(t *testing.T) {
		t.Parallel()
		b := newBooks(t)
		order := b.api.Order()
		payment := b.api.Pay("k", order, "pm_card_visa").ID()
		refund := b.api.Post("/v1/payments/"+payment+"/refunds", "refund", `{"amount":400}`)
		require.Equal(t, http.StatusCreated, refund.Status)
		require.NoError(t, b.Sim.FailRefund(refund.Get("stripe", "refund").(string), "expired_or_canceled_card"))
		r := b.audit()
		require.Equal(t, map[string]int{"I8h": 1}, r.offends())
		require.EqualValues(t, 400, r.drift())
		b.reconcile()
		require.Equal(t, "failed", b.api.Get("/v1/refunds/"+refund.ID()).Get("status"))
		require.EqualValues(t, 0, b.api.Get("/v1/orders/"+order).Get("amount_refunded"))
		b.requireClean()
	})

	t.Run("ReportsARefundMadeInTheDashboard", func(t *testing.T) {
		t.Parallel()
		b := newBooks(t)
		payment := b.api.Pay("k", b.api.Order(), "pm_card_visa")
		refund, err := b.stripe.Refunds.New(&stripego.RefundParams{PaymentIntent: stripego.String(payment.Get("stripe", "payment_intent").(string)), Amount: stripego.Int64(250)})
		require.NoError(t, err)
		b.reconcile()
		b.reconcile()
		require.Equal(t, "unmatched_at_stripe "+refund.ID+" -250 usd", b.findings())
		require.Equal(t, map[string]int{"I8e": 1}, b.audit().offends())
	})

	// What no guard of ours lets happen must be seen if it does.
	t.Run("ReportsASecondRefundInTheNameOfOne", func(t *testing.T) {
		t.Parallel()
		b := newBooks(t)
		mail := b.Mailbox()
		order := b.api.Order()
		payment := b.api.Pay("k", order, "pm_card_visa")
		refund := b.api.Post("/v1/payments/"+payment.ID()+"/refunds", "refund", `{"amount":400}`)
		require.Equal(t, http.StatusCreated, refund.Status)
		again := &stripego.RefundParams{PaymentIntent: stripego.String(payment.Get("stripe", "payment_intent").(string)), Amount: stripego.Int64(400)}
		again.Metadata = map[string]string{"tenant_id": b.Tenant.ID, "order_id": order, "payment_id": payment.ID(), "refund_id": refund.ID()}
		second, err := b.stripe.Refunds.New(again)
		require.NoError(t, err)
		b.reconcile()
		b.reconcile()
		require.Equal(t, "unmatched_at_stripe "+second.ID+" -400 usd", b.findings())
		require.EqualValues(t, 400, b.audit().drift())

		require.NoError(t, b.Sim.FailRefund(second.ID, "expired_or_canceled_card")) // It comes back. The first has not.
		for _, webhook := range mail.Take() {
			require.Equal(t, http.StatusOK, b.api.Receive(webhook).Status)
		}
		b.api.Process()
		b.reconcile()
		require.Empty(t, b.findings())
		require.Equal(t, "succeeded", b.api.Get("/v1/refunds/"+refund.ID()).Get("status"))
		b.requireClean()
	})

	t.Run("ReadsEveryPage", func(t *testing.T) {
		t.Parallel()
		b := newBooks(t)
		const ghosts = 230
		world.Together(ghosts, func(int) any { b.ghost("ord_000000000000000000000gone"); return nil })
		order := b.api.Order()
		require.Equal(t, http.StatusCreated, b.api.Pay("k", order, "pm_card_visa").Status)
		b.reconcile()
		require.Equal(t, ghosts, b.Count("SELECT count(*) FROM discrepancies WHERE resolved_at IS NULL"))
		require.EqualValues(t, ghosts*1000, b.audit().drift())
	})

	t.Run("BeginsAgainWhereStripeWentAway", func(t *testing.T) {
		t.Parallel()
		b := newBooks(t)
		order := b.api.Order()
		b.ghost(order)
		b.Sim.Inject(stripesim.Fault{Op: "intent.list", Kind: stripesim.Reset})
		_, err := b.reconciler.RunOnce(t.Context())
		require.Error(t, err)
		require.Zero(t, b.Count("SELECT count(*) FROM reconciliation_windows WHERE covered_through IS NOT NULL OR leased_until > '-infinity'"))
		b.Sim.ClearFaults()
		b.reconcile()
		require.Equal(t, "paid", b.api.Get("/v1/orders/"+order).Get("status"))
	})

	// All was down for days, or the database went back as far: what comes after the
	// end of what was read is read first, and a little of what came before, because
	// Stripe's list and its clock may be late.
	t.Run("GoesOnWhereItEnded", func(t *testing.T) {
		t.Parallel()
		b, today := longAgo(t, 60*time.Hour, world.LocalOptions{})
		order := b.api.Order()
		b.ghost(order)
		today()
		b.Exec("INSERT INTO reconciliation_windows (name, covered_through) VALUES ('recent', clock_timestamp() - interval '60 hours' + interval '2 minutes')")
		b.Exec("INSERT INTO reconciliation_windows (name, next_at) VALUES ('days', 'infinity'), ('month', 'infinity')")
		n, err := b.reconciler.RunOnce(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Equal(t, "paid", b.api.Get("/v1/orders/"+order).Get("status"))
	})

	t.Run("LeavesAWindowThatAnotherHas", func(t *testing.T) {
		t.Parallel()
		b := newBooks(t)
		held := b.Sim.Hold(stripesim.Selector{Op: "intent.list"}, stripesim.BeforeEffect)
		first := make(chan error, 1)
		go func() { _, err := b.reconciler.RunOnce(context.Background()); first <- err }()
		_, err := held.Wait(t.Context())
		require.NoError(t, err)
		b.Exec("UPDATE reconciliation_windows SET lease_token = lease_token + 1")
		held.Release()
		require.ErrorContains(t, <-first, "the lease of the window was lost")
		require.Zero(t, b.covered())
	})

	// The refund's metadata is that of another payment's, which has nothing to do with
	// the one that is adopted.
	t.Run("AdoptsUnderNoOthersName", func(t *testing.T) {
		t.Parallel()
		b := newBooks(t)
		other, order := b.api.Order(), b.api.Order()
		taken := b.api.Pay("k", other, "pm_card_visa").ID()
		refund := &stripego.RefundParams{PaymentIntent: &b.ghost(order).ID, Amount: stripego.Int64(300)}
		refund.Metadata = map[string]string{"tenant_id": b.Tenant.ID, "order_id": other, "payment_id": taken}
		_, err := b.stripe.Refunds.New(refund)
		require.NoError(t, err)
		b.reconcile()
		require.Equal(t, "paid", b.api.Get("/v1/orders/"+order).Get("status"))
		require.NotEqual(t, taken, b.api.Get("/v1/orders/"+order).Get("payment_id"))
	})

	t.Run("LeavesAWindowToOne", func(t *testing.T) {
		t.Parallel()
		b := newBooks(t)
		held := b.Sim.Hold(stripesim.Selector{Op: "intent.list"}, stripesim.BeforeEffect)
		first := make(chan error, 1)
		go func() { _, err := b.reconciler.RunOnce(context.Background()); first <- err }()
		_, err := held.Wait(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, b.Count("SELECT count(*) FROM reconciliation_windows WHERE name = 'recent' AND leased_until > clock_timestamp()"))
		_, err = b.DB.ReconcileClaim(t.Context(), db.ReconcileClaimParams{Name: "recent", Lease: time.Minute})
		require.ErrorIs(t, err, postgres.ErrNoRows)
		held.Release()
		<-first //nolint:errcheck // the gateway may have lost patience with the list that was held, which is its own affair
	})
}

// driftShown is the metric, as the next scrape will see it.
func (b *books) driftShown() float64 {
	b.T.Helper()
	_, err := b.reconciler.Measure(context.Background())
	require.NoError(b.T, err)
	return b.api.Metric("payonce_money_drift_minor")
}

// yesterdays is a world at whose Stripe it is still yesterday, until the time
// that it returns a function for comes.
func yesterdays(t *testing.T) (b *books, today func()) {
	return longAgo(t, 25*time.Hour, world.LocalOptions{})
}

// longAgo is the same for any age.
func longAgo(t *testing.T, age time.Duration, o world.LocalOptions) (b *books, today func()) {
	w := *world.New(t)
	var passed atomic.Bool
	sim, err := stripesim.New(stripesim.Options{Now: func() time.Time {
		if passed.Load() {
			return time.Now()
		}
		return time.Now().Add(-age)
	}})
	require.NoError(t, err)
	server := httptest.NewServer(sim.Handler())
	t.Cleanup(func() {
		server.Close()
		require.NoError(t, sim.Close())
	})
	w.Sim, w.StripeURL = sim, server.URL
	return booksWith(&w, o), func() { passed.Store(true) }
}

func TestSweep(t *testing.T) {
	t.Parallel()

	t.Run("CancelsWhatNobodyWillConfirm", func(t *testing.T) {
		t.Parallel()
		b, today := yesterdays(t)
		// The creation of the order's first intent is answered with an error that Stripe repeats for ever; the payment goes on with another.
		order := b.api.Order()
		b.Sim.Inject(stripesim.Fault{Op: "intent.create", Kind: stripesim.EffectStoredError})
		b.api.Pay("k", order, "pm_card_visa")
		b.api.Complete()
		require.Equal(t, http.StatusCreated, b.api.PayUntilFinal("k", order, "pm_card_visa").Status)
		require.Equal(t, "2", b.Text("SELECT intent_number FROM payments WHERE order_id = $1", order))
		gone := b.ghost("ord_000000000000000000000gone", unconfirmed)
		today()

		b.reconcile()
		b.api.Complete()
		canceled := map[string]string{}
		for _, e := range b.Sim.Effects() {
			if e.Kind == stripesim.EffectCancel {
				canceled[e.IntentID] = e.Key
			}
		}
		require.Len(t, canceled, 2)
		require.Equal(t, b.Tenant.ID+":ord_000000000000000000000gone:cancel:1", canceled[gone.ID])
		delete(canceled, gone.ID)
		for _, key := range canceled {
			require.Equal(t, b.Tenant.ID+":"+order+":cancel:1", key, "the number that no payment has")
		}
		b.reconcile()
		b.requireClean()
		require.Equal(t, 1, b.Sim.ChargeCount(order))
	})

	// Both are found before the first is canceled. Under one key Stripe would refuse the second.
	t.Run("CancelsTwoOfAnOrderUnderTwoKeys", func(t *testing.T) {
		t.Parallel()
		b, today := yesterdays(t)
		order := b.api.Order()
		require.Equal(t, http.StatusCreated, b.api.Pay("k", order, "pm_card_visa").Status)
		b.ghost(order, unconfirmed)
		b.ghost(order, unconfirmed)
		today()
		b.reconcile()
		b.api.Complete()
		var keys []string
		for _, e := range b.Sim.Effects() {
			if e.Kind == stripesim.EffectCancel {
				keys = append(keys, strings.TrimPrefix(e.Key, b.Tenant.ID+":"+order))
			}
		}
		require.ElementsMatch(t, []string{":cancel:2", ":cancel:3"}, keys)
		require.Zero(t, b.Count("SELECT count(*) FROM idempotency_keys WHERE finished_at IS NULL"))
		b.requireClean()
	})

	// A payment has begun to use it since the list was read.
	t.Run("JudgesAgainUnderTheLock", func(t *testing.T) {
		t.Parallel()
		b := newBooks(t)
		declined := b.api.Pay("declined", b.api.Order(), "pm_card_visa_chargeDeclined")
		intent := payments.IntentForTest(t, b.api.Gateway, b.Text("SELECT intent_id FROM payments WHERE id = $1", declined.Get("payment", "id")))
		begun, err := b.api.Payments.SweepForTest(t.Context(), intent)
		require.NoError(t, err)
		require.False(t, begun)
		require.Zero(t, b.Count("SELECT count(*) FROM idempotency_keys WHERE operation = 'cancel_abandoned_intent'"))
	})

	t.Run("LeavesWhatMayStillBePaid", func(t *testing.T) {
		t.Parallel()
		b, today := yesterdays(t)
		declined, waits, young := b.api.Order(), b.api.Order(), b.api.Order()
		require.Equal(t, http.StatusPaymentRequired, b.api.Pay("declined", declined, "pm_card_visa_chargeDeclined").Status)
		require.Equal(t, http.StatusAccepted, b.api.Pay("waits", waits, "pm_card_threeDSecure2Required").Status)
		twice := b.api.Order()
		first := b.api.Pay("first", twice, "pm_card_threeDSecure2Required").ID()
		require.Equal(t, http.StatusOK, b.api.Post("/v1/payments/"+first+"/cancel", "cancel", `{}`).Status)
		require.Equal(t, http.StatusPaymentRequired, b.api.Pay("second", twice, "pm_card_visa_chargeDeclined").Status) // Its intent is the order's now.
		b.ghost(declined, unconfirmed)                                                                                 // Its number may be that of the order's next.
		begun := b.api.Order()
		b.Sim.Inject(stripesim.Fault{Op: "intent.create", Kind: stripesim.Reset, Times: -1})
		require.Equal(t, http.StatusAccepted, b.api.Pay("begun", begun, "pm_card_visa").Status)
		b.Sim.ClearFaults()
		b.ghost(begun, unconfirmed) // This may be what was made for it.
		today()
		b.ghost(young, unconfirmed)
		b.ghost("ord_000000000000000000000gone", unconfirmed) // Whoever made it may be about to find it again.
		b.reconcile()
		require.Zero(t, b.Count("SELECT count(*) FROM idempotency_keys WHERE operation = 'cancel_abandoned_intent'"))
		require.Equal(t, http.StatusCreated, b.api.Pay("another-card", declined, "pm_card_visa").Status)
	})
}

func unconfirmed(p *stripego.PaymentIntentParams) { p.Confirm, p.PaymentMethod = nil, nil }

// TestRestore is the drill: the database goes back, Stripe does not.
func TestRestore(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	const lost = 12
	var before, between []string
	for range lost {
		before = append(before, b.api.Order())
	}
	kept := b.api.Pay("kept", before[0], "pm_card_visa")
	require.Equal(t, http.StatusCreated, kept.Status)
	require.Equal(t, http.StatusPaymentRequired, b.api.Pay("declined", before[1], "pm_card_visa_chargeDeclined").Status)
	b.Sim.Inject(stripesim.Fault{Op: "intent.create", Kind: stripesim.Reset, Times: 3})
	require.Equal(t, http.StatusAccepted, b.api.Pay("on-its-way", before[2], "pm_card_visa").Status)
	b.Sim.ClearFaults()
	b.reconcile()

	snapshot := b.copyDatabase("backup")

	// What the copy does not know of:
	require.Equal(t, http.StatusCreated, b.api.Pay("second-card", before[1], "pm_card_visa").Status)
	require.Equal(t, http.StatusCreated, b.api.PayUntilFinal("on-its-way", before[2], "pm_card_visa").Status)
	for _, order := range before[3:] {
		require.Equal(t, http.StatusCreated, b.api.Pay("pay"+order, order, "pm_card_visa").Status)
	}
	refunded := b.Text("SELECT payment_id FROM orders WHERE id = $1", before[3])
	require.Equal(t, http.StatusCreated, b.api.Post("/v1/payments/"+refunded+"/refunds", "refund", `{"amount":400}`).Status)
	require.Equal(t, http.StatusCreated, b.api.Post("/v1/payments/"+kept.ID()+"/refunds", "refund-kept", `{"amount":100}`).Status)
	for range 2 {
		order := b.api.Order()
		between = append(between, order)
		require.Equal(t, http.StatusCreated, b.api.Pay("pay"+order, order, "pm_card_visa").Status)
	}
	b.requireClean()
	charges := b.Sim.ChargeCount("")

	r := booksOn(b.on(snapshot))
	lossy := r.audit()
	require.Equal(t, map[string]int{"I8e": lost - 1 + len(between)}, withoutWork(lossy.offends()), "%+v", lossy)
	r.reconcile()
	r.api.Complete()
	r.reconcile()

	for _, order := range before {
		require.Contains(t, []any{"paid", "partially_refunded"}, r.api.Get("/v1/orders/"+order).Get("status"), order)
	}
	require.Equal(t, refunded, r.Text("SELECT payment_id FROM orders WHERE id = $1", before[3]), "its refund still knew its id")
	require.EqualValues(t, 400, r.api.Get("/v1/orders/"+before[3]).Get("amount_refunded"))
	require.EqualValues(t, 100, r.api.Get("/v1/payments/"+kept.ID()).Get("amount_refunded"))
	require.Equal(t, charges, r.Sim.ChargeCount(""), "no card was charged again")
	for _, order := range between {
		require.Equal(t, http.StatusNotFound, r.api.Get("/v1/orders/"+order).Status)
		require.Equal(t, 1, r.Count("SELECT count(*) FROM discrepancies WHERE order_id = $1 AND kind = 'unmatched_at_stripe' AND resolved_at IS NULL", order))
	}
	after := r.audit()
	require.Equal(t, map[string]int{"I8e": len(between)}, after.offends())
	require.EqualValues(t, 1000*len(between), after.drift(), "what is left is exactly what is parked")
	require.EqualValues(t, after.drift(), r.driftShown())
}

// withoutWork leaves out what merely waits for a completer.
func withoutWork(offends map[string]int) map[string]int {
	delete(offends, "I5a")
	return offends
}

// copyDatabase copies the world's database as it is now, as a backup would.
func (b *books) copyDatabase(suffix string) (dsn string) {
	b.T.Helper()
	at, err := url.Parse(b.URL)
	require.NoError(b.T, err)
	source := strings.TrimPrefix(at.Path, "/")
	name := source[:min(len(source), 30)] + "_" + suffix[:min(len(suffix), 30)]
	at.Path = "/postgres"
	server := at.String()
	admin := func(sql string) {
		b.T.Helper()
		conn, err := pgx.Connect(context.Background(), server)
		require.NoError(b.T, err)
		defer func() { _ = conn.Close(context.Background()) }()
		_, err = conn.Exec(context.Background(), sql)
		require.NoError(b.T, err)
	}
	b.DB.Raw().Reset()
	b.api.Pool.Raw().Reset()
	world.Eventually(b.T, world.Patience, "nobody uses the database", func() bool {
		conn, err := pgx.Connect(context.Background(), server)
		require.NoError(b.T, err)
		defer func() { _ = conn.Close(context.Background()) }()
		var n int
		require.NoError(b.T, conn.QueryRow(context.Background(), "SELECT count(*) FROM pg_stat_activity WHERE datname = $1", source).Scan(&n))
		return n == 0
	})
	admin("CREATE DATABASE " + pgx.Identifier{name}.Sanitize() + " TEMPLATE " + pgx.Identifier{source}.Sanitize())
	b.T.Cleanup(func() { admin("DROP DATABASE " + pgx.Identifier{name}.Sanitize() + " WITH (FORCE)") })
	at.Path = "/" + name
	return at.String()
}

// on is the same world with another database.
func (b *books) on(dsn string) *world.World {
	b.T.Helper()
	pool, err := postgres.Open(context.Background(), dsn, postgres.Options{Name: "testbed", MaxConn: 4})
	require.NoError(b.T, err)
	b.T.Cleanup(pool.Close)
	w := *b.World
	w.URL, w.DB = dsn, pool
	return &w
}
