package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha1" // one of the forgeries
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// signed is Stripe's signature of a body at a time, under a secret.
func signed(body, secret string, at time.Time) (t, v1 string) {
	t = fmt.Sprint(at.Unix())
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(t + "." + body))
	return t, hex.EncodeToString(mac.Sum(nil))
}

// event says that the victim's order was paid once more.
func (s *site) event(id string) string {
	return s.owned.in(`{"id":"` + id + `","object":"event","type":"payment_intent.succeeded","data":{"object":{` +
		`"id":"pi_forged","object":"payment_intent","amount":1000,"currency":"usd","status":"succeeded",` +
		`"metadata":{"tenant_id":"` + s.victim.id + `","order_id":"ORDER"}}}}`)
}

// forgedWebhooks: an event counts if Stripe has signed these bytes a moment ago.
var forgedWebhooks = attack{
	name: "forged webhooks", who: "anybody",
	tries: "an event of Stripe's without its signature, or with one that is old, of other bytes, of another secret or form",
	holds: "400 for each; no event is stored, no row of the victim changes",
	run: func(ctx context.Context, s *site) (string, error) {
		body, now := s.event("evt_forged"), time.Now()
		t, v1 := signed(body, webhookSecret, now)
		old, ofOld := signed(body, webhookSecret, now.Add(-301*time.Second))
		ages, ofAges := signed(body, webhookSecret, now.Add(-400*24*time.Hour))
		_, ofEmpty := signed("", webhookSecret, now)
		_, ofOther := signed(s.event("evt_other"), webhookSecret, now)
		_, noSecret := signed(body, "", now)
		_, wrong := signed(body, webhookSecret+"x", now)
		_, stripped := signed(body, strings.TrimPrefix(webhookSecret, "whsec_"), now)
		mac := hmac.New(sha256.New, []byte(webhookSecret))
		mac.Write([]byte(body))
		untimed := hex.EncodeToString(mac.Sum(nil))
		mac = hmac.New(sha1.New, []byte(webhookSecret))
		mac.Write([]byte(t + "." + body))
		short := hex.EncodeToString(mac.Sum(nil))
		raw, _ := hex.DecodeString(v1)
		var forms []form
		for name, signature := range map[string][]string{
			"no header": nil, "an empty header": {""}, "no time": {"v1=" + v1}, "no signature": {"t=" + t},
			"an empty signature": {"t=" + t + ",v1="}, "another name": {"t=" + t + ",v0=" + v1},
			"a later version":           {"t=" + t + ",v2=" + v1},
			"five minutes and a second": {"t=" + old + ",v1=" + ofOld}, "a year old": {"t=" + ages + ",v1=" + ofAges},
			"an old one of a new time":         {"t=" + t + ",v1=" + ofOld},
			"a new one of an old time":         {"t=" + old + ",v1=" + v1},
			"of an empty body":                 {"t=" + t + ",v1=" + ofEmpty},
			"of another event":                 {"t=" + t + ",v1=" + ofOther},
			"of an empty secret":               {"t=" + t + ",v1=" + noSecret},
			"of another secret":                {"t=" + t + ",v1=" + wrong},
			"of the secret without its prefix": {"t=" + t + ",v1=" + stripped},
			"without the time":                 {"t=" + t + ",v1=" + untimed},
			"SHA-1":                            {"t=" + t + ",v1=" + short},
			"a character less":                 {"t=" + t + ",v1=" + v1[:len(v1)-1]},
			"half of it":                       {"t=" + t + ",v1=" + v1[:32]},
			"in base64":                        {"t=" + t + ",v1=" + base64.StdEncoding.EncodeToString(raw)},
			"zeros":                            {"t=" + t + ",v1=" + strings.Repeat("0", 64)},
			"no number as the time":            {"t=now,v1=" + v1},
			"the time as hexadecimal":          {"t=0x" + t + ",v1=" + v1},
			"a negative time":                  {"t=-" + t + ",v1=" + v1},
			"semicolons":                       {"t=" + t + ";v1=" + v1},
			"as an Authorization":              {"Bearer " + webhookSecret},
			"many wrong ones":                  {"t=" + t + strings.Repeat(",v1="+wrong, 200)},
			"in a second line":                 {"t=" + t, "v1=" + v1},
		} {
			forms = append(forms, form{name: name, method: "POST", path: "/v1/webhooks/stripe", body: body,
				header: map[string][]string{"Stripe-Signature": signature}, want: http.StatusBadRequest})
		}
		right := map[string][]string{"Stripe-Signature": {"t=" + t + ",v1=" + v1}}
		for name, changed := range map[string]string{
			"a blank more": body + " ", "a line more": body + "\n", "a blank less": strings.Replace(body, "evt_", "evt-", 1),
			"another amount": strings.Replace(body, "1000", "9999", 1), "two events": body + body,
		} {
			forms = append(forms, form{name: name, method: "POST", path: "/v1/webhooks/stripe", body: changed, header: right,
				want: http.StatusBadRequest})
		}
		err := s.untouched(ctx, func() error { return allRefused(ctx, client{base: s.api.URL}, forms) })
		if err != nil {
			return "", err
		}
		var stored int
		if err := s.pool.Raw().QueryRow(ctx, "SELECT count(*) FROM inbox_events WHERE object_id = 'pi_forged'").
			Scan(&stored); err != nil {
			return "", err
		}
		if stored > 0 {
			return "", didNotHold("%d forged events are stored", stored)
		}
		return fmt.Sprintf("%d forgeries, each 400; none is stored", len(forms)), nil
	},
}

// replayedWebhook: who has seen a signed event may send it again, within five minutes.
var replayedWebhook = attack{
	name: "replayed webhook", who: "who has seen one of Stripe's events",
	tries: "the same event twenty times at once, and a claim in it that is not so at Stripe",
	holds: "200 for each, one row; what it claims is asked of Stripe and not believed",
	run: func(ctx context.Context, s *site) (string, error) {
		body := s.event("evt_replayed")
		t, v1 := signed(body, webhookSecret, time.Now())
		err := s.untouched(ctx, func() error {
			failed := make(chan error, 20)
			for range 20 {
				go func() {
					failed <- allRefused(ctx, client{base: s.api.URL}, []form{{name: "again", method: "POST",
						path: "/v1/webhooks/stripe", body: body, want: http.StatusOK,
						header: map[string][]string{"Stripe-Signature": {"t=" + t + ",v1=" + v1}}}})
				}()
			}
			for range 20 {
				if err := <-failed; err != nil {
					return err
				}
			}
			return s.settled(ctx, "SELECT count(*) FROM inbox_events WHERE event_id = 'evt_replayed' AND status = 'done'")
		})
		return "one row, applied; the payment is as Stripe has it", err
	},
}

// settled waits until a query counts one.
func (s *site) settled(ctx context.Context, query string) error {
	return s.settledWithin(ctx, 10*time.Second, query)
}

func (s *site) settledWithin(ctx context.Context, within time.Duration, query string) error {
	var n int
	for deadline := time.Now().Add(within); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if err := s.pool.Raw().QueryRow(ctx, query).Scan(&n); err != nil || n == 1 {
			return err
		}
	}
	return didNotHold("%s: %d", query, n)
}
