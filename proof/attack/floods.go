package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"example.com/payonce/stripesim"
)

const (
	floodConnections = 1000
	floodWaiters     = 2000
	floodMany        = 4000 // connections, more than a queue has room for
	floodReaders     = 100
	floodPages       = 100 // large orders
	floodTime        = 2 * time.Second
	floodTimeLong    = 20 * time.Second
	floodPayers      = 300
	resumed          = 300
	floodOrders      = 600
	floodStripeRPS   = 25
	floodStripeTakes = 20 * time.Millisecond
	webhookHolders   = 60 // twice as many as there is room for
)

const doesNotSlow = "payments, orders and reads of another tenant take at most ten times as long as without it, none fails, " +
	"Stripe's signed webhooks are stored, and the process is ready throughout"

// floodOf makes an attack of the requests that prepare returns.
func floodOf(name, who, tries string, connections int, prepare func(context.Context, *site) ([]string, error)) attack {
	return attack{
		name: "flood of " + name, who: who, tries: fmt.Sprintf(tries, connections), holds: doesNotSlow,
		run: func(ctx context.Context, s *site) (string, error) {
			if err := s.floodIsOver(ctx); err != nil {
				return "", err
			}
			requests, err := prepare(ctx, s)
			if err != nil {
				return "", err
			}
			f := flood{Addr: strings.TrimPrefix(s.api.URL, "http://"), Connections: connections, Requests: requests}
			return s.under(ctx, f)
		},
	}
}

