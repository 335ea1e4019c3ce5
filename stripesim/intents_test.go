package stripesim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v76"
)

func TestIntents(t *testing.T) {
	t.Parallel()

	t.Run("SucceedsAndBooksTheMoney", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		pi := b.create("o1")
		require.Equal(t, stripe.PaymentIntentStatusRequiresPaymentMethod, pi.Status)
		pi = b.paid("o1")
		require.Equal(t, int64(1000), pi.AmountReceived)
		require.Equal(t, "pm_1", pi.PaymentMethod.ID[:4]) // a token becomes a method of its own
		ch, err := b.api.Charges.Get(pi.LatestCharge.ID, nil)
		require.NoError(t, err)
		require.True(t, ch.Captured && ch.Paid && !ch.Refunded)
		require.Equal(t, "o1", ch.Metadata["order_id"])
		require.NotNil(t, ch.BalanceTransaction)
		e := b.effects(EffectCharge)
		require.Len(t, e, 1)
		require.Equal(t, "confirm-o1", e[0].Key)
		require.Equal(t, pi.ID, e[0].IntentID)
	})

	t.Run("CreatesAndConfirmsAtOnce", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		pi := b.create("o1", func(p *stripe.PaymentIntentParams) {
			p.Confirm, p.PaymentMethod = stripe.Bool(true), stripe.String("pm_card_visa")
		})
		require.Equal(t, stripe.PaymentIntentStatusSucceeded, pi.Status)
	})

	t.Run("DeclineLeavesTheIntent", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		_, err := b.api.PaymentIntents.New(&stripe.PaymentIntentParams{
			Amount: stripe.Int64(
				1000,
			), Currency: stripe.String("usd"), PaymentMethodTypes: stripe.StringSlice([]string{"card"}),
			Confirm: stripe.Bool(true), PaymentMethod: stripe.String("pm_card_visa_chargeDeclined"),
		})
		e := refused(t, err, 402, stripe.ErrorCodeCardDeclined)
		require.Equal(t, stripe.ErrorTypeCard, e.Type)
		require.Equal(t, stripe.DeclineCodeGenericDecline, e.DeclineCode)
		require.Equal(t, "Your card was declined.", e.Msg)
		require.NotNil(t, e.PaymentMethod)

		pi := b.get(e.PaymentIntent.ID)
		require.Equal(t, stripe.PaymentIntentStatusRequiresPaymentMethod, pi.Status)
		require.Nil(t, pi.PaymentMethod)
		require.Equal(t, stripe.ErrorCodeCardDeclined, pi.LastPaymentError.Code)
		require.Equal(t, e.ChargeID, pi.LatestCharge.ID)
		ch, err := b.api.Charges.Get(e.ChargeID, nil)
		require.NoError(t, err)
		require.Equal(t, stripe.ChargeStatusFailed, ch.Status)
		require.False(t, ch.Paid)
		require.Equal(t, "issuer_declined", ch.Outcome.Type)
		require.Equal(t, "generic_decline", ch.Outcome.Reason)

		pi, err = b.confirm(pi.ID, "again", "pm_card_visa") // the same intent, another card
		require.NoError(t, err)
		require.Equal(t, stripe.PaymentIntentStatusSucceeded, pi.Status)
		require.Nil(t, pi.LastPaymentError)
		require.Equal(t, 1, b.sim.ChargeCount(""))
	})

	t.Run("KnowsTheTestCards", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		for _, c := range cards {
			pi, err := b.confirm(b.create(c.token).ID, "k"+c.token, c.token)
			switch {
			case c.authenticate:
				require.NoError(t, err, c.token)
				require.Equal(t, stripe.PaymentIntentStatusRequiresAction, pi.Status, c.token)
			case c.code != "":
				e := refused(t, err, 402, stripe.ErrorCode(c.code))
				require.Equal(t, c.decline, string(e.DeclineCode), c.token)
				require.Equal(t, c.message, e.Msg)
			default:
				require.NoError(t, err, c.token)
				require.Equal(t, stripe.PaymentIntentStatusSucceeded, pi.Status, c.token)
			}
			if c.code != "" || c.authenticate {
				require.Zero(t, b.sim.ChargeCount(c.token), c.token)
			} else {
				require.Equal(t, 1, b.sim.ChargeCount(c.token), c.token)
			}
		}
	})

	t.Run("RefusesByState", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		unexpected := stripe.ErrorCodePaymentIntentUnexpectedState
		pi := b.create("o1")
		_, err := b.api.PaymentIntents.Confirm(pi.ID, &stripe.PaymentIntentConfirmParams{})
		e := refused(t, err, 400, unexpected)
		require.Contains(t, e.Msg, "You cannot confirm this PaymentIntent because it's missing a payment method.")
		require.Equal(t, pi.ID, e.PaymentIntent.ID)
		_, err = b.api.PaymentIntents.Capture(pi.ID, &stripe.PaymentIntentCaptureParams{})
		require.Equal(
			t,
			"This PaymentIntent could not be captured because it has a status of requires_payment_method. Only a "+
				"PaymentIntent with one of the following statuses may be captured: requires_capture.",
			refused(t, err, 400, unexpected).Msg,
		)

		b.paid("o1")
		_, err = b.confirm(pi.ID, "again", "pm_card_visa")
		require.Equal(
			t,
			"You cannot confirm this PaymentIntent because it has already succeeded after being previously confirmed.",
			refused(t, err, 400, unexpected).Msg,
		)
		_, err = b.api.PaymentIntents.Cancel(pi.ID, &stripe.PaymentIntentCancelParams{})
		require.Contains(
			t, refused(t, err, 400, unexpected).Msg,
			"You cannot cancel this PaymentIntent because it has a status of succeeded. Only",
		)
		_, err = b.api.PaymentIntents.Update(pi.ID, &stripe.PaymentIntentParams{Amount: stripe.Int64(2000)})
		require.Equal(t, "amount", refused(t, err, 400, unexpected).Param)

		gone := b.create("o2")
		canceled, err := b.api.PaymentIntents.Cancel(
			gone.ID, &stripe.PaymentIntentCancelParams{CancellationReason: stripe.String("abandoned")},
		)
		require.NoError(t, err)
		require.Equal(t, stripe.PaymentIntentStatusCanceled, canceled.Status)
		require.NotZero(t, canceled.CanceledAt)
		_, err = b.confirm(gone.ID, "k", "pm_card_visa")
		require.Contains(t, refused(t, err, 400, unexpected).Msg, "it has a status of canceled")
		_, err = b.api.PaymentIntents.Cancel(gone.ID, &stripe.PaymentIntentCancelParams{})
		refused(t, err, 400, unexpected)
		require.Equal(t, 1, b.sim.ChargeCount(""))
	})

	t.Run("BooksAnAsyncCaptureLater", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		pi := b.create("o1", func(p *stripe.PaymentIntentParams) { p.CaptureMethod = stripe.String("automatic_async") })
		pi, err := b.confirm(pi.ID, "k", "pm_card_visa")
		require.NoError(t, err)
		ch, err := b.api.Charges.Get(pi.LatestCharge.ID, nil)
		require.NoError(t, err)
		require.Nil(t, ch.BalanceTransaction)
		b.sim.Advance(asyncBalanceDelay)
		ch, err = b.api.Charges.Get(pi.LatestCharge.ID, nil)
		require.NoError(t, err)
		require.NotNil(t, ch.BalanceTransaction)
	})

	t.Run("LetsTimePassByItself", func(t *testing.T) {
		t.Parallel()
		b := setup(t, func(o *Options) { o.Now = nil })
		pi, err := b.confirm(
			b.create(
				"o1",
				func(p *stripe.PaymentIntentParams) { p.CaptureMethod = stripe.String("automatic_async") },
			).ID,
			"k", "pm_card_visa",
		)
		require.NoError(t, err)
		require.Eventually(
			t,
			func() bool { return b.charge(pi).BalanceTransaction != nil },
			30*time.Second, 20*time.Millisecond,
		)
	})

	t.Run("AuthenticatesTheCustomer", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		pi, err := b.confirm(b.create("o1").ID, "k", "pm_card_threeDSecure2Required")
		require.NoError(t, err)
		require.Equal(t, stripe.PaymentIntentStatusRequiresAction, pi.Status)
		require.Equal(t, stripe.PaymentIntentNextActionType("use_stripe_sdk"), pi.NextAction.Type)
		require.Zero(t, b.sim.ChargeCount(""))
		require.NoError(t, b.sim.CompleteAuthentication(pi.ID, true))
		require.Error(t, b.sim.CompleteAuthentication(pi.ID, true))
		require.Equal(t, stripe.PaymentIntentStatusSucceeded, b.get(pi.ID).Status)
		require.Equal(t, 1, b.sim.ChargeCount("o1"))

		failed, err := b.confirm(b.create("o2").ID, "k2", "pm_card_threeDSecure2Required")
		require.NoError(t, err)
		require.NoError(t, b.sim.CompleteAuthentication(failed.ID, false))
		failed = b.get(failed.ID)
		require.Equal(t, stripe.PaymentIntentStatusRequiresPaymentMethod, failed.Status)
		require.Equal(t, stripe.ErrorCodePaymentIntentAuthenticationFailure, failed.LastPaymentError.Code)

		declined, err := b.confirm(b.create("o3").ID, "k3", "pm_card_threeDSecureRequiredChargeDeclined")
		require.NoError(t, err)
		require.NoError(t, b.sim.CompleteAuthentication(declined.ID, true))
		require.Equal(t, stripe.ErrorCodeCardDeclined, b.get(declined.ID).LastPaymentError.Code)
		require.Equal(t, 1, b.sim.ChargeCount(""))
	})

	t.Run("DeclinesOffSessionWithoutACharge", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		pi := b.create("o1")
		_, err := b.api.PaymentIntents.Confirm(
			pi.ID,
			&stripe.PaymentIntentConfirmParams{
				OffSession: stripe.Bool(true), PaymentMethod: stripe.String("pm_card_threeDSecure2Required"),
			},
		)
		e := refused(t, err, 402, stripe.ErrorCodeAuthenticationRequired)
		require.Equal(t, stripe.DeclineCodeAuthenticationRequired, e.DeclineCode)
		require.Empty(t, e.ChargeID)
		require.Nil(t, b.get(pi.ID).LatestCharge)
		_, err = b.api.PaymentIntents.Confirm(
			pi.ID,
			&stripe.PaymentIntentConfirmParams{
				ErrorOnRequiresAction: stripe.Bool(true), PaymentMethod: stripe.String("pm_card_threeDSecure2Required"),
			},
		)
		refused(t, err, 402, stripe.ErrorCodePaymentIntentActionRequired)
	})

	t.Run("ConfirmsByHandAfterTheAction", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		pi := b.create("o1", func(p *stripe.PaymentIntentParams) { p.ConfirmationMethod = stripe.String("manual") })
		_, err := b.confirm(pi.ID, "k", "pm_card_threeDSecure2Required")
		require.NoError(t, err)
		require.NoError(t, b.sim.CompleteAuthentication(pi.ID, true))
		require.Equal(t, stripe.PaymentIntentStatusRequiresConfirmation, b.get(pi.ID).Status)
		pi, err = b.api.PaymentIntents.Confirm(pi.ID, &stripe.PaymentIntentConfirmParams{})
		require.NoError(t, err)
		require.Equal(t, stripe.PaymentIntentStatusSucceeded, pi.Status)
	})

	t.Run("WantsAReturnURLForAutomaticMethods", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		pi, err := b.api.PaymentIntents.New(
			&stripe.PaymentIntentParams{Amount: stripe.Int64(1000), Currency: stripe.String("usd")},
		)
		require.NoError(t, err)
		require.True(t, pi.AutomaticPaymentMethods.Enabled)
		_, err = b.confirm(pi.ID, "k", "pm_card_visa")
		require.Contains(t, refused(t, err, 400, "").Msg, "you must provide a `return_url`")
		pi, err = b.api.PaymentIntents.Confirm(
			pi.ID,
			&stripe.PaymentIntentConfirmParams{
				PaymentMethod: stripe.String("pm_card_visa"), ReturnURL: stripe.String("https://example.com/"),
			},
		)
		require.NoError(t, err)
		require.Equal(t, stripe.PaymentIntentStatusSucceeded, pi.Status)
	})

	t.Run("SpendsAMethodOnce", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		m, err := b.api.PaymentMethods.New(
			&stripe.PaymentMethodParams{Type: stripe.String("card"), Card: &stripe.PaymentMethodCardParams{
				Number: stripe.String(
					"4242424242424242",
				), ExpMonth: stripe.Int64(1), ExpYear: stripe.Int64(2030), CVC: stripe.String("123"),
			}},
		)
		require.NoError(t, err)
		_, err = b.confirm(b.create("o1").ID, "k1", m.ID)
		require.NoError(t, err)
		_, err = b.confirm(b.create("o2").ID, "k2", m.ID)
		require.Contains(t, refused(t, err, 400, "").Msg, "It may not be used again")
	})

	t.Run("UpdatesWhatIsOpen", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		pi := b.create("o1")
		p := &stripe.PaymentIntentParams{
			Amount: stripe.Int64(1500), Description: stripe.String("d"), PaymentMethod: stripe.String("pm_card_visa"),
		}
		p.AddMetadata("order_id", "")
		p.AddMetadata("more", "yes")
		pi, err := b.api.PaymentIntents.Update(pi.ID, p)
		require.NoError(t, err)
		require.Equal(t, int64(1500), pi.Amount)
		require.Equal(t, map[string]string{"more": "yes"}, pi.Metadata)
		require.Equal(t, stripe.PaymentIntentStatusRequiresConfirmation, pi.Status)
		pi, err = b.api.PaymentIntents.Confirm(pi.ID, &stripe.PaymentIntentConfirmParams{})
		require.NoError(t, err)
		require.Equal(t, int64(1500), pi.AmountReceived)
	})
}

