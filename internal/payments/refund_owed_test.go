package payments_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	stripego "github.com/stripe/stripe-go/v76"

	"example.com/payonce/db"
	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/stripe"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/logs"
	"example.com/payonce/testkit/paycases"
	"example.com/payonce/testkit/world"
)

// refuse has Stripe refuse the next refunds for good.
func (o *elsewhere) refuse(times int) {
	o.Sim.Inject(stripesim.Fault{
		Op: "refund.create", Kind: stripesim.Refuse, Status: http.StatusBadRequest, Code: "refund_unsupported", Times: times,
	})
}

func (o *elsewhere) requireOwed(count, minor int) {
	o.T.Helper()
	o.Measure()
	require.EqualValues(o.T, count, o.API.Metric("payonce_refunds_owed"))
	require.EqualValues(o.T, minor, o.API.Metric("payonce_refunds_owed_minor"))
}

// again lets the pause pass, and has what is owed tried again.
func (o *elsewhere) again() {
	o.T.Helper()
	o.Exec(`UPDATE refunds_owed SET next_attempt_at = clock_timestamp()`)
	o.Reconcile()
	completeOnce(o.World, o.API)
}

// A database that was restored knows a later automatic refund from Stripe, and not those before it. What is owed is
// tried again under the next number that is free.
func TestRefundsOwedAreNumberedPastThoseThatStripeHas(t *testing.T) {
	t.Parallel()
	o := late(t, visa)
	o.refuse(1)
	completeOnce(o.World, o.API)
	third := ids.Keyed(ids.Refund, o.Tenant.ID, o.Text(`SELECT idempotency_key FROM refunds`)+":3")
	sent := o.Dashboard(1000, "tenant_id", o.Tenant.ID, "order_id", o.Order, "payment_id", o.Payment, "refund_id", third)
	o.DeliverWebhooks()
	require.Equal(t, "0 refunded", o.Owed())
	require.NoError(t, o.Sim.FailRefund(sent, "lost_or_stolen_card"))
	o.DeliverWebhooks()
	o.again()
	require.Equal(t, "refunded", o.Text(`SELECT ended_how FROM refunds_owed`))
	require.Equal(t, "automatic failed 1000, automatic failed 1000, automatic succeeded 1000", o.Rows())
}

