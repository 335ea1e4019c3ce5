package stripesim

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v76"
)

func (b *bench) refund(pi, key string, amount int64) (*stripe.Refund, error) {
	p := &stripe.RefundParams{Params: keyed(key), PaymentIntent: stripe.String(pi)}
	if amount > 0 {
		p.Amount = stripe.Int64(amount)
	}
	return b.api.Refunds.New(p)
}

func (b *bench) charge(pi *stripe.PaymentIntent) *stripe.Charge {
	b.t.Helper()
	ch, err := b.api.Charges.Get(pi.LatestCharge.ID, nil)
	require.NoError(b.t, err)
	return ch
}

func TestRefunds(t *testing.T) {
	t.Parallel()

	t.Run("AddUpToTheCharge", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		pi := b.paid("o1")
		re, err := b.refund(pi.ID, "r1", 300)
		require.NoError(t, err)
		require.Equal(t, stripe.RefundStatusSucceeded, re.Status)
		require.Equal(t, pi.LatestCharge.ID, re.Charge.ID)
		require.False(t, b.charge(pi).Refunded)

		_, err = b.refund(pi.ID, "r2", 701)
		e := refused(t, err, 400, "")
		require.Equal(t, "Refund amount ($7.01) is greater than unrefunded amount on charge ($7.00)", e.Msg)
		require.Equal(t, "amount", e.Param)

		re, err = b.refund(pi.ID, "r3", 0)
		require.NoError(t, err)
		require.Equal(t, int64(700), re.Amount)
		require.True(t, b.charge(pi).Refunded)
		_, err = b.refund(pi.ID, "r4", 1)
		require.Equal(
			t,
			fmt.Sprintf("Charge %s has already been refunded.", pi.LatestCharge.ID),
			refused(t, err, 400, stripe.ErrorCodeChargeAlreadyRefunded).Msg,
		)
		require.Equal(t, stripe.PaymentIntentStatusSucceeded, b.get(pi.ID).Status)
		require.Len(t, b.effects(EffectRefund), 2)
	})

	t.Run("NeverExceedTheChargeUnderConcurrency", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		pi := b.paid("o1")
		var wg sync.WaitGroup
		for i := range 30 {
			wg.Go(
				func() { b.raw("/v1/refunds", fmt.Sprint("r", i), fmt.Sprintf("payment_intent=%s&amount=90", pi.ID)) },
			)
		}
		wg.Wait()
		require.Equal(t, int64(990), b.charge(pi).AmountRefunded)
		require.Len(t, b.effects(EffectRefund), 11)
	})

	t.Run("RefuseWhatCannotBeRefunded", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		_, err := b.api.Refunds.New(&stripe.RefundParams{})
		require.Equal(
			t, "One of the following params should be provided for this request: payment_intent or charge.",
			refused(t, err, 400, "").Msg,
		)
		_, err = b.api.Refunds.New(&stripe.RefundParams{Charge: stripe.String("ch_none")})
		require.Equal(t, "id", refused(t, err, 404, stripe.ErrorCodeResourceMissing).Param)
		open := b.create("o1")
		_, err = b.refund(open.ID, "r1", 0)
		require.Contains(t, refused(t, err, 400, "").Msg, "does not have a successful charge to refund")
		manual, err := b.confirm(
			b.create("o2", func(p *stripe.PaymentIntentParams) { p.CaptureMethod = stripe.String("manual") }).ID,
			"k2", "pm_card_visa",
		)
		require.NoError(t, err)
		_, err = b.refund(manual.ID, "r2", 0)
		require.Contains(t, refused(t, err, 400, "").Msg, "You must cancel the PaymentIntent")
		pi := b.paid("o3")
		_, err = b.api.Refunds.New(&stripe.RefundParams{PaymentIntent: stripe.String(pi.ID), Amount: stripe.Int64(0)})
		refused(t, err, 400, stripe.ErrorCodeParameterInvalidInteger)
		_, err = b.api.Refunds.New(
			&stripe.RefundParams{PaymentIntent: stripe.String(pi.ID), Reason: stripe.String("regret")},
		)
		require.Equal(
			t, "Invalid reason: must be one of duplicate, fraudulent, or requested_by_customer",
			refused(t, err, 400, "").Msg,
		)
		disputed := b.paid("o4", "pm_card_createDispute")
		_, err = b.refund(disputed.ID, "r4", 0)
		refused(t, err, 400, stripe.ErrorCodeChargeDisputed)
		require.Empty(t, b.effects(EffectRefund))
	})

	t.Run("CanBePendingAndCanceled", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		re, err := b.refund(b.paid("o1", "pm_card_pendingRefund").ID, "r", 0)
		require.NoError(t, err)
		require.Equal(t, stripe.RefundStatusPending, re.Status)
		b.sim.Advance(refundDelay)
		re, err = b.api.Refunds.Get(re.ID, nil)
		require.NoError(t, err)
		require.Equal(t, stripe.RefundStatusSucceeded, re.Status)
		_, err = b.api.Refunds.Cancel(re.ID, &stripe.RefundCancelParams{})
		require.Equal(t, "Canceling this refund is unsupported.", refused(t, err, 400, "").Msg)

		pi := b.paid("o2", "pm_card_pendingRefund")
		re, err = b.refund(pi.ID, "r2", 0)
		require.NoError(t, err)
		re, err = b.api.Refunds.Cancel(re.ID, &stripe.RefundCancelParams{})
		require.NoError(t, err)
		require.Equal(t, stripe.RefundStatusCanceled, re.Status)
		require.Zero(t, b.charge(pi).AmountRefunded)
	})

	t.Run("CanFailAfterTheySucceeded", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		byCard, byHand := b.paid("o1", "pm_card_refundFail"), b.paid("o2")
		first, err := b.refund(byCard.ID, "r1", 0)
		require.NoError(t, err)
		require.Equal(t, stripe.RefundStatusSucceeded, first.Status)
		b.sim.Advance(refundDelay)
		second, err := b.refund(byHand.ID, "r2", 400)
		require.NoError(t, err)
		require.NoError(t, b.sim.FailRefund(second.ID, "lost_or_stolen_card"))
		require.Error(t, b.sim.FailRefund(second.ID, "unknown"))
		for _, id := range []string{first.ID, second.ID} {
			re, err := b.api.Refunds.Get(id, nil)
			require.NoError(t, err)
			require.Equal(t, stripe.RefundStatusFailed, re.Status)
			require.NotEmpty(t, re.FailureReason)
			require.NotNil(t, re.FailureBalanceTransaction)
		}
		require.Zero(t, b.charge(byHand).AmountRefunded)
		_, err = b.refund(byHand.ID, "r3", 0) // the money is back and can be refunded again
		require.NoError(t, err)
		require.Len(t, b.effects(EffectRefundFailed), 2)
		require.Contains(t, b.eventTypes(), "refund.failed charge.refund.updated")
	})

	t.Run("AreFoundByIntentAndMetadata", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		pi := b.paid("o1")
		other, err := b.refund(b.paid("o2").ID, "other", 100)
		require.NoError(t, err)
		p := &stripe.RefundParams{PaymentIntent: stripe.String(pi.ID), Amount: stripe.Int64(100)}
		p.AddMetadata("refund_id", "ours")
		re, err := b.api.Refunds.New(p)
		require.NoError(t, err)
		list := b.api.Refunds.List(&stripe.RefundListParams{PaymentIntent: stripe.String(pi.ID)})
		require.True(t, list.Next())
		require.Equal(t, re.ID, list.Refund().ID)
		require.Equal(t, "ours", list.Refund().Metadata["refund_id"])
		require.False(t, list.Next())
		require.NotEqual(t, other.ID, re.ID)
		e := b.effects(EffectRefund)[1]
		require.Equal(t, map[string]string{"order_id": "o1", "refund_id": "ours"}, e.Metadata)
	})
}

