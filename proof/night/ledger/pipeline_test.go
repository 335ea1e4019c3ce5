package ledger_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/broker"
	"example.com/payonce/internal/inbox"
	"example.com/payonce/internal/ledger"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/subscriber"
	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/port"
)

// The test binary is also the processes that the test kills: PIPELINE_ROLE says
// which one.
func TestMain(m *testing.M) {
	if role := os.Getenv("PIPELINE_ROLE"); role != "" {
		if err := process(role); err != nil {
			fmt.Fprintln(os.Stderr, role, err)
			os.Exit(1)
		}
		return
	}
	dbtest.Main(m)
}

const pipelineLease = 500 * time.Millisecond

const tenant = "tnt_a"

// The rows of payments and refunds that the events are about: so many payments, and a refund of every third.
const (
	insertPayments = `INSERT INTO payments (tenant_id, id, version, status, order_id, idempotency_key, amount_minor,
		currency, payment_method, intent_number, intent_id, created_at)
		SELECT 'tnt_a', 'pay_' || i, 2, 'succeeded', 'ord_' || i, 'k' || i, 1000 + i, 'eur', 'pm_card_visa', 1, 'pi_' || i,
			now() FROM generate_series(0, $1::int - 1) i`
	insertRefunds = `INSERT INTO refunds (tenant_id, id, version, status, origin, payment_id, order_id, idempotency_key,
		stripe_key, amount_minor, currency, stripe_refund_id, created_at)
		SELECT 'tnt_a', 'rfd_' || i, 2, 'succeeded', 'api', 'pay_1', 'ord_1', 'r' || i, 'tnt_a:r' || i, 100, 'eur',
			're_' || i, now() FROM generate_series(0, $1::int - 1, $2::int) i`
)

func event(aggregateID string, version int64, kind string, amount int) outbox.Event {
	return outbox.Event{TenantID: tenant, AggregateID: aggregateID, Version: version, Type: kind,
		Data: fmt.Appendf(nil, `{"id":%q,"amount":%d,"currency":"eur"}`, aggregateID, amount)}
}

func run(t testing.TB, pool *postgres.Pool, sql string, args ...any) {
	t.Helper()
	_, err := pool.Raw().Exec(t.Context(), sql, args...)
	require.NoError(t, err)
}

func count(t testing.TB, pool *postgres.Pool, sql string) (n int) {
	t.Helper()
	require.NoError(t, pool.Raw().QueryRow(t.Context(), sql).Scan(&n))
	return n
}

// process runs the loops of one role until it is killed.
func process(role string) error {
	ctx := context.Background()
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	if role == "broker" {
		return serveBroker(ctx)
	}
	pool, err := postgres.Open(ctx, os.Getenv("PIPELINE_DB"), postgres.Options{MaxConn: 4})
	if err != nil {
		return err
	}
	b, err := broker.Open(ctx, os.Getenv("PIPELINE_BROKER"), broker.Options{})
	if err != nil {
		return err
	}
	loop := func(runOnce func(context.Context) (int, error)) {
		for {
			if n, err := runOnce(ctx); n == 0 || err != nil {
				time.Sleep(20 * time.Millisecond)
			}
		}
	}
	switch role {
	case "relay":
		loop(outbox.NewRelay(pool, b, outbox.RelayOptions{Lease: pipelineLease, HeadsMax: 50}).RunOnce)
	case "consumer":
		go loop(inbox.NewProcessor(pool, map[string]inbox.Handler{ledger.Name: ledger.Handler()},
			inbox.ProcessorOptions{}).RunOnce)
		sub := subscriber.New(pool, inbox.NewConsumer(pool, ledger.Name, ledger.Handler(), nil), ledger.Handler(), nil,
			subscriber.Options{})
		go loop(sub.RunOnce)
		return b.Consume(ctx, ledger.Name, sub.Handle)
	}
	return errors.New("no such role")
}

// serveBroker says where it listens, once it does.
func serveBroker(ctx context.Context) error {
	b, err := broker.Open(ctx, "embedded:"+os.Getenv("PIPELINE_DIR")+"?listen="+os.Getenv("PIPELINE_LISTEN"),
		broker.Options{})
	if err != nil {
		return err
	}
	fmt.Println(b.(interface{ Addr() string }).Addr())
	<-ctx.Done()
	return b.Close()
}

// member is a process that is started again whenever it is killed.
type member struct {
	role string
	env  []string
	cmd  *exec.Cmd
}

func (m *member) command(t testing.TB) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	m.cmd = exec.Command(exe)
	m.cmd.Env = append(os.Environ(), append(m.env, "PIPELINE_ROLE="+m.role)...)
	m.cmd.Stderr = os.Stderr
	return m.cmd
}

func (m *member) start(t testing.TB) {
	t.Helper()
	require.NoError(t, m.command(t).Start())
}

// startAndListen returns the line that the process says when it serves.
func (m *member) startAndListen(t testing.TB) string {
	t.Helper()
	out, err := m.command(t).StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, m.cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err, "%s did not start", m.role)
	return strings.TrimSpace(line)
}

func (m *member) kill() {
	_ = m.cmd.Process.Kill()
	_ = m.cmd.Wait()
}

// startBroker starts NATS in a separate process, as in production, so that the test can
// kill it with SIGKILL. It restarts at the same address.
func startBroker(t testing.TB) (b *member, url string) {
	t.Helper()
	at, err := port.Loopback(t.Context())
	require.NoError(t, err)
	b = &member{role: "broker", env: []string{"PIPELINE_DIR=" + t.TempDir(), "PIPELINE_LISTEN=" + at.String()}}
	return b, "nats://" + b.startAndListen(t)
}

