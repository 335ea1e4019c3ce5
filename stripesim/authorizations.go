package stripesim

import (
	"cmp"
	"fmt"
	"time"
)

// Authorise now, capture later: a hold is placed on the card, and ends in a
// capture, a cancel or its expiry. What was not captured is released.

// ReleaseRegime is what a release leaves behind. Stripe changed it with API version
// 2025-03-31.basil. It is decided when the release happens; what is there stays as
// it is, so an account can hold both kinds.
type ReleaseRegime string

const (
	// RegimeRefunds is before basil: each release creates a Refund, counts in the
	// charge's amount_refunded and causes charge.refunded, although no money had
	// been taken. An expired intent's cancellation_reason is automatic.
	RegimeRefunds ReleaseRegime = "refunds"
	// RegimeBasil is from basil on: a release leaves no refund, amount_refunded 0
	// and no charge.refunded. The cancellation_reason is expired.
	RegimeBasil ReleaseRegime = "basil"
)

const (
	// Networks keep an authorisation for seven days, Visa one without the customer
	// being present for less. An intent is canceled a second after its deadline.
	authorizationLifetime = 7 * 24 * time.Hour
	visaOffSession        = 4*24*time.Hour + 18*time.Hour
	cancelAfterDeadline   = time.Second
)

// expiredForCapture is the error of a capture that finds no hold at the network any more. There are others that
// stripe-go knows of.
const expiredForCapture = "charge_expired_for_capture"

var lapseCodes = []string{expiredForCapture, "capture_charge_authorization_expired", "capture_unauthorized_payment"}

// capturing is a capture that was accepted and is processing.
type capturing struct {
	Amount int64  `json:"amount"`
	By     origin `json:"by,omitzero"`
}

