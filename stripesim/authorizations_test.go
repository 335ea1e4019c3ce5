package stripesim

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v76"
)

func manual(p *stripe.PaymentIntentParams) { p.CaptureMethod = stripe.String("manual") }

func basil(o *Options) { o.ReleaseRegime = RegimeBasil }

// authorized is a payment whose money is reserved and not taken.
func (b *bench) authorized(order string, card ...string) *stripe.PaymentIntent {
	b.t.Helper()
	c := "pm_card_visa"
	if len(card) > 0 {
		c = card[0]
	}
	pi, err := b.confirm(b.create(order, manual).ID, "confirm-"+order, c)
	require.NoError(b.t, err)
	require.Equal(b.t, stripe.PaymentIntentStatusRequiresCapture, pi.Status)
	return pi
}

// capture captures an amount, or with 0 all of it.
func (b *bench) capture(id, key string, amount int64) (*stripe.PaymentIntent, error) {
	p := &stripe.PaymentIntentCaptureParams{Params: keyed(key)}
	if amount != 0 {
		p.AmountToCapture = stripe.Int64(amount)
	}
	return b.api.PaymentIntents.Capture(id, p)
}

func (b *bench) cancel(id, key string) (*stripe.PaymentIntent, error) {
	return b.api.PaymentIntents.Cancel(id, &stripe.PaymentIntentCancelParams{Params: keyed(key)})
}

// refunds lists by the intent, requires the same list by the charge, and expands all that a refund refers to.
func (b *bench) refunds(pi *stripe.PaymentIntent) (all []*stripe.Refund) {
	b.t.Helper()
	list := func(p *stripe.RefundListParams) (ids []string) {
		for _, property := range []string{"data.charge", "data.balance_transaction", "data.payment_intent"} {
			p.AddExpand(property)
		}
		all = nil
		i := b.api.Refunds.List(p)
		for i.Next() {
			all, ids = append(all, i.Refund()), append(ids, i.Refund().ID)
		}
		require.NoError(b.t, i.Err())
		return ids
	}
	byCharge := list(&stripe.RefundListParams{Charge: stripe.String(pi.LatestCharge.ID)})
	require.Equal(b.t, byCharge, list(&stripe.RefundListParams{PaymentIntent: stripe.String(pi.ID)}))
	return all
}

// booked lists the balance transactions, oldest first.
func (b *bench) booked() (all []*stripe.BalanceTransaction) {
	b.t.Helper()
	for i := b.api.BalanceTransactions.List(&stripe.BalanceTransactionListParams{}); i.Next(); {
		all = append([]*stripe.BalanceTransaction{i.BalanceTransaction()}, all...)
	}
	return all
}

func (b *bench) balanceOf(charge *stripe.Charge) *stripe.BalanceTransaction {
	b.t.Helper()
	got, err := b.api.BalanceTransactions.Get(charge.BalanceTransaction.ID, nil)
	require.NoError(b.t, err)
	return got
}

// eventsAfter are the types of the events since the authorisation.
func (b *bench) eventsAfter() string {
	_, after, _ := strings.Cut(b.eventTypes(), "payment_intent.amount_capturable_updated")
	return strings.TrimSpace(after)
}

// amounts sums up the amounts of each kind of effect.
func (b *bench) amounts() map[string]int64 {
	sums := map[string]int64{}
	for _, e := range b.sim.Effects() {
		sums[e.Kind] += e.Amount
	}
	return sums
}

