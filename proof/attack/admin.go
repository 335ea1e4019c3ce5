package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
)

// foreignProfiles: memory is for those who have the token.
var foreignProfiles = attack{
	name: "profiles", who: "who reaches the admin address, or a page that has pointed its name there",
	tries: "every profile without the token, with wrong ones, with an API key, by other names and from other sites",
	holds: "401, 403 or 429 for each; the token itself is admitted",
	run: func(ctx context.Context, s *site) (string, error) {
		n := 0
		right := map[string][]string{"Authorization": {"Bearer " + adminToken}}
		if a, err := s.admin().send(ctx, "GET", "/debug/pprof/cmdline", "", right); err != nil {
			return "", err
		} else if a.status != http.StatusOK {
			return "", fmt.Errorf("a profile with the token: %d", a.status)
		}
		for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/goroutine?debug=2", "/debug/pprof/cmdline",
			"/debug/pprof/symbol", "/debug/pprof/trace?seconds=1"} {
			for _, header := range []map[string][]string{
				{}, {"Host": {"rebound.example"}}, {"Host": {"localhost"}}, {"Authorization": {"Bearer " + adminToken[1:]}},
				{"Authorization": {"Bearer " + s.attacker.key}}, {"Authorization": {adminToken}},
				{"Authorization": {"Bearer " + adminToken}, "Sec-Fetch-Site": {"cross-site"}},
			} {
				a, err := s.admin().send(ctx, "GET", path, "", header)
				if err != nil {
					return "", err
				}
				switch a.status {
				case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests:
				default:
					return "", didNotHold("%s with %d headers: %d", path, len(header), a.status)
				}
				n++
			}
		}
		return fmt.Sprintf("%d requests, each refused", n), nil
	},
}

// guessedTokens comes last of what signs in: it uses up the tries of this machine's address.
var guessedTokens = attack{
	name: "guessed tokens", who: "who reaches the admin address",
	tries: "100 wrong tokens, each with another X-Forwarded-For",
	holds: "429 for each after a few, and no session",
	run: func(ctx context.Context, s *site) (string, error) {
		compared := 0
		for i := range 100 {
			a, err := s.login(ctx, fmt.Sprintf("guess-%d", i), map[string][]string{"X-Forwarded-For": {fmt.Sprintf("10.0.0.%d", i)}})
			if err != nil {
				return "", err
			}
			switch a.status {
			case http.StatusUnauthorized:
				compared++
			case http.StatusTooManyRequests:
			default:
				return "", didNotHold("a guess: %d", a.status)
			}
		}
		// Ten at once and one every ten seconds, of which this loop takes no more than a few.
		if compared > 20 {
			return "", didNotHold("%d of 100 guesses were compared", compared)
		}
		return fmt.Sprintf("%d of 100 guesses were compared with the token", compared), nil
	},
}

// signedOutSession: a cookie is worth nothing after its session was signed out.
var signedOutSession = attack{
	name: "signed-out session", who: "who has copied an operator's cookie",
	tries: "pages and actions with the cookie, after the operator has signed out",
	holds: "no page is shown, nothing is done",
	run: func(ctx context.Context, s *site) (string, error) {
		cookie, err := s.signIn(ctx)
		if err != nil {
			return "", err
		}
		header := map[string][]string{"Cookie": {cookie}, "Content-Type": {"application/x-www-form-urlencoded"}}
		page, err := s.admin().send(ctx, "GET", "/operator", "", header)
		if err != nil {
			return "", err
		}
		csrf := regexp.MustCompile(`name="csrf" value="([^"]*)"`).FindStringSubmatch(page.body)
		form := url.Values{}
		if csrf != nil {
			form.Set("csrf", csrf[1])
		}
		if _, err := s.admin().send(ctx, "POST", "/operator/logout", form.Encode(), header); err != nil {
			return "", err
		}
		n := 0
		for _, try := range []string{"GET /operator", "GET /operator/actions", "GET /operator/act", "POST /operator/act", "POST /operator/find"} {
			method, path, _ := strings.Cut(try, " ")
			body := ""
			if method == http.MethodPost {
				body = form.Encode()
			}
			a, err := s.admin().send(ctx, method, path, body, header)
			if err != nil {
				return "", err
			}
			login := a.status == http.StatusSeeOther && strings.HasPrefix(a.header.Get("Location"), "/operator/login")
			if !login && a.status != http.StatusUnauthorized {
				return "", didNotHold("%s: %d", try, a.status)
			}
			n++
		}
		return fmt.Sprintf("%d requests, each sent to the sign-in", n), nil
	},
}
