package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
)

// malformedBodies: what is not exactly a request is refused, and says where.
var malformedBodies = attack{
	name: "malformed bodies", who: "a tenant",
	tries: "bodies that parsers disagree about: duplicate and unknown members, depth, other types, encodings, sizes, bytes",
	holds: "a 4xx for each, never a 5xx; nothing is stored",
	run: func(ctx context.Context, s *site) (string, error) {
		const items = `"items":[{"sku":"a","quantity":1,"unit_amount":100}]`
		bad, media, large := http.StatusBadRequest, http.StatusUnsupportedMediaType, http.StatusRequestEntityTooLarge
		forms := []form{
			{name: "another type", body: `{"currency":"usd",` + items + `}`, want: media,
				header: map[string][]string{"Content-Type": {"text/plain"}}},
			{name: "a form", body: `currency=usd`, want: media,
				header: map[string][]string{"Content-Type": {"application/x-www-form-urlencoded"}}},
			{name: "XML", body: `<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>`, want: media,
				header: map[string][]string{"Content-Type": {"application/xml"}}},
			{name: "65 KiB", body: `{"currency":"usd","metadata":{"a":"` + strings.Repeat("x", 65<<10) + `"}}`, want: large},
		}
		for name, body := range map[string]string{
			"an unknown member": `{"currency":"usd",` + items + `,"status":"paid"}`,
			"the same twice":    `{"currency":"usd","currency":"eur",` + items + `}`,
			"in another case":   `{"Currency":"usd",` + items + `}`,
			"something behind":  `{"currency":"usd",` + items + `}{}`,
			"unclosed":          `{"currency":"usd",` + items,
			"a byte order mark": "\ufeff" + `{"currency":"usd",` + items + `}`,
			"a comment":         `{"currency":"usd",/**/` + items + `}`,
			"a comma more":      `{"currency":"usd",` + items + `,}`,
			"single quotes":     `{'currency':'usd'}`,
			"NaN":               `{"currency":"usd","items":[{"sku":"a","quantity":NaN,"unit_amount":100}]}`,
			"a float":           `{"currency":"usd","items":[{"sku":"a","quantity":1,"unit_amount":99.99}]}`,
			"an exponent":       `{"currency":"usd","items":[{"sku":"a","quantity":1,"unit_amount":1e400}]}`,
			"text as a number":  `{"currency":"usd","items":[{"sku":"a","quantity":1,"unit_amount":"100"}]}`,
			"negative":          `{"currency":"usd","items":[{"sku":"a","quantity":1,"unit_amount":-100}]}`,
			"negative quantity": `{"currency":"usd","items":[{"sku":"a","quantity":-1,"unit_amount":100}]}`,
			"overflow":          `{"currency":"usd","items":[{"sku":"a","quantity":1,"unit_amount":9223372036854775808}]}`,
			"overflow of a sum": `{"currency":"usd","items":[` + strings.Repeat(
				`{"sku":"a","quantity":1000000,"unit_amount":99999999},`, 99) + `{"sku":"a","quantity":1,"unit_amount":1}]}`,
			"null":         `{"currency":null,` + items + `}`,
			"an array":     `[{"currency":"usd",` + items + `}]`,
			"a string":     `"usd"`,
			"nothing":      ` `,
			"deep":         `{"metadata":` + strings.Repeat(`{"a":`, 5000) + "1" + strings.Repeat("}", 5001),
			"deep arrays":  strings.Repeat("[", 30000),
			"many members": `{"metadata":{` + strings.Repeat(`"a":"",`, 6000) + `"b":""}}`,
			"a NUL":        `{"currency":"usd","items":[{"sku":"a\u0000b","quantity":1,"unit_amount":100}]}`,
			"a raw NUL":    "{\"currency\":\"usd\x00\"}",
			"half a pair":  `{"currency":"usd","items":[{"sku":"\ud800","quantity":1,"unit_amount":100}]}`,
			"not UTF-8":    "{\"currency\":\"us\xff\"," + items + "}",
			"a prototype":  `{"currency":"usd",` + items + `,"__proto__":{"status":"paid"}}`,
			"no currency":  `{"currency":"xyz",` + items + `}`,
			"SQL":          `{"currency":"usd'; DROP TABLE orders; --",` + items + `}`,
		} {
			forms = append(forms, form{name: name, body: body, want: bad})
		}
		for i := range forms {
			forms[i].method, forms[i].path = "POST", "/v1/orders"
			if forms[i].header == nil {
				forms[i].header = map[string][]string{}
			}
			forms[i].header["Idempotency-Key"] = []string{fmt.Sprint("malformed-", i)}
		}
		before, err := s.still(ctx, s.attacker.id)
		if err == nil {
			err = allRefused(ctx, s.attacker.client, forms)
		}
		if err != nil {
			return "", err
		}
		after, err := s.rows(ctx, s.attacker.id)
		if err == nil && after != before {
			err = didNotHold("something was stored")
		}
		return fmt.Sprintf("%d bodies, each refused; nothing is stored", len(forms)), err
	},
}

