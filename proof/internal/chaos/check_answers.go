package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"
)

// acknowledged holds every success that a client read against our rows: it is
// there, and it is what the client received.
func (j *checks) acknowledged(ctx context.Context) error {
	rows, err := j.world.pool.Raw().Query(ctx,
		`SELECT id, status::text, amount_minor, currency, coalesce(intent_id, ''), coalesce(captured_minor, 0)
			FROM payments`)
	if err != nil {
		return err
	}
	defer rows.Close()
	type row struct {
		status, currency, intent string
		amount, captured         int64
	}
	ours := map[string]row{}
	for rows.Next() {
		var id string
		var r row
		if err := rows.Scan(&id, &r.status, &r.amount, &r.currency, &r.intent, &r.captured); err != nil {
			return err
		}
		ours[id] = r
	}
	if err := rows.Err(); err != nil {
		return err
	}
	var lost, met []string
	looked, both := 0, 0
	for at, a := range j.traffic.acks {
		p, ok := a.answer.object.isPayment()
		capture := strings.HasSuffix(a.path, "/capture") && a.answer.status == http.StatusOK
		if !ok || a.answer.status != http.StatusCreated && !capture {
			continue
		}
		looked++
		r, there := ours[p.ID]
		stands := r.status == p.Status || p.Status == "authorized" && (r.status == "succeeded" || r.status == "canceled")
		if !there || !stands || capture && r.captured != p.Captured || r.amount != p.Amount || r.currency != p.Currency ||
			r.intent != p.Stripe.PaymentIntent {
			lost = append(lost,
				fmt.Sprintf("key %s: the response had %s, %d %s by %s, and the row is %+v", at.key, p.ID, p.Amount,
					p.Currency, p.Stripe.PaymentIntent, r))
		}
		other, twin := j.traffic.acks[ack{(at.tenant + 1) % len(j.world.tenants), at.key}]
		if twin && other.answer.status == http.StatusCreated {
			if both++; other.answer.object.ID == p.ID || other.answer.object.Stripe.PaymentIntent == p.Stripe.PaymentIntent {
				met = append(met, fmt.Sprintf("key %s of two tenants made one payment, %s", at.key, p.ID))
			}
		}
	}
	j.add("I2", "every success that a client read is there, unchanged", byAnswers, looked, lost)
	j.add("I10", "the same key of two tenants is two payments", byAnswers, both, met)
	return nil
}

// answers are the rules that were held against every answer when it came.
func (j *checks) answers() {
	t := j.traffic
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, name := range map[string]string{
		"I3":  "all final answers of a key are the same bytes",
		"I10": "another tenant's payment is a 404",
		"I20": "what is not final says so, and when to come back",
		"I21": "a wrong API key gets 401 and nothing else",
	} {
		j.add(id, name, byAnswers, t.looked[id], onlyBeginning(t.broken, id+" "))
	}
}

func onlyBeginning(list []string, with string) (some []string) {
	for _, s := range list {
		if after, ok := strings.CutPrefix(s, with); ok {
			some = append(some, after)
		}
	}
	return some
}

// replays asks once more for everything that was ever answered, from some
// process of each version: the same bytes, and marked as a replay.
func (j *checks) replays(ctx context.Context, r *rand.Rand) {
	t := j.traffic
	type question struct {
		at   ack
		a    acknowledged
		node *node
	}
	questions := make(chan question)
	var mu sync.Mutex
	var list []string
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for q := range questions {
				ctx, cancel := context.WithTimeout(ctx, patience)
				a, err := t.do(ctx, q.node, http.MethodPost, q.a.path, j.world.tenants[q.at.tenant].Key, q.a.body,
					"Idempotency-Key", q.at.key)
				cancel()
				wrong := ""
				switch {
				case err != nil:
					wrong = err.Error()
				case a.digest != q.a.answer.digest:
					wrong = fmt.Sprintf("answered %d with other bytes than the %d before", a.status, q.a.answer.status)
				case !a.replayed:
					wrong = "not marked as a replay"
				}
				if wrong != "" {
					mu.Lock()
					list = append(list, fmt.Sprintf("key %s of tenant %d: %s", q.at.key, q.at.tenant, wrong))
					mu.Unlock()
				}
			}
		})
	}
	for at, a := range t.acks {
		for _, n := range j.world.oneOfEachVersion(r) {
			questions <- question{at, a, n}
		}
	}
	close(questions)
	all.Wait()
	j.add("I3", "asked again at the end, every answer is what it was", byAnswers, len(t.acks), list)
}

// revoked plays the scene of a key that is taken away: what it was told before it
// is not told again, by any process.
func (j *checks) revoked(ctx context.Context) error {
	owner := j.world.tenants[0]
	var key struct {
		APIKey string `json:"api_key"`
	}
	if err := j.world.command(ctx, &key, "tenant", "key", "create", owner.ID); err != nil {
		return err
	}
	var at ack
	var a acknowledged
	for at, a = range j.traffic.acks {
		if at.tenant == 0 {
			break
		}
	}
	ask := func(n *node) (answer, error) {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		return j.traffic.do(ctx, n, http.MethodPost, a.path, key.APIKey, a.body, "Idempotency-Key", at.key)
	}
	var list []string
	for _, n := range j.world.nodes {
		if got, err := ask(n); err != nil || !got.replayed {
			list = append(list, fmt.Sprintf("%s does not know a new key: %d %v", n.name, got.status, err))
		}
	}
	if err := j.world.command(ctx, nil, "tenant", "key", "revoke", owner.ID,
		key.APIKey[len(key.APIKey)-4:]); err != nil {
		return err
	}
	rest(ctx, revokedWithin)
	for _, n := range j.world.nodes {
		if got, err := ask(n); err != nil || got.status != http.StatusUnauthorized || got.object.ID != "" {
			list = append(list, fmt.Sprintf("%s answered a revoked key with %d %v", n.name, got.status, err))
		}
	}
	j.add("I21", "a revoked key gets no replay from any process", byScene, len(j.world.nodes), list)
	return nil
}

// revokedWithin is how long a process may remember a key that was revoked.
const revokedWithin = 1200 * time.Millisecond

// stuck says what no client ever got an answer to, while only one node was broken.
func (t *traffic) progress() (ended int, stuck []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ended, t.stuck
}