// TestRefundsOwed: money that came too late goes back, or somebody is told.
func TestRefundsOwed(t *testing.T) {
	t.Parallel()

	t.Run("AreTriedAgainUnderAKeyOfTheirOwn", func(t *testing.T) {
		t.Parallel()
		o := late(t, visa)
		o.refuse(2)
		completeOnce(o.World, o.API)
		require.Equal(t, "automatic failed 1000", o.Rows())
		require.Equal(t, "0 due", o.Owed())
		require.Equal(t, "refund_unsupported", o.Text(`SELECT last_error FROM refunds_owed`))
		o.requireOwed(1, 1000)
		require.Empty(t, o.Audit().Offends(), "it is tried again by itself")
		require.Equal(t, 10, o.Count(`SELECT extract(epoch FROM next_attempt_at - since)::integer FROM refunds_owed`))
		o.again()
		require.Equal(t, "1 due", o.Owed())
		require.InDelta(t, 60, o.Count(`SELECT extract(epoch FROM next_attempt_at - clock_timestamp())::integer
			FROM refunds_owed`), 10, "the pauses grow")
		o.again()
		require.Equal(t, "automatic failed 1000, automatic failed 1000, automatic succeeded 1000", o.Rows())
		require.Equal(t, "2 refunded", o.Owed())
		o.requireOwed(0, 0)
		var keys []string
		for _, post := range o.Posts("refunds") {
			keys = append(keys, strings.TrimPrefix(post.Key, o.Tenant.ID+":"+o.Order))
		}
		require.Equal(t, []string{":refund:1", ":refund:2", ":refund:3"}, keys)
		require.Equal(t, 1, o.EffectsOf(stripesim.EffectRefund))
		o.DeliverWebhooks()
		o.RequireClean()
	})

	// A caller may take the order's id for a key.
	t.Run("AreNotTheRefundOfACallerWhoseKeyIsTheOrder", func(t *testing.T) {
		t.Parallel()
		o := late(t, visa)
		o.refuse(1)
		completeOnce(o.World, o.API)
		own := o.API.Post("/v1/payments/"+o.Payment+"/refunds", o.Order, `{"amount":400}`)
		require.Equal(t, http.StatusCreated, own.Status, own)
		o.again()
		require.Equal(t, "api succeeded 400, automatic succeeded 600, automatic failed 1000", o.Rows())
		require.Equal(t, 1000, o.Count(`SELECT amount_refunded_minor FROM payments`))
	})

	t.Run("AreParkedAfterTheLastAttempt", func(t *testing.T) {
		t.Parallel()
		o := late(t, visa)
		o.refuse(-1)
		completeOnce(o.World, o.API)
		for n := range 5 {
			require.Equal(t, fmt.Sprintf("%d due", n), o.Owed())
			o.again()
		}
		require.Equal(t, "5 parked", o.Owed())
		o.requireOwed(1, 1000)
		require.Equal(t, map[string]int{"I5b": 1}, o.Audit().Offends())
		o.again()
		require.Len(t, o.Posts("refunds"), 6, "what is parked is not tried")
	})

	t.Run("AreOwedWhenTheBankSendsThemBackLater", func(t *testing.T) {
		t.Parallel()
		for name, learn := range map[string]func(o *elsewhere){
			"ByWebhook": (*elsewhere).DeliverWebhooks, "ByReconciler": func(o *elsewhere) { o.Reconcile() },
		} {
			o := late(t, visa)
			completeOnce(o.World, o.API)
			require.Equal(t, "automatic succeeded 1000", o.Rows(), name)
			o.requireOwed(0, 0)
			require.NoError(t, o.Sim.FailRefund(o.Text(`SELECT stripe_refund_id FROM refunds`), "lost_or_stolen_card"))
			learn(o)
			require.Equal(t, "automatic failed 1000", o.Rows(), name)
			o.requireOwed(1, 1000)
			o.again()
			require.Equal(t, "automatic failed 1000, automatic succeeded 1000", o.Rows(), name)
			o.requireOwed(0, 0)
			o.DeliverWebhooks()
			o.RequireClean()
		}
	})

	// A bank that returns every refund, to a closed account for example, days after each success.
	t.Run("AreParkedAfterTheBankHasReturnedEachAttempt", func(t *testing.T) {
		t.Parallel()
		o := late(t, visa)
		completeOnce(o.World, o.API)
		returned := func() {
			t.Helper()
			require.NoError(t, o.Sim.FailRefund(o.Text(`SELECT stripe_refund_id FROM refunds WHERE status = 'succeeded'`),
				"expired_or_canceled_card"))
			o.DeliverWebhooks()
			o.requireOwed(1, 1000)
		}
		for n, pause := range []int{10, 60, 600, 3600, 21600} {
			returned()
			require.Equal(t, fmt.Sprintf("%d due", n), o.Owed())
			require.InDelta(t, pause, o.Count(`SELECT extract(epoch FROM next_attempt_at - clock_timestamp())::integer
				FROM refunds_owed`), 10, "the pauses grow although each attempt succeeded")
			o.again()
			require.Equal(t, fmt.Sprintf("%d refunded", n+1), o.Owed())
		}
		returned()
		require.Equal(t, "5 parked", o.Owed())
		require.Equal(t, map[string]int{"I5b": 1}, o.Audit().Offends())
		o.again()
		require.Len(t, o.Posts("refunds"), 6, "what is parked is not tried")
	})

	// Nor is the count begun anew by a refund that somebody else made, and that comes back as well.
	t.Run("AreParkedIfARefundOfOthersReturnsAfterTheLastAttempt", func(t *testing.T) {
		t.Parallel()
		o := late(t, visa)
		o.refuse(-1)
		completeOnce(o.World, o.API)
		for range 5 {
			o.again()
		}
		require.Equal(t, "5 parked", o.Owed())
		o.Sim.ClearFaults()
		by := o.Dashboard(1000)
		o.DeliverWebhooks()
		require.Equal(t, "5 refunded", o.Owed())
		require.NoError(t, o.Sim.FailRefund(by, "expired_or_canceled_card"))
		o.DeliverWebhooks()
		require.Equal(t, "5 parked", o.Owed())
	})

	t.Run("EndWhenSomebodyElseRefunds", func(t *testing.T) {
		t.Parallel()
		o := late(t, visa)
		o.refuse(1)
		completeOnce(o.World, o.API)
		o.Dashboard(400)
		o.DeliverWebhooks()
		o.requireOwed(1, 600)
		rest := o.Dashboard(600)
		o.DeliverWebhooks()
		require.Equal(t, "0 refunded", o.Owed())
		o.again()
		require.Equal(t, "automatic failed 1000, provider succeeded 400, provider succeeded 600", o.Rows())
		o.RequireClean()

		// And are owed again when that comes back.
		require.NoError(t, o.Sim.FailRefund(rest, "lost_or_stolen_card"))
		o.DeliverWebhooks()
		require.Equal(t, "0 due", o.Owed())
		o.requireOwed(1, 600)
		o.again()
		require.Equal(t, "automatic succeeded 600, automatic failed 1000, provider succeeded 400, provider failed 600",
			o.Text(`SELECT string_agg(concat_ws(' ', origin, status, amount_minor), ', ' ORDER BY origin, status) FROM refunds`))
		o.DeliverWebhooks()
		o.RequireClean()
	})

	// part: operator {
	t.Run("EndWhenAnOperatorHasSettledThem", func(t *testing.T) {
		t.Parallel()
		o := late(t, visa)
		o.refuse(1)
		completeOnce(o.World, o.API)
		settle := func() (minor int64, err error) {
			err = o.API.Pool.InTx(t.Context(), func(q *db.Queries) error {
				minor, err = o.API.Payments.Repairs().SettleOwed(t.Context(), q, o.Tenant.ID, o.Payment)
				return err
			})
			return minor, err
		}
		o.Exec(`UPDATE refunds_owed SET next_attempt_at = clock_timestamp()`)
		o.Reconcile()
		var not *payments.NotOwedError
		_, err := settle()
		require.ErrorAs(t, err, &not, "an attempt is under way")
		o.refuse(1)
		completeOnce(o.World, o.API)
		minor, err := settle()
		require.NoError(t, err)
		require.EqualValues(t, 1000, minor)
		require.Equal(t, "0 settled_outside", o.Owed())
		o.requireOwed(0, 0)
		_, err = settle()
		require.ErrorAs(t, err, &not)
		require.Equal(t, "no refund of the payment is owed any more", not.Why)
		o.again()
		require.Len(t, o.Posts("refunds"), 2, "what was settled is not given back as well")
		o.RequireClean()
	})
	t.Run("AreOwedAgainWithoutWhatWasSettled", func(t *testing.T) {
		t.Parallel()
		o := late(t, visa)
		o.refuse(1)
		completeOnce(o.World, o.API)
		part := o.Dashboard(400)
		o.DeliverWebhooks()
		require.NoError(t, o.API.Pool.InTx(t.Context(), func(q *db.Queries) error {
			_, err := o.API.Payments.Repairs().SettleOwed(t.Context(), q, o.Tenant.ID, o.Payment)
			return err
		}))
		o.requireOwed(0, 0)
		require.NoError(t, o.Sim.FailRefund(part, "lost_or_stolen_card"))
		o.DeliverWebhooks()
		o.requireOwed(1, 400)
		o.again()
		require.Equal(t, 400, o.Count(`SELECT amount_refunded_minor FROM payments`))
		o.requireOwed(0, 0)
		o.DeliverWebhooks()
		o.RequireClean()
	})
	// part: operator }

	// A row that cannot be read holds up none of the others.
	t.Run("ArePostponedIfTheyCannotBeTried", func(t *testing.T) {
		t.Parallel()
		log := &logs.Buffer{}
		w, api, proxy := world.Proxied(t, world.LocalOptions{Log: log.Logger(slog.LevelWarn)})
		o := elsewhereOn(w)
		o.API = api
		order := api.Order()
		require.Equal(t, http.StatusOK, api.Post("/v1/orders/"+order+"/cancel", "cancel", `{}`).Status)
		seen, err := api.Gateway.GetIntent(t.Context(), stripe.NoTenant, o.OrphanIntent(order).ID)
		require.NoError(t, err)
		_, err = api.Payments.Repairs().AdoptPayment(t.Context(), seen)
		require.NoError(t, err)
		o.refuse(1)
		completeOnce(w, api)
		due := func() { o.Exec(`UPDATE refunds_owed SET next_attempt_at = clock_timestamp()`) }
		const cannotRead = "read what is owed"

		due()
		proxy.Fail("name: RefundOwedGet ", 1)
		n, err := api.Payments.Repairs().RetryOwed(t.Context())
		require.NoError(t, err)
		require.Zero(t, n)
		require.InDelta(t, 60, o.Count(`SELECT extract(epoch FROM next_attempt_at - clock_timestamp())::integer
			FROM refunds_owed`), 10)
		require.Equal(t, "0 due", o.Owed(), "that was no attempt")
		require.Contains(t, log.String(), "a refund that is owed was not tried again")

		due()
		proxy.Fail("name: RefundOwedGet ", 1)
		proxy.Fail("name: RefundOwedPostpone ", 1)
		_, err = api.Payments.Repairs().RetryOwed(t.Context())
		require.ErrorContains(t, err, "postpone")

		ctx, cancel := context.WithCancel(t.Context())
		goOn := make(chan struct{})
		read := proxy.Hold("name: RefundOwedGet ", goOn)
		stopped := world.Async(func() error { _, err := api.Payments.Repairs().RetryOwed(ctx); return err })
		read.Await(t)
		cancel()
		close(goOn)
		require.Equal(t, context.Canceled, <-stopped, "and not that it could not be postponed")

		proxy.Fail("name: RefundOwedGet ", 1)
		require.ErrorContains(t, api.Pool.InTx(t.Context(), func(q *db.Queries) error {
			_, err := api.Payments.Repairs().RetryOwedNow(t.Context(), q, w.Tenant.ID, w.Text(`SELECT id FROM payments`))
			return err
		}), cannotRead)
		n, err = api.Payments.Repairs().RetryOwed(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, n)
	})

	// Processes that look at the same moment.
	t.Run("AreTriedOnceByManyProcesses", func(t *testing.T) {
		t.Parallel()
		o := late(t, visa)
		o.refuse(1)
		completeOnce(o.World, o.API)
		o.Exec(`UPDATE refunds_owed SET next_attempt_at = clock_timestamp()`)
		for _, err := range world.Together(4, func(int) error {
			_, err := o.API.Payments.Repairs().RetryOwed(t.Context())
			return err
		}) {
			require.NoError(t, err)
		}
		require.Equal(t, 2, o.Count(`SELECT count(*) FROM refunds`))
		require.Equal(t, "1 due", o.Owed())
	})
}

