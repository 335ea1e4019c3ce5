package notifier_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/inbox"
	"example.com/payonce/internal/notifier"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/testkit/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

const tenant = "tnt_a"

var secret = []byte("0123456789abcdef0123456789abcdef")

// bundle is a tenant with an endpoint whose responses the test sets.
type bundle struct {
	*testing.T
	pool     *postgres.Pool
	consumer *inbox.Consumer
	notifier *notifier.Notifier
	server   *httptest.Server

	mu       sync.Mutex
	received []request
	answer   func(w http.ResponseWriter, n int) // n counts from 1; nil: 204
}

type request struct {
	header http.Header
	body   string
}

func setup(t *testing.T) *bundle {
	t.Helper()
	return setupIn(t, dbtest.New(t))
}

func setupIn(t *testing.T, pool *postgres.Pool) *bundle {
	t.Helper()
	b := &bundle{T: t, pool: pool}
	b.server = httptest.NewServer(b)
	t.Cleanup(b.server.Close)
	require.NoError(t, b.pool.TenantCreate(t.Context(), db.TenantCreateParams{ID: tenant, Name: "A",
		FingerprintSecret: secret}))
	b.endpoint(b.server.URL + "/hooks")
	b.consumer = inbox.NewConsumer(b.pool, notifier.Name, notifier.Handler(), nil)
	b.notifier = notifier.New(b.pool, notifier.Options{AllowPrivate: true})
	return b
}

func (b *bundle) endpoint(url string) {
	b.Helper()
	require.NoError(b, notifier.SetEndpoint(b.Context(), b.pool, tenant, url,
		"whsec_"+base64.StdEncoding.EncodeToString(secret)))
}

func (b *bundle) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	b.mu.Lock()
	b.received = append(b.received, request{r.Header, string(body)})
	n := len(b.received)
	b.mu.Unlock()
	if b.answer == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	b.answer(w, n)
}

func (b *bundle) requests() []request {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]request(nil), b.received...)
}

// publish brings an event to the notifier's consumer.
func (b *bundle) publish(aggregate string) (body string) {
	b.Helper()
	return b.publishTo(tenant, aggregate)
}

func (b *bundle) publishTo(tenant, aggregate string) (body string) {
	b.Helper()
	raw, err := json.Marshal(outbox.Envelope{ID: outbox.EventID(aggregate, 1), Type: "order.created",
		Subject: aggregate, TenantID: tenant, Version: 1,
		Time: time.Now(), Data: json.RawMessage(`{"note":"ä"}`)})
	require.NoError(b, err)
	require.NoError(b, b.consumer.Handle(b.Context(), inbox.Message{ID: outbox.EventID(aggregate, 1),
		Type: "order.created", TenantID: tenant,
		Subject: aggregate, Version: 1, Body: raw}))
	return string(raw)
}

func (b *bundle) runOnce(want int) {
	b.Helper()
	n, err := b.notifier.RunOnce(b.Context())
	require.NoError(b, err)
	require.Equal(b, want, n)
}

func (b *bundle) row() (status, lastError string, attempts int, pause float64) {
	b.Helper()
	require.NoError(b, b.pool.Raw().QueryRow(b.Context(), `SELECT status::text, coalesce(last_error, ''), attempts,
		extract(epoch FROM greatest(leased_until, clock_timestamp()) - clock_timestamp())::float8
		FROM webhook_deliveries`).Scan(&status, &lastError, &attempts, &pause))
	return status, lastError, attempts, pause
}

func (b *bundle) exec(sql string, args ...any) {
	b.Helper()
	_, err := b.pool.Raw().Exec(b.Context(), sql, args...)
	require.NoError(b, err)
}

func (b *bundle) count(sql string) (n int) {
	b.Helper()
	require.NoError(b, b.pool.Raw().QueryRow(b.Context(), sql).Scan(&n))
	return n
}

func (b *bundle) statuses() (all []string) {
	b.Helper()
	require.NoError(b, b.pool.Raw().QueryRow(b.Context(),
		"SELECT array_agg(status::text ORDER BY id) FROM webhook_deliveries").Scan(&all))
	return all
}

func (b *bundle) due() {
	b.Helper()
	_, err := b.pool.Raw().Exec(b.Context(),
		"UPDATE webhook_deliveries SET leased_until = '-infinity' WHERE status = 'pending'")
	require.NoError(b, err)
}

