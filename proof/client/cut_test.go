package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/client"
	"example.com/payonce/testkit/world"
)

// TestJournalCutAtEveryByte cuts a journal at every byte, and has its orders done again each time by a client that knows
// only what is left. All find the orders and payments that are there; nothing is placed or charged a second time. By day it
// is each fifth byte, others in each run; the client's own test has all of them, before an API in memory.
func TestJournalCutAtEveryByte(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	api := w.Process()
	path := filepath.Join(t.TempDir(), "journal")
	on := func(path string, transport http.RoundTripper) (*client.Client, *client.File, error) {
		j, err := client.OpenFile(path)
		if err != nil {
			return nil, nil, err
		}
		c, err := client.New(client.Options{Base: api.Base, Journal: j, HTTP: transport, Timeout: time.Minute,
			Header: http.Header{"Authorization": {"Bearer " + w.Tenant.APIKey}}})
		return c, j, err
	}

	// A client that is killed after the API has charged, and before it reads the response; and the next one.
	c, j, err := on(path, &losesTheLast{after: 5})
	require.NoError(t, err)
	_, err = threeOrders(t.Context(), c)
	require.Error(t, err)
	require.NoError(t, j.Close())
	c, j, err = on(path, nil)
	require.NoError(t, err)
	truth, err := threeOrders(t.Context(), c)
	require.NoError(t, err)
	require.NoError(t, j.Close())
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	head := bytes.IndexByte(whole, '\n') + 1

	parts, step := 8, 5 // at the same time; bytes
	if os.Getenv("CLIENT_CHAOS") != "" {
		step = 1
	}
	first := head + rand.N(step)
	var cuts atomic.Int64
	errs := world.Together(parts, func(part int) error {
		path := fmt.Sprint(path, part)
		for n := first + part*step; n <= len(whole); n += parts * step {
			cuts.Add(1)
			if err := os.WriteFile(path, whole[:n], 0o600); err != nil {
				return err
			}
			c, j, err := on(path, nil)
			if err != nil {
				return fmt.Errorf("cut to %d bytes: %w", n, err)
			}
			outcomes, err := c.Resume(t.Context())
			for _, o := range outcomes {
				err = errors.Join(err, o.Err)
			}
			found, again := threeOrders(t.Context(), c)
			if err := errors.Join(err, again, j.Close()); err != nil {
				return fmt.Errorf("cut to %d bytes: %w", n, err)
			}
			if found != truth {
				return fmt.Errorf("cut to %d bytes: %v, and there is %v", n, found, truth)
			}
		}
		return nil
	})
	require.NoError(t, errors.Join(errs...))
	require.Equal(t, 3, w.Count("SELECT count(*) FROM orders"))
	require.Equal(t, 2, w.Sim.ChargeCount(""))
	t.Logf("cut at %d of %d bytes", cuts.Load(), len(whole)-head+1)
}

// threeOrders places three orders and pays them, one with a card that is declined. It returns the ids.
func threeOrders(ctx context.Context, c *client.Client) (ids [6]string, err error) {
	for n, card := range []string{"pm_card_visa", "pm_card_visa_chargeDeclined", "pm_card_visa"} {
		name := fmt.Sprint("order ", n)
		order, err := c.Do(ctx, client.Request{Intent: name, Path: "/v1/orders",
			Body: []byte(`{"currency":"usd","items":[{"sku":"tea","quantity":1,"unit_amount":1000}]}`)})
		if err != nil {
			return ids, err
		}
		ids[2*n] = idOf(order)
		payment, err := c.Do(ctx, client.Request{Intent: name + ", payment 1", Path: "/v1/payments",
			Body: fmt.Appendf(nil, `{"order_id":%q,"payment_method":%q}`, ids[2*n], card)})
		if err != nil {
			return ids, err
		}
		if payment.OK() == (n == 1) {
			return ids, fmt.Errorf("%s: %d %s", name, payment.Status, payment.Body)
		}
		ids[2*n+1] = idOf(payment)
	}
	return ids, nil
}

func idOf(r *client.Response) string {
	var object struct {
		ID      string
		Payment struct{ ID string }
	}
	_ = json.Unmarshal(r.Body, &object)
	return object.ID + object.Payment.ID
}

// losesTheLast loses the response to every request after the first ones, and lets their client give up.
type losesTheLast struct {
	after int64
	sent  atomic.Int64
}

func (l *losesTheLast) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil || l.sent.Add(1) <= l.after {
		return res, err
	}
	_ = res.Body.Close()
	res.Header.Set("Retry-After", "3600") // longer than the client has
	res.StatusCode, res.Body = http.StatusBadGateway, http.NoBody
	return res, nil
}
