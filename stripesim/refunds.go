package stripesim

import "time"

type refund struct {
	row `json:"-"`

	ID                 string            `json:"id"`
	Object             kind              `json:"object"`
	Amount             int64             `json:"amount"`
	BalanceTransaction ref               `json:"balance_transaction"`
	Charge             ref               `json:"charge"`
	Created            int64             `json:"created"`
	Currency           string            `json:"currency"`
	Destination        *destination      `json:"destination_details,omitempty"`
	FailureTxn         ref               `json:"failure_balance_transaction,omitempty"`
	FailureReason      string            `json:"failure_reason,omitempty"`
	Metadata           map[string]string `json:"metadata"`
	PaymentIntent      ref               `json:"payment_intent"`
	Reason             text              `json:"reason"`
	ReceiptNumber      null              `json:"receipt_number"`
	SourceTransfer     null              `json:"source_transfer_reversal"`
	Status             string            `json:"status"`
	TransferReversal   null              `json:"transfer_reversal"`
}

func (*refund) kind() kind   { return kindRefund }
func (o *refund) id() string { return o.ID }

type destination struct {
	Card destinationCard `json:"card"`
	Type string          `json:"type"`
}

type destinationCard struct {
	ReferenceStatus string `json:"reference_status,omitempty"`
	ReferenceType   string `json:"reference_type,omitempty"`
	Type            string `json:"type"`
}

var (
	cardReversal = &destination{Card: destinationCard{Type: "reversal"}, Type: "card"}
	cardRefund   = &destination{
		Card: destinationCard{ReferenceStatus: "pending", ReferenceType: "acquirer_reference_number", Type: "refund"},
		Type: "card",
	}

	createRefundParams = params{
		"amount": integerParam, "charge": stringParam(5000), "payment_intent": stringParam(5000), "expand": expandParam,
		"metadata": metadataParam, "reason": oneOf("duplicate", "fraudulent", "requested_by_customer"),
		"instructions_email": ignored,
		"currency":           unsupported, "customer": unsupported, "origin": unsupported,
		"refund_application_fee": unsupported,
		"reverse_transfer":       unsupported,
	}
)

// The statuses of a refund, apart from succeeded and canceled.
const (
	refundPending = "pending"
	refundFailed  = "failed"
)

// refundDelay is how long the test cards for slow and failing refunds take.
const refundDelay = 5 * time.Second

// lockRefunded locks the intent, so that two refunds of one payment come one
// after the other.
func lockRefunded(s *Sim, c *call) string {
	if pi := s.st.intentOf(c); pi != nil {
		return pi.ID
	}
	return ""
}

func (t *tx) createRefund(c *call) (any, *apiError) {
	p := &c.params
	pi, ch, err := t.refundable(p)
	if err != nil {
		return nil, err
	}
	left := ch.AmountCaptured - ch.returned()
	amount := left
	if p.has("amount") {
		amount = p.integer("amount")
	}
	switch {
	case amount < 1 && p.has("amount"):
		return nil, invalid("parameter_invalid_integer", "amount", "This value must be greater than or equal to 1.")
	case t.chargedBack(ch):
		return nil, executed(
			invalid("charge_disputed", "", "Charge %s has been charged back; cannot issue a refund.", ch.ID),
		)
	case left == 0:
		return nil, executed(invalid("charge_already_refunded", "", "Charge %s has already been refunded.", ch.ID))
	case amount > left:
		return nil, executed(
			invalid(
				"", "amount", "Refund amount (%s) is greater than unrefunded amount on charge (%s)",
				money(amount, ch.Currency),
				money(left, ch.Currency),
			),
		)
	}
	re := &refund{
		ID: t.s.newID(
			"re_3", 23,
		), Object: kindRefund, Amount: amount, Charge: ch.ID, Created: t.now.Unix(), Currency: ch.Currency,
		Destination: cardRefund, Metadata: mergeMetadata(map[string]string{}, p), PaymentIntent: pi.ID,
		Reason: p.text("reason"), Status: succeeded,
	}
	if m := t.s.st.methods.byID[ch.PaymentMethod]; m != nil {
		switch cardsByName[m.row.Card].refund {
		case "pending":
			re.Status, re.Due, re.DueTo = refundPending, t.now.Add(refundDelay), succeeded
		case "failed":
			re.Due, re.DueTo = t.now.Add(refundDelay), refundFailed
		}
	}
	re.BalanceTransaction = t.book("refund", "refund", re, -amount, 0, text(nil)).ID
	t.create(re)
	ch = edit(t, ch)
	again := min(amount, ch.Kept) // what has failed is refunded again: the charge shows it once
	ch.Kept, ch.AmountRefunded = ch.Kept-again, ch.AmountRefunded+amount-again
	ch.Refunded = ch.returned() == ch.AmountCaptured
	t.refundEffect(EffectRefund, pi, re)
	t.emit("refund.created", re, nil)
	t.emit("charge.refunded", ch, nil)
	return re, nil
}

