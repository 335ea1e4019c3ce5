package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// admin is a client of the operator's page.
func (s *site) admin() client { return client{base: "http://" + s.api.Admin} }

// operatorWithoutToken: neither page nor action.
var operatorWithoutToken = attack{
	name: "operator without token", who: "who reaches the admin address",
	tries: "every page and action of the operator without a session, with a made-up one, and with a wrong token",
	holds: "no page is shown, nothing is done",
	run: func(ctx context.Context, s *site) (string, error) {
		n := 0
		for _, cookie := range []string{"", "payonce_operator=", "payonce_operator=e30.e30",
			"payonce_operator=eyJhY3RvciI6ImEiLCJ1bnRpbCI6OTk5OTk5OTk5OX0.AAAA"} {
			for _, page := range []string{"GET /operator", "GET /operator/", "POST /operator/find", "GET /operator/find",
				s.owned.in("GET /operator/objects/" + s.victim.id + "/PAYMENT"), "GET /operator/intents/pi_1",
				"POST /operator/invariants", "GET /operator/actions", "GET /operator/actions/1", "GET /operator/act",
				"POST /operator/act", "POST /operator/logout"} {
				method, path, _ := strings.Cut(page, " ")
				a, err := s.admin().send(ctx, method, path, "", map[string][]string{"Cookie": {cookie}})
				if err != nil {
					return "", err
				}
				login := a.status == http.StatusSeeOther && strings.HasPrefix(a.header.Get("Location"), "/operator/login")
				if !login && (a.status != http.StatusUnauthorized || strings.Contains(a.body, s.owned.payment)) {
					return "", didNotHold("%s with %q: %d", page, cookie, a.status)
				}
				n++
			}
		}
		for _, token := range []string{"", "wrong", adminToken[1:], adminToken + "x", strings.ToUpper(adminToken)} {
			a, err := s.login(ctx, token, nil)
			if err != nil {
				return "", err
			}
			if a.status < 400 || a.header.Get("Set-Cookie") != "" {
				return "", didNotHold("the token %q signs in: %d", token, a.status)
			}
			n++
		}
		return fmt.Sprintf("%d requests, no page and no session", n), nil
	},
}

func (s *site) login(ctx context.Context, token string, header map[string][]string) (answer, error) {
	if header == nil {
		header = map[string][]string{}
	}
	header["Content-Type"] = []string{"application/x-www-form-urlencoded"}
	return s.admin().send(ctx, "POST", "/operator/login", url.Values{"token": {token}, "actor": {"Ada"}}.Encode(), header)
}

// signIn is a session as a browser has it.
func (s *site) signIn(ctx context.Context) (cookie string, err error) {
	a, err := s.login(ctx, adminToken, nil)
	if err != nil {
		return "", err
	}
	cookie, _, _ = strings.Cut(a.header.Get("Set-Cookie"), ";")
	if a.status != http.StatusSeeOther || cookie == "" {
		return "", fmt.Errorf("sign in: %d", a.status)
	}
	if all := a.header.Get("Set-Cookie"); !strings.Contains(all, "HttpOnly") || !strings.Contains(all, "SameSite=Strict") {
		return "", didNotHold("the cookie: %s", all)
	}
	return cookie, nil
}

// operatorFromAnotherSite: a page of another site cannot act with an operator's session.
var operatorFromAnotherSite = attack{
	name: "operator from another site", who: "a page in an operator's browser",
	tries: "forms that post with the operator's cookie from another origin, without or with a made-up CSRF token, in a frame",
	holds: "403; no frame may show the page, and no script runs in it",
	run: func(ctx context.Context, s *site) (string, error) {
		cookie, err := s.signIn(ctx)
		if err != nil {
			return "", err
		}
		act := url.Values{"action": {"retry"}, "tenant": {s.victim.id}, "key": {s.owned.key}}.Encode()
		n := 0
		for _, from := range []map[string][]string{
			{"Origin": {"https://evil.example"}}, {"Origin": {"null"}}, {"Sec-Fetch-Site": {"cross-site"}},
			{"Sec-Fetch-Site": {"same-site"}, "Origin": {"http://other.localhost"}}, {"Origin": {"http://" + s.api.Admin}}, {},
		} {
			for _, path := range []string{"/operator/act", "/operator/logout", "/operator/find", "/operator/invariants"} {
				header := map[string][]string{"Cookie": {cookie}, "Content-Type": {"application/x-www-form-urlencoded"}}
				for name, value := range from {
					header[name] = value
				}
				a, err := s.admin().send(ctx, "POST", path, act+"&csrf=made-up", header)
				if err != nil {
					return "", err
				}
				if a.status != http.StatusForbidden {
					return "", didNotHold("%s from %v: %d", path, from, a.status)
				}
				n++
			}
		}
		page, err := s.admin().send(ctx, "GET", "/operator", "", map[string][]string{"Cookie": {cookie}})
		if err != nil {
			return "", err
		}
		policy := page.header.Get("Content-Security-Policy")
		if page.status != http.StatusOK || !strings.Contains(policy, "frame-ancestors 'none'") ||
			!strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "script-src") {
			return "", didNotHold("the page: %d, policy %q", page.status, policy)
		}
		return fmt.Sprintf("%d forms, each 403", n), nil
	},
}

var scripts = []string{
	`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `'-alert(1)-'`, `javascript:alert(1)`, `{{7*7}}`,
	`</title><svg/onload=alert(1)>`, "\u202egnp.exe", `<!--`, `&lt;b&gt;`, `${7*7}`, `=HYPERLINK("http://evil")`,
}

// scriptsInText: free text is text, on every page that shows it.
var scriptsInText = attack{
	name: "scripts in text", who: "a tenant, or a tenant's customer",
	tries: "markup, templates and control characters in references, metadata, SKUs and keys, and the operator's pages about them",
	holds: "each is shown as the text that it is; no element of it reaches the page",
	run: func(ctx context.Context, s *site) (string, error) {
		cookie, err := s.signIn(ctx)
		if err != nil {
			return "", err
		}
		seen := 0
		for i, text := range scripts {
			quoted := strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text)
			order, err := s.attacker.must(ctx, http.StatusCreated, "POST", "/v1/orders", fmt.Sprint("scripts-", i),
				`{"currency":"usd","items":[{"sku":"`+quoted+`","quantity":1,"unit_amount":100}],"customer_reference":"`+quoted+
					`","metadata":{"`+quoted[:min(len(quoted), 4)]+`x":"`+quoted+`"}}`)
			if err != nil {
				return "", err
			}
			if order["customer_reference"] != text {
				return "", didNotHold("%q comes back as %q", text, order["customer_reference"])
			}
			page, err := s.admin().send(ctx, "GET", fmt.Sprintf("/operator/objects/%s/%s", s.attacker.id, order["id"]), "",
				map[string][]string{"Cookie": {cookie}})
			if err != nil {
				return "", err
			}
			if page.status != http.StatusOK {
				return "", fmt.Errorf("the page of an order: %d", page.status)
			}
			if strings.ContainsAny(text, `<>"`) && strings.Contains(page.body, text) {
				return "", didNotHold("the page of an order shows %s as it is", text)
			}
			seen++
		}
		return fmt.Sprintf("%d texts on the operator's pages, each escaped", seen), nil
	},
}