// TestPipelineUnderKills runs payments' events through real processes to the
// ledger, while relays and consumers get SIGKILL and SIGSTOP and the broker is stopped.
// Then it counts the entries.
func TestPipelineUnderKills(t *testing.T) {
	t.Parallel()
	const payments, refunds, refundOf = 1500, 500, 3 // every third payment is refunded
	url := dbtest.URL(t)
	pool, err := postgres.Open(t.Context(), url, postgres.Options{})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	run(t, pool, insertPayments, payments)
	run(t, pool, insertRefunds, payments, refundOf)
	nats, natsURL := startBroker(t)
	t.Cleanup(func() { nats.kill() })

	env := []string{"PIPELINE_DB=" + url, "PIPELINE_BROKER=" + natsURL}
	members := []*member{{role: "relay"}, {role: "relay"}, {role: "relay"}, {role: "consumer"}, {role: "consumer"}}
	for _, m := range members {
		m.env = env
		m.start(t)
		t.Cleanup(m.kill)
	}

	var writing sync.WaitGroup
	for w := range 4 {
		writing.Go(func() {
			for i := w; i < payments; i += 4 {
				id := fmt.Sprintf("pay_%d", i)
				events := [][]outbox.Event{{event(id, 1, "payment.created", 1000+i)},
					{event(id, 2, "payment.succeeded", 1000+i)}}
				if i%refundOf == 0 {
					id := fmt.Sprintf("rfd_%d", i)
					events = append(events, []outbox.Event{event(id, 1, "refund.created", 100)},
						[]outbox.Event{event(id, 2, "refund.succeeded", 100)})
				}
				for _, change := range events {
					if err := pool.InTx(t.Context(),
						func(q *db.Queries) error { return outbox.Append(t.Context(), q, change...) }); err != nil {
						t.Errorf("append: %v", err)
					}
				}
				time.Sleep(time.Duration(rand.IntN(60)) * time.Millisecond)
			}
		})
	}
	written := make(chan struct{})
	go func() { writing.Wait(); close(written) }()

	kills, pauses, outages := 0, 0, 0
	// a run in which little went wrong shows nothing
	for traffic := true; traffic || kills < 20 || pauses < 10 || outages < 2; {
		select {
		case <-written:
			traffic = false
		default:
		}
		time.Sleep(time.Duration(100+rand.IntN(200)) * time.Millisecond)
		m := members[rand.IntN(len(members))]
		switch roll := rand.IntN(20); {
		case roll < 11:
			m.kill()
			m.start(t)
			kills++
		case roll < 18:
			pause(t, m, pipelineLease+time.Duration(rand.IntN(500))*time.Millisecond)
			pauses++
		default:
			nats.kill()
			time.Sleep(time.Duration(rand.IntN(500)) * time.Millisecond)
			nats.startAndListen(t)
			outages++
		}
	}

	events := payments*2 + refunds*2
	require.Eventually(t, func() bool {
		return count(t, pool, "SELECT count(*) FROM inbox_events WHERE status = 'done'") == payments+refunds
	}, 5*time.Minute, 100*time.Millisecond)
	log := readStream(t, natsURL)
	missing, outOfOrder := walk(log, events)
	booked := count(t, pool, "SELECT count(DISTINCT event_id) FROM ledger_entries")
	t.Logf("events=%d killed=%d paused=%d broker_outages=%d in_stream=%d missing=%d out_of_order=%d to_book=%d "+
		"booked=%d entries=%d",
		events, kills, pauses, outages, len(log), missing, outOfOrder, payments+refunds, booked, count(t, pool,
			"SELECT count(*) FROM ledger_entries"))
	require.Zero(t, missing)
	require.Zero(t, outOfOrder)
	require.Equal(t, payments+refunds, booked)
	require.Equal(t, 2*(payments+refunds), count(t, pool, "SELECT count(*) FROM ledger_entries"))
	require.Zero(t, count(t, pool, "SELECT count(*) FROM inbox_events WHERE status <> 'done'"))
	require.Zero(t, count(t, pool, "SELECT count(*) FROM outbox_events WHERE published_at IS NULL"))
	balances, err := ledger.Balances(t.Context(), pool.Queries, tenant)
	require.NoError(t, err)
	earned := int64(payments*1000 + payments*(payments-1)/2)
	require.Equal(t, []ledger.Balance{
		{Account: "refunds", Currency: "eur", AmountMinor: refunds * 100},
		{Account: "sales", Currency: "eur", AmountMinor: -earned},
		{Account: "stripe", Currency: "eur", AmountMinor: earned - refunds*100},
	}, balances)
}

func readStream(t *testing.T, url string) (log []outbox.Envelope) {
	t.Helper()
	nc, err := nats.Connect(url)
	require.NoError(t, err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	stream, err := js.Stream(t.Context(), "PAYONCE")
	require.NoError(t, err)
	consumer, err := stream.OrderedConsumer(t.Context(), jetstream.OrderedConsumerConfig{})
	require.NoError(t, err)
	for uint64(len(log)) < stream.CachedInfo().State.Msgs {
		batch, err := consumer.Fetch(500, jetstream.FetchMaxWait(5*time.Second))
		require.NoError(t, err)
		for m := range batch.Messages() {
			var e outbox.Envelope
			require.NoError(t, json.Unmarshal(m.Data(), &e))
			log = append(log, e)
		}
		require.NoError(t, batch.Error())
	}
	return log
}

func walk(log []outbox.Envelope, events int) (missing, outOfOrder int) {
	last, seen := map[string]int64{}, map[string]bool{}
	for _, e := range log {
		seen[e.ID] = true
		if e.Version > last[e.Subject]+1 {
			outOfOrder++
		}
		last[e.Subject] = max(last[e.Subject], e.Version)
	}
	return events - len(seen), outOfOrder
}
