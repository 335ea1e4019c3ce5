package http

import (
	"net/http"
	"unicode/utf8"

	"example.com/payonce/internal/payments"
)

// The bodies of the API, decoded and validated. Each returns the request as
// package payments takes it; its encoding is what the fingerprint is taken of,
// so equal meaning is equal bytes.

const (
	itemsMax     = 100
	skuMax       = 64
	quantityMax  = 1_000_000
	unitMax      = 99_999_999
	referenceMax = 200
	metadataMax  = 20
	methodMax    = 255
)

type orderBody struct {
	Currency          *string            `json:"currency"`
	Items             *[]*itemBody       `json:"items"`
	CustomerReference *string            `json:"customer_reference"`
	Metadata          map[string]*string `json:"metadata"`
}

type itemBody struct {
	SKU        *string `json:"sku"`
	Quantity   *int64  `json:"quantity"`
	UnitAmount *int64  `json:"unit_amount"`
}

func orderRequest(_ *http.Request, body []byte) (any, error) {
	var b orderBody
	if err := decodeObject(body, &b); err != nil {
		return nil, err
	}
	var c checks
	req := b.check(&c)
	return req, c.err()
}

// check validates what an order and a checkout have in common.
func (b orderBody) check(c *checks) payments.OrderRequest {
	req := payments.OrderRequest{CustomerReference: b.CustomerReference, Metadata: map[string]string{}}
	if b.Currency == nil {
		c.fail("/currency", "is required")
	} else if req.Currency = *b.Currency; !payments.KnownCurrency(req.Currency) {
		c.fail("/currency", "must be a lower-case ISO 4217 code that can be charged")
	}
	if b.Items == nil {
		c.fail("/items", "is required")
	} else if n := len(*b.Items); n < 1 || n > itemsMax {
		c.fail("/items", "must have 1 to %d items", itemsMax)
	} else {
		for i, item := range *b.Items {
			req.Items = append(req.Items, item.check(c, i))
		}
	}
	if b.CustomerReference != nil {
		c.text("/customer_reference", *b.CustomerReference, 0, referenceMax)
	}
	if len(b.Metadata) > metadataMax {
		c.fail("/metadata", "must have at most %d entries", metadataMax)
	}
	for name, value := range b.Metadata {
		at := pointer("metadata", name)
		if n := utf8.RuneCountInString(name); n < 1 || n > 40 {
			c.fail(at, "a name must have 1 to 40 characters")
			continue
		}
		c.text(at, name, 1, 40)
		if value == nil {
			c.fail(at, "must be a string")
			continue
		}
		c.text(at, *value, 0, 500)
		req.Metadata[name] = *value
	}
	if len(*c) == 0 {
		if err := payments.CheckAmount(req.Total(), req.Currency); err != nil {
			c.fail("/items", "%s", err)
		}
	}
	return req
}

func (b *itemBody) check(c *checks, i int) (item payments.Item) {
	if b == nil {
		c.fail(pointer("items", i), "must not be null")
		return item
	}
	if b.SKU == nil {
		c.fail(pointer("items", i, "sku"), "is required")
	} else {
		c.text(pointer("items", i, "sku"), *b.SKU, 1, skuMax)
		item.SKU = *b.SKU
	}
	if b.Quantity == nil {
		c.fail(pointer("items", i, "quantity"), "is required")
	} else {
		c.between(pointer("items", i, "quantity"), *b.Quantity, 1, quantityMax)
		item.Quantity = *b.Quantity
	}
	if b.UnitAmount == nil {
		c.fail(pointer("items", i, "unit_amount"), "is required")
	} else {
		c.between(pointer("items", i, "unit_amount"), *b.UnitAmount, 1, unitMax)
		item.UnitAmount = *b.UnitAmount
	}
	return item
}

func paymentRequest(_ *http.Request, body []byte) (any, error) {
	var b struct {
		OrderID       *string `json:"order_id"`
		PaymentMethod *string `json:"payment_method"`
	}
	if err := decodeObject(body, &b); err != nil {
		return nil, err
	}
	var (
		c   checks
		req payments.PayRequest
	)
	if b.OrderID == nil {
		c.fail("/order_id", "is required")
	} else {
		c.text("/order_id", *b.OrderID, 1, methodMax)
		req.OrderID = *b.OrderID
	}
	req.PaymentMethod = paymentMethod(&c, b.PaymentMethod)
	return req, c.err()
}

// paymentMethod checks the form only. Whether it exists, Stripe knows. Ids begin
// with a letter; what begins with a digit may be a card number, which must not be
// stored, logged or passed on.
func paymentMethod(c *checks, method *string) string {
	if method == nil {
		c.fail("/payment_method", "is required")
		return ""
	}
	c.text("/payment_method", *method, 1, methodMax)
	if *method != "" && !letter((*method)[0]) {
		c.fail("/payment_method", "must be the id of a payment method, which begins with a letter; never a card number")
	}
	for _, r := range *method {
		if r <= ' ' || r > '~' {
			c.fail("/payment_method", "must consist of visible ASCII characters")
			break
		}
	}
	return *method
}

func letter(b byte) bool { return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' }

// cancelRequest takes an empty object or nothing at all.
func cancelRequest(r *http.Request, body []byte) (any, error) {
	if len(body) > 0 {
		if err := decodeObject(body, &struct{}{}); err != nil {
			return nil, err
		}
	}
	return payments.CancelRequest{ID: r.PathValue("id")}, nil
}

func refundRequest(r *http.Request, body []byte) (any, error) {
	var b struct {
		Amount *int64  `json:"amount"`
		Reason *string `json:"reason"`
	}
	if len(body) > 0 {
		if err := decodeObject(body, &b); err != nil {
			return nil, err
		}
	}
	var c checks
	if b.Amount != nil {
		c.between("/amount", *b.Amount, 1, unitMax)
	}
	if b.Reason != nil && *b.Reason != "duplicate" && *b.Reason != "fraudulent" && *b.Reason != "requested_by_customer" {
		c.fail("/reason", "must be duplicate, fraudulent or requested_by_customer")
	}
	return payments.RefundRequest{PaymentID: r.PathValue("id"), Amount: b.Amount, Reason: b.Reason}, c.err()
}
