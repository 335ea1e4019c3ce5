package stripesim

import (
	"fmt"
	"maps"
	"time"
)

type dispute struct {
	row `json:"-"`

	ID                  string            `json:"id"`
	Object              kind              `json:"object"`
	Amount              int64             `json:"amount"`
	BalanceTransactions []*txn            `json:"balance_transactions"`
	Charge              ref               `json:"charge"`
	Created             int64             `json:"created"`
	Currency            string            `json:"currency"`
	Evidence            evidence          `json:"evidence"`
	EvidenceDetails     evidenceDetails   `json:"evidence_details"`
	IsChargeRefundable  bool              `json:"is_charge_refundable"`
	Livemode            bool              `json:"livemode"`
	Metadata            map[string]string `json:"metadata"`
	PaymentIntent       ref               `json:"payment_intent"`
	MethodDetails       disputeMethod     `json:"payment_method_details"`
	Reason              string            `json:"reason"`
	Status              string            `json:"status"`
}

func (*dispute) kind() kind   { return kindDispute }
func (o *dispute) id() string { return o.ID }

// evidence is text by name; every name is shown, given or not.
type evidence map[string]text

var evidenceNames = []string{
	"access_activity_log", "billing_address", "cancellation_policy", "cancellation_policy_disclosure",
	"cancellation_rebuttal",
	"customer_communication", "customer_email_address", "customer_name", "customer_purchase_ip", "customer_signature",
	"duplicate_charge_documentation", "duplicate_charge_explanation", "duplicate_charge_id", "product_description",
	"receipt",
	"refund_policy", "refund_policy_disclosure", "refund_refusal_explanation", "service_date", "service_documentation",
	"shipping_address", "shipping_carrier", "shipping_date", "shipping_documentation", "shipping_tracking_number",
	"uncategorized_file", "uncategorized_text",
}

type evidenceDetails struct {
	DueBy           int64 `json:"due_by"`
	HasEvidence     bool  `json:"has_evidence"`
	PastDue         bool  `json:"past_due"`
	SubmissionCount int   `json:"submission_count"`
}

type disputeMethod struct {
	Card disputeCard `json:"card"`
	Type string      `json:"type"`
}

type disputeCard struct {
	Brand             string `json:"brand"`
	NetworkReasonCode string `json:"network_reason_code"`
}

var updateDisputeParams = func() params {
	fields := params{}
	for _, name := range evidenceNames {
		fields[name] = stringParam(20000).clearable()
	}
	return params{
		"evidence": objectOf(fields),
		"metadata": metadataParam,
		"submit":   booleanParam,
		"expand":   expandParam,
	}
}()

// The statuses of a dispute. Inquiries have the ones with warning in front, and
// move no money until they are escalated.
const (
	needsResponse        = "needs_response"
	underReview          = "under_review"
	warningNeedsResponse = "warning_needs_response"
	warningUnderReview   = "warning_under_review"
	warningClosed        = "warning_closed"
	disputeWon           = "won"
	disputeLost          = "lost"
)

const (
	disputeFee = 1500
	// decisionDelay is how long the bank takes over the test evidence that
	// decides a dispute.
	decisionDelay = 5 * time.Second
)

var networkReasons = map[string]string{"fraudulent": "10.4", "product_not_received": "13.1", "general": "10"}

// disputeIfTheCardSaysSo opens the dispute of a test card, in the same breath as
// its charge.
func (t *tx) disputeIfTheCardSaysSo(pi *intent, ch *charge) {
	if c := cardsByName[t.s.st.methods.byID[ch.PaymentMethod].row.Card]; c.dispute != "" {
		t.openDispute(pi, ch, c.dispute, c.inquiry)
	}
}

// SetEvidenceTime gives disputes that are opened from now on d until their evidence is due, instead of nine days, so that
// what warns of the deadline can be tried. Zero: nine days.
func (s *Sim) SetEvidenceTime(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.evidenceTime = max(0, d)
}