// refundable finds what a refund is to be taken from.
func (t *tx) refundable(p *node) (*intent, *charge, *apiError) {
	st := t.s.st
	var ch *charge
	switch {
	case p.has("charge"):
		found, ok := st.charges.get(t.account, p.str("charge"))
		if !ok {
			return nil, nil, missing(404, "charge", p.str("charge"), "id")
		}
		if p.has("payment_intent") && id(found.PaymentIntent) != p.str("payment_intent") {
			return nil, nil, invalid(
				"", "charge", "Charge %s does not belong to PaymentIntent %s.", found.ID,
				p.str("payment_intent"),
			)
		}
		ch = found
	case p.has("payment_intent"):
		pi, ok := st.intents.get(t.account, p.str("payment_intent"))
		if !ok {
			return nil, nil, missing(404, "payment_intent", p.str("payment_intent"), "payment_intent")
		}
		ch = st.charges.byID[id(pi.LatestCharge)]
		if ch == nil || ch.Status != succeeded {
			return nil, nil, executed(
				invalid("", "", "This PaymentIntent (%s) does not have a successful charge to refund.", pi.ID),
			)
		}
	default:
		return nil, nil, invalid(
			"", "", "One of the following params should be provided for this request: payment_intent or charge.",
		)
	}
	pi := st.intents.byID[chargedIntent(ch)]
	switch {
	case ch.Status != succeeded:
		return nil, nil, executed(
			invalid("", "", "This PaymentIntent (%s) does not have a successful charge to refund.", pi.ID),
		)
	case !ch.Captured && ch.Refunded:
		return nil, nil, executed(invalid("charge_already_refunded", "", "Charge %s has already been refunded.", ch.ID))
	case !ch.Captured:
		return nil, nil, executed(
			invalid(
				"", "",
				"This uncaptured Charge was created by a PaymentIntent (%s). You must cancel the PaymentIntent to "+
					"reverse the authorization instead of refunding the Charge directly. For more information, see "+
					"https://stripe.com/docs/payments/place-a-hold-on-a-payment-method",
				pi.ID,
			),
		)
	}
	return pi, ch, nil
}

// executed marks a refusal as one the idempotency layer keeps.
func executed(err *apiError) *apiError {
	err.executed = true
	return err
}

// refundEffect notes a refund under the intent's metadata, with the refund's own
// over it.
func (t *tx) refundEffect(kind string, pi *intent, re *refund) {
	t.effect(kind, pi, re.Amount, func(e *Effect) {
		e.RefundID, e.ChargeID = re.ID, id(re.Charge)
		for k, v := range re.Metadata {
			if e.Metadata == nil {
				e.Metadata = map[string]string{}
			}
			e.Metadata[k] = v
		}
	})
}

// settleRefund is the bank's answer to a refund that took its time.
func (t *tx) settleRefund(re *refund) {
	if re.DueTo == refundFailed {
		t.failRefund(re, "expired_or_canceled_card")
		return
	}
	re = edit(t, re)
	was := re.Status
	re.Status, re.Due, re.DueTo = re.DueTo, noTime, ""
	t.emitRefund("refund.updated", re, map[string]any{"status": was})
}

// failRefund brings the money back: a refund that had succeeded can still fail.
func (t *tx) failRefund(re *refund, reason string) {
	re = edit(t, re)
	was := re.Status
	re.Status, re.FailureReason, re.Due, re.DueTo = refundFailed, reason, noTime, ""
	re.FailureTxn = t.book("refund_failure", "refund_failure", re, re.Amount, 0, nil).ID
	t.unrefund(re)
	pi := t.s.st.intents.byID[refundedIntent(re)]
	t.refundEffect(EffectRefundFailed, pi, re)
	t.emitRefund("refund.failed", re, map[string]any{"status": was})
}

// unrefund takes a refund off its charge again, unless SetKeepRefunded says that Stripe does not.
func (t *tx) unrefund(re *refund) {
	ch := edit(t, t.s.st.charges.byID[id(re.Charge)])
	if t.s.keepRefunded {
		ch.Kept += re.Amount
		return
	}
	ch.AmountRefunded -= re.Amount
	ch.Refunded = false
}

