package stripesim

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v76"
	"github.com/stripe/stripe-go/v76/client"
	"golang.org/x/time/rate"
)

// TestContract is what we believe about Stripe, said once and asked of both:
//
//	go test -C stripesim -run TestContract
//	STRIPE_CONTRACT=1 STRIPE_SECRET_KEY=sk_test_… go test -C stripesim -run TestContract
//
// Against the real one it makes a few dozen test-mode objects, at no more than
// 20 requests a second, and breaks nothing. Where the two disagree, the
// simulator is wrong, or DIFFERENCES.md has a new line.
func TestContract(t *testing.T) {
	t.Parallel()
	t.Run("simulator", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		contract(t, &subject{api: b.api, wire: b.shapes})
	})
	t.Run("stripe", func(t *testing.T) {
		key := os.Getenv("STRIPE_SECRET_KEY")
		if os.Getenv("STRIPE_CONTRACT") != "1" {
			t.Skip("set STRIPE_CONTRACT=1 and STRIPE_SECRET_KEY=sk_test_… to ask the real Stripe")
		}
		require.True(
			t,
			strings.HasPrefix(key, "sk_test_"),
			"STRIPE_CONTRACT is set, and STRIPE_SECRET_KEY is not a key of test mode",
		)
		pace := rate.NewLimiter(20, 5)
		wire := &shapeRecorder{
			t: t, next: http.DefaultTransport, lenient: true,
			wait: func() { _ = pace.Wait(t.Context()) },
		}
		contract(t, &subject{api: newClient(key, stripe.APIURL, wire, 30*time.Second), wire: wire})
	})
}

// subject is whoever is being asked.
type subject struct {
	api  *client.API
	wire *shapeRecorder
}

func (s *subject) header(name string) string {
	s.wire.mu.Lock()
	defer s.wire.mu.Unlock()
	return s.wire.last.Header.Get(name)
}

