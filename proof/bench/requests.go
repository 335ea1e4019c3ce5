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
	"example.com/payonce/internal/postgres"
	"example.com/payonce/proof/internal/plot"
)

const (
	freshFloor  = "fresh payments, pgbench"
	fresh       = "fresh payments"
	replayFloor = "reads of a finished key, pgbench"
	replays     = "replays"
	conflicts   = "duplicates in flight (409)"
	peerThree   = "fresh, three statements and no claim"
	peerAround  = "fresh, the gateway inside the transaction"
	peerOne     = "fresh, one transaction, no outcome, no event"
)

func (b *bench) requestGroup() group {
	return group{name: "requests", prepare: b.answerSome, list: []*measurement{
		{name: freshFloor, kind: plot.Floor, unit: "payments/s", run: b.freshFloor},
		{name: fresh, unit: "payments/s", floor: freshFloor, run: b.fresh(timeOrdered)},
		{name: replayFloor, kind: plot.Floor, unit: "reads/s", run: b.replayFloor},
		{name: replays, unit: "answers/s", floor: replayFloor, run: b.replays},
		{name: "the same read in a bare handler", kind: plot.Floor, unit: "answers/s", floor: replayFloor,
			run: b.bare("read")},
		{name: "a bare handler that reads nothing", kind: plot.Floor, unit: "answers/s", run: b.bare("nothing")},
		{name: conflicts, unit: "answers/s", floor: replays, run: b.conflicts},
		{name: peerThree, kind: plot.Peer, unit: "payments/s", run: b.peer("look-work-store", false)},
		{name: peerAround, kind: plot.Peer, unit: "payments/s", run: b.peer("around-the-gateway", false)},
		{name: peerOne, kind: plot.Peer, unit: "payments/s", run: b.peer("one-transaction", false)},
		{name: "replays, the gateway inside the transaction", kind: plot.Peer, unit: "answers/s",
			run: b.peer("around-the-gateway", true)},
		{name: "replays, one transaction: a replay is a write", kind: plot.Peer, unit: "answers/s",
			run: b.peer("one-transaction", true)},
	}, goals: []goal{
		{id: "P1", what: "fresh payments ÷ pgbench running the same statements", want: 0.60,
			of: ratio(fresh, freshFloor)},
		{id: "P2", what: "replays ÷ pgbench reading the key", want: 0.35, of: ratio(replays, replayFloor)},
		{id: "P2", what: "WAL per replay, background writes included", want: 5, atMost: true, unit: "bytes",
			of: each(replays, walBytes)},
		{id: "P3", what: "duplicates in flight ÷ replays", want: 1, of: ratio(conflicts, replays)},
		{id: "P3", what: "WAL per duplicate in flight, background writes included", want: 5, atMost: true,
			unit: "bytes", of: each(conflicts, walBytes)},
		{id: "P4", what: "fresh payments ÷ three statements without a claim", want: 2, of: ratio(fresh, peerThree)},
		{id: "P4", what: "fresh payments ÷ a gateway inside the transaction, no latency", want: 1.3,
			of: ratio(fresh, peerAround)},
		{id: "P4", what: "fresh payments ÷ one transaction without outcome or event", want: 1.1,
			of: ratio(fresh, peerOne)},
		{id: "P8", what: "CPU time of the service per fresh payment", want: 150, atMost: true, unit: "µs",
			of: each(fresh, cpuMicros)},
		{id: "P8", what: "CPU time of the service per replay", want: 55, atMost: true, unit: "µs",
			of: each(replays, cpuMicros)},
	}}
}

// keyed says which key pays an order.
type keyed func(order string) string

func timeOrdered(order string) string { return order }

func random(string) string { return uuid.NewString() }

// fresh pays fresh orders over HTTP.
func (b *bench) fresh(key keyed) func(context.Context) (sample, error) {
	return func(ctx context.Context) (sample, error) {
		next, err := b.freshRequests(ctx, key)
		if err != nil {
			return sample{}, err
		}
		got, err := b.measured(ctx, b.addr, http.StatusCreated, next)
		if err == nil {
			got.note, err = b.stays(ctx)
		}
		return got, err
	}
}

// freshRequests are payments of orders that were made for them. They can be driven
// in several stretches.
func (b *bench) freshRequests(ctx context.Context, key keyed) (next func(conn, _ int) ([]byte, bool), err error) {
	each := b.ordersMax() / b.s.connections
	prefix, err := b.orders(ctx, each, b.s.connections)
	paid := make([]int, b.s.connections)
	return func(conn, _ int) ([]byte, bool) {
		paid[conn]++
		order := fmt.Sprintf("%s%04d%018d", prefix, conn, paid[conn])
		return b.request("/v1/payments", key(order), paymentOf(order)), paid[conn] <= each
	}, err
}

func paymentOf(order string) string {
	return `{"order_id":"` + order + `","payment_method":"pm_card_visa"}`
}

// stays is what a payment leaves on the disk, on average of all so far.
func (b *bench) stays(ctx context.Context) (string, error) {
	var payments, dead, moved int64
	err := b.pool.Raw().QueryRow(ctx, `
		SELECT (SELECT count(*) FROM payments), (SELECT sum(n_tup_upd + n_tup_del) FROM pg_stat_user_tables),
			(SELECT sum(n_tup_upd - n_tup_hot_upd) FROM pg_stat_user_tables)`).Scan(&payments, &dead, &moved)
	if err != nil || payments == 0 {
		return "", err
	}
	bytes, err := b.size(ctx)
	return fmt.Sprintf("%.0f bytes in tables and indexes, %.1f dead rows, of which %.1f are not HOT",
		float64(bytes-b.before.bytes)/float64(max(1, payments-b.before.payments)), float64(dead)/float64(payments),
		float64(moved)/float64(payments)), err
}