// evidenceDue is when the evidence of a dispute that is opened now is due: at the end of a day, unless a time was set.
func (t *tx) evidenceDue() int64 {
	if t.s.evidenceTime > 0 {
		return t.now.Add(t.s.evidenceTime).Unix()
	}
	return t.now.Truncate(24*time.Hour).Add(9*24*time.Hour).Unix() - 1
}

func (t *tx) openDispute(pi *intent, ch *charge, reason string, inquiry bool) *dispute {
	ch = edit(t, ch)
	ch.Disputed = true
	d := &dispute{
		ID: t.s.newID(
			"du_1", 23,
		), Object: kindDispute, Amount: ch.AmountCaptured, BalanceTransactions: []*txn{}, Charge: ch.ID,
		Created: t.now.Unix(), Currency: ch.Currency, Evidence: evidence{}, Metadata: map[string]string{},
		PaymentIntent:   pi.ID,
		EvidenceDetails: evidenceDetails{DueBy: t.evidenceDue()},
		MethodDetails: disputeMethod{
			Card: disputeCard{Brand: ch.PaymentMethodDetails.Card.Brand, NetworkReasonCode: networkReasons[reason]},
			Type: "card",
		},
		Reason: reason, Status: needsResponse,
	}
	for _, name := range evidenceNames {
		d.Evidence[name] = nil
	}
	if inquiry {
		d.Status, d.IsChargeRefundable = warningNeedsResponse, true
		t.create(d)
		t.emit("charge.dispute.created", d, nil)
		return d
	}
	t.create(d)
	t.withdraw(pi, d)
	t.emit("charge.dispute.created", d, nil)
	t.emit("charge.dispute.funds_withdrawn", d, nil)
	return d
}

// withdraw takes the disputed amount and the fee out of the balance.
func (t *tx) withdraw(pi *intent, d *dispute) {
	note := "Chargeback withdrawal for " + id(d.Charge)
	d.BalanceTransactions = append(d.BalanceTransactions[:len(d.BalanceTransactions):len(d.BalanceTransactions)],
		t.book("adjustment", "dispute", d, -d.Amount, disputeFee, &note))
	t.effect(EffectDispute, pi, d.Amount, func(e *Effect) { e.DisputeID, e.ChargeID = d.ID, id(d.Charge) })
}

// chargedBack is whether the bank has already withdrawn the money of a charge.
func (t *tx) chargedBack(ch *charge) bool {
	for _, key := range t.s.st.byCharge[ch.ID].of(func(a *attached) []string { return a.disputes }) {
		if !t.s.st.disputes.byID[key].IsChargeRefundable {
			return true
		}
	}
	return false
}

func (t *tx) findDispute(c *call) (*dispute, *apiError) {
	if d, ok := t.s.st.disputes.get(t.account, c.id); ok {
		return d, nil
	}
	return nil, missing(404, "dispute", c.id, "dispute")
}

func (t *tx) getDispute(c *call) (any, *apiError) {
	d, err := t.findDispute(c)
	if err != nil {
		return nil, err
	}
	return d, nil
}

func (t *tx) listDisputes(c *call) (any, *apiError) {
	ids, err := t.attachedTo(c, t.s.st.disputes.order[t.account], func(a *attached) []string { return a.disputes })
	if err != nil {
		return nil, err
	}
	return page(t, c, t.s.st.disputes, ids, func(d *dispute) bool { return c.inRange(d.Created) })
}

