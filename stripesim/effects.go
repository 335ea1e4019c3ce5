package stripesim

import (
	"maps"
	"time"
)

// The kinds of effect. EffectCharge is the one that counts: money taken from a
// customer. Everything else is there to explain it.
const (
	EffectIntentCreated = "intent_created"
	EffectAuthorized    = "authorized" // reserved on the card, for a later capture
	EffectCharge        = "charge"     // money taken, at once or by a capture
	EffectChargeFailed  = "charge_failed"
	EffectReleased      = "authorization_released" // by a cancel, or the rest of a partial capture
	EffectExpired       = "authorization_expired"  // released because it was not captured in time
	EffectCancel        = "cancel"
	EffectRefund        = "refund"
	EffectRefundFailed  = "refund_failed"
	EffectDispute       = "dispute"
	EffectDisputeWon    = "dispute_won"
)

// Effect is one movement of money, or a hold on it. An authorisation moves none; what was authorised is in the end
// captured (EffectCharge), released or expired, and the three add up to it. The log of effects is
// written by the same transaction as the object it tells about, is only ever
// appended to, and never learns what was answered: it is the witness when a
// client and a server disagree about how often a customer was charged.
type Effect struct {
	Seq       int64     `json:"seq"`
	At        time.Time `json:"at"`
	Kind      string    `json:"kind"`
	IntentID  string    `json:"intent_id,omitempty"`
	ChargeID  string    `json:"charge_id,omitempty"`
	RefundID  string    `json:"refund_id,omitempty"`
	DisputeID string    `json:"dispute_id,omitempty"`
	Key       string    `json:"key,omitempty"` // the idempotency key of the request that did it
	RequestID string    `json:"request_id,omitempty"`
	Account   string    `json:"account"`
	Amount    int64     `json:"amount"`
	Currency  string    `json:"currency"`
	// Authorized is on a capture, a release and an expiry: what had been reserved. A charge without it was
	// taken at once.
	Authorized int64             `json:"authorized,omitempty"`
	Metadata   map[string]string `json:"metadata,omitempty"` // the intent's, or the refund's own over it
}

// effect notes that something happened to an intent.
func (t *tx) effect(kind string, pi *intent, amount int64, more func(*Effect)) {
	e := Effect{
		At: t.now, Kind: kind, IntentID: pi.ID, ChargeID: id(pi.LatestCharge), Key: t.origin.Key,
		RequestID: t.origin.Request,
		Account:   t.account, Amount: amount, Currency: pi.Currency, Metadata: maps.Clone(pi.Metadata),
	}
	if more != nil {
		more(&e)
	}
	t.effects = append(t.effects, e)
}

// Effects returns the whole log, oldest first.
func (s *Sim) Effects() []Effect {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Effect(nil), s.st.effects...)
}

// EffectsSince returns what was logged after the given sequence number.
func (s *Sim) EffectsSince(seq int64) []Effect {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Effect(nil), s.st.effects[min(max(seq, 0), int64(len(s.st.effects))):]...)
}

// ChargeCount counts successful charges whose intent carries this order id in
// its metadata; the empty string counts all of them.
func (s *Sim) ChargeCount(orderID string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.st.charged[orderID]
}