func TestParameters(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, tc := range map[string]struct {
		form          string
		code          stripe.ErrorCode
		param, starts string
	}{
		"unknown": {card1000 + "&colour=red", stripe.ErrorCodeParameterUnknown, "colour",
			"Received unknown parameter: colour"},
		"nested unknown": {card1000 + "&shipping[colour]=red", stripe.ErrorCodeParameterUnknown, "shipping[colour]",
			"Received unknown parameter: shipping[colour]"},
		"no amount": {"currency=usd", stripe.ErrorCodeParameterMissing, "amount",
			"Missing required param: amount."},
		"no integer": {"amount=ten&currency=usd", stripe.ErrorCodeParameterInvalidInteger, "amount",
			"Invalid integer: ten"},
		"empty": {"amount=&currency=usd", stripe.ErrorCodeParameterInvalidEmpty, "amount",
			"You passed an empty string for 'amount'."},
		"zero": {"amount=0&currency=usd", stripe.ErrorCodeParameterInvalidInteger, "amount",
			"This value must be greater than or equal to 1."},
		"small": {"amount=49&currency=usd", stripe.ErrorCodeAmountTooSmall, "amount",
			"Amount must be at least $0.50 usd"},
		"small yen": {"amount=49&currency=jpy", stripe.ErrorCodeAmountTooSmall, "amount",
			"Amount must be at least ¥50 jpy"},
		"large": {"amount=100000000&currency=usd", stripe.ErrorCodeAmountTooLarge, "amount",
			"Amount must be no more than $999,999.99"},
		"no currency": {"amount=1000&currency=xyz", "", "currency",
			"Invalid currency: xyz. Stripe currently supports these currencies: usd, aed"},
		"króna": {"amount=10050&currency=isk", stripe.ErrorCodeInvalidChargeAmount, "amount",
			"Invalid amount"},
		"dinar": {"amount=10005&currency=kwd", stripe.ErrorCodeInvalidChargeAmount, "amount",
			"Invalid amount"},
		"enum": {card1000 + "&capture_method=later", "", "capture_method",
			"Invalid capture_method: must be one of automatic, automatic_async, or manual"},
		"boolean":  {card1000 + "&confirm=yes", "", "confirm", "Invalid boolean: yes"},
		"metadata": {card1000 + "&metadata=1", "", "metadata", "Invalid object"},
		"customer": {card1000 + "&customer=cus_1", stripe.ErrorCodeResourceMissing, "customer",
			"No such customer: 'cus_1'"},
		"method": {card1000 + "&payment_method=pm_1", stripe.ErrorCodeResourceMissing, "payment_method",
			"No such PaymentMethod: 'pm_1'"},
		"unsupported": {card1000 + "&on_behalf_of=acct_1", "", "on_behalf_of",
			"stripesim does not implement the parameter on_behalf_of"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, 400, b.raw("/v1/payment_intents", "", tc.form).StatusCode)
			var body struct {
				Error stripe.Error `json:"error"`
			}
			decode(t, b.shapes.body, &body)
			require.Equal(t, tc.code, body.Error.Code)
			require.Equal(t, tc.param, body.Error.Param)
			require.Equal(t, tc.starts, body.Error.Msg[:min(len(tc.starts), len(body.Error.Msg))])
		})
	}
	require.Empty(t, b.sim.Effects())

	t.Run("an upper case currency is the lower case one", func(t *testing.T) {
		require.Equal(t, 200, b.raw("/v1/payment_intents", "", "amount=1000&currency=USD").StatusCode)
		require.Contains(t, string(b.shapes.body), `"currency":"usd"`)
	})
}

func TestDoor(t *testing.T) {
	t.Parallel()
	b := setup(t, func(o *Options) { o.Keys = []string{DefaultKey} })
	for name, key := range map[string]string{"unknown": "sk_test_else", "live": "sk_live_payonce",
		"publishable": "pk_test_payonce"} {
		_, err := newClient(key, b.url, b.shapes, 0).PaymentIntents.Get("pi_1", nil)
		e := refused(t, err, 401, "")
		require.Equal(t, stripe.ErrorTypeInvalidRequest, e.Type, name)
		require.Contains(t, e.Msg, "Invalid API Key provided: ", name)
		require.NotContains(t, e.Msg, key)
	}
	require.Equal(t, 404, b.raw("/v1/unicorns", "", "").StatusCode)
	_, err := b.api.PaymentIntents.Get("pi_none", nil)
	e := refused(t, err, 404, stripe.ErrorCodeResourceMissing)
	require.Equal(t, "No such payment_intent: 'pi_none'", e.Msg)
	require.Equal(t, "intent", e.Param)
}