func TestAuthorization(t *testing.T) {
	t.Parallel()

	t.Run("ReservesAndTakesNoMoney", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		pi := b.authorized("o1")
		require.Equal(t, int64(1000), pi.AmountCapturable)
		require.Zero(t, pi.AmountReceived)
		ch := b.charge(pi)
		require.True(t, ch.Paid)
		require.Equal(t, stripe.ChargeStatusSucceeded, ch.Status)
		require.False(t, ch.Captured)
		require.Zero(t, ch.AmountCaptured)
		require.Nil(t, ch.BalanceTransaction)
		require.Empty(t, b.booked())
		require.Zero(t, b.sim.ChargeCount(""))
		require.Equal(t, map[string]int64{EffectIntentCreated: 1000, EffectAuthorized: 1000}, b.amounts())
		require.Equal(t,
			"payment_intent.created charge.succeeded payment_intent.amount_capturable_updated", b.eventTypes())
	})

	t.Run("ShowsTheChargeToTheConfirm", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		p := &stripe.PaymentIntentConfirmParams{Params: keyed("k"), PaymentMethod: stripe.String("pm_card_visa")}
		p.AddExpand("latest_charge")
		pi, err := b.api.PaymentIntents.Confirm(b.create("o1", manual).ID, p)
		require.NoError(t, err)
		require.False(t, pi.LatestCharge.Captured)
		require.NotZero(t, pi.LatestCharge.PaymentMethodDetails.Card.CaptureBefore)
	})

	t.Run("WaitsForTheCustomer", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		pi, err := b.confirm(b.create("o1", manual).ID, "k", "pm_card_threeDSecure2Required")
		require.NoError(t, err)
		require.Equal(t, stripe.PaymentIntentStatusRequiresAction, pi.Status)
		b.sim.Advance(3 * 24 * time.Hour) // the time spent here does not count
		require.NoError(t, b.sim.CompleteAuthentication(pi.ID, true))
		pi = b.get(pi.ID)
		require.Equal(t, stripe.PaymentIntentStatusRequiresCapture, pi.Status)
		ch := b.charge(pi)
		require.Equal(t, ch.Created+7*24*3600, ch.PaymentMethodDetails.Card.CaptureBefore)
		require.Zero(t, b.sim.ChargeCount(""))

		refusing, err := b.confirm(b.create("o2", manual).ID, "k2", "pm_card_threeDSecure2Required")
		require.NoError(t, err)
		require.NoError(t, b.sim.CompleteAuthentication(refusing.ID, false))
		require.Equal(t, stripe.PaymentIntentStatusRequiresPaymentMethod, b.get(refusing.ID).Status)
		require.Len(t, b.effects(EffectAuthorized), 1)
	})

	t.Run("CapturesAPartOfAnExpandedIntent", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		p := &stripe.PaymentIntentCaptureParams{
			Params: keyed("c"), AmountToCapture: stripe.Int64(600), Metadata: map[string]string{"attempt": "a1"},
		}
		p.AddExpand("latest_charge.balance_transaction")
		p.AddExpand("latest_charge.refunds")
		pi, err := b.api.PaymentIntents.Capture(b.authorized("o1").ID, p)
		require.NoError(t, err)
		require.Equal(t, "a1", pi.Metadata["attempt"])
		require.Equal(t, int64(1000), pi.LatestCharge.BalanceTransaction.Amount)
		require.Len(t, pi.LatestCharge.Refunds.Data, 1)
		require.Equal(t, "a1", b.effects(EffectCharge)[0].Metadata["attempt"])
	})
}

