package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"math"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/google/uuid"

	"example.com/payonce/db"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/stripe"
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
	intakeFloor = "an event inserted, pgbench"
	intake      = "an event verified, stored and answered"
)

func (b *bench) requestGroup() group {
	return group{name: inRequests, prepare: func(ctx context.Context) error {
		return errors.Join(b.observeBatches(ctx), b.answerSome(ctx))
	}, list: []*measurement{
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
		got, rows, err := b.rowsAStatement(ctx, func() (sample, error) {
			return b.measured(ctx, b.addr, http.StatusCreated, next)
		})
		if err == nil {
			got.note, err = b.stays(ctx)
			got.note = fmt.Sprintf("%.1f rows a statement, %s", rows, got.note)
			b.batched.rows = max(1, int(math.Round(rows))) // for the floor of the next round
		}
		return got, err
	}
}

// freshRequests are payments of orders that were made for them. They can be driven
// in several stretches.
func (b *bench) freshRequests(ctx context.Context, key keyed) (next func(conn, _ int) ([]byte, bool), err error) {
	next, _, err = b.freshOrders(ctx, key)
	return next, err
}

// freshOrders are freshRequests, and how the ids of their orders begin.
func (b *bench) freshOrders(ctx context.Context, key keyed) (next func(conn, _ int) ([]byte, bool), prefix string,
	err error) {
	each := b.ordersMax() / b.s.connections
	prefix, err = b.orders(ctx, each, b.s.connections)
	paid := make([]int, b.s.connections)
	return func(conn, _ int) ([]byte, bool) {
		paid[conn]++
		order := orderOf(prefix, conn, paid[conn])
		return b.request("/v1/payments", key(order), paymentOf(order)), paid[conn] <= each
	}, prefix, err
}

// orderOf is the id of a connection's n-th order.
func orderOf(prefix string, conn, n int) string { return fmt.Sprintf("%s%04d%018d", prefix, conn, n) }

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
	got, err := drive(ctx, b.closed(b.addr, time.Minute, http.StatusCreated), func(conn, i int) ([]byte, bool) {
		at := (i-1)*b.s.connections + conn
		if at >= answered {
			return nil, false
		}
		return b.replay[at], true
	})
	if err == nil && got.n != answered {
		err = fmt.Errorf("only %d payments of %d were answered", got.n, answered)
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
	one := load{addr: b.addr, length: time.Second, connections: 1, status: http.StatusCreated}
	if _, err := drive(ctx, one, func(_, i int) ([]byte, bool) {
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
		batch := newBatch()
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

// closed is the load of all connections, each of which sends its next request when it has its response.
func (b *bench) closed(addr string, length time.Duration, status int) load {
	return load{addr: addr, length: length, connections: b.s.connections, status: status}
}

// length is that of one measurement.
func (b *bench) length() time.Duration { return time.Duration(b.s.seconds) * time.Second }

// measured drives requests and counts what they cost.
func (b *bench) measured(ctx context.Context, addr string, status int, next func(conn, i int) ([]byte, bool)) (sample,
	error) {
	return b.measuredLoad(ctx, b.closed(addr, b.length(), status), next)
}

func (b *bench) measuredLoad(ctx context.Context, l load, next func(conn, i int) ([]byte, bool)) (sample, error) {
	wal, cpu, driver := b.walPosition(ctx), b.cpu(), cpuOf(os.Getpid())
	l.others = append(l.others, b.others()...)
	d, err := drive(ctx, l, next)
	got := sample{rate: d.rate, n: d.n, p50: d.percentile(50), p99: d.percentile(99), times: d.times}
	if d.n > 0 {
		got.cpu = (b.cpu() - cpu) / time.Duration(d.n)
		got.load = (cpuOf(os.Getpid()) - driver) / time.Duration(d.n)
		got.wal = float64(b.walPosition(ctx)-wal) / float64(d.n)
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
	return group{name: inWebhooks, list: []*measurement{
		{name: intakeFloor, kind: plot.Floor, unit: "events/s", run: b.webhookFloor},
		{name: intake, unit: "events/s", floor: intakeFloor, run: b.webhooks},
	}}
}

// webhooks sends signed events of the size of Stripe's, in its order of members.
func (b *bench) webhooks(ctx context.Context) (sample, error) {
	batch, senders := newBatch(), make([]sender, b.s.connections)
	got, err := b.measured(ctx, b.addr, http.StatusOK,
		func(conn, i int) ([]byte, bool) { return senders[conn].event(batch, conn, i), true })
	if err == nil {
		err = b.sameEvents(ctx, batch)
	}
	return got, err
}

// sender writes its events into the same memory again and again: what the
// driver allocates, it would collect on the service's processors.
type sender struct {
	mac           hash.Hash
	body, request []byte
}

func (s *sender) event(batch, conn, i int) []byte {
	return s.send("evt_%d_%d_%d", `"id":"pi_%024d","object":"payment_intent",`, []any{batch, conn, i}, []any{i})
}

// paid is the event of an order that was paid, as instant has it.
func (s *sender) paid(tenant, order string) []byte {
	intent := intentOf(order)
	return s.send("evt_%s", `"id":"%s","object":"payment_intent","metadata":{"tenant_id":"%s","order_id":"%s"},`,
		[]any{intent[3:]}, []any{intent, tenant, order})
}

func (s *sender) send(id, object string, ofID, ofObject []any) []byte {
	if s.mac == nil {
		s.mac = hmac.New(sha256.New, []byte(webhookSecret))
	}
	s.body = append(s.body[:0], `{"id":"`...)
	s.body = fmt.Appendf(s.body, id, ofID...)
	s.body = append(s.body, `","object":"event","api_version":"2023-10-16","data":{"object":{`...)
	s.body = fmt.Appendf(s.body, object, ofObject...)
	s.body = append(s.body, eventPad...)
	s.body = append(s.body, `"status":"succeeded"}},"type":"payment_intent.succeeded"}`...)
	now := time.Now().Unix()
	s.mac.Reset()
	_, _ = fmt.Fprintf(s.mac, "%d.%s", now, s.body)
	s.request = fmt.Appendf(s.request[:0],
		"POST /v1/webhooks/stripe HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nStripe-Signature: "+
			"t=%d,v1=%x\r\nContent-Length: %d\r\n\r\n%s",
		now, s.mac.Sum(nil), len(s.body), s.body)
	return s.request
}

// eventPad stands for the members of a PaymentIntent, whose ids no compression shortens: 3 KB, as an event of Stripe's.
// No colon stands before a letter or a digit, which pgbench would take for a variable.
var eventPad = func() (pad string) {
	for i := range 28 {
		id := sha256.Sum256([]byte{byte(i)})
		pad += fmt.Sprintf(`"member_%02d": {"id": "%x", "amount": %d, "currency": "usd", "nothing": null}, `, i, id[:12], 1000+i)
	}
	return pad
}()

// webhookFloor inserts one event a statement, and the same that the service stores: see sameEvents.
func (b *bench) webhookFloor(ctx context.Context) (sample, error) {
	b.floorEvents = newBatch()
	var one sender
	one.event(b.floorEvents, 1, 1_000)
	event, err := stripe.ReadWebhook(one.body)
	if err != nil {
		return sample{}, err
	}
	digest := sha256.Sum256(one.body)
	values := map[string]string{
		"Consumers": "'stripe'",
		"EventIds":  fmt.Sprintf("'evt_%d_' || (:client_id)::text || '_' || (:i)::text", b.floorEvents),
		"Types":     "'payment_intent.succeeded'",
		"ObjectIds": "'pi_' || lpad((:i)::text, 24, '0')", "Payloads": inHex(event.Hint()), "PayloadSha256s": inHex(digest[:]),
		"Traceparents": "''",
	}
	sql, err := filled(postgres.WebhookIntake(), db.InboxReceiveParams{}, values, nil, oneRow)
	if err != nil {
		return sample{}, err
	}
	ran, err := b.pgbench(ctx, b.s.clients, "\\set i :i + 1\n"+sql+";\n")
	return sample{rate: ran.rate}, err
}

// sameEvents refuses a floor whose rows are not of the size of the service's.
func (b *bench) sameEvents(ctx context.Context, batch int) error {
	var stored, floor float64
	err := b.pool.Raw().QueryRow(ctx, `
		SELECT coalesce(avg(pg_column_size(e.*)) FILTER (WHERE event_id LIKE $1), 0)::float8,
			coalesce(avg(pg_column_size(e.*)) FILTER (WHERE event_id LIKE $2), 0)::float8 FROM inbox_events e`,
		fmt.Sprintf("evt\\_%d\\_%%", batch), fmt.Sprintf("evt\\_%d\\_%%", b.floorEvents)).Scan(&stored, &floor)
	if err == nil && math.Abs(stored-floor) > storedDiffers*stored {
		err = fmt.Errorf("pgbench stores %.0f bytes an event, and the service %.0f", floor, stored)
	}
	return err
}