// SetReleaseRegime decides what releases leave behind from now on. Empty is RegimeRefunds.
func (s *Sim) SetReleaseRegime(r ReleaseRegime) error {
	r = cmp.Or(r, RegimeRefunds)
	if r != RegimeRefunds && r != RegimeBasil {
		return fmt.Errorf("unknown release regime %q; there are %s and %s", r, RegimeRefunds, RegimeBasil)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.regime = r
	return nil
}

// SetCaptureProcessing makes each capture answer processing first, and succeed after d on the simulator's clock.
// Zero turns it off.
func (s *Sim) SetCaptureProcessing(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.captureTime = d
}

// SetAuthorizationLifetime has authorizations made from now on expire after d, instead of the days that networks keep
// them, so that what warns of it can be tried. Zero: as networks do.
func (s *Sim) SetAuthorizationLifetime(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.authorizationTime = max(0, d)
}

// authorize reserves the money of a charge that the card has accepted.
func (t *tx) authorize(pi *intent, ch *charge, w wishes) {
	card := &ch.PaymentMethodDetails.Card
	lifetime := authorizationLifetime
	if card.Brand == "visa" && w.offSession {
		lifetime = visaOffSession
	}
	deadline := time.Unix(ch.Created, 0).UTC().Add(cmp.Or(t.s.authorizationTime, lifetime))
	card.CaptureBefore = deadline.Unix()
	pi.Status, pi.AmountCapturable, pi.Due = requiresCapture, pi.Amount, deadline.Add(cancelAfterDeadline)
	t.create(ch)
	t.effect(EffectAuthorized, pi, pi.Amount, nil)
	t.emit("charge.succeeded", ch, nil)
	t.emit("payment_intent.amount_capturable_updated", pi, nil)
}

// captureIntent takes the money an authorisation has reserved, all of it or a
// part; what is left over is released.
func (t *tx) captureIntent(c *call) (any, *apiError) {
	pi, err := t.findIntent(c)
	if err != nil {
		return nil, err
	}
	if err := t.awaitsCapture(pi); err != nil {
		return nil, err
	}
	amount := pi.AmountCapturable
	if c.params.has("amount_to_capture") {
		amount = c.params.integer("amount_to_capture")
	}
	if err := pi.capturable(amount); err != nil {
		return nil, err
	}
	if c.params.has("final_capture") && !c.params.boolean("final_capture") {
		return nil, conflict(
			pi, "", "final_capture",
			"This PaymentIntent does not support multicapture. You may only set `final_capture` to `false` where "+
				"multicapture is available.",
		)
	}
	pi = edit(t, pi)
	pi.change(&c.params)
	pi.Metadata = mergeMetadata(pi.Metadata, &c.params)
	t.capture(pi, amount)
	return pi, nil
}

// awaitsCapture refuses a capture by the state the intent and its hold are in.
func (t *tx) awaitsCapture(pi *intent) *apiError {
	switch {
	case pi.Status == succeeded && pi.CaptureMethod == "manual" && pi.AmountReceived < pi.Amount:
		return conflict(
			pi, "payment_intent_unexpected_state", "",
			"The remaining amount on this PaymentIntent could not be captured because the remainder of the "+
				"authorized amount has been released.",
		)
	case pi.Status == succeeded && pi.CaptureMethod == "manual":
		return conflict(
			pi, "payment_intent_unexpected_state", "",
			"This PaymentIntent could not be captured because it has already been captured.",
		)
	case pi.Status != requiresCapture:
		return conflict(
			pi, "payment_intent_unexpected_state", "",
			"This PaymentIntent could not be captured because it has a status of %s. Only a PaymentIntent with one "+
				"of the following statuses may be captured: requires_capture.",
			pi.Status,
		)
	}
	code := pi.Lapsed
	ch := t.s.st.charges.byID[id(pi.LatestCharge)]
	if t.now.Unix() >= ch.PaymentMethodDetails.Card.CaptureBefore {
		code = expiredForCapture
	}
	if code == "" {
		return nil
	}
	err := conflict(pi, code, "", "The charge cannot be captured as the authorization has expired.")
	err.Charge = ch.ID
	return err
}

// capturable refuses an amount that cannot be captured.
func (pi *intent) capturable(amount int64) *apiError {
	switch {
	case amount < 0:
		return conflict(pi, "", "amount_to_capture", "Invalid non-negative integer")
	case amount == 0:
		return conflict(
			pi, "parameter_invalid_integer", "amount", "This value must be greater than or equal to 1.",
		)
	case amount > pi.AmountCapturable:
		return conflict(
			pi, "amount_too_large", "",
			"The payment could not be captured because the requested capture amount is greater than the amount you "+
				"can capture for this charge. Contact us via https://support.stripe.com/contact/ for help.",
		)
	}
	return nil
}

// capture takes the money now, or after a time of processing. pi is already being edited.
func (t *tx) capture(pi *intent, amount int64) {
	if t.s.captureTime <= 0 {
		t.takeCaptured(pi, amount, t.origin)
		return
	}
	pi.Status, pi.AmountCapturable, pi.Capturing = processing, 0, &capturing{amount, t.origin}
	pi.Due = t.now.Add(t.s.captureTime)
	t.emit("payment_intent.processing", pi, nil)
}

// finishCapture ends the processing of a capture. The effect carries the key of the request that asked for it.
func (t *tx) finishCapture(pi *intent) {
	pi = edit(t, pi)
	t.takeCaptured(pi, pi.Capturing.Amount, pi.Capturing.By)
}

// takeCaptured books the capture. Before basil the whole authorised amount is booked, and the rest of it reversed.
func (t *tx) takeCaptured(pi *intent, amount int64, by origin) {
	ch := edit(t, t.s.st.charges.byID[id(pi.LatestCharge)])
	pi.Status, pi.AmountCapturable, pi.AmountReceived = succeeded, 0, amount
	pi.Due, pi.Capturing = noTime, nil
	ch.Captured, ch.AmountCaptured = true, amount
	booked := amount
	if t.s.regime == RegimeRefunds {
		booked = ch.Amount
	}
	ch.BalanceTransaction = t.book("charge", "charge", ch, booked, cardFee(booked), ch.Description).ID
	t.effect(EffectCharge, pi, amount, func(e *Effect) {
		e.Key, e.RequestID, e.Authorized = by.Key, by.Request, ch.Amount
	})
	t.emit("charge.captured", ch, nil)
	if amount < ch.Amount {
		t.release(pi, ch.Amount-amount, EffectReleased)
	}
	t.disputeIfTheCardSaysSo(pi, ch)
	t.emit("payment_intent.succeeded", pi, nil)
}

// release gives reserved money back to the card. kind is what it is in the log of effects.
func (t *tx) release(pi *intent, amount int64, kind string) {
	ch := edit(t, t.s.st.charges.byID[id(pi.LatestCharge)])
	t.effect(kind, pi, amount, func(e *Effect) { e.Authorized = ch.Amount })
	if t.s.regime == RegimeBasil {
		return
	}
	re := &refund{
		ID: t.s.newID("re_3", 23), Object: kindRefund, Amount: amount, Charge: ch.ID, Created: t.now.Unix(),
		Currency: ch.Currency, Destination: cardReversal, Metadata: map[string]string{}, PaymentIntent: pi.ID,
		Status: succeeded,
	}
	re.Release = true
	if kind == EffectExpired {
		reason := "expired_uncaptured_charge"
		re.Reason = &reason
	}
	if ch.Captured {
		cost := cardFee(ch.AmountCaptured) - cardFee(ch.Amount) // the fee on the rest comes back
		re.BalanceTransaction = t.book("refund", "partial_capture_reversal", re, -amount, cost, nil).ID
	}
	t.create(re)
	ch.AmountRefunded, ch.Released = ch.AmountRefunded+amount, amount
	ch.Refunded = ch.AmountRefunded == ch.Amount
	t.emit("charge.refunded", ch, nil)
	t.emit("charge.refund.updated", re, nil)
}

// returned is what refunds have given back of the money that was captured.
func (o *charge) returned() int64 { return o.AmountRefunded - o.Released - o.Kept }

// expireAuthorization cancels an intent that was not captured in time.
func (t *tx) expireAuthorization(pi *intent) {
	t.emit("charge.expired", t.s.st.charges.byID[id(pi.LatestCharge)], nil)
	reason := "automatic"
	if t.s.regime == RegimeBasil {
		reason = "expired"
	}
	t.cancel(pi, &reason, EffectExpired)
}