// TestReleaseRegimes is what a release leaves behind, before and from 2025-03-31.basil.
func TestReleaseRegimes(t *testing.T) {
	t.Parallel()

	t.Run("FullCaptureIsTheSameInBoth", func(t *testing.T) {
		t.Parallel()
		for _, regime := range []ReleaseRegime{RegimeRefunds, RegimeBasil} {
			b := setup(t, func(o *Options) { o.ReleaseRegime = regime })
			pi, err := b.capture(b.authorized("o1").ID, "c", 0)
			require.NoError(t, err)
			require.Equal(t, stripe.PaymentIntentStatusSucceeded, pi.Status)
			require.Equal(t, int64(1000), pi.AmountReceived)
			require.Zero(t, pi.AmountCapturable)
			ch := b.charge(pi)
			require.True(t, ch.Captured && !ch.Refunded)
			require.Equal(t, int64(1000), ch.AmountCaptured)
			require.Zero(t, ch.AmountRefunded)
			require.Equal(t, int64(1000), b.balanceOf(ch).Amount)
			require.Empty(t, b.refunds(pi))
			require.Equal(t, "charge.captured payment_intent.succeeded", b.eventsAfter())
			e := b.effects(EffectCharge)
			require.Len(t, e, 1)
			require.Equal(t, "c", e[0].Key)
			require.Equal(t, []int64{1000, 1000}, []int64{e[0].Amount, e[0].Authorized})
			require.Empty(t, b.effects(EffectReleased))
		}
	})

	t.Run("PartialCaptureRefundsTheRestBeforeBasil", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		pi, err := b.capture(b.authorized("o1").ID, "c", 600)
		require.NoError(t, err)
		require.Equal(t, int64(600), pi.AmountReceived)
		ch := b.charge(pi)
		require.Equal(t, []int64{1000, 600, 400}, []int64{ch.Amount, ch.AmountCaptured, ch.AmountRefunded})
		require.False(t, ch.Refunded)

		refunds := b.refunds(pi)
		require.Len(t, refunds, 1)
		re := refunds[0]
		require.Equal(t, int64(400), re.Amount)
		require.Equal(t, stripe.RefundStatusSucceeded, re.Status)
		require.Empty(t, re.Metadata)
		require.Empty(t, re.Reason)
		require.Equal(t, int64(600), re.Charge.AmountCaptured)
		require.Equal(t, int64(600), re.PaymentIntent.AmountReceived)

		// The whole amount and its fee are booked, then the rest and its part of the fee go back.
		booked := b.booked()
		require.Len(t, booked, 2)
		whole, rest := booked[0], booked[1]
		require.Equal(t, ch.BalanceTransaction.ID, whole.ID)
		require.Equal(t, []any{stripe.BalanceTransactionType("charge"), stripe.BalanceTransactionReportingCategory("charge"),
			int64(1000)}, []any{whole.Type, whole.ReportingCategory, whole.Amount})
		require.Equal(t, re.BalanceTransaction.ID, rest.ID)
		require.Equal(t, []any{stripe.BalanceTransactionType("refund"),
			stripe.BalanceTransactionReportingCategory("partial_capture_reversal"), int64(-400)},
			[]any{rest.Type, rest.ReportingCategory, rest.Amount})
		require.Equal(t, cardFee(600), whole.Fee+rest.Fee)
		require.Equal(t, 600-cardFee(600), whole.Net+rest.Net)
		require.Negative(t, rest.Fee)

		require.Equal(t,
			"charge.captured charge.refunded charge.refund.updated payment_intent.succeeded", b.eventsAfter())
		require.Equal(t, map[string]int64{EffectIntentCreated: 1000, EffectAuthorized: 1000, EffectCharge: 600,
			EffectReleased: 400}, b.amounts())
		require.Equal(t, 1, b.sim.ChargeCount("o1"))
	})

	t.Run("PartialCaptureLeavesNothingFromBasilOn", func(t *testing.T) {
		t.Parallel()
		b := setup(t, basil)
		pi, err := b.capture(b.authorized("o1").ID, "c", 600)
		require.NoError(t, err)
		require.Equal(t, int64(600), pi.AmountReceived)
		ch := b.charge(pi)
		require.Equal(t, []int64{1000, 600, 0}, []int64{ch.Amount, ch.AmountCaptured, ch.AmountRefunded})
		require.False(t, ch.Refunded)
		require.Empty(t, b.refunds(pi))
		require.Len(t, b.booked(), 1)
		require.Equal(t, int64(600), b.balanceOf(ch).Amount)
		require.Equal(t, cardFee(600), b.balanceOf(ch).Fee)
		require.Equal(t, "charge.captured payment_intent.succeeded", b.eventsAfter())
		require.Equal(t, map[string]int64{EffectIntentCreated: 1000, EffectAuthorized: 1000, EffectCharge: 600,
			EffectReleased: 400}, b.amounts())
	})

	t.Run("CancelRefundsTheHoldBeforeBasil", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		pi, err := b.cancel(b.authorized("o1").ID, "x")
		require.NoError(t, err)
		require.Equal(t, stripe.PaymentIntentStatusCanceled, pi.Status)
		require.Zero(t, pi.AmountCapturable)
		require.Empty(t, pi.CancellationReason)
		ch := b.charge(pi)
		require.False(t, ch.Captured)
		require.Zero(t, ch.AmountCaptured)
		require.Equal(t, int64(1000), ch.AmountRefunded)
		require.True(t, ch.Refunded)
		require.Nil(t, ch.BalanceTransaction)
		refunds := b.refunds(pi)
		require.Len(t, refunds, 1)
		require.Equal(t, int64(1000), refunds[0].Amount)
		require.Nil(t, refunds[0].BalanceTransaction)
		require.Empty(t, refunds[0].Reason)
		require.Empty(t, refunds[0].Metadata)
		require.Empty(t, b.booked())
		require.Equal(t, "charge.refunded charge.refund.updated payment_intent.canceled", b.eventsAfter())
		require.Equal(t, map[string]int64{EffectIntentCreated: 1000, EffectAuthorized: 1000, EffectReleased: 1000,
			EffectCancel: 1000}, b.amounts())
		require.Equal(t, "x", b.effects(EffectReleased)[0].Key)
		require.Error(t, b.sim.FailRefund(refunds[0].ID, "unknown"), "it moved no money that could come back")
		require.Error(t, b.sim.CancelRefund(refunds[0].ID))
	})

	t.Run("CancelLeavesNothingFromBasilOn", func(t *testing.T) {
		t.Parallel()
		b := setup(t, basil)
		pi, err := b.cancel(b.authorized("o1").ID, "x")
		require.NoError(t, err)
		ch := b.charge(pi)
		require.False(t, ch.Captured || ch.Refunded)
		require.Zero(t, ch.AmountRefunded)
		require.Empty(t, b.refunds(pi))
		require.Equal(t, "payment_intent.canceled", b.eventsAfter())
		require.Equal(t, map[string]int64{EffectIntentCreated: 1000, EffectAuthorized: 1000, EffectReleased: 1000,
			EffectCancel: 1000}, b.amounts())
	})

	t.Run("ExpiryRefundsTheHoldBeforeBasil", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		pi := b.authorized("o1")
		created := b.charge(pi).Created
		b.sim.Advance(authorizationLifetime + cancelAfterDeadline)
		pi = b.get(pi.ID)
		require.Equal(t, stripe.PaymentIntentStatusCanceled, pi.Status)
		require.Equal(t, stripe.PaymentIntentCancellationReason("automatic"), pi.CancellationReason)
		require.Equal(t, created+7*24*3600+1, pi.CanceledAt)
		ch := b.charge(pi)
		require.False(t, ch.Captured)
		require.Equal(t, int64(1000), ch.AmountRefunded)
		require.True(t, ch.Refunded)
		refunds := b.refunds(pi)
		require.Len(t, refunds, 1)
		require.Equal(t, stripe.RefundReasonExpiredUncapturedCharge, refunds[0].Reason)
		require.Nil(t, refunds[0].BalanceTransaction)
		require.Equal(t, "charge.expired charge.refunded charge.refund.updated payment_intent.canceled",
			b.eventsAfter())
		require.Equal(t, map[string]int64{EffectIntentCreated: 1000, EffectAuthorized: 1000, EffectExpired: 1000,
			EffectCancel: 1000}, b.amounts())
		require.Zero(t, b.sim.ChargeCount(""))
	})

	t.Run("ExpiryLeavesNothingFromBasilOn", func(t *testing.T) {
		t.Parallel()
		b := setup(t, basil)
		pi := b.authorized("o1")
		b.sim.Advance(authorizationLifetime + cancelAfterDeadline)
		b.broken() // the schema of 2023-10-16 does not know the reason
		pi = b.get(pi.ID)
		require.Equal(t, stripe.PaymentIntentCancellationReason("expired"), pi.CancellationReason)
		ch := b.charge(pi)
		require.Zero(t, ch.AmountRefunded)
		require.False(t, ch.Captured || ch.Refunded)
		require.Empty(t, b.refunds(pi))
		require.Equal(t, "charge.expired payment_intent.canceled", b.eventsAfter())
		require.Len(t, b.effects(EffectExpired), 1)
		require.Empty(t, b.effects(EffectReleased))
	})

	t.Run("SwitchesWhileItRunsAndKeepsWhatIsThere", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		older, newer := b.authorized("o1"), b.authorized("o2")
		_, err := b.capture(older.ID, "c1", 600)
		require.NoError(t, err)
		code, _ := b.adminDo("POST", "/settings", `{"release_regime":"basil"}`)
		require.Equal(t, 200, code)
		_, err = b.capture(newer.ID, "c2", 600)
		require.NoError(t, err)
		require.Len(t, b.refunds(older), 1)
		require.Empty(t, b.refunds(newer))
		for i, pi := range []*stripe.PaymentIntent{older, newer} { // one account with both
			re, err := b.refund(pi.ID, fmt.Sprint("r", i), 0)
			require.NoError(t, err)
			require.Equal(t, int64(600), re.Amount)
		}
		code, body := b.adminDo("POST", "/settings", `{"release_regime":"acacia"}`)
		require.Equal(t, 400, code)
		require.Contains(t, string(body), "there are refunds and basil")
		_, err = New(Options{ReleaseRegime: "acacia"})
		require.Error(t, err)

		require.NoError(t, b.sim.Reset()) // to what it was started with
		pi, err := b.capture(b.authorized("o3").ID, "c3", 600)
		require.NoError(t, err)
		require.Len(t, b.refunds(pi), 1)
	})

	t.Run("SurvivesARestart", func(t *testing.T) {
		t.Parallel()
		store := filepath.Join(t.TempDir(), "journal")
		first := setup(t, func(o *Options) { o.Store = store })
		partly, open := first.authorized("o1"), first.authorized("o2")
		lapsed := first.authorized("o3")
		_, err := first.capture(partly.ID, "c", 600)
		require.NoError(t, err)
		require.NoError(t, first.sim.LapseAuthorization(lapsed.ID, ""))
		require.NoError(t, first.sim.Close())

		b := setup(t, func(o *Options) { o.Store = store })
		_, err = b.refund(partly.ID, "r", 601)
		refused(t, err, 400, "")
		_, err = b.refund(partly.ID, "r2", 600)
		require.NoError(t, err)
		require.True(t, b.charge(partly).Refunded)
		_, err = b.capture(lapsed.ID, "c3", 0)
		refused(t, err, 400, stripe.ErrorCodeChargeExpiredForCapture)
		b.sim.Advance(authorizationLifetime + cancelAfterDeadline)
		require.Equal(t, stripe.PaymentIntentStatusCanceled, b.get(open.ID).Status)
	})
}

