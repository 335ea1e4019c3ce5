package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
)

// sentCard is a number of Stripe's for tests. After the attack it must be in no output (secretsInOutputs).
const sentCard = "4000056655665556"

// cardNumbers: a service that stores a card number is in the scope of PCI DSS.
var cardNumbers = attack{
	name: "card numbers", who: "a tenant with a careless client",
	tries: "a card number in each text, name, key, path and query, in groups and escaped; and look-alikes that are none",
	holds: "400 or 404 for each, without the number in the answer; nothing is stored; the look-alikes pass",
	run: func(ctx context.Context, s *site) (string, error) {
		const items = `"items":[{"sku":"a","quantity":1,"unit_amount":100}]`
		grouped := sentCard[:4] + " " + sentCard[4:8] + " " + sentCard[8:12] + " " + sentCard[12:]
		bad, unknown := http.StatusBadRequest, http.StatusNotFound
		var forms []form
		for name, body := range map[string]string{
			"odd groups":          `{"currency":"usd",` + items + `,"customer_reference":"` + sentCard[:6] + " " + sentCard[6:] + `"}`,
			"tabs":                `{"currency":"usd",` + items + `,"customer_reference":"` + strings.ReplaceAll(grouped, " ", `\t`) + `"}`,
			"a plus":              `{"currency":"usd",` + items + `,"customer_reference":"+` + sentCard + `"}`,
			"a SKU":               `{"currency":"usd","items":[{"sku":"` + sentCard + `","quantity":1,"unit_amount":100}]}`,
			"a reference":         `{"currency":"usd",` + items + `,"customer_reference":"paid with ` + grouped + `."}`,
			"a value of metadata": `{"currency":"usd",` + items + `,"metadata":{"a":"` + strings.ReplaceAll(grouped, " ", "-") + `"}}`,
			"a name in metadata":  `{"currency":"usd",` + items + `,"metadata":{"` + sentCard + `":"a"}}`,
			"escapes":             `{"currency":"usd",` + items + `,"metadata":{"a":"\u0034` + sentCard[1:] + `"}}`,
			"an unknown member":   `{"currency":"usd",` + items + `,"` + sentCard + `":{}}`,
			"an amount":           `{"currency":"usd","items":[{"sku":"a","quantity":1,"unit_amount":` + sentCard + `}]}`,
		} {
			forms = append(forms, form{name: name, method: "POST", path: "/v1/orders", body: body, want: bad})
		}
		for name, method := range map[string]string{"a payment method": sentCard, "an id of one": "pm_" + sentCard,
			"letters around it": "tok_1a" + sentCard} {
			forms = append(forms, form{name: name, method: "POST", path: "/v1/payments", want: bad,
				body: fmt.Sprintf(`{"order_id":%q,"payment_method":%q}`, "ord_00000000000000000000000000", method)})
		}
		for i := range forms {
			forms[i].header = map[string][]string{"Idempotency-Key": {fmt.Sprint("careless-", i)}}
		}
		for name, key := range map[string]string{"a key": sentCard, "part of a key": "order-" + sentCard, "a string": `"` + sentCard + `"`} {
			forms = append(forms, form{name: name, method: "POST", path: "/v1/orders", body: `{"currency":"usd",` + items + `}`,
				want: bad, header: map[string][]string{"Idempotency-Key": {key}}})
		}
		forms = append(forms,
			form{name: "an address", method: "GET", path: "/v1/orders/" + sentCard, want: unknown},
			form{name: "an address of a key", method: "GET", path: "/v1/idempotency-keys/" + sentCard, want: unknown},
			form{name: "a query", method: "GET", path: "/v1/orders?limit=" + sentCard, want: bad},
			form{name: "a name in a query", method: "GET", path: "/v1/orders?" + sentCard + "=1", want: bad},
			form{name: "an address of stock", method: "PUT", path: "/v1/stock/" + sentCard, body: `{"available":1}`, want: bad})
		before, err := s.still(ctx, s.attacker.id)
		if err != nil {
			return "", err
		}
		for _, f := range forms {
			a, err := s.attacker.send(ctx, f.method, f.path, f.body, f.header)
			if err != nil {
				return "", fmt.Errorf("%s: %w", f.name, err)
			}
			if a.status != f.want || strings.Contains(fmt.Sprint(a.header, a.body), sentCard) {
				return "", didNotHold("%s: %d instead of %d, or the number is repeated: %.200s", f.name, a.status, f.want, a.body)
			}
		}
		after, err := s.rows(ctx, s.attacker.id)
		if err == nil && after != before {
			err = didNotHold("something was stored")
		}
		if err != nil {
			return "", err
		}
		for _, key := range looksLikeACard {
			if _, err := s.attacker.must(ctx, http.StatusCreated, "POST", "/v1/orders", key,
				`{"currency":"usd","items":[{"sku":"`+key+`","quantity":1,"unit_amount":100}]}`); err != nil {
				return "", err
			}
		}
		return fmt.Sprintf("%d places, each refused; %d look-alikes pass", len(forms), len(looksLikeACard)), nil
	},
}

// looksLikeACard are long numbers of honest clients. The first two pass Luhn's check.
var looksLikeACard = []string{
	"1700000000004",                        // milliseconds
	"4000000000006",                        // a German article
	"42424242-4242-4242-8242-424242424242", // a UUID
	"9f86d081c7d659a2a4242424242424242b",   // a hash
	"4242424242424241",
}
