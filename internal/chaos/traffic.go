package chaos

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"
)

// traffic is what the clients do, and remembers what they were told.
type traffic struct {
	world   *world
	http    *http.Client
	history *history

	mu     sync.Mutex
	orders map[string]orderOf // by order id
	acks   map[ack]string     // the first final answer, by key
	bodies map[ack]string     // what was asked with it
	broken []string           // answers that no server may give
}

type orderOf struct {
	tenant int
	amount int64
}

// ack names a key of a tenant.
type ack struct {
	tenant int
	key    string
}

func newTraffic(w *world, h *history) *traffic {
	return &traffic{
		world: w, history: h, orders: map[string]orderOf{}, acks: map[ack]string{}, bodies: map[ack]string{},
		http: &http.Client{Timeout: 4 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 64, DisableKeepAlives: false}},
	}
}

// run has so many clients pay, until ctx ends.
func (t *traffic) run(ctx context.Context, clients int, seed uint64) {
	var all sync.WaitGroup
	for client := range clients {
		all.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(client)))
			for n := 0; ctx.Err() == nil; n++ {
				t.intent(ctx, r, client, n)
			}
		})
	}
	all.Wait()
}

// intent is one thing that a customer wants: an order, paid once. What happens
// on the way is drawn from the seed.
func (t *traffic) intent(ctx context.Context, r *rand.Rand, client, n int) {
	tenant := r.IntN(len(t.world.tenant))
	if r.IntN(5) == 0 {
		t.checkout(ctx, r, client, n, tenant)
		return
	}
	name := fmt.Sprintf("%d-%d", client, n)
	units := 1 + r.Int64N(20)
	orderBody := fmt.Sprintf(`{"currency":"usd","items":[{"sku":"chaos","quantity":%d,"unit_amount":100}]}`, units)
	id := t.until(ctx, r, client, tenant, "/v1/orders", "order-"+name, orderBody, 20)
	if id == "" {
		return
	}
	t.mu.Lock()
	t.orders[id] = orderOf{tenant, units * 100}
	t.mu.Unlock()

	card := "pm_card_visa"
	if r.IntN(10) == 0 {
		card = "pm_card_visa_chargeDeclined"
	}
	key, body := "pay-"+name, fmt.Sprintf(`{"order_id":%q,"payment_method":%q}`, id, card)
	if r.IntN(4) == 0 { // The same key string in another tenant, for an order that is not there: nothing may come of it.
		other := (tenant + 1) % len(t.world.tenant)
		t.send(ctx, r, client, other, "/v1/payments", key, body)
	}
	if r.IntN(4) == 0 { // An impatient front end sends several at once.
		t.atOnce(ctx, r, client, tenant, key, body, 2+r.IntN(4))
	}
	tries := 20
	if r.IntN(5) == 0 {
		tries = 1 // Gives up, whatever the answer. The service must finish it alone.
	}
	payment := t.until(ctx, r, client, tenant, "/v1/payments", key, body, tries)
	if r.IntN(20) == 0 { // Somebody reuses the key for something else.
		t.send(ctx, r, client, tenant, "/v1/payments", key, fmt.Sprintf(`{"order_id":%q,"payment_method":"pm_card_mastercard"}`, id))
	}
	if r.IntN(10) == 0 { // Another attempt to pay the same order, with a key of its own.
		t.until(ctx, r, client, tenant, "/v1/payments", key+"-again", body, 3)
	}
	if payment != "" && r.IntN(8) == 0 {
		path, refund := "/v1/payments/"+payment+"/refunds", fmt.Sprintf(`{"amount":%d}`, 1+r.Int64N(units*100))
		if r.IntN(3) == 0 {
			t.both(ctx, r, client, tenant, path, "refund-"+name, refund)
		}
		t.until(ctx, r, client, tenant, path, "refund-"+name, refund, 10)
	}
}

// checkout buys in one go. Some cards are declined, and then what was reserved
// must come back.
func (t *traffic) checkout(ctx context.Context, r *rand.Rand, client, n, tenant int) {
	card := "pm_card_visa"
	if r.IntN(4) == 0 {
		card = "pm_card_visa_chargeDeclined"
	}
	key := fmt.Sprintf("checkout-%d-%d", client, n)
	body := fmt.Sprintf(`{"currency":"usd","items":[{"sku":"chaos","quantity":%d,"unit_amount":100}],"payment_method":%q}`, 1+r.Int64N(3), card)
	if r.IntN(4) == 0 {
		t.atOnceAt(ctx, r, client, tenant, "/v1/checkouts", key, body, 2)
	}
	tries := 20
	if r.IntN(5) == 0 {
		tries = 1
	}
	t.until(ctx, r, client, tenant, "/v1/checkouts", key, body, tries)
}

// stockUp puts on the shelf what checkouts will fight over: enough for some.
func (t *traffic) stockUp(ctx context.Context) error {
	for i := range t.world.tenant {
		r, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://"+t.world.apis[0].addr+"/v1/stock/chaos", strings.NewReader(`{"available":100}`))
		if err != nil {
			return err
		}
		r.Header.Set("Authorization", "Bearer "+t.world.tenant[i].Key)
		r.Header.Set("Content-Type", "application/json")
		res, err := t.http.Do(r)
		if err != nil {
			return err
		}
		_ = res.Body.Close()
		if res.StatusCode != http.StatusOK {
			return fmt.Errorf("set the stock: status %d", res.StatusCode)
		}
	}
	return nil
}

