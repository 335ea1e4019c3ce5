package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
)

// fill puts the victim's ids into a path of the OpenAPI document. A path whose parameter it does not know is an error:
// a new route must be attacked, too.
func (o owned) fill(path string) (string, error) {
	id := map[string]string{"/v1/orders/": o.order, "/v1/payments/": o.payment, "/v1/refunds/": o.refund,
		"/v1/checkouts/": o.checkout, "/v1/disputes/": "dsp_of_the_victim",
		"/v1/webhook-endpoints/": o.endpoint, "/v1/webhook-deliveries/": o.delivery}
	for prefix, of := range id {
		if strings.HasPrefix(path, prefix) {
			path = strings.Replace(path, "{id}", of, 1)
		}
	}
	path = strings.NewReplacer("{sku}", o.sku, "{key}", url.PathEscape(o.key), "{slug}", "not-found", "{file}", "x").
		Replace(path)
	if strings.Contains(path, "{") {
		return "", fmt.Errorf("no id of the victim for %s", path)
	}
	return path, nil
}

// bodies of the operations that have one.
func bodyOf(path string, o owned) string {
	switch {
	case path == "/v1/payments":
		return o.in(`{"order_id":"ORDER","payment_method":"pm_card_visa"}`)
	case strings.HasSuffix(path, "/refunds"):
		return `{"amount":1}`
	}
	return "{}"
}

// tenancyByRoute: another tenant's id is one that does not exist.
var tenancyByRoute = attack{
	name: "tenancy by route", who: "a tenant",
	tries: "every operation of the OpenAPI document whose path names an object, with the victim's ids",
	holds: "404, byte for byte what an id that nobody has gets; no row of the victim changes",
	run: func(ctx context.Context, s *site) (string, error) {
		routes, err := s.routes(ctx)
		if err != nil {
			return "", err
		}
		n := 0
		err = s.untouched(ctx, func() error {
			for path, methods := range routes {
				// Stock is the tenant's own under whatever name, and reads as zeros.
				if !strings.HasPrefix(path, "/v1/") || !strings.Contains(path, "{") || strings.Contains(path, "{sku}") {
					continue
				}
				theirs, err := s.owned.fill(path)
				if err != nil {
					return err
				}
				nobodys, err := owned{order: "ord_none", payment: "pay_none", refund: "rfd_none", checkout: "chk_none",
					endpoint: "whe_none", delivery: "whd_none", key: "no-such-key"}.fill(path)
				if err != nil {
					return err
				}
				for _, method := range methods {
					if err := s.sameAsNobodys(ctx, method, path, theirs, nobodys, fmt.Sprint("tenancy-", n)); err != nil {
						return err
					}
					n++
				}
			}
			return nil
		})
		return fmt.Sprintf("%d operations, each 404; the victim's rows are as they were", n), err
	},
}

var volatile = regexp.MustCompile(`"request_id":"[^"]*"`)

func (s *site) sameAsNobodys(ctx context.Context, method, path, theirs, nobodys, key string) error {
	var seen [2]answer
	for i, target := range []string{theirs, nobodys} {
		a, err := s.attacker.send(ctx, method, target, map[bool]string{true: bodyOf(path, s.owned)}[method != "GET"],
			map[string][]string{"Idempotency-Key": {fmt.Sprint(key, "-", i)}})
		if err != nil {
			return err
		}
		seen[i] = a
		seen[i].body = volatile.ReplaceAllString(a.body, "")
	}
	if seen[0].status != http.StatusNotFound || seen[0].body != seen[1].body {
		return didNotHold("%s %s: %d %.200s and of nobody's id %d %.200s", method, path, seen[0].status, seen[0].body,
			seen[1].status, seen[1].body)
	}
	return nil
}

// tenancyByList: lists are the tenant's own, wherever they begin.
var tenancyByList = attack{
	name: "tenancy by list", who: "a tenant",
	tries: "every list, from its beginning and from the victim's ids",
	holds: "no id of the victim, and 400 for a page that begins after one",
	run: func(ctx context.Context, s *site) (string, error) {
		n := 0
		for _, list := range []string{"/v1/orders", "/v1/payments", "/v1/events", "/v1/disputes", "/v1/webhook-endpoints",
			"/v1/payments?order_id=ORDER", "/v1/disputes?payment_id=PAYMENT", "/v1/disputes?order_id=ORDER"} {
			a, err := s.attacker.send(ctx, "GET", s.owned.in(list), "", nil)
			if err != nil {
				return "", err
			}
			for _, id := range []string{s.owned.order, s.owned.payment, s.owned.refund, s.owned.checkout, s.owned.endpoint,
				s.owned.delivery, s.victim.id} {
				if strings.Contains(a.body, id) {
					return "", didNotHold("%s shows %s", list, id)
				}
			}
			n++
		}
		for _, page := range []string{"/v1/orders?starting_after=ORDER", "/v1/payments?starting_after=PAYMENT",
			"/v1/events?after=ORDER-1"} {
			a, err := s.attacker.send(ctx, "GET", s.owned.in(page), "", nil)
			if err != nil {
				return "", err
			}
			if a.status != http.StatusBadRequest {
				return "", didNotHold("%s: %d", page, a.status)
			}
			n++
		}
		return fmt.Sprintf("%d pages", n), nil
	},
}

// tenancyByBody: ids in bodies, and keys, are the tenant's own as well.
var tenancyByBody = attack{
	name: "tenancy by body", who: "a tenant",
	tries: "a payment of the victim's order, under a key of its own and under the victim's; the victim's SKU",
	holds: "404; a key of the same name is another key; stock of the same name is other stock",
	run: func(ctx context.Context, s *site) (string, error) {
		err := s.untouched(ctx, func() error {
			for _, key := range []string{"mine", s.owned.key} {
				a, err := s.attacker.send(ctx, "POST", "/v1/payments",
					s.owned.in(`{"order_id":"ORDER","payment_method":"pm_card_visa"}`),
					map[string][]string{"Idempotency-Key": {key}})
				if err != nil {
					return err
				}
				if a.status != http.StatusNotFound || a.header.Get("Idempotent-Replayed") != "" {
					return didNotHold("under the key %s: %d %.200s", key, a.status, a.body)
				}
			}
			stock, err := s.attacker.must(ctx, http.StatusOK, "GET", "/v1/stock/"+s.owned.sku, "", "")
			if err != nil {
				return err
			}
			if stock["available"] != 0.0 || stock["reserved"] != 0.0 {
				return didNotHold("the victim's stock shows: %v", stock)
			}
			_, err = s.attacker.must(ctx, http.StatusOK, "PUT", "/v1/stock/"+s.owned.sku, "", `{"available":1}`)
			return err
		})
		return "404 under both keys; the stock reads as zero, and setting it changes nothing of the victim's", err
	},
}