func contract(t *testing.T, s *subject) {
	run := fmt.Sprintf("contract-%d-", time.Now().UnixNano())
	n := 0
	key := func() stripe.Params { n++; return keyed(fmt.Sprint(run, n)) }
	intent := func(t *testing.T, change ...func(*stripe.PaymentIntentParams)) (*stripe.PaymentIntent,
		*stripe.PaymentIntentParams) {
		t.Helper()
		p := &stripe.PaymentIntentParams{
			Params: key(), Amount: stripe.Int64(1234), Currency: stripe.String("usd"),
			CaptureMethod:      stripe.String("automatic"),
			PaymentMethodTypes: stripe.StringSlice([]string{"card"}), Metadata: map[string]string{"order_id": run},
		}
		for _, f := range change {
			f(p)
		}
		pi, err := s.api.PaymentIntents.New(p)
		require.NoError(t, err)
		return pi, p
	}
	confirm := func(id, card string) (*stripe.PaymentIntent, error) {
		return s.api.PaymentIntents.Confirm(
			id, &stripe.PaymentIntentConfirmParams{Params: key(), PaymentMethod: stripe.String(card)},
		)
	}
	paid := func(t *testing.T) *stripe.PaymentIntent {
		t.Helper()
		pi, _ := intent(t)
		pi, err := confirm(pi.ID, "pm_card_visa")
		require.NoError(t, err)
		require.Equal(t, stripe.PaymentIntentStatusSucceeded, pi.Status)
		return pi
	}
	charge := func(t *testing.T, pi *stripe.PaymentIntent) *stripe.Charge {
		t.Helper()
		ch, err := s.api.Charges.Get(pi.LatestCharge.ID, nil)
		require.NoError(t, err)
		return ch
	}
	unexpected := stripe.ErrorCodePaymentIntentUnexpectedState

	t.Run("create, confirm, look", func(t *testing.T) {
		pi, _ := intent(t)
		require.Equal(t, stripe.PaymentIntentStatusRequiresPaymentMethod, pi.Status)
		require.Nil(t, pi.LatestCharge)
		require.True(t, strings.HasPrefix(pi.ClientSecret, pi.ID+"_secret_"))
		p := &stripe.PaymentIntentConfirmParams{Params: key(), PaymentMethod: stripe.String("pm_card_visa")}
		p.AddExpand("latest_charge")
		pi, err := s.api.PaymentIntents.Confirm(pi.ID, p)
		require.NoError(t, err)
		require.Equal(t, stripe.PaymentIntentStatusSucceeded, pi.Status)
		require.Equal(t, int64(1234), pi.AmountReceived)
		require.Equal(t, stripe.ChargeStatusSucceeded, pi.LatestCharge.Status)
		require.True(t, pi.LatestCharge.Paid && pi.LatestCharge.Captured)
		require.Equal(t, "4242", pi.LatestCharge.PaymentMethodDetails.Card.Last4)
		require.Equal(t, run, pi.LatestCharge.Metadata["order_id"])
		again, err := s.api.PaymentIntents.Get(pi.ID, nil)
		require.NoError(t, err)
		require.Equal(t, pi.LatestCharge.ID, again.LatestCharge.ID)
		_, err = confirm(pi.ID, "pm_card_visa")
		e := refused(t, err, 400, unexpected)
		require.Equal(t, pi.ID, e.PaymentIntent.ID)
	})

	t.Run("a key replays", func(t *testing.T) {
		pi, p := intent(t)
		request := s.header("Request-Id")
		require.NotEmpty(t, request)
		require.Equal(t, *p.IdempotencyKey, s.header("Idempotency-Key"))
		require.Empty(t, s.header("Idempotent-Replayed"))
		again, err := s.api.PaymentIntents.New(p)
		require.NoError(t, err)
		require.Equal(t, pi.ID, again.ID)
		require.Equal(t, "true", s.header("Idempotent-Replayed"))
		require.Equal(t, request, s.header("Original-Request"))

		p.Amount = stripe.Int64(4321)
		_, err = s.api.PaymentIntents.New(p)
		e := refused(t, err, 400, "")
		require.Equal(t, stripe.ErrorTypeIdempotency, e.Type)
		require.Contains(
			t, e.Msg,
			"Keys for idempotent requests can only be used with the same parameters they were first used with.",
		)

		_, err = s.api.PaymentIntents.Cancel(pi.ID, &stripe.PaymentIntentCancelParams{Params: p.Params})
		e = refused(t, err, 400, "")
		require.Equal(t, stripe.ErrorTypeIdempotency, e.Type)
		require.Contains(
			t, e.Msg, "Keys for idempotent requests can only be used for the same endpoint they were first used for",
		)
	})

	t.Run("a decline is an answer", func(t *testing.T) {
		pi, _ := intent(t)
		p := &stripe.PaymentIntentConfirmParams{
			Params: key(), PaymentMethod: stripe.String("pm_card_visa_chargeDeclined"),
		}
		_, err := s.api.PaymentIntents.Confirm(pi.ID, p)
		first := refused(t, err, 402, stripe.ErrorCodeCardDeclined)
		require.Equal(t, stripe.DeclineCodeGenericDecline, first.DeclineCode)
		require.NotEmpty(t, first.ChargeID)
		_, err = s.api.PaymentIntents.Confirm(pi.ID, p)
		require.Equal(t, first.ChargeID, refused(t, err, 402, stripe.ErrorCodeCardDeclined).ChargeID)
		require.Equal(t, "true", s.header("Idempotent-Replayed"))
		pi, err = s.api.PaymentIntents.Get(pi.ID, nil)
		require.NoError(t, err)
		require.Equal(t, stripe.PaymentIntentStatusRequiresPaymentMethod, pi.Status)
		require.Equal(t, stripe.ErrorCodeCardDeclined, pi.LastPaymentError.Code)
		pi, err = confirm(pi.ID, "pm_card_visa")
		require.NoError(t, err)
		require.Equal(t, stripe.PaymentIntentStatusSucceeded, pi.Status)
	})

	t.Run("cards that are declined", func(t *testing.T) {
		for card, want := range map[string][2]string{
			"pm_card_visa_chargeDeclinedInsufficientFunds": {"card_declined", "insufficient_funds"},
			"pm_card_visa_chargeDeclinedLostCard":          {"card_declined", "lost_card"},
			"pm_card_chargeDeclinedExpiredCard":            {"expired_card", ""},
			"pm_card_chargeDeclinedIncorrectCvc":           {"incorrect_cvc", ""},
			"pm_card_chargeDeclinedProcessingError":        {"processing_error", ""},
		} {
			pi, _ := intent(t)
			_, err := confirm(pi.ID, card)
			e := refused(t, err, 402, stripe.ErrorCode(want[0]))
			require.Equal(t, want[1], string(e.DeclineCode), card)
		}
	})

	t.Run("3-D Secure waits, or declines off session", func(t *testing.T) {
		pi, _ := intent(t)
		got, err := confirm(pi.ID, "pm_card_threeDSecure2Required")
		require.NoError(t, err)
		require.Equal(t, stripe.PaymentIntentStatusRequiresAction, got.Status)
		require.NotNil(t, got.NextAction)
		pi, _ = intent(t)
		_, err = s.api.PaymentIntents.Confirm(
			pi.ID,
			&stripe.PaymentIntentConfirmParams{
				Params: key(), OffSession: stripe.Bool(true),
				PaymentMethod: stripe.String("pm_card_threeDSecure2Required"),
			},
		)
		require.Empty(t, refused(t, err, 402, stripe.ErrorCodeAuthenticationRequired).ChargeID)
	})

	t.Run("states refuse", func(t *testing.T) {
		pi, _ := intent(t)
		_, err := s.api.PaymentIntents.Confirm(pi.ID, &stripe.PaymentIntentConfirmParams{Params: key()})
		require.Contains(
			t, refused(t, err, 400, unexpected).Msg,
			"You cannot confirm this PaymentIntent because it's missing a payment method",
		)
		_, err = s.api.PaymentIntents.Capture(pi.ID, &stripe.PaymentIntentCaptureParams{Params: key()})
		require.Contains(
			t, refused(t, err, 400, unexpected).Msg,
			"This PaymentIntent could not be captured because it has a status of requires_payment_method",
		)
		pi, err = s.api.PaymentIntents.Cancel(
			pi.ID, &stripe.PaymentIntentCancelParams{Params: key(), CancellationReason: stripe.String("abandoned")},
		)
		require.NoError(t, err)
		require.Equal(t, stripe.PaymentIntentStatusCanceled, pi.Status)
		_, err = confirm(pi.ID, "pm_card_visa")
		refused(t, err, 400, unexpected)
		_, err = s.api.PaymentIntents.Cancel(pi.ID, &stripe.PaymentIntentCancelParams{Params: key()})
		require.Contains(
			t, refused(t, err, 400, unexpected).Msg,
			"You cannot cancel this PaymentIntent because it has a status of canceled.",
		)
	})

	t.Run("manual capture", func(t *testing.T) {
		pi, _ := intent(t, func(p *stripe.PaymentIntentParams) { p.CaptureMethod = stripe.String("manual") })
		pi, err := confirm(pi.ID, "pm_card_visa")
		require.NoError(t, err)
		require.Equal(t, stripe.PaymentIntentStatusRequiresCapture, pi.Status)
		require.Equal(t, int64(1234), pi.AmountCapturable)
		ch := charge(t, pi)
		require.True(t, ch.Paid && !ch.Captured)
		require.Nil(t, ch.BalanceTransaction)
		require.Equal(t, ch.Created+7*24*3600, ch.PaymentMethodDetails.Card.CaptureBefore)
		_, err = s.api.Refunds.New(&stripe.RefundParams{Params: key(), PaymentIntent: stripe.String(pi.ID)})
		require.Contains(t, refused(t, err, 400, "").Msg, "You must cancel the PaymentIntent")
		_, err = s.api.PaymentIntents.Capture(
			pi.ID, &stripe.PaymentIntentCaptureParams{Params: key(), AmountToCapture: stripe.Int64(9999)},
		)
		refused(t, err, 400, stripe.ErrorCodeAmountTooLarge)
		pi, err = s.api.PaymentIntents.Capture(
			pi.ID, &stripe.PaymentIntentCaptureParams{Params: key(), AmountToCapture: stripe.Int64(1000)},
		)
		require.NoError(t, err)
		require.Equal(t, int64(1000), pi.AmountReceived)
		_, err = s.api.PaymentIntents.Capture(pi.ID, &stripe.PaymentIntentCaptureParams{Params: key()})
		require.Contains(
			t, refused(t, err, 400, unexpected).Msg, "the remainder of the authorized amount has been released",
		)

		// At this version the rest is a refund, and what may be refunded is what was captured.
		ch = charge(t, pi)
		require.Equal(t, []int64{1000, 234}, []int64{ch.AmountCaptured, ch.AmountRefunded})
		require.NotZero(t, ch.PaymentMethodDetails.Card.CaptureBefore)
		list := s.api.Refunds.List(&stripe.RefundListParams{PaymentIntent: stripe.String(pi.ID)})
		require.True(t, list.Next())
		require.Equal(t, int64(234), list.Refund().Amount)
		require.Empty(t, list.Refund().Metadata)
		require.False(t, list.Next())
		_, err = s.api.Refunds.New(
			&stripe.RefundParams{Params: key(), PaymentIntent: stripe.String(pi.ID), Amount: stripe.Int64(1001)},
		)
		require.Contains(t, refused(t, err, 400, "").Msg, "unrefunded amount on charge ($10.00)")
		_, err = s.api.Refunds.New(&stripe.RefundParams{Params: key(), PaymentIntent: stripe.String(pi.ID)})
		require.NoError(t, err)
		ch = charge(t, pi)
		require.True(t, ch.Refunded)
		require.Equal(t, int64(1234), ch.AmountRefunded)
	})

	t.Run("canceling an authorization", func(t *testing.T) {
		pi, _ := intent(t, func(p *stripe.PaymentIntentParams) { p.CaptureMethod = stripe.String("manual") })
		pi, err := confirm(pi.ID, "pm_card_visa")
		require.NoError(t, err)
		pi, err = s.api.PaymentIntents.Cancel(pi.ID, &stripe.PaymentIntentCancelParams{Params: key()})
		require.NoError(t, err)
		require.Equal(t, stripe.PaymentIntentStatusCanceled, pi.Status)
		ch := charge(t, pi)
		require.True(t, ch.Refunded && !ch.Captured)
		require.Equal(t, []int64{0, 1234}, []int64{ch.AmountCaptured, ch.AmountRefunded})
		_, err = s.api.PaymentIntents.Capture(pi.ID, &stripe.PaymentIntentCaptureParams{Params: key()})
		require.Contains(t, refused(t, err, 400, unexpected).Msg, "has a status of canceled")
	})

	t.Run("refunds", func(t *testing.T) {
		pi := paid(t)
		refund := func(amount int64) (*stripe.Refund, error) {
			p := &stripe.RefundParams{
				Params: key(), PaymentIntent: stripe.String(pi.ID), Metadata: map[string]string{"refund_id": run},
			}
			if amount > 0 {
				p.Amount = stripe.Int64(amount)
			}
			return s.api.Refunds.New(p)
		}
		re, err := refund(234)
		require.NoError(t, err)
		require.Equal(t, stripe.RefundStatusSucceeded, re.Status)
		_, err = refund(1001)
		require.Equal(
			t, "Refund amount ($10.01) is greater than unrefunded amount on charge ($10.00)",
			refused(t, err, 400, "").Msg,
		)
		rest, err := refund(0)
		require.NoError(t, err)
		require.Equal(t, int64(1000), rest.Amount)
		_, err = refund(0)
		refused(t, err, 400, stripe.ErrorCodeChargeAlreadyRefunded)
		var found []string
		for i := s.api.Refunds.List(&stripe.RefundListParams{PaymentIntent: stripe.String(pi.ID)}); i.Next(); {
			require.Equal(t, run, i.Refund().Metadata["refund_id"])
			found = append(found, i.Refund().ID)
		}
		require.Equal(t, []string{rest.ID, re.ID}, found)
		ch, err := s.api.Charges.Get(pi.LatestCharge.ID, nil)
		require.NoError(t, err)
		require.True(t, ch.Refunded)
		require.Equal(t, int64(1234), ch.AmountRefunded)
		_, err = s.api.Refunds.New(&stripe.RefundParams{Params: key()})
		require.Equal(
			t, "One of the following params should be provided for this request: payment_intent or charge.",
			refused(t, err, 400, "").Msg,
		)
		_, err = s.api.Refunds.New(&stripe.RefundParams{Params: key(), Charge: stripe.String("ch_none")})
		require.Equal(t, "id", refused(t, err, 404, stripe.ErrorCodeResourceMissing).Param)
	})

	t.Run("parameters", func(t *testing.T) {
		ask := func(change func(*stripe.PaymentIntentParams)) error {
			p := &stripe.PaymentIntentParams{Params: key(), Amount: stripe.Int64(1234), Currency: stripe.String("usd")}
			change(p)
			_, err := s.api.PaymentIntents.New(p)
			return err
		}
		e := refused(
			t,
			ask(func(p *stripe.PaymentIntentParams) { p.AddExtra("colour", "red") }),
			400, stripe.ErrorCodeParameterUnknown,
		)
		require.Equal(t, "Received unknown parameter: colour", e.Msg)
		refused(t, ask(func(p *stripe.PaymentIntentParams) { p.Amount = nil }), 400, stripe.ErrorCodeParameterMissing)
		refused(
			t,
			ask(func(p *stripe.PaymentIntentParams) { p.Amount = stripe.Int64(1) }),
			400, stripe.ErrorCodeAmountTooSmall,
		)
		require.Contains(
			t,
			refused(t, ask(func(p *stripe.PaymentIntentParams) { p.Currency = stripe.String("xyz") }), 400, "").Msg,
			"Invalid currency: xyz.",
		)
		_, err := s.api.PaymentIntents.Get("pi_none", nil)
		e = refused(t, err, 404, stripe.ErrorCodeResourceMissing)
		require.Equal(t, "No such payment_intent: 'pi_none'", e.Msg)
		require.Equal(t, "intent", e.Param)
	})

	t.Run("a missing return_url", func(t *testing.T) {
		pi, err := s.api.PaymentIntents.New(
			&stripe.PaymentIntentParams{Params: key(), Amount: stripe.Int64(1234), Currency: stripe.String("usd")},
		)
		require.NoError(t, err)
		_, err = confirm(pi.ID, "pm_card_visa")
		require.Contains(t, refused(t, err, 400, "").Msg, "you must provide a `return_url`")
	})

	t.Run("lists are newest first and have cursors", func(t *testing.T) {
		first, _ := intent(t)
		second, _ := intent(t)
		p := &stripe.PaymentIntentListParams{CreatedRange: &stripe.RangeQueryParams{GreaterThanOrEqual: first.Created}}
		p.Limit = stripe.Int64(1)
		var ids []string
		for i := s.api.PaymentIntents.List(p); i.Next(); {
			if id := i.PaymentIntent().ID; id == first.ID || id == second.ID {
				ids = append(ids, id)
			}
		}
		require.Equal(t, []string{second.ID, first.ID}, ids)
	})

	t.Run("events tell the key", func(t *testing.T) {
		pi := paid(t)
		require.Eventually(t, func() bool {
			list := s.api.Events.List(
				&stripe.EventListParams{Types: stripe.StringSlice([]string{"payment_intent.succeeded"})},
			)
			for range 100 {
				if !list.Next() {
					return false
				}
				if e := list.Event(); e.Data.Object["id"] == pi.ID {
					return strings.HasPrefix(e.Request.IdempotencyKey, run)
				}
			}
			return false
		}, 30*time.Second, time.Second)
	})
}