// atOnce sends the same request over several connections at the same time. Each
// is a client of its own in the history: the model wants one operation at a time.
func (t *traffic) atOnce(ctx context.Context, r *rand.Rand, client, tenant int, key, body string, n int) {
	t.atOnceAt(ctx, r, client, tenant, "/v1/payments", key, body, n)
}

func (t *traffic) atOnceAt(ctx context.Context, r *rand.Rand, client, tenant int, path, key, body string, n int) {
	var all sync.WaitGroup
	for range n {
		own := rand.New(rand.NewPCG(r.Uint64(), 0))
		all.Go(func() { t.send(ctx, own, client, tenant, path, key, body) })
	}
	all.Wait()
}

// both sends two different refunds at once. Together they may exceed the payment.
func (t *traffic) both(ctx context.Context, r *rand.Rand, client, tenant int, path, key, body string) {
	var all sync.WaitGroup
	for i := range 2 {
		own := rand.New(rand.NewPCG(r.Uint64(), 0))
		all.Go(func() { t.send(ctx, own, client, tenant, path, fmt.Sprintf("%s-%d", key, i), body) })
	}
	all.Wait()
}

// until asks until there is a final answer, and returns the id of what was made.
func (t *traffic) until(ctx context.Context, r *rand.Rand, client, tenant int, path, key, body string, tries int) string {
	for range tries {
		final, id := t.send(ctx, r, client, tenant, path, key, body)
		if final {
			return id
		}
		select {
		case <-time.After(time.Duration(20+r.IntN(200)) * time.Millisecond):
		case <-ctx.Done():
			return ""
		}
	}
	return ""
}

// answerOf is what a client keeps of an answer: what a replay must repeat.
type answerOf struct {
	status   int
	code     string // of a problem
	replayed bool
	digest   string
	id       string
}

// send makes one request to one process and notes what came of it.
func (t *traffic) send(ctx context.Context, r *rand.Rand, client, tenant int, path, key, body string) (final bool, id string) {
	p := t.world.apis[r.IntN(len(t.world.apis))]
	done := t.history.call(tenant, key, path+" "+body)
	a, err := t.post(ctx, p, tenant, path, key, body)
	if err != nil {
		done(unknown, "")
		return false, ""
	}
	switch {
	case a.status == http.StatusConflict && a.code == "idempotency-key-in-flight", a.status == http.StatusAccepted:
		done(inProgress, "")
	case a.status == http.StatusUnprocessableEntity:
		done(mismatch, "")
	case a.status == http.StatusConflict && a.code == "payment-in-progress", a.status == http.StatusNotFound, a.status == http.StatusTooManyRequests:
		done(refused, "")
	case a.status == http.StatusServiceUnavailable:
		done(away, "")
	case a.status >= 500:
		done(unknown, "")
	case a.status < 300, a.status == http.StatusPaymentRequired, a.status == http.StatusConflict:
		done(finalAnswer, a.digest)
		t.acknowledge(tenant, key, path+" "+body, a)
		return true, a.id
	default:
		t.mu.Lock()
		t.broken = append(t.broken, fmt.Sprintf("%s with key %s got %d %s", path, key, a.status, a.code))
		t.mu.Unlock()
		done(unknown, "")
	}
	_ = client
	return false, ""
}

func (t *traffic) acknowledge(tenant int, key, request string, a answerOf) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := ack{tenant, key}
	if first, ok := t.acks[at]; ok && first != a.digest {
		t.broken = append(t.broken, fmt.Sprintf("key %s was answered in two ways", key))
	}
	t.acks[at], t.bodies[at] = a.digest, request
}

var errCut = errors.New("no complete answer")

func (t *traffic) post(ctx context.Context, p *process, tenant int, path, key, body string) (a answerOf, err error) {
	// A client's own patience, not the run's end, decides when it gives up.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 4*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+p.addr+path, strings.NewReader(body))
	if err != nil {
		return a, err
	}
	r.GetBody = nil // net/http would repeat the request by itself, unseen by the history
	r.Header.Set("Authorization", "Bearer "+t.world.tenant[tenant].Key)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", key)
	res, err := t.http.Do(r)
	if err != nil {
		return a, err
	}
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		return a, errCut
	}
	a.status, a.replayed = res.StatusCode, res.Header.Get("Idempotent-Replayed") == "true"
	sum := sha256.Sum256([]byte(fmt.Sprint(res.StatusCode, "\n", res.Header.Get("Content-Type"), "\n", res.Header.Get("Location"), "\n", string(raw))))
	a.digest = hex.EncodeToString(sum[:8])
	var object struct {
		ID     string `json:"id"`
		Code   string `json:"code"`
		Status any    `json:"status"`
	}
	if err := json.NewDecoder(bytes.NewReader(raw)).Decode(&object); err != nil {
		return a, errCut
	}
	a.id, a.code = object.ID, object.Code
	return a, nil
}
