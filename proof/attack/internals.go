package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"example.com/payonce/stripesim"
)

// internalThings are what a tenant must not learn of the network that the service is in, nor with a key that may only read.
var internalThings = attack{
	name: "internal things", who: "a tenant",
	tries: "as its endpoint names that lead inside; the history of a key whose payment met errors of the network; a payment that waits for its customer, with a read-only key",
	holds: "no answer has an address, and none with the read-only key has a client secret",
	run: func(ctx context.Context, s *site) (string, error) {
		asked := 0
		for _, host := range []string{"localhost", "ip6-localhost", "127.0.0.1.nip.io"} {
			a, err := s.attacker.send(ctx, "POST", "/v1/webhook-endpoints", fmt.Sprintf(`{"url":"https://%s:9/hooks"}`, host),
				map[string][]string{"Idempotency-Key": {"internal-" + host}})
			switch {
			case err != nil:
				return "", err
			case a.status == http.StatusCreated && host != "localhost": // It does not resolve here.
			case a.status != http.StatusBadRequest:
				return "", didNotHold("%s: %d", host, a.status)
			case hasAddress(strings.ReplaceAll(a.body, host, "")):
				return "", didNotHold("%s: %.300s", host, a.body)
			}
			asked++
		}
		order, err := s.attacker.order(ctx, "internal-things")
		if err != nil {
			return "", err
		}
		s.sim.Inject(stripesim.Fault{Op: "intent.confirm", OrderID: order, Kind: stripesim.Drop, Times: 3})
		pay := fmt.Sprintf(`{"order_id":%q,"payment_method":"pm_card_threeDSecure2Required"}`, order)
		var shown answer
		for range 50 { // until the customer must act
			if shown, err = s.attacker.send(ctx, "POST", "/v1/payments", pay, map[string][]string{"Idempotency-Key": {"internal-pay"}}); err != nil {
				return "", err
			}
			history, err := s.attacker.send(ctx, "GET", "/v1/idempotency-keys/internal-pay", "", nil)
			if err != nil {
				return "", err
			}
			if hasAddress(history.body) || hasAddress(shown.body) {
				return "", didNotHold("the history of a key: %.500s", history.body)
			}
			asked += 2
			if strings.Contains(shown.body, `"client_secret":"`) {
				break
			}
			time.Sleep(roundPause)
		}
		if !strings.Contains(shown.body, `"client_secret":"`) {
			return "", fmt.Errorf("the payment does not wait for its customer: %.300s", shown.body)
		}
		key, err := s.apiKey(ctx, s.attacker.id, true)
		if err != nil {
			return "", err
		}
		reader := client{base: s.api.URL, key: key}
		for _, path := range []string{"/v1/payments?limit=100", "/v1/payments?order_id=" + order, "/v1/events?limit=100"} {
			a, err := reader.send(ctx, "GET", path, "", nil)
			if err != nil {
				return "", err
			}
			if a.status != http.StatusOK || strings.Contains(a.body, `"client_secret":"`) {
				return "", didNotHold("%s with a read-only key: %d %.300s", path, a.status, a.body)
			}
			asked++
		}
		return fmt.Sprintf("%d answers, none with an address", asked), nil
	},
}

// hasAddress reports whether a text has one of this machine's.
func hasAddress(text string) bool {
	return strings.Contains(text, "127.0.0.1") || strings.Contains(text, "::1") || strings.Contains(text, "dial tcp")
}
