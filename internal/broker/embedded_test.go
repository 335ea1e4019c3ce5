package broker

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/inbox"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/testkit/brokertest"
)

func TestEmbedded(t *testing.T) {
	t.Parallel()

	// part: consumers {
	t.Run("KeepsMessagesAndPositionsAcrossARestart", func(t *testing.T) {
		t.Parallel()
		url := "embedded:" + t.TempDir()
		b, err := Open(t.Context(), url, quiet)
		require.NoError(t, err)
		publish(t, b, envelope("ord_1", 1), envelope("ord_2", 1))
		first := read(t, b, "ledger", func(m inbox.Message) error {
			if m.ID == "ord_2-1" {
				return errors.New("not yet")
			}
			return nil
		})
		first.Await(t, 1)
		first.Stop()
		require.NoError(t, b.Close())

		b = open(t, url)
		publish(t, b, envelope("ord_1", 1)) // the dedupe window survives as well
		publish(t, b, envelope("ord_1", 2))
		second := read(t, b, "ledger", nil)
		second.Await(t, 2)
		require.Equal(t, map[string]int{"ord_2-1": 1, "ord_1-2": 1}, second.Distinct())
	})
	// part: consumers }

	t.Run("RejectsASecondProcess", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		open(t, "embedded:"+dir)
		_, err := Open(t.Context(), "embedded:"+dir, quiet)
		require.ErrorContains(t, err, dir+" is in use by another process")
		require.ErrorContains(t, err, "BROKER_URL")
	})

	t.Run("ListensForOtherProcessesIfConfigured", func(t *testing.T) {
		t.Parallel()
		require.Empty(t, open(t, "embedded:"+t.TempDir()).(*embedded).Addr())
		b := open(t, "embedded:"+t.TempDir()+"?listen=127.0.0.1:0")
		other := open(t, "nats://"+b.(*embedded).Addr())
		require.Eventually(
			t,
			func() bool { return other.Publish(t.Context(), []outbox.Envelope{envelope("ord_1", 1)})[0] == nil },
			30*time.Second, 20*time.Millisecond,
		)
		read(t, b, "ledger", nil).Await(t, 1) // part: consumers
	})
}

func TestOpenRejectsWrongSettings(t *testing.T) {
	t.Parallel()
	brokertest.RequireRejected(t, Open, map[string]string{
		"":                              "a scheme is missing; use embedded:DIR",
		"redis://localhost":             `unsupported scheme "redis:"; this program has embedded:DIR`,
		"embedded:":                     "must be embedded:DIR",
		"embedded:/proc/nowhere":        "/proc/nowhere",
		"embedded:x?lisen=:1":           `unknown setting "lisen"`,
		"nats://":                       "nats://host",
		"nats://a:1,,b:2":               "nats://host",
		"nats://a?replicas=many":        "replicas must be a number",
		"nats://a?replicas=0":           "replicas must be a number",
		"nats://a?replicas=6":           "replicas must be a number",
		"nats://a?lisen=:1":             `unknown setting "lisen"`,
		"nats://a b":                    "invalid character",
		"nats://a?ack_wait=soon":        "ack_wait must be a duration",
		"nats://a?ack_wait=1ms":         "ack_wait must be a duration",
		"nats://a?ack_wait=2m":          "ack_wait must be a duration",
		"nats://user:se%ZZcret@host:42": "not a nats:// URL",
	})
}

// TestRegister: of two brokers under one name an address could mean either.
func TestRegister(t *testing.T) {
	t.Parallel()
	require.PanicsWithValue(t, `bug: two brokers are registered as "tls"`, func() {
		Register(Scheme{Names: []string{"a", "tls"}})
	})
	_, err := schemeOf("a://b")
	require.ErrorContains(t, err, `unsupported scheme "a:"`)
}

func TestHosts(t *testing.T) {
	t.Parallel()
	list, rest, err := Hosts("nats://user:p%40ss@a:9092,b:9093,[::1]:9094/topic?tls=true")
	require.NoError(t, err)
	require.Equal(t, []string{"a:9092", "b:9093", "[::1]:9094"}, list)
	password, _ := rest.User.Password()
	require.Equal(
		t, "user p@ss /topic tls=true",
		strings.Join([]string{rest.User.Username(), password, rest.Path, rest.RawQuery}, " "),
	)
}

// BenchmarkPublish is what synced writes cost, by batch size.
func BenchmarkPublish(b *testing.B) {
	for _, size := range []int{1, 100, 500} {
		b.Run(fmt.Sprintf("Batch%d", size), func(b *testing.B) {
			br := open(b, "embedded:"+b.TempDir())
			n := 0
			for b.Loop() {
				batch := make([]outbox.Envelope, size)
				for i := range batch {
					n++
					batch[i] = envelope(fmt.Sprintf("ord_%d", n), 1)
				}
				publish(b, br, batch...)
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "events/s")
		})
	}
}