func TestNotifier(t *testing.T) {
	t.Parallel()

	t.Run("DeliversEachEventSigned", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		sent := map[string]string{}
		for i := range 3 {
			id := fmt.Sprintf("ord_%d", i)
			sent[id+"-1"] = b.publish(id)
			b.publish(id) // the broker repeats itself
		}
		b.runOnce(3)
		b.runOnce(0)
		require.Len(t, b.requests(), 3)
		for _, r := range b.requests() {
			id, timestamp := r.header.Get("webhook-id"), r.header.Get("webhook-timestamp")
			require.Equal(t, sent[id], r.body)
			seconds, err := strconv.ParseInt(timestamp, 10, 64)
			require.NoError(t, err)
			require.WithinDuration(t, time.Now(), time.Unix(seconds, 0), time.Minute)
			mac := hmac.New(sha256.New, secret)
			_, _ = fmt.Fprintf(mac, "%s.%s.%s", id, timestamp, r.body)
			require.Equal(t, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)), r.header.Get("webhook-signature"))
			require.Equal(t, "application/cloudevents+json; charset=utf-8", r.header.Get("Content-Type"))
		}
	})

	t.Run("UnresponsiveEndpointDelaysOnlyItsTenant", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		hanging := make(chan struct{})
		release := sync.OnceFunc(func() { close(hanging) })
		t.Cleanup(release) // a server that closes waits for who is inside
		b.answer = func(w http.ResponseWriter, _ int) {
			<-hanging
			w.WriteHeader(http.StatusOK)
		}
		for i := range 20 {
			b.publish(fmt.Sprintf("ord_%02d", i))
		}
		const other = "tnt_b"
		heard := make(chan struct{}, 100)
		prompt := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { heard <- struct{}{} }))
		t.Cleanup(prompt.Close)
		require.NoError(t, b.pool.TenantCreate(t.Context(), db.TenantCreateParams{ID: other, Name: "B",
			FingerprintSecret: secret}))
		require.NoError(t, notifier.SetEndpoint(t.Context(), b.pool, other, prompt.URL,
			"whsec_"+base64.StdEncoding.EncodeToString(secret)))

		for i := range 3 { // again and again, while the first says nothing
			b.publishTo(other, fmt.Sprintf("ord_b%d", i))
			_, err := b.notifier.RunOnce(t.Context())
			require.NoError(t, err)
			require.Eventually(t, func() bool { return len(heard) == i+1 && len(b.requests()) >= 8 }, time.Minute,
				time.Millisecond, "it was told in the same round")
		}
		told := len(b.requests())
		require.Equal(t, 8, told, "no more connections wait for the one that hangs")
		release()
		require.Eventually(t, func() bool {
			_, err := b.notifier.RunOnce(t.Context())
			require.NoError(t, err)
			return len(b.requests()) == 20
		}, time.Minute, time.Millisecond, "who answers again is told the rest")
	})

	t.Run("UnresponsiveEndpointsOfManyTenantsDelayEachOther", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		var hanging, most atomic.Int32
		answering := make(chan struct{})
		release := sync.OnceFunc(func() { close(answering) })
		hang := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			most.Store(max(most.Load(), hanging.Add(1)))
			defer hanging.Add(-1)
			select {
			case <-answering:
			case <-r.Context().Done():
			}
		}))
		t.Cleanup(hang.Close)
		t.Cleanup(release)  // a server that closes waits for who is inside
		for i := range 10 { // more than there are connections
			other := fmt.Sprint("tnt_hangs_", i)
			require.NoError(t, b.pool.TenantCreate(t.Context(), db.TenantCreateParams{ID: other, Name: "B",
				FingerprintSecret: secret}))
			require.NoError(t, notifier.SetEndpoint(t.Context(), b.pool, other, hang.URL,
				"whsec_"+base64.StdEncoding.EncodeToString(secret)))
			for n := range 10 {
				b.publishTo(other, fmt.Sprintf("ord_%d_%d", i, n))
			}
		}
		began := time.Now()
		round := func() {
			_, err := b.notifier.RunOnce(t.Context())
			require.NoError(t, err)
		}
		for hanging.Load() < 32 { // every connection
			require.Less(t, time.Since(began), time.Minute)
			round()
		}
		began = time.Now()
		b.publish("ord_1")
		for len(b.requests()) == 0 {
			require.Less(t, time.Since(began), 14*time.Second, "an attempt may last 15 s")
			round()
		}
		require.EqualValues(t, 32, most.Load())
		release()
		require.Eventually(t, func() bool {
			round()
			var waiting int
			require.NoError(t, b.pool.Raw().QueryRow(t.Context(),
				"SELECT count(*) FROM webhook_deliveries WHERE status = 'pending'").Scan(&waiting))
			return waiting == 0
		}, time.Minute, time.Millisecond, "they are told when they respond")
	})

	t.Run("RetriesWithTheSameID", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.answer = func(w http.ResponseWriter, n int) {
			switch n {
			case 1:
				w.WriteHeader(http.StatusInternalServerError)
			case 2:
				panic(http.ErrAbortHandler) // the response is lost
			default:
				w.WriteHeader(http.StatusOK)
			}
		}
		b.publish("ord_1")
		b.runOnce(1)
		status, lastError, attempts, pause := b.row()
		require.Equal(t, "pending HTTP status 500 1", fmt.Sprint(status, " ", lastError, " ", attempts))
		require.InDelta(t, 5, pause, 3)
		b.runOnce(0)
		b.due()
		b.runOnce(1)
		_, _, _, pause = b.row()
		require.InDelta(t, 300, pause, 10)
		b.due()
		b.runOnce(1)
		status, _, attempts, _ = b.row()
		require.Equal(t, "delivered 3", fmt.Sprint(status, " ", attempts))
		for _, r := range b.requests() {
			require.Equal(t, "ord_1-1", r.header.Get("webhook-id"))
		}
	})

	t.Run("FailsAfterThreeDaysAndCanBeRequeued", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.answer = func(w http.ResponseWriter, _ int) { w.WriteHeader(http.StatusServiceUnavailable) }
		b.publish("ord_1")
		waited := 0.0
		for status := "pending"; status == "pending"; {
			b.runOnce(1)
			var pause float64
			status, _, _, pause = b.row()
			if status == "pending" {
				waited += pause
			}
			b.due()
		}
		require.Len(t, b.requests(), 10)
		require.InDelta(t, 76, waited/3600, 1, "hours")
		b.answer = nil
		n, err := notifier.Requeue(t.Context(), b.pool.Queries, tenant)
		require.NoError(t, err)
		require.EqualValues(t, 1, n)
		b.runOnce(1)
		status, _, _, _ := b.row()
		require.Equal(t, "delivered", status)
	})

	t.Run("Status410DisablesTheEndpoint", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.answer = func(w http.ResponseWriter, _ int) { w.WriteHeader(http.StatusGone) }
		b.publish("ord_1")
		b.runOnce(1)
		status, _, _, _ := b.row()
		require.Equal(t, "failed", status)
		b.publish("ord_2")
		b.runOnce(0)
		require.Len(t, b.requests(), 1)
	})

	t.Run("DoesNotFollowRedirects", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.answer = func(w http.ResponseWriter, _ int) {
			w.Header().Set("Location", b.server.URL+"/elsewhere")
			w.WriteHeader(http.StatusTemporaryRedirect)
		}
		b.publish("ord_1")
		b.runOnce(1)
		require.Len(t, b.requests(), 1)
		_, lastError, _, _ := b.row()
		require.Contains(t, lastError, "307")
	})

	t.Run("RecordsErrorsThatAreNotUTF8", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer listener.Close()
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				_, _ = conn.Write([]byte("HTTP/1.1 500 \xff\x00\xfe\r\nContent-Length: 0\r\nX: \xff\x00\r\n\r\n"))
				_ = conn.Close()
			}
		}()
		b.endpoint("http://" + listener.Addr().String())
		b.publish("ord_1")
		b.runOnce(1)
		_, lastError, attempts, _ := b.row()
		require.NotEmpty(t, lastError)
		require.Equal(t, 1, attempts)
	})

	t.Run("SendsNothingToADisabledEndpoint", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.publish("ord_1")
		_, err := b.pool.EndpointDisable(t.Context(),
			db.EndpointDisableParams{TenantID: tenant, ID: notifier.OperatorEndpoint(tenant)})
		require.NoError(t, err)
		b.publish("ord_2")
		b.runOnce(0)
		require.Empty(t, b.requests())
		require.Equal(t, []string{"skipped", "skipped"}, b.statuses())
	})

	t.Run("EndpointIsDisabledWhenAllHasFailedForThreeDays", func(t *testing.T) {
		t.Parallel()
		for _, c := range []struct {
			since    string
			status   int
			recovers bool // another attempt arrives before this one has failed
			want     int  // endpoints that are disabled
		}{
			{"72 hours 1 minute", 500, false, 1}, {"71 hours 59 minutes", 500, false, 0}, {"73 hours", 204, false, 0},
			{"73 hours", 500, true, 0},
		} {
			b := setup(t)
			b.answer = func(w http.ResponseWriter, _ int) { w.WriteHeader(http.StatusInternalServerError) }
			b.publish("ord_1")
			b.runOnce(1)
			require.Equal(t, 1, b.count("SELECT count(*) FROM webhook_endpoints WHERE failing_since > now() - interval '1 minute'"))
			b.exec("UPDATE webhook_endpoints SET failing_since = failing_since - $1::interval", c.since)
			b.due()
			b.answer = func(w http.ResponseWriter, _ int) {
				if c.recovers {
					b.exec("UPDATE webhook_endpoints SET failing_since = NULL")
				}
				w.WriteHeader(c.status)
			}
			b.runOnce(1)
			require.Equal(t, c.want, b.count("SELECT count(*) FROM webhook_endpoints WHERE disabled_at IS NOT NULL"), c)
			require.Equal(t, c.want, b.count(`SELECT count(*) FROM outbox_events WHERE type = 'webhook_endpoint.disabled'
				AND version = 1 AND convert_from(data, 'UTF8')::jsonb @> '{"status":"disabled"}'
				AND NOT convert_from(data, 'UTF8')::jsonb ? 'secret'`), c)
			if c.status == http.StatusNoContent {
				require.Zero(t, b.count("SELECT count(*) FROM webhook_endpoints WHERE failing_since IS NOT NULL"))
			}
		}
	})

	t.Run("AnAttemptThatArrivesAfterOneThatBeganLaterFailedCounts", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		failed := make(chan struct{})
		b.answer = func(w http.ResponseWriter, n int) {
			if n == 2 {
				w.WriteHeader(http.StatusInternalServerError)
				return
			}
			<-failed
			w.WriteHeader(http.StatusNoContent)
		}
		b.publish("ord_1")
		b.publish("ord_2")
		go func() { // the failure is recorded before the other is answered
			defer close(failed)
			for until := time.Now().Add(time.Minute); time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
				var failing bool
				err := b.pool.Raw().QueryRow(t.Context(),
					`SELECT count(*) > 0 FROM webhook_endpoints WHERE failing_since IS NOT NULL`).Scan(&failing)
				if failing || err != nil {
					return
				}
			}
		}()
		b.runOnce(2)
		require.Equal(t, 1, b.count("SELECT count(*) FROM webhook_deliveries WHERE status = 'delivered'"))
		require.Zero(t, b.count("SELECT count(*) FROM webhook_endpoints WHERE failing_since IS NOT NULL"))
	})

	t.Run("SendsEachEndpointTheTypesThatItWants", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.exec(`INSERT INTO webhook_endpoints (tenant_id, id, number, url, event_types) VALUES
			('tnt_a', 'whe_paid', 2, $1, '{order.paid}'), ('tnt_a', 'whe_both', 3, $1, '{order.paid,order.created}'),
			('tnt_b', 'whe_other', 1, $1, '{*}')`, b.server.URL)
		b.exec(`INSERT INTO webhook_secrets (tenant_id, endpoint_id, version, secret)
			SELECT tenant_id, id, 1, sha256(id::bytea) FROM webhook_endpoints WHERE number > 1 OR tenant_id <> 'tnt_a'`)
		b.publish("ord_1")
		b.runOnce(2)
		require.Len(t, b.requests(), 2)
		require.Equal(t, 1, b.count("SELECT count(*) FROM webhook_deliveries WHERE endpoint_id = 'whe_both'"))
		require.Equal(t, 2, b.count("SELECT count(*) FROM webhook_deliveries WHERE event_type = 'order.created'"))
	})

	t.Run("ASlowEndpointDoesNotDelayTheOthersOfItsTenant", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		var prompt atomic.Int32
		other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			prompt.Add(1)
			w.WriteHeader(http.StatusNoContent)
		}))
		t.Cleanup(other.Close)
		b.exec(`INSERT INTO webhook_endpoints (tenant_id, id, number, url) VALUES ('tnt_a', 'whe_prompt', 2, $1)`, other.URL)
		b.exec(`INSERT INTO webhook_secrets (tenant_id, endpoint_id, version, secret)
			VALUES ('tnt_a', 'whe_prompt', 1, sha256('x'))`)
		hang := make(chan struct{})
		t.Cleanup(func() { close(hang) })
		b.answer = func(http.ResponseWriter, int) { <-hang }
		for i := range 30 {
			b.publish(fmt.Sprintf("ord_%d", i))
		}
		for began := time.Now(); prompt.Load() < 30; {
			require.Less(t, time.Since(began), time.Minute, "%d arrived", prompt.Load())
			_, err := b.notifier.RunOnce(t.Context())
			require.NoError(t, err)
		}
	})

	t.Run("SignsWithBothSecretsWhileOneIsRotated", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		id := notifier.OperatorEndpoint(tenant)
		second := bytes.Repeat([]byte("2"), 32)
		b.exec("UPDATE webhook_secrets SET expires_at = now() + interval '1 hour'")
		b.exec(`INSERT INTO webhook_secrets (tenant_id, endpoint_id, version, secret) VALUES ($1, $2, 2, $3)`, tenant, id, second)
		b.publish("ord_1")
		b.runOnce(1)
		b.exec("UPDATE webhook_secrets SET expires_at = now() - interval '1 second' WHERE version = 1")
		b.publish("ord_2")
		b.runOnce(1)
		seen := b.requests()
		for i, want := range [][][]byte{{second, secret}, {second}} {
			h := http.Header{}
			sent, err := strconv.ParseInt(seen[i].header.Get("Webhook-Timestamp"), 10, 64)
			require.NoError(t, err)
			notifier.Sign(h, seen[i].header.Get("Webhook-Id"), time.Unix(sent, 0), []byte(seen[i].body), want...)
			require.Equal(t, h.Get("Webhook-Signature"), seen[i].header.Get("Webhook-Signature"))
		}
	})

	t.Run("DoesNotRecordAnOutcomeAfterLosingTheLease", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.answer = func(w http.ResponseWriter, n int) {
			if n == 1 { // while this attempt hangs, another process delivers it
				b.due()
				begun, err := notifier.New(b.pool, notifier.Options{AllowPrivate: true}).RunOnce(b.Context())
				require.NoError(b, err)
				require.Equal(b, 1, begun)
				w.WriteHeader(http.StatusInternalServerError)
			}
		}
		b.publish("ord_1")
		b.runOnce(1)
		status, _, attempts, _ := b.row()
		require.Equal(t, "delivered 2", fmt.Sprint(status, " ", attempts))
	})

	t.Run("RoundDoesNotWaitForASlowEndpoint", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		for i := range 8 {
			b.publish(fmt.Sprintf("ord_%d", i))
		}
		var inside sync.WaitGroup
		inside.Add(8)
		b.answer = func(w http.ResponseWriter, _ int) {
			inside.Done()
			inside.Wait() // no response before all eight requests have arrived
			w.WriteHeader(http.StatusOK)
		}
		b.runOnce(8)
	})
}