// emitRefund emits the events of both the old and the new type.
func (t *tx) emitRefund(name string, re *refund, previous map[string]any) {
	t.emit(name, re, previous)
	t.emit("charge.refund.updated", re, previous)
}

// SetKeepRefunded decides whether a charge's amount_refunded still has a refund that has failed or was canceled. Stripe does
// not document that it is taken off.
func (s *Sim) SetKeepRefunded(keep bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keepRefunded = keep
}

// FailRefund makes a refund fail now, whatever its card.
func (s *Sim) FailRefund(refundID, reason string) error {
	return s.byItself(refundID, func(t *tx, re *refund) { t.failRefund(re, reason) }, func(re *refund) bool {
		return re.undoable()
	})
}

// CancelRefund cancels a refund as one can in the dashboard for a short while, even
// one that has succeeded.
func (s *Sim) CancelRefund(refundID string) error {
	return s.byItself(refundID, func(t *tx, re *refund) { t.takeBack(re) }, func(re *refund) bool {
		return re.undoable()
	})
}

// undoable is whether the money of a refund can come back. A release moved none.
func (o *refund) undoable() bool {
	return (o.Status == succeeded || o.Status == refundPending) && !o.Release
}

func (t *tx) findRefund(c *call) (*refund, *apiError) {
	if re, ok := t.s.st.refunds.get(t.account, c.id); ok {
		return re, nil
	}
	return nil, missing(404, "refund", c.id, "refund")
}

func (t *tx) getRefund(c *call) (any, *apiError) {
	re, err := t.findRefund(c)
	if err != nil {
		return nil, err
	}
	return re, nil
}

func (t *tx) updateRefund(c *call) (any, *apiError) {
	re, err := t.findRefund(c)
	if err != nil {
		return nil, err
	}
	re = edit(t, re)
	re.Metadata = mergeMetadata(re.Metadata, &c.params)
	t.emitRefund("refund.updated", re, nil)
	return re, nil
}

// cancelRefund works while a refund is pending, which few cards' are.
func (t *tx) cancelRefund(c *call) (any, *apiError) {
	re, err := t.findRefund(c)
	if err != nil {
		return nil, err
	}
	if re.Status != refundPending {
		return nil, executed(invalid("", "", "Canceling this refund is unsupported."))
	}
	return t.takeBack(re), nil
}

// takeBack brings the money of a refund back that was canceled.
func (t *tx) takeBack(re *refund) *refund {
	re = edit(t, re)
	was := re.Status
	re.Status, re.Due, re.DueTo = canceled, noTime, ""
	re.FailureTxn = t.book("refund_failure", "refund_failure", re, re.Amount, 0, nil).ID
	t.unrefund(re)
	t.refundEffect(EffectRefundFailed, t.s.st.intents.byID[refundedIntent(re)], re)
	t.emitRefund("refund.updated", re, map[string]any{"status": was})
	return re
}

func (t *tx) listRefunds(c *call) (any, *apiError) {
	ids, err := t.attachedTo(c, t.s.st.refunds.order[t.account], func(a *attached) []string { return a.refunds })
	if err != nil {
		return nil, err
	}
	return page(t, c, t.s.st.refunds, ids, func(re *refund) bool { return c.inRange(re.Created) })
}

// attachedTo narrows a list to what hangs on the intent or charge a request names.
func (t *tx) attachedTo(c *call, all []string, which func(*attached) []string) ([]string, *apiError) {
	st, p := t.s.st, &c.params
	if p.has("payment_intent") {
		pi, ok := st.intents.get(t.account, p.str("payment_intent"))
		if !ok {
			return nil, missing(400, "payment_intent", p.str("payment_intent"), "payment_intent")
		}
		all = st.byIntent[pi.ID].of(which)
	}
	if p.has("charge") {
		ch, ok := st.charges.get(t.account, p.str("charge"))
		if !ok {
			return nil, missing(400, "charge", p.str("charge"), "charge")
		}
		all = st.byCharge[ch.ID].of(which)
	}
	return all, nil
}

// refundsOf is the list a charge shows when its refunds are expanded.
func (t *tx) refundsOf(ch *charge) *list {
	l := &list{Object: "list", Data: []any{}, URL: "/v1/charges/" + ch.ID + "/refunds"}
	ids := t.s.st.byCharge[ch.ID].of(func(a *attached) []string { return a.refunds })
	for i := len(ids) - 1; i >= 0; i-- {
		if len(l.Data) == defaultLimit {
			l.HasMore = true
			break
		}
		l.Data = append(l.Data, t.s.st.refunds.byID[ids[i]])
	}
	return l
}

func refundedIntent(re *refund) string { return id(re.PaymentIntent) }
