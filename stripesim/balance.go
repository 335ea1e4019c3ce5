package stripesim

import "time"

// settlement is how long a balance transaction stays pending.
const settlement = 2 * 24 * time.Hour

// cardFee is Stripe's list price for a card: 2.9 % and 30 of the minor unit.
func cardFee(amount int64) int64 { return (amount*29+500)/1000 + 30 }

// book enters a movement of money into the balance, in the charge's currency.
func (t *tx) book(kind, category string, source object, amount, cost int64, description text) *txn {
	b := &txn{
		ID: t.s.newID(
			"txn_3", 23,
		), Object: kindTxn, Amount: amount, AvailableOn: t.now.Add(settlement).Unix(), Created: t.now.Unix(),
		Currency: currencyOf(source), Description: description, Fee: cost, FeeDetails: []fee{}, Net: amount - cost,
		ReportingCategory: category, Source: source.id(), Status: "pending", Type: kind,
	}
	if cost != 0 {
		b.FeeDetails = []fee{
			{Amount: cost, Currency: b.Currency, Description: "Stripe processing fees", Type: "stripe_fee"},
		}
	}
	t.create(b)
	return b
}

func currencyOf(o object) string {
	switch o := o.(type) {
	case *charge:
		return o.Currency
	case *refund:
		return o.Currency
	case *dispute:
		return o.Currency
	}
	panic("bug: no currency on " + string(o.kind()))
}

// asOf shows the transaction as available once it is.
func (b *txn) asOf(now time.Time) *txn {
	if b.Status == "pending" && now.Unix() >= b.AvailableOn {
		shown := *b
		shown.Status = "available"
		return &shown
	}
	return b
}

func (t *tx) getTxn(c *call) (any, *apiError) {
	if b, ok := t.s.st.txns.get(t.account, c.id); ok {
		return b.asOf(t.now), nil
	}
	return nil, missing(404, "balance transaction", c.id, "id")
}

func (t *tx) listTxns(c *call) (any, *apiError) {
	p := &c.params
	l, err := page(t, c, t.s.st.txns, t.s.st.txns.order[t.account], func(b *txn) bool {
		return c.inRange(b.Created) && (!p.has("currency") || b.Currency == p.str("currency")) &&
			(!p.has("source") || id(b.Source) == p.str("source")) && (!p.has("type") || b.Type == p.str("type")) &&
			!p.has("payout")
	})
	if err != nil {
		return nil, err
	}
	for i, b := range l.Data {
		l.Data[i] = b.(*txn).asOf(t.now)
	}
	return l, nil
}
