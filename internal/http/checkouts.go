package http

import (
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"example.com/payonce/internal/payments"
)

const stockMax = 1_000_000_000 // More than anybody has, and far from an overflow when reservations come back.

// checkoutRequest is an order without metadata, and how to pay it.
func checkoutRequest(_ *http.Request, body []byte) (any, error) {
	var b struct {
		Currency          *string      `json:"currency"`
		Items             *[]*itemBody `json:"items"`
		PaymentMethod     *string      `json:"payment_method"`
		CustomerReference *string      `json:"customer_reference"`
	}
	if err := decodeObject(body, &b); err != nil {
		return nil, err
	}
	var c checks
	order := orderBody{Currency: b.Currency, Items: b.Items, CustomerReference: b.CustomerReference}.check(&c)
	return payments.CheckoutRequest{
		Currency: order.Currency, Items: order.Items, CustomerReference: order.CustomerReference, PaymentMethod: paymentMethod(&c, b.PaymentMethod),
	}, c.err()
}

func (s *Server) getCheckout(w http.ResponseWriter, r *http.Request) {
	checkout, err := s.o.Payments.GetCheckout(r.Context(), tenantOf(r).id, r.PathValue("id"))
	s.show(w, r, checkout, err)
}

func (s *Server) getStock(w http.ResponseWriter, r *http.Request) {
	sku, err := skuOf(r)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	stock, err := s.o.Payments.GetStock(r.Context(), tenantOf(r).id, sku)
	s.show(w, r, stock, err)
}

// setStock needs no Idempotency-Key, and ignores one: the number is absolute.
func (s *Server) setStock(w http.ResponseWriter, r *http.Request) {
	sku, available, err := stockRequest(w, r)
	if err == nil {
		err = s.limits.take(tenantOf(r).id)
	}
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	ctx, cancel := s.bounded(r.Context(), 0)
	defer cancel()
	stock, err := s.o.Payments.SetStock(ctx, tenantOf(r).id, sku, available)
	s.show(w, r, stock, err)
}

func stockRequest(w http.ResponseWriter, r *http.Request) (sku string, available int64, err error) {
	body, err := readBody(w, r, bodyMax)
	if err != nil {
		return "", 0, err
	}
	if err := checkMediaType(r, body); err != nil {
		return "", 0, err
	}
	if sku, err = skuOf(r); err != nil {
		return "", 0, err
	}
	var b struct {
		Available *int64 `json:"available"`
	}
	if err := decodeObject(body, &b); err != nil {
		return "", 0, err
	}
	var c checks
	if b.Available == nil {
		c.fail("/available", "is required")
		return "", 0, c.err()
	}
	c.between("/available", *b.Available, 0, stockMax)
	return sku, *b.Available, c.err()
}

// skuOf reads the SKU from the path, where it stands percent-encoded.
func skuOf(r *http.Request) (string, error) {
	sku := r.PathValue("sku")
	if r.URL.RawPath != "" { // Otherwise the router has matched the decoded path.
		var err error
		if sku, err = url.PathUnescape(sku); err != nil {
			return "", badSKU()
		}
	}
	if n := utf8.RuneCountInString(sku); n < 1 || n > skuMax || !utf8.ValidString(sku) || strings.ContainsRune(sku, 0) {
		return "", badSKU()
	}
	return sku, nil
}

func badSKU() error {
	return &problem{code: codeInvalidRequest, detail: "The SKU in the path must have 1 to 64 characters, percent-encoded."}
}
