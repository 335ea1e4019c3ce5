package stripesim

import (
	"fmt"
	"time"
)

// Here a payment is attempted: the one place where a card is charged.

var noTime time.Time

// wishes are the parameters of a confirm.
type wishes struct {
	offSession    bool
	errorOnAction bool
	returnURL     string
}

func confirmation(p *node) wishes {
	off := p.str("off_session")
	return wishes{
		offSession:    off != "" && off != "false",
		errorOnAction: p.boolean("error_on_requires_action"),
		returnURL:     p.str("return_url"),
	}
}

// attempt charges the method, or finds out why not. pi is already being edited.
func (t *tx) attempt(pi *intent, m *method, w wishes) (*intent, *apiError) {
	c := cardsByName[m.row.Card]
	pi.PaymentMethod, pi.LastPaymentError, pi.NextAction = m.ID, nil, nil
	if c.authenticate && !pi.Authenticated {
		switch {
		case w.offSession:
			return nil, t.decline(pi, m, nil, "authentication_required", "authentication_required", authMessage)
		case w.errorOnAction:
			return nil, t.decline(
				pi, m, nil, "payment_intent_action_required", "",
				"This payment required an authentication action to complete, but `error_on_requires_action` was set. "+
					"When you're ready, you can upgrade your integration to handle actions at "+
					"https://stripe.com/docs/payments/payment-intents/upgrade-to-handle-actions.",
			)
		}
		pi.Status, pi.NextAction = requiresAction, t.challenge(w)
		t.emit("payment_intent.requires_action", pi, nil)
		return pi, nil
	}
	if c.code != "" {
		ch := t.newCharge(pi, m)
		ch.fail(c)
		t.create(ch)
		return nil, t.decline(pi, m, ch, c.code, c.decline, c.message)
	}
	t.charge(pi, m, w)
	return pi, nil
}

// charge succeeds: the money is taken, or with manual capture reserved.
func (t *tx) charge(pi *intent, m *method, w wishes) {
	m = edit(t, m)
	m.Spent = true
	m.Card.Checks.CVC = "pass"
	ch := t.newCharge(pi, m)
	ch.Status, ch.Paid = succeeded, true
	ch.Outcome = approved
	authorized := pi.Amount
	ch.PaymentMethodDetails.Card.AmountAuthorized = &authorized
	receipt := "https://pay.stripe.com/receipts/payment/" + ch.ID
	ch.ReceiptURL = &receipt
	pi.LatestCharge, pi.Authenticated = ch.ID, false

	if pi.CaptureMethod == "manual" {
		t.authorize(pi, ch, w)
		return
	}
	ch.Captured, ch.AmountCaptured = true, pi.Amount
	pi.Status, pi.AmountReceived = succeeded, pi.Amount
	if pi.CaptureMethod == "automatic_async" {
		ch.Due = t.now.Add(asyncBalanceDelay)
	} else {
		ch.BalanceTransaction = t.book("charge", "charge", ch, pi.Amount, cardFee(pi.Amount), pi.Description).ID
	}
	t.create(ch)
	t.effect(EffectCharge, pi, pi.Amount, nil)
	t.emit("charge.succeeded", ch, nil)
	t.disputeIfTheCardSaysSo(pi, ch)
	t.emit("payment_intent.succeeded", pi, nil)
}

// decline sends the intent back for another method. A card that was never
// charged leaves no charge behind.
func (t *tx) decline(pi *intent, m *method, ch *charge, code, declineCode, message string) *apiError {
	m = edit(t, m)
	m.Spent = true
	m.Card.Checks.CVC = "pass"
	f := failure{
		Code: code, DeclineCode: declineCode, DocURL: docURL(code), Message: message, PaymentMethod: m, Type: typeCard,
	}
	if code == "incorrect_cvc" {
		f.Param = "cvc"
		m.Card.Checks.CVC = "fail"
	}
	if ch != nil {
		f.Charge, pi.LatestCharge = ch.ID, ch.ID
		t.effect(EffectChargeFailed, pi, pi.Amount, nil)
		t.emit("charge.failed", ch, nil)
	}
	remembered := f
	remembered.PaymentMethodType = "card"
	pi.Status, pi.PaymentMethod, pi.LastPaymentError, pi.NextAction, pi.Authenticated = requiresPaymentMethod, nil,
		&remembered, nil, false
	t.emit("payment_intent.payment_failed", pi, nil)

	f.PaymentIntent = pi
	return &apiError{failure: f, status: 402, executed: true}
}

// challenge is what the customer has to do: in the page, or elsewhere and back.
func (t *tx) challenge(w wishes) *nextAction {
	source := t.s.newID("src_1", 23)
	if w.returnURL != "" {
		return &nextAction{Type: "redirect_to_url", RedirectToURL: &redirect{
			ReturnURL: w.returnURL, URL: "https://hooks.stripe.com/3d_secure_2/hosted?source=" + source,
		}}
	}
	return &nextAction{Type: "use_stripe_sdk", UseStripeSDK: &sdk{Source: source, Type: "stripe_3ds2_fingerprint"}}
}

// CompleteAuthentication is the customer at the 3-D Secure page of an intent in
// requires_action: passing it charges the card, failing it asks for another.
// No API request is behind it, so the events it causes name none.
func (s *Sim) CompleteAuthentication(intentID string, ok bool) error {
	s.mu.Lock()
	pi := s.st.intents.byID[intentID]
	if pi == nil || pi.Status != requiresAction {
		s.mu.Unlock()
		if pi == nil {
			return fmt.Errorf("no such intent: %s", intentID)
		}
		return fmt.Errorf("intent %s does not wait for the customer: it is %s", intentID, pi.Status)
	}
	t := s.begin(pi.Account, origin{})
	pi = edit(t, pi)
	m := s.st.methods.byID[id(pi.PaymentMethod)]
	switch {
	case !ok:
		f := t.decline(
			pi, m, nil, "payment_intent_authentication_failure", "",
			"The provided PaymentMethod has failed authentication. You can provide payment_method_data or a new "+
				"PaymentMethod to attempt to fulfill this PaymentIntent again.",
		)
		_ = f // no request waits for it; the intent records it
		pi.LastPaymentError.Type = typeInvalid
	case pi.ConfirmationMethod == "manual":
		pi.Status, pi.NextAction, pi.Authenticated = requiresConfirmation, nil, true
	default:
		pi.Authenticated = true
		_, _ = t.attempt(pi, m, wishes{}) // a decline is the customer's to see, and the intent's to remember
	}
	position := t.commit()
	s.mu.Unlock()
	s.durable(position)
	return nil
}
