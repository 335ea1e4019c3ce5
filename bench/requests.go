package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"hash"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"example.com/payonce/db"
)

const (
	freshFloor  = "fresh payments, pgbench"
	replayFloor = "reads of a finished key, pgbench"
	replays     = "replays"
)

func (b *bench) requestGroup() group {
	return group{name: "requests", prepare: b.answerSome, list: []*measurement{
		{name: freshFloor, unit: "payments/s", run: b.freshFloor},
		{name: "fresh payments", unit: "payments/s", floor: freshFloor, target: 0.60, run: b.fresh(timeOrdered)},
		{name: replayFloor, unit: "reads/s", run: b.replayFloor},
		{name: replays, unit: "answers/s", floor: replayFloor, target: 0.35, run: b.replays},
		{name: "the same read in a bare handler", unit: "answers/s", floor: replayFloor, run: b.bare("read")},
		{name: "a bare handler that reads nothing", unit: "answers/s", run: b.bare("nothing")},
		{name: "duplicates in flight (409)", unit: "answers/s", floor: replays, target: 1, run: b.conflicts},
		{name: "fresh, three statements and no claim", unit: "payments/s", run: b.peer("look-work-store", false)},
		{name: "fresh, the gateway inside the transaction", unit: "payments/s", run: b.peer("around-the-gateway", false)},
		{name: "fresh, one transaction, no outcome, no event", unit: "payments/s", run: b.peer("one-transaction", false)},
		{name: "replays, the gateway inside the transaction", unit: "answers/s", run: b.peer("around-the-gateway", true)},
		{name: "replays, one transaction: a replay is a write", unit: "answers/s", run: b.peer("one-transaction", true)},
	}}
}

// storedGroup is the same with many keys stored: n that are finished, with
// answers, half of them under keys that lie anywhere in the index.
func (b *bench) storedGroup(n int) group {
	return group{name: fmt.Sprintf("with %d stored keys", n), prepare: func(ctx context.Context) error { return b.store(ctx, n) }, list: []*measurement{
		{name: freshFloor, unit: "payments/s", run: b.freshFloor},
		{name: "fresh payments, keys in order of time", unit: "payments/s", floor: freshFloor, run: b.fresh(timeOrdered)},
		{name: "fresh payments, random keys", unit: "payments/s", floor: freshFloor, run: b.fresh(random)},
		{name: replayFloor, unit: "reads/s", run: b.replayFloor},
		{name: replays, unit: "answers/s", floor: replayFloor, run: b.replays},
	}}
}

func (b *bench) store(ctx context.Context, n int) error {
	if err := b.answerSome(ctx); err != nil {
		return err
	}
	const batch = 100_000
	for done := 0; done < n; done += batch {
		_, err := b.pool.Raw().Exec(ctx, `
			INSERT INTO idempotency_keys (tenant_id, key, operation, fingerprint, fingerprint_version, request, request_id, resource_id, recovery_point, claim_token,
				leased_until, resume_at, trail, finished_at, answer_version, answer_status, answer_headers, answer_body)
			SELECT tenant_id, CASE WHEN i % 2 = 0 THEN gen_random_uuid()::text ELSE 'pay-' || lpad(i::text, 12, '0') END, operation, fingerprint, fingerprint_version,
				request, request_id, 'pay_' || lpad(i::text, 26, '0'), recovery_point, gen_random_uuid(), leased_until, resume_at, trail, clock_timestamp(),
				answer_version, answer_status, answer_headers, answer_body
			FROM generate_series($2::bigint, $3::bigint) i,
				(SELECT * FROM idempotency_keys WHERE tenant_id = $1 AND key = $4) one`,
			b.tenant, done+1, min(done+batch, n), strconv.Itoa(answeredFirst))
		if err != nil {
			return fmt.Errorf("store keys: %w", err)
		}
	}
	if _, err := b.pool.Raw().Exec(ctx, "VACUUM (ANALYZE) idempotency_keys"); err != nil {
		return err
	}
	var stored, bytes int64
	err := b.pool.Raw().QueryRow(ctx, "SELECT count(*), pg_total_relation_size('idempotency_keys') FROM idempotency_keys").Scan(&stored, &bytes)
	fmt.Printf("  %d keys stored, %d bytes each with their indexes\n", stored, bytes/max(stored, 1))
	return err
}

// keyed says which key pays an order.
type keyed func(order string) string

func timeOrdered(order string) string { return order }

func random(string) string { return uuid.NewString() }

// fresh pays fresh orders over HTTP.
func (b *bench) fresh(key keyed) func(context.Context) (sample, error) {
	return func(ctx context.Context) (sample, error) {
		each := ordersMax / b.s.connections
		prefix, err := b.orders(ctx, each, b.s.connections)
		if err != nil {
			return sample{}, err
		}
		got, err := b.measured(ctx, b.addr, http.StatusCreated, func(conn, i int) ([]byte, bool) {
			order := fmt.Sprintf("%s%04d%018d", prefix, conn, i)
			return b.request("/v1/payments", key(order), `{"order_id":"`+order+`","payment_method":"pm_card_visa"}`), i <= each
		})
		if err == nil {
			got.note, err = b.stays(ctx)
		}
		return got, err
	}
}

