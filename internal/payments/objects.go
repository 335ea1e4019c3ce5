package payments

import (
	"encoding/json"
	"fmt"

	"example.com/payonce/db"
	"example.com/payonce/internal/compare"
	"example.com/payonce/internal/ids"
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
	AmountDisputed    int64             `json:"amount_disputed"`
	Items             []Item            `json:"items"`
	CustomerReference *string           `json:"customer_reference"`
	Metadata          map[string]string `json:"metadata"`
	PaymentID         *string           `json:"payment_id"`
	CreatedAt         ids.Instant       `json:"created_at"`
}

// Item is one line of an order.
type Item struct {
	SKU        string `json:"sku"`
	Quantity   int64  `json:"quantity"`
	UnitAmount int64  `json:"unit_amount"`
}

// Payment is one attempt to pay an order.
type Payment struct {
	ID               string           `json:"id"`
	Object           string           `json:"object"`
	Status           db.PaymentStatus `json:"status"`
	OrderID          string           `json:"order_id"`
	Amount           int64            `json:"amount"`
	Currency         string           `json:"currency"`
	Capture          Capture          `json:"capture"`
	AmountCapturable int64            `json:"amount_capturable"`
	AmountCaptured   int64            `json:"amount_captured"`
	AmountRefunded   int64            `json:"amount_refunded"`
	AmountDisputed   int64            `json:"amount_disputed"`
	CaptureBefore    *ids.Instant     `json:"capture_before"`
	PaymentMethod    string           `json:"payment_method"`
	Failure          *PaymentFailure  `json:"failure"`
	NextAction       json.RawMessage  `json:"next_action"`
	Stripe           PaymentAtStripe  `json:"stripe"`
	CreatedAt        ids.Instant      `json:"created_at"`
}

// Capture is how the money of a payment is taken.
type Capture string

// Automatic takes it at once. Manual reserves it, and a request of its own takes it.
const (
	CaptureAutomatic Capture = "automatic"
	CaptureManual    Capture = "manual"
)

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

func orderOf(row db.Order) Order {
	o, err := readOrder(row)
	if err != nil {
		panic("bug: " + err.Error())
	}
	return o
}

func readOrder(row db.Order) (Order, error) {
	o := Order{
		ID: row.ID, Object: "order", Status: row.Status, Currency: row.Currency, Amount: row.AmountMinor,
		AmountRefunded: row.AmountRefundedMinor, CustomerReference: row.CustomerReference, PaymentID: row.PaymentID,
		CreatedAt: ids.Instant(row.CreatedAt), Metadata: map[string]string{}, AmountDisputed: row.AmountDisputedMinor,
	}
	if err := json.Unmarshal(row.Items, &o.Items); err != nil {
		return o, fmt.Errorf("the items of order %s cannot be read: %w", row.ID, err)
	}
	if err := json.Unmarshal(row.Metadata, &o.Metadata); err != nil {
		return o, fmt.Errorf("the metadata of order %s cannot be read: %w", row.ID, err)
	}
	if row.PaymentID != nil {
		o.AmountPaid = row.AmountMinor
		if row.CapturedMinor != nil {
			o.AmountPaid = *row.CapturedMinor
		}
	}
	return o, nil
}

// WithoutSecret is a next_action without what the customer acts with.
func WithoutSecret(nextAction json.RawMessage) json.RawMessage {
	var members map[string]any
	if json.Unmarshal(nextAction, &members) != nil || members["client_secret"] == nil {
		return nextAction
	}
	members["client_secret"] = nil
	delete(members, "redirect_url")
	shown, err := json.Marshal(members)
	if err != nil {
		panic(err) // It was JSON.
	}
	return shown
}

// PaymentOf is the payment as the API shows it.
func PaymentOf(row db.Payment) Payment {
	p := Payment{
		ID: row.ID, Object: "payment", Status: row.Status, OrderID: row.OrderID, Amount: row.AmountMinor,
		Currency: row.Currency, AmountRefunded: row.AmountRefundedMinor, PaymentMethod: row.PaymentMethod,
		NextAction: row.NextAction, Stripe: PaymentAtStripe{PaymentIntent: row.IntentID, Charge: row.ChargeID},
		CreatedAt: ids.Instant(row.CreatedAt), AmountDisputed: row.AmountDisputedMinor, Capture: CaptureAutomatic,
		AmountCaptured: compare.PaidMinor(row),
	}
	if row.ManualCapture {
		p.Capture = CaptureManual
	}
	if row.Status == db.PaymentStatusAuthorized {
		p.AmountCapturable, p.CaptureBefore = row.AmountMinor, (*ids.Instant)(row.CaptureBefore)
	}
	if row.FailureCode != nil {
		p.Failure = &PaymentFailure{Code: *row.FailureCode, DeclineCode: row.FailureDeclineCode}
		if row.FailureMessage != nil {
			p.Failure.Message = *row.FailureMessage
		}
	}
	return p
}

// Paths are where the API shows this package's objects, by the kind of their ids.
func Paths() ids.Paths {
	return ids.Paths{ids.Order: "/v1/orders/", ids.Payment: "/v1/payments/", ids.Refund: "/v1/refunds/"}
}