// TestRefundsOwedSurviveACut: the connection breaks at a commit of a refund that is owed. Another process ends it: the
// money goes back once. The night cuts each commit.
func TestRefundsOwedSurviveACut(t *testing.T) {
	t.Parallel()
	for _, cut := range []paycases.Cut{
		{Name: "WhenItIsTriedAgain/After", Statement: "RefundOwedAttempt", Committed: true},
		{Name: "WhenTheMoneyIsBack/Before", Statement: "RefundOwedEnd"},
	} {
		t.Run(cut.Name, func(t *testing.T) {
			t.Parallel()
			paycases.OwedSurvivesACut(t, cut)
		})
	}
}

// TestOwedIsNotForgotten: the database refuses what the code never does.
func TestOwedIsNotForgotten(t *testing.T) {
	t.Parallel()
	o := late(t, visa)
	refused := func(constraint, sql string, args ...any) {
		t.Helper()
		_, err := o.DB.Raw().Exec(t.Context(), sql, args...)
		require.ErrorContains(t, err, constraint)
	}
	const owed = "what must be refunded is owed"
	refused(owed, `UPDATE refunds SET status = 'failed'`)
	_, err := o.DB.Raw().Exec(t.Context(), `DO $$ BEGIN
		ALTER TABLE refunds DISABLE TRIGGER refund_terms_are_immutable;
		UPDATE refunds SET status = 'failed', origin = 'provider';
		END $$`)
	require.ErrorContains(t, err, owed, "whoever made it")
	o.refuse(1)
	completeOnce(o.World, o.API)
	refused("ends when it was refunded", `UPDATE refunds_owed SET ended_at = now(), ended_how = 'refunded'`)
	refused("never deleted", `DELETE FROM refunds_owed`)
	o.again()
	refused(owed, `WITH sums AS (
		UPDATE payments SET amount_refunded_minor = 0, amount_refunding_minor = 0)
		UPDATE refunds SET status = 'failed' WHERE status = 'succeeded'`)
	id := o.Text(`SELECT stripe_refund_id FROM refunds WHERE status = 'succeeded'`)
	refused("one_row_per_stripe_refund", `INSERT INTO refunds (tenant_id, id, origin, payment_id, order_id,
		idempotency_key, stripe_key, stripe_refund_id, amount_minor, currency, created_at)
		SELECT tenant_id, 'rfd_2', origin, payment_id, order_id, 'x', 'x', $1, amount_minor, currency, created_at
		FROM refunds WHERE stripe_refund_id = $1`, id)
}

