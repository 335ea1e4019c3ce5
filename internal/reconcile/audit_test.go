package reconcile_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	stripego "github.com/stripe/stripe-go/v76"

	"example.com/payonce/internal/reconcile"
	"example.com/payonce/internal/stripe"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

// audited is what the audit finds of everything created since: "kind object drift", oldest first.
func audited(b *world.Books, since time.Time) (found []string, result reconcile.Comparison, err error) {
	b.T.Helper()
	result, err = reconcile.Compare(b.T.Context(), b.API.Pool, b.API.Gateway, b.API.Payments, since)
	for _, d := range result.Discrepancies {
		found = append(found, strings.Join([]string{string(d.Kind), d.ObjectID, d.Detail}, " "))
	}
	return found, result, err
}

// hourAgo is before everything in a test, and never after it.
var hourAgo, never = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)

// confirmable adds payments whose intents can still be confirmed, so that each is read by itself. before: they are
// read before those that are there.
func confirmable(b *world.Books, n int, before bool) {
	b.T.Helper()
	b.Exec(`INSERT INTO payments (tenant_id, id, status, failure_code, order_id, idempotency_key, amount_minor,
			currency, payment_method, intent_number, intent_id, created_at)
		SELECT tenant_id, CASE WHEN $2 THEN 'pay_-' || n ELSE id || '-' || n END, status, failure_code, order_id || n,
			'k' || n, amount_minor, currency, payment_method, 1, 'pi_of_another_account_' || n, created_at
		FROM payments, generate_series(1, $1) n`, n, before)
}

// declined is an order whose card was declined, and its intent.
func declined(b *world.Books) (order, intent string) {
	b.T.Helper()
	order = b.API.Order()
	require.Equal(b.T, "payment-declined", b.API.Pay(order, order, "pm_card_visa_chargeDeclined").Code())
	return order, b.Text(`SELECT intent_id FROM payments WHERE order_id = $1`, order)
}

func TestAudit(t *testing.T) {
	t.Parallel()

	t.Run("ReportsEachDiscrepancyOnceAndNothingElse", func(t *testing.T) {
		t.Parallel()
		b := world.NewBooks(t)
		_, result, err := audited(b, hourAgo)
		require.NoError(t, err)
		require.Empty(t, result.Drift)
		paid := b.API.Pay("paid", b.API.Order(), "pm_card_visa")
		require.Equal(t, http.StatusCreated, paid.Status)
		declined(b)
		b.Sim.Inject(stripesim.Fault{Op: "intent.confirm", Kind: stripesim.Drop})
		require.Equal(t, http.StatusAccepted, b.API.Pay("in-progress", b.API.Order(), "pm_card_visa").Status)
		found, result, err := audited(b, hourAgo)
		require.NoError(t, err)
		require.Empty(t, found)
		require.Equal(t, map[string]int64{"usd": 0}, result.Drift, "what was compared has a drift, even of zero")

		adoptable := b.OrphanIntent(b.API.Order())
		differs := b.OrphanIntent(b.API.Order(), func(p *stripego.PaymentIntentParams) { p.Amount = stripego.Int64(50) })
		b.Exec(`INSERT INTO discrepancies (tenant_id, object, object_id, kind, currency, drift_minor, detail, order_id)
			VALUES ($1, 'payment_intent', $2, 'amount_mismatch', 'usd', 50, 'known', $3)`, b.Tenant.ID, differs.ID,
			differs.Metadata["order_id"])
		refund := b.API.Post("/v1/payments/"+paid.ID()+"/refunds", "refund", `{"amount":400}`).Get("stripe", "refund")
		require.NoError(t, b.Sim.FailRefund(refund.(string), "expired_or_canceled_card"))
		found, result, err = audited(b, hourAgo)
		require.NoError(t, err)
		require.ElementsMatch(t, []string{
			"unmatched_at_stripe " + adoptable.ID + " paid at Stripe, and no payment here",
			"amount_mismatch " + differs.ID + " the order is for 1000 usd, and 50 usd was paid",
			"status_mismatch " + refund.(string) + " refund succeeded here, failed at Stripe",
		}, found)
		require.Equal(t, map[string]int64{"usd": 1450}, result.Drift)

		found, _, err = audited(b, never)
		require.NoError(t, err)
		require.Equal(t, []string{"amount_mismatch " + differs.ID + " the order is for 1000 usd, and 50 usd was paid"},
			found, "an open finding is looked at again, however old it is")
	})

	t.Run("ReadsEveryIntentThatCanBePaidHoweverManyThereAre", func(t *testing.T) {
		t.Parallel()
		b := world.NewBooks(t)
		_, intent := declined(b)
		confirmable(b, 230, true)
		_, err := b.Stripe.PaymentIntents.Confirm(intent, &stripego.PaymentIntentConfirmParams{
			PaymentMethod: stripego.String("pm_card_visa"),
		})
		require.NoError(t, err)
		found, _, err := audited(b, never)
		require.NoError(t, err)
		require.Len(t, found, 1)
		require.Contains(t, found[0], intent)
	})

	t.Run("NamesWhatStripeDoesNotRespondAboutAndComparesAllOthers", func(t *testing.T) {
		t.Parallel()
		b := world.NewBooks(t)
		smaller := func(p *stripego.PaymentIntentParams) { p.Amount = stripego.Int64(50) }
		away, refused, good := b.API.Order(), b.API.Order(), b.API.Order()
		ids := map[string]string{}
		for _, order := range []string{away, refused, good} { // Each is read again by itself.
			ids[order] = b.OrphanIntent(order, smaller).ID
		}
		for order, status := range map[string]int{away: http.StatusBadGateway, refused: http.StatusBadRequest} {
			b.Sim.Inject(stripesim.Fault{Op: "intent.get", OrderID: order, Kind: stripesim.Refuse, Status: status,
				Code: "account_invalid", Times: -1})
		}
		found, _, err := audited(b, hourAgo)
		require.ErrorIs(t, err, stripe.ErrAway)
		require.ErrorContains(t, err, ids[away])
		require.Len(t, found, 2)
		require.Contains(t, found[0], "amount_mismatch "+ids[good])
		require.Contains(t, found[1], "status_mismatch "+ids[refused]+" Stripe does not show it: ")
	})

	t.Run("EndsAfterTenObjectsInARowWithoutAResponse", func(t *testing.T) {
		t.Parallel()
		b, gateway := newTapped(t)
		declined(b)
		confirmable(b, 30, true)
		asked := 0
		gateway.getIntent = func(ctx context.Context, id string, get getIntent) (stripe.Intent, error) {
			if asked++; asked == 4 { // Stripe responds about one of them.
				return get(ctx, id)
			}
			return stripe.Intent{}, stripe.ErrAway
		}
		found, _, err := audited(b, never)
		require.ErrorIs(t, err, stripe.ErrAway)
		require.Equal(t, 4+10, asked)
		require.Empty(t, found)
	})

	t.Run("AsksStripeNothingMoreOnceItIsCanceled", func(t *testing.T) {
		t.Parallel()
		b, gateway := newTapped(t)
		declined(b)
		confirmable(b, 3, true)
		ctx, cancel := context.WithCancel(t.Context())
		asked := 0
		gateway.getIntent = func(context.Context, string, getIntent) (stripe.Intent, error) {
			asked++
			cancel()
			return stripe.Intent{}, stripe.ErrAway
		}
		_, err := reconcile.Compare(ctx, b.API.Pool, b.API.Gateway, b.API.Payments, never)
		require.ErrorIs(t, err, stripe.ErrAway)
		require.Equal(t, 1, asked)
	})
}