// stays is what a payment leaves on the disk.
func (b *bench) stays(ctx context.Context) (string, error) {
	var payments, bytes, dead int64
	err := b.pool.Raw().QueryRow(ctx, `
		SELECT (SELECT count(*) FROM payments),
			(SELECT sum(pg_total_relation_size(c)) FROM unnest(ARRAY['idempotency_keys', 'payments', 'outbox_events', 'stripe_calls']::regclass[]) c),
			(SELECT sum(n_tup_upd - n_tup_hot_upd) FROM pg_stat_user_tables WHERE relname IN ('idempotency_keys', 'payments', 'stripe_calls', 'orders'))`).
		Scan(&payments, &bytes, &dead)
	if err != nil || payments == 0 {
		return "", err
	}
	return fmt.Sprintf("%d bytes in tables and indexes, %.1f updates that are not HOT", bytes/payments, float64(dead)/float64(payments)), nil
}

// The keys of the replays are numbers, because pgbench knows no other variables:
// so it sends the very statement that the service sends, and reads the same rows.
const (
	answeredFirst = 1_000_001
	answered      = 4096
)

// answerSome has the service answer what will be asked for again.
func (b *bench) answerSome(ctx context.Context) error {
	if b.replay != nil {
		return nil
	}
	prefix, err := b.orders(ctx, answered/b.s.connections, b.s.connections)
	if err != nil {
		return err
	}
	b.replay = make([][]byte, answered)
	for i := range b.replay {
		conn, n := i%b.s.connections, i/b.s.connections+1
		body := fmt.Sprintf(`{"order_id":"%s%04d%018d","payment_method":"pm_card_visa"}`, prefix, conn, n)
		b.replay[i] = b.request("/v1/payments", strconv.Itoa(answeredFirst+i), body)
	}
	_, n, err := b.drive(ctx, b.addr, time.Minute, b.s.connections, http.StatusCreated, func(conn, i int) ([]byte, bool) {
		at := (i-1)*b.s.connections + conn
		if at >= answered {
			return nil, false
		}
		return b.replay[at], true
	})
	if err == nil && n != answered {
		err = fmt.Errorf("only %d payments of %d were answered", n, answered)
	}
	if err == nil {
		_, err = b.pool.Raw().Exec(ctx, "VACUUM (ANALYZE) idempotency_keys")
	}
	return err
}

// replays asks again for what the service has answered.
func (b *bench) replays(ctx context.Context) (sample, error) {
	return b.measured(ctx, b.addr, http.StatusCreated, func(conn, i int) ([]byte, bool) {
		return b.replay[(conn*7919+i)%answered], true
	})
}

// bare asks a handler that does nothing but what its name says: what HTTP costs.
func (b *bench) bare(name string) func(context.Context) (sample, error) {
	var requests [][]byte
	for i := range answered {
		requests = append(requests, b.request("/bare/"+name, strconv.Itoa(answeredFirst+i), `{"order_id":"ord_00000000000000000000000000","payment_method":"pm_card_visa"}`))
	}
	return func(ctx context.Context) (sample, error) {
		return b.measured(ctx, b.peers, http.StatusCreated, func(conn, i int) ([]byte, bool) {
			return requests[(conn*7919+i)%answered], true
		})
	}
}

// conflicts asks for a key that somebody else holds.
func (b *bench) conflicts(ctx context.Context) (sample, error) {
	prefix, err := b.orders(ctx, 1, 1)
	if err != nil {
		return sample{}, err
	}
	order := prefix + fmt.Sprintf("%04d%018d", 0, 1)
	body := `{"order_id":"` + order + `","payment_method":"pm_card_visa"}`
	if _, _, err := b.drive(ctx, b.addr, time.Second, 1, http.StatusCreated, func(_, i int) ([]byte, bool) {
		return b.request("/v1/payments", order, body), i == 1
	}); err != nil {
		return sample{}, err
	}
	// A held twin of that key: same fingerprint, not finished.
	_, err = b.pool.Raw().Exec(ctx, `
		INSERT INTO idempotency_keys (tenant_id, key, operation, fingerprint, fingerprint_version, request, request_id, resource_id, recovery_point, claim_token, leased_until, resume_at, trail)
		SELECT tenant_id, key || '-held', operation, fingerprint, fingerprint_version, request, request_id, resource_id, 'payment_recorded', claim_token,
			clock_timestamp() + interval '1 hour', clock_timestamp() + interval '1 hour', trail
		FROM idempotency_keys WHERE tenant_id = $1 AND key = $2`, b.tenant, order)
	if err != nil {
		return sample{}, err
	}
	held := b.request("/v1/payments", order+"-held", body)
	return b.measured(ctx, b.addr, http.StatusConflict, func(_, _ int) ([]byte, bool) { return held, true })
}

