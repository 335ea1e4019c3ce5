package http

import (
	"net/http"
	"unicode/utf8"

	"example.com/payonce/db"
	"example.com/payonce/internal/money"
	"example.com/payonce/internal/payments"
)

const (
	itemsMax     = 100
	skuMax       = 64
	quantityMax  = 1_000_000
	unitMax      = money.MaxOfAll // Stripe's largest charge, in the currency's minor unit
	referenceMax = 200
	metadataMax  = 20
)

// ordersPart: an order fixes the amount before anything is charged, and carries the rule
// that it is paid at most once. That rule also protects clients that lose their keys.
func ordersPart() part {
	return part{routes: func(s *Server) []route {
		return []route{
			{method: "POST", pattern: "/v1/orders", operation: payments.CreateOrder, parse: orderRequest},
			{method: "GET", pattern: "/v1/orders", handle: s.listOrders, query: true},
			{method: "GET", pattern: "/v1/orders/{id}", handle: s.getOrder},
			{method: "POST", pattern: "/v1/orders/{id}/cancel", operation: payments.CancelOrder, parse: pathRequest},
		}
	}}
}

// orderBody has pointers, to tell an absent member from a zero: both are refused, but with
// another message.
type orderBody struct {
	Currency          *string            `json:"currency"`
	Items             *[]*itemBody       `json:"items"`
	CustomerReference *string            `json:"customer_reference" nullable:"true"`
	Metadata          map[string]*string `json:"metadata"           nullable:"true"`
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

// check is shared with checkouts, whose body contains an order.
func (b orderBody) check(c *checks) payments.OrderRequest {
	req := payments.OrderRequest{CustomerReference: b.CustomerReference, Metadata: map[string]string{}}
	if b.Currency == nil {
		c.fail("/currency", "is required")
	} else if req.Currency = *b.Currency; !money.Known(req.Currency) {
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
	// The total makes sense only if each item is valid. Stripe would refuse an amount that
	// it cannot charge only when the order is paid, which is too late to change the order.
	if len(*c) == 0 {
		if err := money.Check(totalOf(req.Items), req.Currency); err != nil {
			c.fail("/items", "%s", err)
		}
	}
	return req
}

// totalOf is the sum of items or, if it is more than any charge, some such sum: that of a hundred items may not fit into 64
// bits.
func totalOf(items []payments.Item) (total int64) {
	for _, item := range items {
		if total += item.Quantity * item.UnitAmount; total > money.MaxOfAll {
			break
		}
	}
	return total
}

// check is called for null, too, which JSON allows as an element.
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

// pathRequest is a request that says nothing but which object it is about. An empty body is accepted, because
// many clients send none when there is nothing to say.
func pathRequest(r *http.Request, body []byte) (any, error) {
	if len(body) > 0 {
		if err := decodeObject(body, &struct{}{}); err != nil {
			return nil, err
		}
	}
	return payments.CancelRequest{ID: r.PathValue("id")}, nil
}

func (s *Server) getOrder(w http.ResponseWriter, r *http.Request) {
	order, err := s.o.Payments.GetOrder(r.Context(), tenantOf(r).id, r.PathValue("id"))
	s.show(w, r, order, err)
}

func (s *Server) listOrders(w http.ResponseWriter, r *http.Request) {
	q, limit, err := listQuery(r, "status", "customer_reference", "created_after", "created_before", "starting_after")
	f := payments.Filter{Status: q.Get("status"), CustomerReference: q.Get("customer_reference")}
	if err == nil {
		err = knownStatus(f.Status, db.AllOrderStatusValues())
	}
	if err == nil {
		f.CreatedAfter, f.CreatedBefore, err = interval(q)
	}
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	list, more, err := s.o.Payments.ListOrders(r.Context(), tenantOf(r).id, f, q.Get("starting_after"), limit)
	showList(s, w, r, list, more, err)
}
