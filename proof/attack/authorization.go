package main

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// parts are the tenant that an API key names, up to the underscore behind it, and its secret, which may contain more.
func parts(key string) (owner, secret string) {
	const prefix = "payonce_"
	end := len(prefix) + strings.Index(strings.TrimPrefix(key, prefix), "_") + 1
	return key[:end], key[end:]
}

// authorizationForms: what is not exactly a valid key in exactly one header is no key.
var authorizationForms = attack{
	name: "authorization", who: "anybody",
	tries: "forms of the Authorization header that are nearly an API key: cut, changed, doubled, encoded, in another place",
	holds: "401 for each, and nothing about the tenant",
	run: func(ctx context.Context, s *site) (string, error) {
		key := s.victim.key
		owner, secret := parts(key)
		sum := sha256.Sum256([]byte(key))
		swapped := func(at int) string {
			changed := []byte(key)
			changed[at] ^= 1
			return string(changed)
		}
		var forms []form
		add := func(name string, header map[string][]string) {
			forms = append(forms, form{name: name, method: "GET", path: "/v1/orders/" + s.owned.order, header: header,
				want: http.StatusUnauthorized})
		}
		for name, value := range map[string]string{
			"empty": "", "the scheme alone": "Bearer", "the scheme and a blank": "Bearer ", "no scheme": key,
			"two blanks": "Bearer  " + key, "a tab": "Bearer\t" + key, "no blank": "Bearer" + key,
			"Basic":               "Basic " + base64.StdEncoding.EncodeToString([]byte(key+":")),
			"Basic with the key":  "Basic " + key,
			"Token":               "Token " + key,
			"Digest":              "Digest " + key,
			"a character less":    "Bearer " + key[:len(key)-1],
			"a character more":    "Bearer " + key + "A",
			"first character cut": "Bearer " + key[1:],
			"last changed":        "Bearer " + swapped(len(key)-1),
			"first changed":       "Bearer " + swapped(0),
			"one of the secret":   "Bearer " + swapped(len(owner)+7),
			"one of the tenant":   "Bearer " + swapped(len(owner)-2),
			"upper case":          "Bearer " + strings.ToUpper(key),
			"tenant upper case":   "Bearer " + strings.ToUpper(owner) + secret,
			"no secret":           "Bearer " + owner,
			"no tenant":           "Bearer payonce__" + secret,
			"the tenant's id":     "Bearer " + s.victim.id,
			"only the secret":     "Bearer " + secret,
			"twice":               "Bearer " + key + key,
			"a list":              "Bearer " + key + ", Bearer " + key,
			"in quotes":           `Bearer "` + key + `"`,
			"in brackets":         "Bearer <" + key + ">",
			"percent-encoded":     "Bearer " + url.QueryEscape(key) + "%00",
			"base64":              "Bearer " + base64.StdEncoding.EncodeToString([]byte(key)),
			"its hash":            "Bearer " + hex.EncodeToString(sum[:]),
			"owner and its hash":  "Bearer " + owner + hex.EncodeToString(sum[:]),
			"a wildcard":          "Bearer " + owner + "%",
			"SQL":                 "Bearer " + owner + "' OR '1'='1",
			"SQL as the tenant":   "Bearer payonce_' OR 1=1 --_" + secret,
			"a path":              "Bearer ../../" + key,
			"null":                "Bearer null",
			"undefined":           "Bearer undefined",
			"very long":           "Bearer " + owner + strings.Repeat("A", 4000),
		} {
			add(name, map[string][]string{"Authorization": {value}})
		}
		add("two headers", map[string][]string{"Authorization": {"Bearer " + key, "Bearer " + key}})
		add("a wrong header and a right one", map[string][]string{"Authorization": {"Bearer x", "Bearer " + key}})
		add("X-Api-Key", map[string][]string{"X-Api-Key": {key}})
		add("Proxy-Authorization", map[string][]string{"Proxy-Authorization": {"Bearer " + key}})
		add("a cookie", map[string][]string{"Cookie": {"api_key=" + key + "; authorization=Bearer " + key}})
		forms = append(forms, form{name: "in the query", method: "GET", want: http.StatusUnauthorized,
			path: "/v1/orders/" + s.owned.order + "?api_key=" + key + "&access_token=" + key})
		anybody := client{base: s.api.URL}
		for _, f := range forms {
			a, err := anybody.send(ctx, f.method, f.path, "", f.header)
			if err != nil {
				return "", fmt.Errorf("%s: %w", f.name, err)
			}
			if a.status != f.want || strings.Contains(a.body, s.victim.id) || a.header.Get("WWW-Authenticate") == "" {
				return "", didNotHold("%s: %d %.200s", f.name, a.status, a.body)
			}
		}
		if _, err := s.victim.must(ctx, http.StatusOK, "GET", "/v1/orders/"+s.owned.order, "", ""); err != nil {
			return "", err
		}
		return fmt.Sprintf("%d forms, each 401; the key itself 200", len(forms)), nil
	},
}

// keysOfOthers: a key names its tenant, and its secret is the tenant's.
var keysOfOthers = attack{
	name: "keys of others", who: "a tenant",
	tries: "its own secret under the victim's name, and the victim's name under its own secret, on every route",
	holds: "401 on every route under /v1 but Stripe's webhooks",
	run: func(ctx context.Context, s *site) (string, error) {
		routes, err := s.routes(ctx)
		if err != nil {
			return "", err
		}
		victim, _ := parts(s.victim.key)
		_, secret := parts(s.attacker.key)
		forged := client{base: s.api.URL, key: victim + secret}
		n := 0
		for path, methods := range routes {
			if !strings.HasPrefix(path, "/v1/") || path == "/v1/webhooks/stripe" {
				continue
			}
			for _, method := range methods {
				target, err := s.owned.fill(path)
				if err != nil {
					return "", err
				}
				a, err := forged.send(ctx, method, target, "{}", map[string][]string{"Idempotency-Key": {"forged"}})
				if err != nil {
					return "", err
				}
				if a.status != http.StatusUnauthorized {
					return "", didNotHold("%s %s: %d", method, path, a.status)
				}
				n++
			}
		}
		return fmt.Sprintf("%d operations, each 401", n), nil
	},
}