// floodIsOver waits until the requests that an earlier flood has left in the attacker's queues are answered: they do not
// go with their connections, and this one's would wait behind them. A mistake in a large body goes through the slowest.
func (s *site) floodIsOver(ctx context.Context) error {
	for {
		a, err := s.attacker.send(ctx, "POST", "/v1/orders", strings.Repeat(" ", 5<<10)+"{}", map[string][]string{"Idempotency-Key": {"over"}})
		switch {
		case err != nil:
			return err
		case a.status == http.StatusBadRequest:
			return nil
		case a.status != http.StatusServiceUnavailable && a.status != http.StatusTooManyRequests:
			return fmt.Errorf("an order without items: %d", a.status)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// under is what becomes of the victim in a flood.
func (s *site) under(ctx context.Context, f flood) (string, error) {
	return s.amid(ctx, max(s.floodTime(), f.Unread+time.Second), func() (func() error, error) {
		end, err := f.send(ctx)
		return func() error {
			answers, err := end()
			if err == nil && len(answers) == 0 {
				err = errors.New("the flood got no answer")
			}
			return err
		}, err
	})
}

func (s *site) floodTime() time.Duration {
	if s.long {
		return floodTimeLong
	}
	return floodTime
}

var (
	floodOfWrongKeys = floodOf("wrong keys", "anybody", "%d connections, each with a new API key in every request",
		floodConnections, func(_ context.Context, s *site) ([]string, error) {
			key := "payonce_" + strings.TrimPrefix(s.victim.id, "ten_") + "_" + random
			return []string{raw("GET", "/v1/payments/"+s.owned.payment, key, "", "")}, nil
		})
	floodOfReads = floodOf("reads", "a tenant", "%d connections that read a payment and lists", floodConnections,
		func(ctx context.Context, s *site) ([]string, error) {
			payment, err := s.attacker.pay(ctx, "flood-of-reads")
			return []string{
				raw("GET", "/v1/payments/"+payment, s.attacker.key, "", ""),
				raw("GET", "/v1/payments?limit=100", s.attacker.key, "", ""),
				raw("GET", "/v1/events?limit=100", s.attacker.key, "", ""),
				raw("GET", "/v1/idempotency-keys/flood-of-reads-pay", s.attacker.key, "", ""),
			}, err
		})
	floodOfReplays = floodOf("replays", "a tenant", "%d connections that repeat a finished payment", floodConnections,
		func(ctx context.Context, s *site) ([]string, error) {
			_, err := s.attacker.pay(ctx, "flood-of-replays")
			if err != nil {
				return nil, err
			}
			order, err := s.attacker.order(ctx, "flood-of-replays")
			return []string{raw("POST", "/v1/payments", s.attacker.key, "flood-of-replays-pay",
				fmt.Sprintf(`{"order_id":%q,"payment_method":"pm_card_visa"}`, order))}, err
		})
	floodOfNewWork = floodOf("new work", "a tenant", "%d connections that make orders", floodConnections,
		func(_ context.Context, s *site) ([]string, error) {
			return []string{raw("POST", "/v1/orders", s.attacker.key, random,
				`{"currency":"usd","items":[{"sku":"a","quantity":1,"unit_amount":100}]}`)}, nil
		})
	floodOfInvalidBodies = floodOf("invalid bodies", "a tenant", "%d connections that send bodies of 60 KiB with a mistake at their end",
		floodConnections, func(_ context.Context, s *site) ([]string, error) {
			item := `{"sku":"` + strings.Repeat("a", 64) + `","quantity":1,"unit_amount":100},`
			body := `{"currency":"usd","items":[` + strings.Repeat(item, 60<<10/len(item)) + `{"sku":1}]}`
			return []string{raw("POST", "/v1/orders", s.attacker.key, random, body)}, nil
		})
	floodOfRefusals = floodOf("refusals", "a tenant",
		"%d connections that write with a read-only API key, and send bodies that are too large", floodConnections,
		func(ctx context.Context, s *site) ([]string, error) {
			readOnly, err := s.apiKey(ctx, s.attacker.id, true)
			return []string{
				raw("POST", "/v1/orders", readOnly, random, "{}"),
				raw("POST", "/v1/orders", readOnly, random, "{}"),
				raw("POST", "/v1/orders", s.attacker.key, random, strings.Repeat(" ", 70<<10)),
			}, err
		})
	floodOfMistakes = floodOf("mistakes", "a tenant", "%d connections that send orders without items", floodConnections,
		func(_ context.Context, s *site) ([]string, error) {
			return []string{raw("POST", "/v1/orders", s.attacker.key, random, "{}")}, nil
		})
	floodOfBadQueries = floodOf("bad queries", "a tenant", "%d connections that read lists with a parameter that does not exist",
		floodConnections, func(_ context.Context, s *site) ([]string, error) {
			return []string{raw("GET", "/v1/orders?x=1", s.attacker.key, "", "")}, nil
		})
	floodOfLargeOrders = floodOf("large orders", "a tenant", "%d connections that make orders of 21 KB: 100 items, and full metadata",
		floodConnections, func(_ context.Context, s *site) ([]string, error) {
			return []string{raw("POST", "/v1/orders", s.attacker.key, random, largeOrder())}, nil
		})
	floodOfLargeLists = floodOf("large lists", "a tenant", "%d connections that list a hundred orders of 110 KB, and their events",
		floodReaders, func(ctx context.Context, s *site) ([]string, error) {
			for i := range floodPages {
				_, err := s.attacker.inTime(ctx, http.StatusCreated, "POST", "/v1/orders", fmt.Sprint("flood-of-large-lists-", i), largeOrder())
				if err != nil {
					return nil, err
				}
			}
			return []string{
				raw("GET", "/v1/orders?limit=100", s.attacker.key, "", ""),
				raw("GET", "/v1/events?limit=100", s.attacker.key, "", ""),
			}, nil
		})
	floodOfRefunds = floodOf("refunds", "a tenant", "%d connections that each refund a cent of one payment", floodConnections,
		func(ctx context.Context, s *site) ([]string, error) {
			order, err := s.attacker.inTime(ctx, http.StatusCreated, "POST", "/v1/orders", "flood-of-refunds",
				`{"currency":"usd","items":[{"sku":"a","quantity":1,"unit_amount":9999999}]}`)
			if err != nil {
				return nil, err
			}
			payment, err := s.attacker.inTime(ctx, http.StatusCreated, "POST", "/v1/payments", "flood-of-refunds-pay",
				fmt.Sprintf(`{"order_id":%q,"payment_method":"pm_card_visa"}`, order["id"]))
			if err != nil {
				return nil, err
			}
			return []string{raw("POST", fmt.Sprintf("/v1/payments/%s/refunds", payment["id"]), s.attacker.key, random, `{"amount":1}`)}, nil
		})
	floodOfResumes = floodOf("resumes", "a tenant", "%d connections that repeat 300 payments which wait for their customers", floodConnections,
		func(ctx context.Context, s *site) (requests []string, err error) {
			for i := range resumed {
				key := fmt.Sprint("flood-of-resumes-", i)
				order, err := s.attacker.inTime(ctx, http.StatusCreated, "POST", "/v1/orders", key,
					`{"currency":"usd","items":[{"sku":"a","quantity":1,"unit_amount":100}]}`)
				if err != nil {
					return nil, err
				}
				body := fmt.Sprintf(`{"order_id":%q,"payment_method":"pm_card_threeDSecure2Required"}`, order["id"])
				if _, err := s.attacker.inTime(ctx, http.StatusAccepted, "POST", "/v1/payments", key+"-pay", body); err != nil {
					return nil, err
				}
				requests = append(requests, raw("POST", "/v1/payments", s.attacker.key, key+"-pay", body))
			}
			return requests, nil
		})
	floodOfStock = floodOf("stock", "a tenant", "%d connections that set the stock of an SKU, faster than the rate limit",
		floodConnections, func(_ context.Context, s *site) ([]string, error) {
			return []string{raw("PUT", "/v1/stock/a", s.attacker.key, "", `{"available":1}`)}, nil
		})
	floodOfStockMistakes = floodOf("stock mistakes", "a tenant", "%d connections that set a stock without a number",
		floodConnections, func(_ context.Context, s *site) ([]string, error) {
			return []string{raw("PUT", "/v1/stock/a", s.attacker.key, "", "{}")}, nil
		})
	floodOfWaiters = floodOf("waiters", "a tenant", "%d connections with Prefer: wait=10 and the key of a payment that hangs at Stripe",
		floodWaiters, func(ctx context.Context, s *site) ([]string, error) {
			order, err := s.attacker.order(ctx, "flood-of-waiters")
			if err != nil {
				return nil, err
			}
			s.sim.Inject(stripesim.Fault{Op: "intent.confirm", OrderID: order, Kind: stripesim.BlackHole, Times: 1})
			body := fmt.Sprintf(`{"order_id":%q,"payment_method":"pm_card_visa"}`, order)
			go func() { // It is answered when the flood is over.
				_, _ = s.attacker.send(ctx, "POST", "/v1/payments", body, map[string][]string{"Idempotency-Key": {"flood-of-waiters-pay"}})
			}()
			time.Sleep(200 * time.Millisecond)
			return []string{strings.Replace(raw("POST", "/v1/payments", s.attacker.key, "flood-of-waiters-pay", body),
				"\r\n", "\r\nPrefer: wait=10\r\n", 1)}, nil
		})
	floodOfUnsignedWebhooks = floodOf("unsigned webhooks", "anybody", "%d connections that send events of 100 KiB under made-up signatures",
		floodConnections, func(_ context.Context, _ *site) ([]string, error) {
			return []string{unsignedWebhook(100 << 10)}, nil
		})
	floodOfHeldWebhooks = floodOf("webhooks without an end", "anybody",
		"%d connections that send events of 1 MiB under made-up signatures, but for their last bytes, and wait", webhookHolders,
		func(_ context.Context, _ *site) ([]string, error) {
			event := unsignedWebhook(1<<20 - 100)
			return []string{event[:len(event)-6], unsignedWebhook(100)}, nil // A whole one now and then shows that it is heard.
		})
	floodOfProbes = floodOf("probes", "anybody", "%d connections that ask whether the process is ready", floodConnections,
		func(_ context.Context, _ *site) ([]string, error) {
			return []string{raw("GET", "/readyz", "", "", "")}, nil
		})
	floodOfStrangers = floodOf("strangers", "anybody",
		"%d connections, which is more than a queue has room for, with a wrong key, with none, and with what is no HTTP", floodMany,
		func(_ context.Context, s *site) ([]string, error) {
			key := "payonce_" + strings.TrimPrefix(s.victim.id, "ten_") + "_" + random
			return []string{
				raw("GET", "/v1/payments", key, "", ""), raw("GET", "/v1/payments", "", "", ""), "GET\r\n\r\n",
			}, nil
		})
	floodOfManyProbes = floodOf("more probes", "anybody", "%d connections that ask whether the process is alive or ready", floodMany,
		func(_ context.Context, _ *site) ([]string, error) {
			return []string{raw("GET", "/readyz", "", "", ""), raw("GET", "/healthz", "", "", "")}, nil
		})
	floodOfManyPages = floodOf("more pages", "anybody", "%d connections that read the OpenAPI document", floodMany,
		func(_ context.Context, _ *site) ([]string, error) {
			return []string{raw("GET", "/openapi.json", "", "", "")}, nil
		})
	floodOfConnections = floodOf("connections", "a tenant", "%d connections that repeat a finished order", floodMany,
		func(ctx context.Context, s *site) ([]string, error) {
			_, err := s.attacker.order(ctx, "flood-of-connections")
			return []string{raw("POST", "/v1/orders", s.attacker.key, "flood-of-connections",
				`{"currency":"usd","items":[{"sku":"a","quantity":1,"unit_amount":100}]}`)}, err
		})
	floodOfPages = floodOf("pages", "anybody", "%d connections that read the OpenAPI document and pages that do not exist", floodConnections,
		func(_ context.Context, _ *site) ([]string, error) {
			return []string{raw("GET", "/openapi.json", "", "", ""), raw("GET", "/"+random, "", "", "")}, nil
		})
)

// floodOfCheckouts uses up what Stripe takes of all tenants together. The victim's call then waits for its turn, 40 ms at
// most, which is little only beside the time that Stripe takes.
var floodOfCheckouts = attack{
	name: "flood of checkouts", who: "a tenant",
	tries: fmt.Sprintf("%d connections that make checkouts, where Stripe takes %v for a call", floodConnections, floodStripeTakes),
	holds: doesNotSlow,
	run: func(ctx context.Context, s *site) (string, error) {
		return s.another(ctx, s.server, nil, func(s *site) (string, error) {
			s.stripeTakes(floodStripeTakes)
			_, err := s.attacker.must(ctx, http.StatusOK, "PUT", "/v1/stock/flood", "", `{"available":1000000}`)
			if err != nil {
				return "", err
			}
			return s.under(ctx, flood{
				Addr: strings.TrimPrefix(s.api.URL, "http://"), Connections: floodConnections,
				Requests: []string{raw("POST", "/v1/checkouts", s.attacker.key, random,
					`{"currency":"usd","payment_method":"pm_card_visa","items":[{"sku":"flood","quantity":1,"unit_amount":100}]}`)},
			})
		})
	},
}

// stripeTakes has each call that makes a payment take so long.
func (s *site) stripeTakes(delay time.Duration) {
	for _, op := range []string{"intent.create", "intent.confirm"} {
		s.sim.Inject(stripesim.Fault{Op: op, Kind: stripesim.DelayBefore, Delay: delay, Times: -1})
	}
}

// floodOfPayments is of more payments than Stripe takes of all tenants together. Each order is paid once, so it has many.
var floodOfPayments = attack{
	name: "flood of payments", who: "a tenant",
	tries: fmt.Sprintf("%d connections that pay %d orders, where STRIPE_RPS is %d and Stripe takes %v for a call", floodPayers, floodOrders,
		floodStripeRPS, floodStripeTakes),
	holds: doesNotSlow + "; the tenant is refused what exceeds its share, and ten seconds later nothing of it is unfinished",
	run: func(ctx context.Context, s *site) (string, error) {
		settings := []string{fmt.Sprint("STRIPE_RPS=", floodStripeRPS), "RATE_LIMIT_RPS=200"}
		return s.another(ctx, s.server, settings, func(s *site) (string, error) {
			s.stripeTakes(floodStripeTakes)
			f := flood{Addr: strings.TrimPrefix(s.api.URL, "http://"), Connections: floodPayers}
			for i := range floodOrders {
				order, err := s.attacker.order(ctx, fmt.Sprint("flood-of-payments-", i))
				if err != nil {
					return "", err
				}
				f.Requests = append(f.Requests, raw("POST", "/v1/payments", s.attacker.key, random,
					fmt.Sprintf(`{"order_id":%q,"payment_method":"pm_card_visa"}`, order)))
			}
			var answers answered
			seen, err := s.amid(ctx, s.floodTime(), func() (func() error, error) {
				end, err := f.send(ctx)
				return func() (err error) { answers, err = end(); return err }, err
			})
			if err == nil && (answers[http.StatusCreated] == 0 || answers[http.StatusTooManyRequests] == 0) {
				err = didNotHold("the flood was answered %v", answers)
			}
			if err == nil {
				err = s.settledWithin(ctx, 10*time.Second,
					`SELECT (count(*) = 0)::int FROM idempotency_keys WHERE finished_at IS NULL`)
			}
			return fmt.Sprintf("%s; of the flood %d were paid, %d refused", seen, answers[http.StatusCreated],
				answers[http.StatusTooManyRequests]), err
		})
	},
}

// raw is a request as it is sent.
func raw(method, path, apiKey, key, body string) string {
	var b strings.Builder
	_, _ = fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: a\r\n", method, path)
	if apiKey != "" {
		_, _ = fmt.Fprintf(&b, "Authorization: Bearer %s\r\n", apiKey)
	}
	if key != "" {
		_, _ = fmt.Fprintf(&b, "Idempotency-Key: %s\r\n", key)
	}
	if body != "" {
		_, _ = fmt.Fprintf(&b, "Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	}
	return b.String() + "\r\n" + body
}

// largeOrder is as large as an order may be, and its JSON in the database larger: each < takes six bytes.
func largeOrder() string {
	var items, metadata []string
	for i := range 100 {
		items = append(items, fmt.Sprintf(`{"sku":"%s%03d","quantity":1,"unit_amount":100}`, strings.Repeat("<", 61), i))
	}
	for i := range 20 {
		metadata = append(metadata, fmt.Sprintf(`"%s%02d":"%s"`, strings.Repeat("<", 38), i, strings.Repeat("<", 500)))
	}
	return fmt.Sprintf(`{"currency":"usd","items":[%s],"metadata":{%s}}`, strings.Join(items, ","), strings.Join(metadata, ","))
}

// unsignedWebhook has a signature that could be right, so that its body is read.
func unsignedWebhook(size int) string {
	body := `{"id":"evt_` + strings.Repeat("a", size) + `"}`
	return strings.Replace(raw("POST", "/v1/webhooks/stripe", "", "", body), "\r\n",
		fmt.Sprintf("\r\nStripe-Signature: t=%d,v1=%s\r\n", time.Now().Unix(), strings.Repeat("0", 64)), 1)
}

// order makes an order under a key.
func (t tenant) order(ctx context.Context, key string) (string, error) {
	object, err := t.must(ctx, http.StatusCreated, "POST", "/v1/orders", key,
		`{"currency":"usd","items":[{"sku":"a","quantity":1,"unit_amount":100}]}`)
	id, _ := object["id"].(string)
	return id, err
}

// inTime is must for a tenant that is at its rate limit: while the answer is 429 it retries.
func (t tenant) inTime(ctx context.Context, status int, method, path, key, body string) (map[string]any, error) {
	for {
		object, err := t.must(ctx, status, method, path, key, body)
		if err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), fmt.Sprint(": ", http.StatusTooManyRequests, " instead")) {
			return object, err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// pay makes an order under a key, and pays it under the same with -pay.
func (t tenant) pay(ctx context.Context, key string) (string, error) {
	order, err := t.order(ctx, key)
	if err != nil {
		return "", err
	}
	object, err := t.must(ctx, http.StatusCreated, "POST", "/v1/payments", key+"-pay",
		fmt.Sprintf(`{"order_id":%q,"payment_method":"pm_card_visa"}`, order))
	id, _ := object["id"].(string)
	return id, err
}
