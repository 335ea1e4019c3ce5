package broker

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// TestNATSConfiguration runs deploy/nats.conf: the service can do all that it does, and nobody else can publish.
func TestNATSConfiguration(t *testing.T) {
	t.Setenv("NATS_SERVICE_PASSWORD", "of-the-service")
	t.Setenv("NATS_READER_PASSWORD", "of-a-reader")
	conf, err := server.ProcessConfigFile("../../deploy/nats.conf")
	require.NoError(t, err)
	require.True(t, conf.SyncAlways)
	at := newNATS(t, func(o *server.Options) { o.Users = conf.Users })

	b := open(t, "nats://payonce:of-the-service@"+at.addr())
	events := batchOf(3)
	publish(t, b, events...)
	publish(t, b, events...) // a repetition, which reads what is stored
	read(t, b, "ledger", nil).await(t, 3)

	client := func(user string) (*nats.Conn, jetstream.JetStream) {
		var options []nats.Option
		if user != "" {
			options = append(options, nats.UserInfo(user, "of-a-reader"))
		}
		conn, err := nats.Connect(at.url(), append(options, nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))...)
		if user == "" {
			require.ErrorIs(t, err, nats.ErrAuthorization)
			return nil, nil
		}
		require.NoError(t, err)
		t.Cleanup(conn.Close)
		js, err := jetstream.New(conn)
		require.NoError(t, err)
		return conn, js
	}
	client("")
	conn, js := client("reader")

	consumer, err := js.CreateOrUpdateConsumer(t.Context(), streamName, jetstream.ConsumerConfig{Durable: "warehouse"})
	require.NoError(t, err)
	batch, err := consumer.Fetch(3)
	require.NoError(t, err)
	n := 0
	for m := range batch.Messages() {
		require.NoError(t, m.Ack())
		n++
	}
	require.Equal(t, 3, n, "a reader reads")

	for what, do := range map[string]func(context.Context) error{
		"publish": func(ctx context.Context) error {
			_, err := js.Publish(ctx, "payonce.tnt_a.order.paid", []byte("{}"))
			return err
		},
		"purge":  func(ctx context.Context) error { return request(ctx, conn, "$JS.API.STREAM.PURGE.PAYONCE") },
		"delete": func(ctx context.Context) error { return request(ctx, conn, "$JS.API.STREAM.DELETE.PAYONCE") },
		"delete a consumer of the service": func(ctx context.Context) error {
			return request(ctx, conn, "$JS.API.CONSUMER.DELETE.PAYONCE.ledger")
		},
		"change a consumer of the service": func(ctx context.Context) error {
			_, err := js.CreateOrUpdateConsumer(ctx, streamName, jetstream.ConsumerConfig{Durable: "ledger"})
			return err
		},
		"read in its place": func(ctx context.Context) error {
			return request(ctx, conn, "$JS.API.CONSUMER.MSG.NEXT.PAYONCE.ledger")
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		require.Error(t, do(ctx), what)
		cancel()
	}
	info, err := js.Stream(t.Context(), streamName)
	require.NoError(t, err)
	require.Equal(t, uint64(3), info.CachedInfo().State.Msgs)
}

func request(ctx context.Context, conn *nats.Conn, subject string) error {
	_, err := conn.RequestWithContext(ctx, subject, nil)
	return err
}
