package payments

import (
	"encoding/json"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/outbox"
)

// The objects as the API shows them. The same JSON goes into answers and events.

// Order is what is to be paid.
type Order struct {
	ID                string            `json:"id"`
	Object            string            `json:"object"`
	Status            db.OrderStatus    `json:"status"`
	Currency          string            `json:"currency"`
	Amount            int64             `json:"amount"`
	AmountPaid        int64             `json:"amount_paid"`
	AmountRefunded    int64             `json:"amount_refunded"`
	Items             []Item            `json:"items"`
	CustomerReference *string           `json:"customer_reference"`
	Metadata          map[string]string `json:"metadata"`
	PaymentID         *string           `json:"payment_id"`
	CreatedAt         instant           `json:"created_at"`
}

// Item is one line of an order.
type Item struct {
	SKU        string `json:"sku"`
	Quantity   int64  `json:"quantity"`
	UnitAmount int64  `json:"unit_amount"`
}

// Payment is one attempt to pay an order.
type Payment struct {
	ID             string           `json:"id"`
	Object         string           `json:"object"`
	Status         db.PaymentStatus `json:"status"`
	OrderID        string           `json:"order_id"`
	Amount         int64            `json:"amount"`
	Currency       string           `json:"currency"`
	AmountRefunded int64            `json:"amount_refunded"`
	PaymentMethod  string           `json:"payment_method"`
	Failure        *PaymentFailure  `json:"failure"`
	NextAction     json.RawMessage  `json:"next_action"`
	Stripe         PaymentAtStripe  `json:"stripe"`
	CreatedAt      instant          `json:"created_at"`
}

// PaymentFailure is why a payment failed.
type PaymentFailure struct {
	Code        string  `json:"code"`
	DeclineCode *string `json:"decline_code"`
	Message     string  `json:"message"`
}

// PaymentAtStripe has the ids of Stripe's objects.
type PaymentAtStripe struct {
	PaymentIntent *string `json:"payment_intent"`
	Charge        *string `json:"charge"`
}

// instant is a time as the API shows it: RFC 3339 in UTC, to the millisecond.
type instant time.Time

func (t instant) MarshalJSON() ([]byte, error) {
	return time.Time(t).UTC().AppendFormat(nil, `"2006-01-02T15:04:05.000Z"`), nil
}

// String is for the pages that people read.
func (t instant) String() string { return time.Time(t).UTC().Format("2006-01-02 15:04:05.000 UTC") }

func orderOf(row db.Order) Order {
	o := Order{
		ID: row.ID, Object: "order", Status: row.Status, Currency: row.Currency, Amount: row.AmountMinor, AmountRefunded: row.AmountRefundedMinor,
		CustomerReference: row.CustomerReference, PaymentID: row.PaymentID, CreatedAt: instant(row.CreatedAt), Metadata: map[string]string{},
	}
	mustUnmarshal(row.Items, &o.Items)
	mustUnmarshal(row.Metadata, &o.Metadata)
	if row.PaymentID != nil {
		o.AmountPaid = row.AmountMinor
	}
	return o
}

func paymentOf(row db.Payment) Payment {
	p := Payment{
		ID: row.ID, Object: "payment", Status: row.Status, OrderID: row.OrderID, Amount: row.AmountMinor, Currency: row.Currency,
		AmountRefunded: row.AmountRefundedMinor, PaymentMethod: row.PaymentMethod, NextAction: row.NextAction,
		Stripe: PaymentAtStripe{PaymentIntent: row.IntentID, Charge: row.ChargeID}, CreatedAt: instant(row.CreatedAt),
	}
	if row.FailureCode != nil {
		p.Failure = &PaymentFailure{Code: *row.FailureCode, DeclineCode: row.FailureDeclineCode}
		if row.FailureMessage != nil {
			p.Failure.Message = *row.FailureMessage
		}
	}
	return p
}

func mustMarshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("bug: an object cannot be encoded as JSON: " + err.Error())
	}
	return b
}

func mustUnmarshal(b []byte, v any) {
	if err := json.Unmarshal(b, v); err != nil {
		panic("bug: a stored object cannot be decoded: " + err.Error())
	}
}

// Href is the path of the object with an id; empty if the API does not show it.
func Href(id string) string {
	for kind, path := range map[string]string{orderID: "/v1/orders/", paymentID: "/v1/payments/", refundID: "/v1/refunds/", checkoutID: "/v1/checkouts/"} {
		if isID(kind, id) {
			return path + id
		}
	}
	return ""
}

func orderEvent(kind string, row db.Order) outbox.Event {
	return outbox.Event{TenantID: row.TenantID, AggregateID: row.ID, Version: row.Version, Type: kind, Data: mustMarshal(orderOf(row))}
}

func paymentEvent(kind string, row db.Payment) outbox.Event {
	return outbox.Event{TenantID: row.TenantID, AggregateID: row.ID, Version: row.Version, Type: kind, Data: mustMarshal(paymentOf(row))}
}