func TestRefundsAfterAPartialCapture(t *testing.T) {
	t.Parallel()
	for regime, released := range map[ReleaseRegime]int64{RegimeRefunds: 400, RegimeBasil: 0} {
		regime := func(o *Options) { o.ReleaseRegime = regime }

		t.Run("AddUpToWhatWasCaptured/"+fmt.Sprint(released), func(t *testing.T) {
			t.Parallel()
			b := setup(t, regime)
			pi, err := b.capture(b.authorized("o1").ID, "c", 600)
			require.NoError(t, err)
			_, err = b.refund(pi.ID, "r1", 601)
			e := refused(t, err, 400, "")
			require.Equal(t, "Refund amount ($6.01) is greater than unrefunded amount on charge ($6.00)", e.Msg)
			require.Equal(t, "amount", e.Param)

			_, err = b.refund(pi.ID, "r2", 250)
			require.NoError(t, err)
			ch := b.charge(pi)
			require.Equal(t, released+250, ch.AmountRefunded)
			require.False(t, ch.Refunded)
			_, err = b.refund(pi.ID, "r3", 351)
			require.Contains(t, refused(t, err, 400, "").Msg, "on charge ($3.50)")

			re, err := b.refund(pi.ID, "r4", 0) // without an amount: what is left
			require.NoError(t, err)
			require.Equal(t, int64(350), re.Amount)
			ch = b.charge(pi)
			require.Equal(t, released+600, ch.AmountRefunded)
			require.True(t, ch.Refunded)
			_, err = b.refund(pi.ID, "r5", 1)
			refused(t, err, 400, stripe.ErrorCodeChargeAlreadyRefunded)
			require.Equal(t, int64(600), b.amounts()[EffectRefund])

			require.NoError(t, b.sim.FailRefund(re.ID, "unknown")) // it comes back, the release does not
			ch = b.charge(pi)
			require.Equal(t, released+250, ch.AmountRefunded)
			require.False(t, ch.Refunded)
			_, err = b.refund(pi.ID, "r6", 350)
			require.NoError(t, err)
		})

		t.Run("RefuseWhatWasNotCaptured/"+fmt.Sprint(released), func(t *testing.T) {
			t.Parallel()
			b := setup(t, regime)
			pi := b.authorized("o1")
			_, err := b.refund(pi.ID, "r1", 0)
			e := refused(t, err, 400, "")
			require.Contains(t, e.Msg, "You must cancel the PaymentIntent")
			_, err = b.api.Refunds.New(&stripe.RefundParams{Charge: stripe.String(pi.LatestCharge.ID)})
			require.Equal(t, e.Msg, refused(t, err, 400, "").Msg)
			_, err = b.cancel(pi.ID, "x")
			require.NoError(t, err)
			_, err = b.refund(pi.ID, "r2", 0)
			if released > 0 {
				refused(t, err, 400, stripe.ErrorCodeChargeAlreadyRefunded)
			} else {
				require.Equal(t, e.Msg, refused(t, err, 400, "").Msg)
			}
			require.Empty(t, b.effects(EffectRefund))
		})
	}
}