// TestPartThatOthersRefundedIsOwedWhenItComesBack: the service gives back what others have left of money that it may
// not keep. Then the bank sends back what they had refunded.
func TestPartThatOthersRefundedIsOwedWhenItComesBack(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rest          int64 // refunded by others as well, before the payment is adopted
		before, after string
	}{
		"ThePartOfOthers": {0, "automatic succeeded 600, provider succeeded 400",
			"automatic succeeded 400, automatic succeeded 600, provider failed 400"},
		"AllOfOthers": {600, "provider succeeded 400, provider succeeded 600",
			"automatic succeeded 400, provider failed 400, provider succeeded 600"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := world.New(t)
			o := elsewhereOn(w)
			o.Order = o.API.Order()
			require.Equal(t, http.StatusOK, o.API.Post("/v1/orders/"+o.Order+"/cancel", "cancel", `{}`).Status)
			intent := o.OrphanIntent(o.Order).ID
			refund := func(amount int64) string {
				r, err := o.Stripe.Refunds.New(&stripego.RefundParams{PaymentIntent: &intent, Amount: &amount})
				require.NoError(t, err)
				return r.ID
			}
			part := refund(400)
			if c.rest > 0 { // between the look at the intent and the adoption
				seen, err := o.API.Gateway.GetIntent(t.Context(), stripe.NoTenant, intent)
				require.NoError(t, err)
				refund(c.rest)
				_, err = o.API.Payments.Repairs().AdoptPayment(t.Context(), seen)
				require.NoError(t, err)
			}
			o.Reconcile()
			completeOnce(o.World, o.API)
			require.Equal(t, c.before, o.Rows())
			o.requireOwed(0, 0)

			require.NoError(t, o.Sim.FailRefund(part, "lost_or_stolen_card"))
			o.Mailbox.Take()
			o.Exec(`UPDATE reconciliation_windows SET next_at = '-infinity'`)
			_, err := o.API.Payments.Repairs().AdoptRefund(t.Context(), stripe.Refund{
				IntentID: intent, TenantID: o.Tenant.ID, OrderID: o.Order, ID: part,
			})
			require.NoError(t, err)
			o.requireOwed(1, 400)
			require.Equal(t, "0 due", o.Owed())
			o.again()
			require.Equal(t, c.after, o.Rows())
			o.requireOwed(0, 0)
			o.Reconcile()
			require.Empty(t, o.Discrepancies())
			o.RequireClean()
		})
	}
}