// TestPrivateAddressesAreRefused is about a tenant who would like us to look around inside.
func TestPrivateAddressesAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	strict := notifier.New(b.pool, notifier.Options{})
	port := b.server.URL[strings.LastIndexByte(b.server.URL, ':'):]
	for i, url := range []string{
		"https://127.0.0.1" + port, "https://localhost" + port, "https://[::1]" + port,
		"https://[::ffff:127.0.0.1]" + port,
		"https://0.0.0.0" + port, "https://2130706433" + port, "https://169.254.169.254/latest/meta-data/",
		"https://10.0.0.1/", "https://[fd00:ec2::254]/",
		"http://93.184.216.34/", // public, but in the clear
	} {
		b.endpoint(url)
		b.publish(fmt.Sprintf("ord_%d", i))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		n, err := strict.RunOnce(ctx)
		cancel()
		require.NoError(t, err)
		require.Equal(t, 1, n)
		var lastError string
		require.NoError(t, b.pool.Raw().QueryRow(t.Context(),
			"SELECT last_error FROM webhook_deliveries WHERE event_id = $1",
			fmt.Sprintf("ord_%d-1", i)).Scan(&lastError))
		require.Regexp(t, "is not a public one|is not https|no such host|server misbehaving", lastError, url)
	}
	require.Empty(t, b.requests())

	for _, bad := range []string{"", "ftp://example.com", "https://", "https://user:pw@example.com",
		"file:///etc/passwd", "example.com"} {
		require.Error(t, notifier.SetEndpoint(t.Context(), b.pool, tenant, bad,
			"whsec_"+base64.StdEncoding.EncodeToString(secret)), bad)
	}
	for _, bad := range []string{"", "whsec_", "whsec_c2hvcnQ=", "whsec_!"} {
		require.Error(t, notifier.SetEndpoint(t.Context(), b.pool, tenant, "https://example.com", bad), bad)
	}
}

func TestReaper(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.publish("ord_1")
	b.runOnce(1)
	b.publish("ord_2")
	_, err := b.pool.Raw().Exec(t.Context(), `ALTER TABLE webhook_deliveries DISABLE TRIGGER delivered_is_final;
		UPDATE webhook_deliveries SET created_at = created_at - interval '31 days', ended_at = ended_at - interval '31 days'`)
	require.NoError(t, err)
	n, err := notifier.NewReaper(b.pool, 0).RunOnce(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, n)
	status, _, _, _ := b.row()
	require.Equal(t, "pending", status, "what was not delivered stays")
}