func TestCaptureBefore(t *testing.T) {
	t.Parallel()

	t.Run("DependsOnTheNetworkAndTheCustomer", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		for card, lives := range map[string][2]time.Duration{
			"pm_card_visa":       {authorizationLifetime, 4*24*time.Hour + 18*time.Hour},
			"pm_card_mastercard": {authorizationLifetime, authorizationLifetime},
			"pm_card_amex":       {authorizationLifetime, authorizationLifetime},
			"pm_card_discover":   {authorizationLifetime, authorizationLifetime},
		} {
			for i, life := range lives {
				order := fmt.Sprint(card, i)
				pi, err := b.api.PaymentIntents.Confirm(b.create(order, manual).ID, &stripe.PaymentIntentConfirmParams{
					Params: keyed("k-" + order), PaymentMethod: stripe.String(card), OffSession: stripe.Bool(i == 1),
				})
				require.NoError(t, err)
				ch := b.charge(pi)
				require.Equal(t, ch.Created+int64(life/time.Second), ch.PaymentMethodDetails.Card.CaptureBefore, order)
			}
		}
	})

	t.Run("IsOnManualChargesOnlyAndStays", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		require.Zero(t, b.charge(b.paid("o1")).PaymentMethodDetails.Card.CaptureBefore)
		pi := b.authorized("o2")
		before := b.charge(pi).PaymentMethodDetails.Card.CaptureBefore
		require.NotZero(t, before)
		_, err := b.capture(pi.ID, "c", 0)
		require.NoError(t, err)
		require.Equal(t, before, b.charge(pi).PaymentMethodDetails.Card.CaptureBefore)
		b.sim.Advance(2 * authorizationLifetime)
		require.Equal(t, stripe.PaymentIntentStatusSucceeded, b.get(pi.ID).Status, "captured in time is paid for good")
	})

	t.Run("EndsASecondBeforeTheIntentIsCanceled", func(t *testing.T) {
		t.Parallel()
		began := time.Unix(1_700_000_000, 0)
		b := setup(t, func(o *Options) { o.Now = func() time.Time { return began } })
		pi, late := b.authorized("o1"), b.authorized("o2")
		b.sim.Advance(authorizationLifetime - time.Second)
		_, err := b.capture(pi.ID, "c1", 0)
		require.NoError(t, err)
		b.sim.Advance(time.Second)
		require.Equal(t, stripe.PaymentIntentStatusRequiresCapture, b.get(late.ID).Status)
		_, err = b.capture(late.ID, "c2", 0)
		require.Equal(t, late.ID, refused(t, err, 400, stripe.ErrorCodeChargeExpiredForCapture).PaymentIntent.ID)
		b.sim.Advance(time.Second)
		require.Equal(t, stripe.PaymentIntentStatusCanceled, b.get(late.ID).Status)
		_, err = b.capture(late.ID, "c3", 0)
		e := refused(t, err, 400, stripe.ErrorCodePaymentIntentUnexpectedState)
		require.Contains(t, e.Msg, "has a status of canceled")
		require.Equal(t, stripe.PaymentIntentCancellationReason("automatic"), e.PaymentIntent.CancellationReason)
		require.Equal(t, 1, b.sim.ChargeCount(""))
	})
}

