package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"
)

const (
	quietRounds = 40
	roundPause  = 25 * time.Millisecond // A round is two new requests: 80 a second, below the tenant's rate limit.
	slowerMax   = 10                    // I30: a tenant's median is never more than ten times slower because of others
	probePause  = 100 * time.Millisecond
)

// waits are how long the victim waits for an order, for the payment of it and for a read of that, the medians of many
// rounds. In each Stripe delivers a webhook, too.
type waits struct {
	order, payment, read time.Duration
	rounds               int
}

// times says how many times as long as the quiet ones the waits of payments and orders are, whichever is the more; and
// those of reads.
func (w waits) times(quiet waits) (writes, reads float64) {
	ratio := func(a, b time.Duration) float64 { return float64(a) / float64(b) }
	return max(ratio(w.order, quiet.order), ratio(w.payment, quiet.payment)), ratio(w.read, quiet.read)
}

// amid compares the victim's medians while an attack goes on with those before it, and reports what it saw. begin
// starts the attack and returns what ends it. Nothing of the victim may fail, and the process must say that it is ready
// throughout.
func (s *site) amid(ctx context.Context, atLeast time.Duration, begin func() (end func() error, err error)) (string, error) {
	quiet, err := s.waits(ctx, 0)
	if err != nil {
		return "", fmt.Errorf("without the attack: %w", err)
	}
	end, err := begin()
	if err != nil {
		return "", err
	}
	probes := s.probe(ctx)
	loud, err := s.waits(ctx, atLeast)
	if lost := probes(); err == nil {
		err = lost
	}
	if failed := end(); err == nil {
		err = failed
	}
	if err != nil {
		return "", err
	}
	writes, reads := loud.times(quiet)
	seen := fmt.Sprintf("payments and orders take %.1f times as long, reads %.1f times; of %d none failed",
		writes, reads, 4*loud.rounds)
	if writes > slowerMax || reads > slowerMax {
		return "", didNotHold("the victim's %s (%v %v %v; quiet %v %v %v)", seen, loud.order, loud.payment, loud.read,
			quiet.order, quiet.payment, quiet.read)
	}
	return seen, nil
}

// waits measures for so many rounds as without an attack, and for so long.
func (s *site) waits(ctx context.Context, atLeast time.Duration) (waits, error) {
	var orders, payments, reads []time.Duration
	until := time.Now().Add(atLeast)
	for i := 0; i < quietRounds || time.Now().Before(until); i++ {
		round := fmt.Sprintf("round-%d-%d", i, time.Now().UnixNano())
		began := time.Now()
		order, err := s.victim.must(ctx, http.StatusCreated, "POST", "/v1/orders", round,
			`{"currency":"usd","items":[{"sku":"a","quantity":1,"unit_amount":100}]}`)
		if err != nil {
			return waits{}, didNotHold("an order of the victim: %s", err)
		}
		orders, began = append(orders, time.Since(began)), time.Now()
		payment, err := s.victim.must(ctx, http.StatusCreated, "POST", "/v1/payments", round+"-pay",
			fmt.Sprintf(`{"order_id":%q,"payment_method":"pm_card_visa"}`, order["id"]))
		if err != nil {
			return waits{}, didNotHold("a payment of the victim: %s", err)
		}
		payments, began = append(payments, time.Since(began)), time.Now()
		if _, err := s.victim.must(ctx, http.StatusOK, "GET", fmt.Sprintf("/v1/payments/%s", payment["id"]), "", ""); err != nil {
			return waits{}, didNotHold("a read of the victim: %s", err)
		}
		reads = append(reads, time.Since(began))
		if err := s.deliver(ctx, round); err != nil {
			return waits{}, err
		}
		time.Sleep(roundPause)
	}
	return waits{median(orders), median(payments), median(reads), len(orders)}, nil
}

// deliver sends a webhook as Stripe does. Stripe would send it again if it were refused, but a flood must not be the
// reason.
func (s *site) deliver(ctx context.Context, id string) error {
	body := `{"id":"evt_` + id + `","object":"event","type":"ping","data":{"object":{}}}`
	t, v1 := signed(body, webhookSecret, time.Now())
	a, err := client{base: s.api.URL}.send(ctx, "POST", "/v1/webhooks/stripe", body,
		map[string][]string{"Stripe-Signature": {"t=" + t + ",v1=" + v1}})
	if err == nil && a.status != http.StatusOK {
		err = fmt.Errorf("%d: %.200s", a.status, a.body)
	}
	if err != nil {
		return didNotHold("a signed webhook: %s", err)
	}
	return nil
}

func median(of []time.Duration) time.Duration {
	slices.Sort(of)
	return of[len(of)/2]
}

// probe asks for readiness as a load balancer does, until the returned function is called, which returns the first
// answer that was not 200.
func (s *site) probe(ctx context.Context) (end func() error) {
	var (
		all   sync.WaitGroup
		first error
		stop  = make(chan struct{})
	)
	all.Go(func() {
		for {
			a, err := client{base: s.api.URL}.send(ctx, "GET", "/readyz", "", nil)
			if err != nil {
				first = err
			} else if a.status != http.StatusOK {
				first = didNotHold("/readyz: %d: %.200s", a.status, a.body)
			}
			select {
			case <-stop:
				return
			case <-time.After(probePause):
			}
			if first != nil {
				return
			}
		}
	})
	return func() error {
		close(stop)
		all.Wait()
		return first
	}
}