// peer asks one of peers.go, for something new or for what it has answered.
func (b *bench) peer(name string, again bool) func(context.Context) (sample, error) {
	return func(ctx context.Context) (sample, error) {
		b.batch++
		batch := b.batch
		return b.measured(ctx, b.peers, http.StatusCreated, func(conn, i int) ([]byte, bool) {
			if again {
				i %= 100
			}
			key := fmt.Sprintf("peer-%04d-%04d-%012d", batch, conn, i)
			return b.request("/peers/"+name, key, `{"order_id":"ord_00000000000000000000000000","payment_method":"pm_card_visa"}`), true
		})
	}
}

// measured drives requests and counts what they cost.
func (b *bench) measured(ctx context.Context, addr string, status int, next func(conn, i int) ([]byte, bool)) (sample, error) {
	wal, cpu, load := b.walPosition(ctx), cpuOf(b.child.Process.Pid), cpuOf(os.Getpid())
	rate, n, err := b.drive(ctx, addr, time.Duration(b.s.seconds)*time.Second, b.s.connections, status, next)
	got := sample{rate: rate}
	if n > 0 {
		got.cpu = (cpuOf(b.child.Process.Pid) - cpu) / time.Duration(n)
		got.load = (cpuOf(os.Getpid()) - load) / time.Duration(n)
		got.wal = float64(b.walPosition(ctx)-wal) / float64(n)
	}
	return got, err
}

func (b *bench) walPosition(ctx context.Context) (bytes int64) {
	if err := b.pool.Raw().QueryRow(ctx, "SELECT pg_current_wal_lsn() - '0/0'").Scan(&bytes); err != nil {
		fmt.Fprintln(os.Stderr, "bench: WAL:", err)
	}
	return bytes
}

func (b *bench) request(path, key, body string) []byte {
	return []byte("POST " + path + " HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer " + b.apiKey + "\r\nContent-Type: application/json\r\nIdempotency-Key: " +
		key + "\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body)
}

// ---- webhooks ---------------------------------------------------------------

const webhookSecret = "whsec_bench"

func (b *bench) webhookGroup() group {
	const floor = "an event inserted, pgbench"
	return group{name: "webhooks", list: []*measurement{
		{name: floor, unit: "events/s", run: b.webhookFloor},
		{name: "an event verified, stored and answered", unit: "events/s", floor: floor, target: 0.60, run: b.webhooks},
	}}
}

// webhooks sends signed events of the size of Stripe's, in its order of members.
func (b *bench) webhooks(ctx context.Context) (sample, error) {
	b.batch++
	batch, senders := b.batch, make([]sender, b.s.connections)
	return b.measured(ctx, b.addr, http.StatusOK, func(conn, i int) ([]byte, bool) { return senders[conn].event(batch, conn, i), true })
}

// sender writes its events into the same memory again and again: what the
// driver allocates, it would collect on the service's processors.
type sender struct {
	mac           hash.Hash
	body, request []byte
}

func (s *sender) event(batch, conn, i int) []byte {
	if s.mac == nil {
		s.mac = hmac.New(sha256.New, []byte(webhookSecret))
	}
	s.body = fmt.Appendf(s.body[:0], `{"id":"evt_%d_%d_%d","object":"event","api_version":"2023-10-16",`+
		`"data":{"object":{"id":"pi_%d","object":"payment_intent","status":"succeeded","description":"%s"}},"type":"payment_intent.succeeded"}`, batch, conn, i, i, eventPad)
	now := time.Now().Unix()
	s.mac.Reset()
	_, _ = fmt.Fprintf(s.mac, "%d.%s", now, s.body)
	s.request = fmt.Appendf(s.request[:0], "POST /v1/webhooks/stripe HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nStripe-Signature: t=%d,v1=%x\r\nContent-Length: %d\r\n\r\n%s",
		now, s.mac.Sum(nil), len(s.body), s.body)
	return s.request
}

var eventPad = strings.Repeat("x", 2000)

func (b *bench) webhookFloor(ctx context.Context) (sample, error) {
	b.batch++
	values := map[string]string{
		"Consumer": "'stripe'", "EventID": fmt.Sprintf("'evt_%d_' || (:client_id)::text || '_' || (:i)::text", b.batch), "Type": "'payment_intent.succeeded'",
		"ObjectID": "'pi_1'", "Payload": "repeat('x', " + strconv.Itoa(len(eventPad)+200) + ")::bytea", "Traceparent": "NULL::text",
	}
	sql, err := filled(db.WebhookIntake(), db.InboxReceiveParams{}, values, nil)
	if err != nil {
		return sample{}, err
	}
	rate, err := b.pgbench(ctx, "\\set i :i + 1\n"+sql+";\n")
	return sample{rate: rate}, err
}