func TestCaptureIsRefused(t *testing.T) {
	t.Parallel()
	unexpected := stripe.ErrorCodePaymentIntentUnexpectedState

	t.Run("ByTheAmount", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		pi := b.authorized("o1")
		for amount, want := range map[int64]struct {
			code  stripe.ErrorCode
			param string
		}{
			1001: {stripe.ErrorCodeAmountTooLarge, ""}, -5: {"", "amount_to_capture"},
			0: {stripe.ErrorCodeParameterInvalidInteger, "amount"},
		} {
			_, err := b.api.PaymentIntents.Capture(
				pi.ID, &stripe.PaymentIntentCaptureParams{AmountToCapture: stripe.Int64(amount)},
			)
			require.Equal(t, want.param, refused(t, err, 400, want.code).Param)
		}
		_, err := b.api.PaymentIntents.Capture(
			pi.ID, &stripe.PaymentIntentCaptureParams{FinalCapture: stripe.Bool(false)},
		)
		require.Equal(t, "final_capture", refused(t, err, 400, "").Param)
		require.Equal(t, stripe.PaymentIntentStatusRequiresCapture, b.get(pi.ID).Status)
		require.Empty(t, b.effects(EffectCharge))
	})

	t.Run("ByTheState", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		whole, part, gone := b.authorized("o1"), b.authorized("o2"), b.authorized("o3")
		_, err := b.capture(whole.ID, "c1", 0)
		require.NoError(t, err)
		_, err = b.capture(part.ID, "c2", 600)
		require.NoError(t, err)
		_, err = b.cancel(gone.ID, "x3")
		require.NoError(t, err)
		for id, says := range map[string]string{
			whole.ID: "has already been captured", part.ID: "the remainder of the authorized amount has been released",
			gone.ID: "has a status of canceled", b.paid("o4").ID: "has a status of succeeded",
		} {
			_, err = b.capture(id, "again-"+id, 0)
			e := refused(t, err, 400, unexpected)
			require.Contains(t, e.Msg, says)
			require.Equal(t, id, e.PaymentIntent.ID)
		}
		_, err = b.cancel(whole.ID, "x1")
		refused(t, err, 400, unexpected)
		require.Equal(t, int64(1000+600+1000), b.amounts()[EffectCharge])
	})

	t.Run("WhereTheNetworkHasDroppedTheHold", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		for i, code := range append([]string{""}, lapseCodes...) {
			pi := b.authorized(fmt.Sprint("o", i))
			require.NoError(t, b.sim.LapseAuthorization(pi.ID, code))
			if code == "" {
				code = expiredForCapture
			}
			_, err := b.capture(pi.ID, fmt.Sprint("c", i), 0)
			e := refused(t, err, 400, stripe.ErrorCode(code))
			require.Equal(t, stripe.ErrorTypeInvalidRequest, e.Type)
			require.Equal(t, pi.LatestCharge.ID, e.ChargeID)
			require.Equal(t, stripe.PaymentIntentStatusRequiresCapture, e.PaymentIntent.Status)
			require.Error(t, b.sim.CaptureInDashboard(pi.ID, 0))
			_, err = b.cancel(pi.ID, fmt.Sprint("x", i))
			require.NoError(t, err)
		}
		require.Error(t, b.sim.LapseAuthorization(b.authorized("o9").ID, "no_such_code"))
		require.Zero(t, b.sim.ChargeCount(""))
	})
}

