package http

import (
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"example.com/payonce/internal/cards"
)

const stockMax = 1_000_000_000 // Released reservations are added to it, so it must stay far below an overflow.

// stockRoutes are part of checkouts, because nothing else reserves stock.
func (s *Server) stockRoutes() []route {
	return []route{
		{method: "PUT", pattern: "/v1/stock/{sku}", handle: s.setStock},
		{method: "GET", pattern: "/v1/stock/{sku}", handle: s.getStock},
	}
}

// setStock needs no Idempotency-Key and ignores one: the number is absolute, so a retry
// changes nothing.
func (s *Server) setStock(w http.ResponseWriter, r *http.Request) {
	body, err := s.readTenantBody(w, r)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	ctx, cancel := s.bounded(r.Context(), 0)
	defer cancel()
	var (
		sku       string
		available int64
	)
	err = s.admitParsed(ctx, r, classWrite, body, func() (err error) {
		sku, available, err = stockRequest(r, body)
		return err
	})
	// It writes, so it counts against the rate limit like a POST. The request is checked
	// first: one that is refused has cost nothing.
	if err == nil {
		err = s.limits.take(tenantOf(r).id)
	}
	if err != nil {
		s.refuse(w, r.WithContext(ctx), err)
		return
	}
	stock, err := s.o.Checkouts.SetStock(ctx, tenantOf(r).id, sku, available)
	s.show(w, r, stock, err)
}

// stockRequest makes the same checks in the same order as readKeyed, without the key.
func stockRequest(r *http.Request, body []byte) (sku string, available int64, err error) {
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
	c.between("/available", *b.Available, 0, stockMax) // Zero is valid: it stops the sale.
	return sku, *b.Available, c.err()
}

func (s *Server) getStock(w http.ResponseWriter, r *http.Request) {
	sku, err := skuOf(r)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	stock, err := s.o.Checkouts.GetStock(r.Context(), tenantOf(r).id, sku)
	s.show(w, r, stock, err)
}

// skuOf decodes the SKU of the path. A SKU may contain a slash, which is encoded there.
func skuOf(r *http.Request) (string, error) {
	sku := r.PathValue("sku")
	if r.URL.RawPath != "" { // Otherwise the router has matched the decoded path, and decoding twice would be wrong.
		var err error
		if sku, err = url.PathUnescape(sku); err != nil {
			return "", badSKU()
		}
	}
	if n := utf8.RuneCountInString(sku); n < 1 || n > skuMax || !utf8.ValidString(sku) || strings.ContainsRune(sku, 0) {
		return "", badSKU()
	}
	if cards.NumberIn(sku) {
		return "", &problem{code: codeInvalidRequest, detail: "The SKU in the path " + cardMessage + "."}
	}
	return sku, nil
}

func badSKU() error {
	return &problem{
		code: codeInvalidRequest, detail: "The SKU in the path must have 1 to 64 characters, percent-encoded.",
	}
}