// updateDispute hands in evidence. Three texts decide the matter in test mode:
// winning_evidence, losing_evidence and escalate_inquiry_evidence.
func (t *tx) updateDispute(c *call) (any, *apiError) {
	d, err := t.findDispute(c)
	if err != nil {
		return nil, err
	}
	if d.closed() {
		return nil, executed(invalid("", "", "This dispute is already closed"))
	}
	p := &c.params
	d = edit(t, d)
	d.Metadata = mergeMetadata(d.Metadata, p)
	given := p.field("evidence")
	if given != nil {
		d.Evidence = maps.Clone(d.Evidence)
		for _, name := range given.names {
			d.Evidence[name] = given.text(name)
		}
		d.EvidenceDetails.HasEvidence = true
	}
	if submit := !p.has("submit") || p.boolean("submit"); given != nil && submit {
		d.EvidenceDetails.SubmissionCount++
		if d.Status == needsResponse {
			d.Status = underReview
		} else if d.Status == warningNeedsResponse {
			d.Status = warningUnderReview
		}
		switch given.str("uncategorized_text") {
		case "winning_evidence":
			d.Due, d.DueTo = t.now.Add(decisionDelay), disputeWon
		case "losing_evidence":
			d.Due, d.DueTo = t.now.Add(decisionDelay), disputeLost
		case "escalate_inquiry_evidence":
			d.Due, d.DueTo = t.now.Add(decisionDelay), needsResponse
		}
	}
	t.emit("charge.dispute.updated", d, nil)
	return d, nil
}

// closeDispute accepts that it is lost.
func (t *tx) closeDispute(c *call) (any, *apiError) {
	d, err := t.findDispute(c)
	if err != nil {
		return nil, err
	}
	if d.closed() {
		return nil, executed(invalid("", "", "This dispute is already closed"))
	}
	d = edit(t, d)
	d.Due, d.DueTo = noTime, ""
	if d.inquiry() {
		d.Status = warningClosed
	} else {
		d.Status = disputeLost
	}
	t.emit("charge.dispute.closed", d, nil)
	return d, nil
}

func (d *dispute) closed() bool {
	return d.Status == disputeWon || d.Status == disputeLost || d.Status == warningClosed
}

func (d *dispute) inquiry() bool {
	return d.Status == warningNeedsResponse || d.Status == warningUnderReview
}

// decideDispute is the bank's word.
func (t *tx) decideDispute(d *dispute) {
	d = edit(t, d)
	verdict := d.DueTo
	if d.inquiry() && verdict != needsResponse {
		verdict = warningClosed
	}
	d.Status, d.Due, d.DueTo = verdict, noTime, ""
	pi := t.s.st.intents.byID[id(d.PaymentIntent)]
	switch verdict {
	case needsResponse: // an inquiry has become a chargeback
		d.IsChargeRefundable = false
		t.withdraw(pi, d)
		t.emit("charge.dispute.updated", d, map[string]any{"status": warningUnderReview})
		t.emit("charge.dispute.funds_withdrawn", d, nil)
		return
	case disputeWon:
		d.IsChargeRefundable = true
		note := "Chargeback reversal for " + id(d.Charge)
		d.BalanceTransactions = append(d.BalanceTransactions[:len(d.BalanceTransactions):len(d.BalanceTransactions)],
			t.book("adjustment", "dispute_reversal", d, d.Amount, 0, &note))
		t.effect(EffectDisputeWon, pi, d.Amount, func(e *Effect) { e.DisputeID, e.ChargeID = d.ID, id(d.Charge) })
		t.emit("charge.dispute.funds_reinstated", d, nil)
	}
	t.emit("charge.dispute.closed", d, nil)
}

// OpenDispute disputes a charge that its card would have left alone, also after
// it has been refunded, and returns the dispute's id.
func (s *Sim) OpenDispute(chargeID, reason string, inquiry bool) (string, error) {
	s.mu.Lock()
	ch := s.st.charges.byID[chargeID]
	if ch == nil || ch.Status != succeeded || !ch.Captured {
		s.mu.Unlock()
		return "", fmt.Errorf("charge %s took no money that could be disputed", chargeID)
	}
	t := s.begin(ch.Account, origin{})
	d := t.openDispute(s.st.intents.byID[chargedIntent(ch)], ch, reason, inquiry)
	position := t.commit()
	s.mu.Unlock()
	s.durable(position)
	return d.ID, nil
}