func TestDashboard(t *testing.T) {
	t.Parallel()

	t.Run("CapturesAndCancels", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		part, whole, gone := b.authorized("o1"), b.authorized("o2"), b.authorized("o3")
		ok := func(path, body string) {
			code, data := b.adminDo("POST", path, body)
			require.Equal(t, 200, code, "%s", data)
		}
		ok("/dashboard/"+part.ID+"/capture", `{"amount":600}`)
		ok("/dashboard/"+whole.ID+"/capture", "")
		ok("/dashboard/"+gone.ID+"/cancel", `{"reason":"fraudulent"}`)
		require.Equal(t, int64(600), b.get(part.ID).AmountReceived)
		require.Len(t, b.refunds(part), 1)
		require.Equal(t, int64(1000), b.get(whole.ID).AmountReceived)
		require.Equal(t, stripe.PaymentIntentCancellationReasonFraudulent, b.get(gone.ID).CancellationReason)
		for _, e := range b.effects(EffectCharge) {
			require.Empty(t, e.Key)
			require.NotEmpty(t, e.RequestID)
		}
		for _, path := range []string{"/dashboard/" + whole.ID + "/capture", "/dashboard/" + whole.ID + "/cancel",
			"/dashboard/pi_none/capture", "/authorizations/" + gone.ID + "/lapse"} {
			code, _ := b.adminDo("POST", path, "")
			require.Equal(t, 400, code, path)
		}
		open := b.authorized("o4")
		for path, body := range map[string]string{"capture": `{"amount":1001}`, "cancel": `{"reason":"regret"}`} {
			code, _ := b.adminDo("POST", "/dashboard/"+open.ID+"/"+path, body)
			require.Equal(t, 400, code, path)
		}
		ok("/authorizations/"+open.ID+"/lapse", "")
		_, err := b.capture(open.ID, "c", 0)
		refused(t, err, 400, stripe.ErrorCodeChargeExpiredForCapture)
		require.Equal(t, 2, b.sim.ChargeCount(""))
	})

	t.Run("WinsOverARequestThatIsHeld", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		pi := b.authorized("o1")
		h := b.sim.Hold(Selector{Op: "intent.capture"}, BeforeEffect)
		answered := make(chan error, 1)
		go func() { _, err := b.capture(pi.ID, "c", 0); answered <- err }()
		_, err := h.Wait(t.Context())
		require.NoError(t, err)
		require.NoError(t, b.sim.CancelInDashboard(pi.ID, ""))
		h.Release()
		refused(t, <-answered, 400, stripe.ErrorCodePaymentIntentUnexpectedState)
		require.Zero(t, b.sim.ChargeCount(""))
	})
}