// malformedKeys: an Idempotency-Key is visible ASCII, once.
var malformedKeys = attack{
	name: "malformed keys", who: "a tenant",
	tries: "no Idempotency-Key, two, an empty one, one that is too long, with blanks, quotes, other characters, parameters",
	holds: "400 for each; the two spellings of one key are one key",
	run: func(ctx context.Context, s *site) (string, error) {
		const body = `{"currency":"usd","items":[{"sku":"a","quantity":1,"unit_amount":100}]}`
		var forms []form
		for name, key := range map[string][]string{
			"none": nil, "empty": {""}, "two": {"a", "b"}, "the same twice": {"a", "a"}, "201 characters": {strings.Repeat("k", 201)},
			"a blank inside": {"a b"}, "quotes that do not end": {`"a`}, "parameters": {`"a";b=1`}, "an empty string": {`""`},
			"a tab": {"a\tb"}, "a letter beyond ASCII": {"ключ"}, "an escape": {`"a\n"`}, "a byte beyond ASCII": {"a\xffb"},
			"a list": {`"a", "b"`},
		} {
			forms = append(forms, form{name: name, method: "POST", path: "/v1/orders", body: body, want: http.StatusBadRequest,
				header: map[string][]string{"Idempotency-Key": key}})
		}
		if err := allRefused(ctx, s.attacker.client, forms); err != nil {
			return "", err
		}
		bare, err := s.attacker.must(ctx, http.StatusCreated, "POST", "/v1/orders", "spelled", body)
		if err != nil {
			return "", err
		}
		quoted, err := s.attacker.must(ctx, http.StatusCreated, "POST", "/v1/orders", `"spelled"`, body)
		if err == nil && quoted["id"] != bare["id"] {
			err = didNotHold("a key and its quoted form made two orders")
		}
		return fmt.Sprintf("%d keys, each 400", len(forms)), err
	},
}

// hostilePaths lead nowhere.
var hostilePaths = attack{
	name: "hostile paths", who: "anybody",
	tries: "traversal, encodings, NUL, doubled slashes, other methods, files that servers leave lying about",
	holds: "a 4xx or a redirect to a path of its own; no file, no stack, no 5xx",
	run: func(ctx context.Context, s *site) (string, error) {
		n := 0
		for _, path := range []string{
			"/v1/../../etc/passwd", "/v1/orders/..%2f..%2fetc%2fpasswd", "/docs/assets/..%2f..%2fgo.mod",
			"/docs/assets/%2e%2e/openapi.yaml", "/problems/..%2f..%2fetc%2fpasswd", "/problems/%00", "/v1/orders/%00",
			"/v1/orders/%ff%fe", "/v1/orders/ord_%0d%0aSet-Cookie:a=b", "//v1//orders//", "/v1/orders/" + strings.Repeat("a", 7000),
			"/.env", "/.git/config", "/debug/pprof/", "/metrics", "/operator", "/admin", "/v1/orders;a=b/x", "/v1/orders?limit=-1",
			"/v1/orders?limit=1e9", "/v1/orders?limit=%00", "/v1/events?after=%27%20OR%201=1", "/v1/idempotency-keys/%00",
			"/v1/idempotency-keys/" + strings.Repeat("k", 5000), "/v1/stock/%2e%2e%2f", "/v1/stock/" + strings.Repeat("%20", 90),
		} {
			for _, method := range []string{"GET", "POST", "DELETE", "PATCH", "TRACE", "OPTIONS", "CONNECTX"} {
				a, err := s.attacker.send(ctx, method, path, "", map[string][]string{"Idempotency-Key": {"hostile"}})
				if err != nil {
					return "", err
				}
				stock := strings.HasPrefix(path, "/v1/stock/") && a.status == http.StatusOK // any SKU reads as zeros
				elsewhere := a.header.Get("Location")
				if (a.status < 300 || a.status >= 500) && !stock || strings.Contains(a.body, "root:") ||
					strings.Contains(a.body, "goroutine ") || a.header.Get("Set-Cookie") != "" ||
					elsewhere != "" && (!strings.HasPrefix(elsewhere, "/") || strings.HasPrefix(elsewhere, "//")) {
					return "", didNotHold("%s %.60s: %d %q %.200s", method, path, a.status, elsewhere, a.body)
				}
				n++
			}
		}
		return fmt.Sprintf("%d requests", n), nil
	},
}