func TestDisputes(t *testing.T) {
	t.Parallel()

	dispute := func(b *bench, pi *stripe.PaymentIntent) *stripe.Dispute {
		b.t.Helper()
		list := b.api.Disputes.List(&stripe.DisputeListParams{PaymentIntent: stripe.String(pi.ID)})
		require.True(b.t, list.Next())
		return list.Dispute()
	}
	submit := func(b *bench, id, text string) {
		b.t.Helper()
		d, err := b.api.Disputes.Update(
			id,
			&stripe.DisputeParams{
				Evidence: &stripe.DisputeEvidenceParams{UncategorizedText: stripe.String(text)},
				Submit:   stripe.Bool(true),
			},
		)
		require.NoError(b.t, err)
		require.Equal(b.t, int64(1), d.EvidenceDetails.SubmissionCount)
	}

	t.Run("WithdrawAndReinstate", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		pi := b.paid("o1", "pm_card_createDispute")
		d := dispute(b, pi)
		require.Equal(t, stripe.DisputeStatusNeedsResponse, d.Status)
		require.False(t, d.IsChargeRefundable)
		require.Len(t, d.BalanceTransactions, 1)
		require.Equal(t, int64(-1000), d.BalanceTransactions[0].Amount)
		require.Equal(t, int64(disputeFee), d.BalanceTransactions[0].Fee)
		require.True(t, b.charge(pi).Disputed)

		submit(b, d.ID, "winning_evidence")
		require.Equal(t, stripe.DisputeStatusUnderReview, dispute(b, pi).Status)
		b.sim.Advance(decisionDelay)
		d = dispute(b, pi)
		require.Equal(t, stripe.DisputeStatusWon, d.Status)
		require.Len(t, d.BalanceTransactions, 2)
		require.Zero(t, d.BalanceTransactions[1].Fee)
		_, err := b.refund(pi.ID, "r", 0) // refundable again
		require.NoError(t, err)
		_, err = b.api.Disputes.Close(d.ID, &stripe.DisputeParams{})
		require.Equal(t, "This dispute is already closed", refused(t, err, 400, "").Msg)
		require.Contains(
			t,
			b.eventTypes(),
			"charge.succeeded charge.dispute.created charge.dispute.funds_withdrawn payment_intent.succeeded",
		)
	})

	t.Run("AreLostOrGivenUp", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		lost, closed := b.paid("o1", "pm_card_createDispute"), b.paid("o2", "pm_card_createDisputeProductNotReceived")
		submit(b, dispute(b, lost).ID, "losing_evidence")
		b.sim.Advance(decisionDelay)
		require.Equal(t, stripe.DisputeStatusLost, dispute(b, lost).Status)
		d, err := b.api.Disputes.Close(dispute(b, closed).ID, &stripe.DisputeParams{})
		require.NoError(t, err)
		require.Equal(t, stripe.DisputeStatusLost, d.Status)
	})

	t.Run("BeginAsAnInquiry", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		pi := b.paid("o1", "pm_card_createDisputeInquiry")
		d := dispute(b, pi)
		require.Equal(t, stripe.DisputeStatusWarningNeedsResponse, d.Status)
		require.True(t, d.IsChargeRefundable)
		require.Empty(t, d.BalanceTransactions)
		submit(b, d.ID, "escalate_inquiry_evidence")
		b.sim.Advance(decisionDelay)
		d = dispute(b, pi)
		require.Equal(t, stripe.DisputeStatusNeedsResponse, d.Status)
		require.Len(t, d.BalanceTransactions, 1)
	})

	t.Run("MayComeAfterARefund", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		pi := b.paid("o1")
		_, err := b.refund(pi.ID, "r", 400)
		require.NoError(t, err)
		_, err = b.sim.OpenDispute(pi.LatestCharge.ID, "fraudulent", false)
		require.NoError(t, err)
		_, err = b.refund(pi.ID, "r2", 100)
		refused(t, err, 400, stripe.ErrorCodeChargeDisputed)
	})
}