func TestCaptureUnderFaults(t *testing.T) {
	t.Parallel()

	t.Run("LosesItsAnswerAndReplays", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		pi := b.authorized("o1")
		b.sim.Inject(Fault{Op: "intent.capture", Kind: Drop})
		_, err := b.capture(pi.ID, "c", 600)
		require.Error(t, err)
		require.Equal(t, 1, b.sim.ChargeCount("o1"))
		got, err := b.capture(pi.ID, "c", 600)
		require.NoError(t, err)
		require.Equal(t, int64(600), got.AmountReceived)
		require.Equal(t, "true", b.header("Idempotent-Replayed"))
		require.Equal(t, 1, b.sim.ChargeCount("o1"))
	})

	t.Run("FreezesA500WithAndWithoutTheEffect", func(t *testing.T) {
		t.Parallel()
		for kind, charges := range map[string]int{StoredError: 0, EffectStoredError: 1} {
			b := setup(t)
			pi := b.authorized("o1")
			b.sim.Inject(Fault{Op: "intent.capture", Kind: kind})
			for range 2 {
				_, err := b.capture(pi.ID, "c", 600)
				refused(t, err, 500, "")
			}
			require.Equal(t, charges, b.sim.ChargeCount("o1"), kind)
			require.NoError(t, b.sim.Repair("c", charges == 0))
			got := b.get(pi.ID)
			require.Equal(t, int64(600), got.AmountReceived)
			refunded := map[int]int64{0: 400, 1: 1000}[charges] // rolled forward, or back
			require.Equal(t, refunded, b.charge(got).AmountRefunded, kind)
		}
	})

	t.Run("IsForgottenAndRefusedTheSecondTime", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		pi := b.authorized("o1")
		b.sim.Inject(Fault{Op: "intent.capture", Kind: EffectForgotten})
		_, err := b.capture(pi.ID, "c", 0)
		refused(t, err, 502, "")
		_, err = b.capture(pi.ID, "c", 0)
		refused(t, err, 400, stripe.ErrorCodePaymentIntentUnexpectedState)
		require.Equal(t, 1, b.sim.ChargeCount("o1"))
	})

	t.Run("AnswersWithAStaleIntent", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		pi := b.authorized("o1")
		b.sim.Inject(Fault{Op: "intent.capture", Kind: Stale})
		got, err := b.capture(pi.ID, "c", 0)
		require.NoError(t, err)
		require.Equal(t, stripe.PaymentIntentStatusRequiresCapture, got.Status)
		require.Equal(t, stripe.PaymentIntentStatusSucceeded, b.get(pi.ID).Status)
	})

	t.Run("HasTheDeadlineThatWasSet", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		usual := b.authorized("o1")
		paid := b.paid("o2")
		code, _ := b.adminDo("POST", "/settings", `{"authorization_lifetime":"20h","evidence_time":"12h"}`)
		require.Equal(t, 200, code)
		short := b.authorized("o3")
		id, err := b.sim.OpenDispute(b.charge(paid).ID, "fraudulent", false)
		require.NoError(t, err)

		until := func(pi *stripe.PaymentIntent) time.Duration {
			charge := b.charge(pi)
			return time.Duration(charge.PaymentMethodDetails.Card.CaptureBefore-charge.Created) * time.Second
		}
		require.Equal(t, 7*24*time.Hour, until(usual))
		require.Equal(t, 20*time.Hour, until(short))
		disputed, err := b.api.Disputes.Get(id, nil)
		require.NoError(t, err)
		require.EqualValues(t, 12*60*60, disputed.EvidenceDetails.DueBy-disputed.Created)
		b.sim.Advance(22 * time.Hour)
		require.Equal(t, stripe.PaymentIntentStatusRequiresCapture, b.get(usual.ID).Status)
		require.Equal(t, stripe.PaymentIntentStatusCanceled, b.get(short.ID).Status)
	})

	t.Run("IsProcessingFirst", func(t *testing.T) {
		t.Parallel()
		store := filepath.Join(t.TempDir(), "journal")
		first := setup(t, func(o *Options) { o.Store = store })
		pi := first.authorized("o1")
		code, _ := first.adminDo("POST", "/settings", `{"capture_processing":"2s"}`)
		require.Equal(t, 200, code)
		first.sim.Inject(Fault{Op: "intent.capture", Kind: Drop})
		_, err := first.capture(pi.ID, "c", 600)
		require.Error(t, err)
		require.NoError(t, first.sim.Close())

		b := setup(t, func(o *Options) { o.Store = store })
		got, err := b.capture(pi.ID, "c", 600)
		require.NoError(t, err)
		require.Equal(t, stripe.PaymentIntentStatusProcessing, got.Status)
		require.Zero(t, got.AmountReceived+got.AmountCapturable)
		require.False(t, b.charge(pi).Captured)
		require.Zero(t, b.sim.ChargeCount(""))
		_, err = b.capture(pi.ID, "c2", 0)
		require.Contains(t, refused(t, err, 400, stripe.ErrorCodePaymentIntentUnexpectedState).Msg, "processing")
		_, err = b.cancel(pi.ID, "x")
		refused(t, err, 400, stripe.ErrorCodePaymentIntentUnexpectedState)

		b.sim.Advance(2 * time.Second)
		got = b.get(pi.ID)
		require.Equal(t, stripe.PaymentIntentStatusSucceeded, got.Status)
		require.Equal(t, int64(600), got.AmountReceived)
		require.Equal(t, "c", b.effects(EffectCharge)[0].Key)
		require.Equal(t, "payment_intent.processing charge.captured charge.refunded charge.refund.updated "+
			"payment_intent.succeeded", b.eventsAfter())
		b.sim.Advance(2 * authorizationLifetime)
		require.Equal(t, stripe.PaymentIntentStatusSucceeded, b.get(pi.ID).Status)
	})

	t.Run("OneOfManyWins", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		pi := b.authorized("o1")
		ended := make(chan bool, 20)
		for i := range cap(ended) {
			go func() {
				path := "/v1/payment_intents/" + pi.ID + []string{"/capture", "/cancel"}[i%2]
				ended <- b.raw(path, fmt.Sprint("k", i), "").StatusCode == 200
			}()
		}
		won := 0
		for range cap(ended) {
			if <-ended {
				won++
			}
		}
		require.Equal(t, 1, won)
		sums := b.amounts()
		require.Equal(t, sums[EffectAuthorized], sums[EffectCharge]+sums[EffectReleased])
	})
}
