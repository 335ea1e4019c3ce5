package stripesim

var approved = &outcome{
	NetworkStatus: "approved_by_network", RiskLevel: "normal", RiskScore: 25, SellerMessage: "Payment complete.",
	Type: "authorized",
}

// newCharge is an attempt on a card before it is known how it ends.
func (t *tx) newCharge(pi *intent, m *method) *charge {
	c := cardsByName[m.row.Card]
	card := chargeCard{
		Brand: m.Card.Brand, Checks: m.Card.Checks, Country: m.Card.Country, ExpMonth: m.Card.ExpMonth,
		ExpYear:               m.Card.ExpYear,
		ExtendedAuthorization: feature{"disabled"}, Fingerprint: m.Card.Fingerprint, Funding: m.Card.Funding,
		IncrementalAuthorization: feature{"unavailable"}, Last4: m.Card.Last4, Multicapture: feature{"unavailable"},
		Network: m.Card.Brand, Overcapture: overcapture{Maximum: pi.Amount, Status: "unavailable"},
	}
	card.Checks.CVC = "pass"
	if c.authenticate && pi.Authenticated {
		card.ThreeDSecure = &threeDS{
			AuthenticationFlow: "challenge", Indicator: "05", Result: "authenticated", TransactionID: t.s.newID("", 32),
			Version: "2.2.0",
		}
	}
	return &charge{
		ID: t.s.newID("ch_3", 23), Object: kindCharge, Amount: pi.Amount, BillingDetails: m.BillingDetails,
		CalculatedStatement: "Stripe", Created: t.now.Unix(), Currency: pi.Currency, Description: pi.Description,
		Metadata: pi.Metadata, PaymentIntent: pi.ID, PaymentMethod: m.ID,
		PaymentMethodDetails: &chargeMethod{Card: card, Type: "card"},
		ReceiptEmail:         pi.ReceiptEmail, Shipping: pi.Shipping, StatementDescriptor: pi.StatementDescriptor,
		StatementDescriptorSuffix: pi.StatementDescriptorSuffix, TransferGroup: pi.TransferGroup,
	}
}

// fail is the card saying no.
func (ch *charge) fail(c *card) {
	ch.Status = "failed"
	ch.FailureCode, ch.FailureMessage = &c.code, &c.message
	reason := c.decline
	if reason == "" {
		reason = c.code
	}
	ch.Outcome = &outcome{
		NetworkStatus: "declined_by_network", Reason: &reason, RiskLevel: "normal", RiskScore: 25,
		SellerMessage: "The bank did not return any further details with this decline.", Type: "issuer_declined",
	}
	if c.radar {
		level := "highest_risk_level"
		ch.Outcome = &outcome{
			NetworkStatus: "not_sent_to_network", Reason: &level, RiskLevel: "highest", RiskScore: 92,
			SellerMessage: "Stripe blocked this payment as too risky.", Type: "blocked",
		}
	}
	if c.code == "incorrect_cvc" {
		ch.PaymentMethodDetails.Card.Checks.CVC = "fail"
	}
}

func (t *tx) getCharge(c *call) (any, *apiError) {
	if ch, ok := t.s.st.charges.get(t.account, c.id); ok {
		return ch, nil
	}
	return nil, missing(404, "charge", c.id, "id")
}

// updateCharge changes the charge's copy of the metadata, and not the intent's.
func (t *tx) updateCharge(c *call) (any, *apiError) {
	ch, ok := t.s.st.charges.get(t.account, c.id)
	if !ok {
		return nil, missing(404, "charge", c.id, "id")
	}
	ch = edit(t, ch)
	ch.Metadata = mergeMetadata(ch.Metadata, &c.params)
	t.emit("charge.updated", ch, nil)
	return ch, nil
}

func (t *tx) listCharges(c *call) (any, *apiError) {
	st := t.s.st
	ids := st.charges.order[t.account]
	if c.params.has("payment_intent") {
		pi, ok := st.intents.get(t.account, c.params.str("payment_intent"))
		if !ok {
			return nil, missing(400, "payment_intent", c.params.str("payment_intent"), "payment_intent")
		}
		ids = st.byIntent[pi.ID].of(func(a *attached) []string { return a.charges })
	}
	if c.params.has("customer") {
		return nil, missing(400, "customer", c.params.str("customer"), "customer")
	}
	group := c.params.str("transfer_group")
	return page(t, c, st.charges, ids, func(ch *charge) bool {
		return c.inRange(ch.Created) && (group == "" || ch.TransferGroup != nil && *ch.TransferGroup == group)
	})
}

// bookCharge gives an automatic_async charge its balance transaction.
func (t *tx) bookCharge(ch *charge) {
	ch = edit(t, ch)
	ch.Due = noTime
	booked := t.book("charge", "charge", ch, ch.Amount, cardFee(ch.Amount), ch.Description).ID
	ch.BalanceTransaction = booked
	t.emit("charge.updated", ch, map[string]any{"balance_transaction": nil})
}

func chargedIntent(ch *charge) string { return id(ch.PaymentIntent) }

func (a *attached) of(which func(*attached) []string) []string {
	if a == nil {
		return nil
	}
	return which(a)
}