// size is what a payment's tables take, with their indexes.
func (b *bench) size(ctx context.Context) (bytes int64, err error) {
	err = b.pool.Raw().QueryRow(ctx,
		"SELECT sum(pg_total_relation_size(c)) FROM unnest(ARRAY['idempotency_keys', 'payments', 'outbox_events', "+
			"'stripe_call_rows']::regclass[]) c").Scan(&bytes)
	return bytes, err
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
		b.replay[i] = b.request("/v1/payments", strconv.Itoa(answeredFirst+i),
			paymentOf(fmt.Sprintf("%s%04d%018d", prefix, conn, n)))
	}
	_, n, err := b.drive(ctx, b.addr, time.Minute, b.s.connections, http.StatusCreated,
		func(conn, i int) ([]byte, bool) {
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
		requests = append(requests,
			b.request("/bare/"+name, strconv.Itoa(answeredFirst+i),
				`{"order_id":"ord_00000000000000000000000000","payment_method":"pm_card_visa"}`))
	}
	return func(ctx context.Context) (sample, error) {
		return b.measured(ctx, b.peers, http.StatusCreated, func(conn, i int) ([]byte, bool) {
			return requests[(conn*7919+i)%answered], true
		})
	}
}

// conflicts sends requests with a key that another request holds.
func (b *bench) conflicts(ctx context.Context) (sample, error) {
	prefix, err := b.orders(ctx, 1, 1)
	if err != nil {
		return sample{}, err
	}
	order := prefix + fmt.Sprintf("%04d%018d", 0, 1)
	body := paymentOf(order)
	if _, _, err := b.drive(ctx, b.addr, time.Second, 1, http.StatusCreated, func(_, i int) ([]byte, bool) {
		return b.request("/v1/payments", order, body), i == 1
	}); err != nil {
		return sample{}, err
	}
	// A held twin of that key: same fingerprint, not finished.
	_, err = b.pool.Raw().Exec(ctx, `
		INSERT INTO idempotency_keys (tenant_id, key, operation, fingerprint, fingerprint_version, request, request_id,
			resource_id, recovery_point, claim_token, leased_until, next_attempt_at, history)
		SELECT tenant_id, key || '-held', operation, fingerprint, fingerprint_version, request, request_id, resource_id,
			'payment_recorded', claim_token,
			clock_timestamp() + interval '1 hour', clock_timestamp() + interval '1 hour', history
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
			return b.request("/peers/"+name, key,
				`{"order_id":"ord_00000000000000000000000000","payment_method":"pm_card_visa"}`), true
		})
	}
}

// measured drives requests and counts what they cost.
func (b *bench) measured(ctx context.Context, addr string, status int, next func(conn, i int) ([]byte, bool)) (sample,
	error) {
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
	return []byte("POST " + path + " HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer " + b.apiKey +
		"\r\nContent-Type: application/json\r\nIdempotency-Key: " +
		key + "\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body)
}

// ---- webhooks ---------------------------------------------------------------

const webhookSecret = "whsec_bench"

func (b *bench) webhookGroup() group {
	const floor, intake = "an event inserted, pgbench", "an event verified, stored and answered"
	return group{name: "webhooks", list: []*measurement{
		{name: floor, kind: plot.Floor, unit: "events/s", run: b.webhookFloor},
		{name: intake, unit: "events/s", floor: floor, run: b.webhooks},
	}, goals: []goal{
		{id: "P10", what: "webhooks ÷ pgbench's insert", want: 0.60, of: ratio(intake, floor)},
	}}
}

// webhooks sends signed events of the size of Stripe's, in its order of members.
func (b *bench) webhooks(ctx context.Context) (sample, error) {
	b.batch++
	batch, senders := b.batch, make([]sender, b.s.connections)
	return b.measured(ctx, b.addr, http.StatusOK,
		func(conn, i int) ([]byte, bool) { return senders[conn].event(batch, conn, i), true })
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
		`"data":{"object":{"id":"pi_%d","object":"payment_intent",%s"status":"succeeded"}},"type":"payment_intent.`+
		`succeeded"}`, batch, conn, i, i, eventPad)
	now := time.Now().Unix()
	s.mac.Reset()
	_, _ = fmt.Fprintf(s.mac, "%d.%s", now, s.body)
	s.request = fmt.Appendf(s.request[:0],
		"POST /v1/webhooks/stripe HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nStripe-Signature: "+
			"t=%d,v1=%x\r\nContent-Length: %d\r\n\r\n%s",
		now, s.mac.Sum(nil), len(s.body), s.body)
	return s.request
}

// eventPad stands for the members of a PaymentIntent. No colon stands before a
// letter or a digit, which pgbench would take for a variable.
var eventPad = func() (pad string) {
	for i := range 28 {
		pad += fmt.Sprintf(`"member_%02d": {"amount": %d, "currency": "usd", "nothing": null}, `, i, 1000+i)
	}
	return pad
}()

func (b *bench) webhookFloor(ctx context.Context) (sample, error) {
	b.batch++
	values := map[string]string{
		"Consumers": "'stripe'", "EventIds": fmt.Sprintf("'evt_%d_' || (:client_id)::text || '_' || (:i)::text", b.batch),
		"Types":     "'payment_intent.succeeded'",
		"ObjectIds": "'pi_1'", "Payloads": "'{" + eventPad + strings.Repeat(" ", 200) + "}'::bytea",
		"Traceparents": "''",
	}
	sql, err := filled(postgres.WebhookIntake(), db.InboxReceiveParams{}, values, nil)
	if err != nil {
		return sample{}, err
	}
	rate, err := b.pgbench(ctx, "\\set i :i + 1\n"+sql+";\n")
	return sample{rate: rate}, err
}
