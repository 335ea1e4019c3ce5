package broker

import (
	"io"
	"net/http"
	"regexp"
	"testing"

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
	at := newNATS(t, func(o *server.Options) { o.Users, o.HTTPHost, o.HTTPPort = conf.Users, "127.0.0.1", server.RANDOM_PORT })

	b := open(t, "nats://payonce:of-the-service@"+at.addr())
	events := batchOf(3)
	publish(t, b, events...)
	publish(t, b, events...) // a repetition, which reads what is stored
	read(t, b, "ledger", nil).Await(t, 3)

	refused := make(chan string, 100) // subjects
	client := func(user, password string) (*nats.Conn, error) {
		conn, err := nats.Connect(at.url(), nats.UserInfo(user, password),
			nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
				if m := violation.FindStringSubmatch(err.Error()); m != nil {
					refused <- m[1]
				}
			}))
		if err == nil {
			t.Cleanup(conn.Close)
		}
		return conn, err
	}
	_, err = client("", "")
	require.ErrorIs(t, err, nats.ErrAuthorization)
	reader, err := client("reader", "of-a-reader")
	require.NoError(t, err)
	service, err := client("payonce", "of-the-service")
	require.NoError(t, err)

	js, err := jetstream.New(reader)
	require.NoError(t, err)
	consumer, err := js.CreateOrUpdateConsumer(t.Context(), streamName, jetstream.ConsumerConfig{Durable: "warehouse"})
	require.NoError(t, err)
	batch, err := consumer.Fetch(3)
	require.NoError(t, err)
	n := 0
	for m := range batch.Messages() {
		require.NoError(t, m.DoubleAck(t.Context()))
		n++
	}
	require.Equal(t, 3, n, "a reader reads")

	for _, c := range []struct {
		who      *nats.Conn
		may      bool
		subjects []string
	}{
		{service, true, []string{"$JS.API.STREAM.UPDATE.PAYONCE"}}, // after an upgrade
		{service, false, []string{
			"another.subject", "$JS.API.STREAM.PURGE.PAYONCE", "$JS.API.STREAM.DELETE.PAYONCE",
			"$JS.API.STREAM.MSG.DELETE.PAYONCE", "$JS.API.STREAM.CREATE.ANOTHER", "$SYS.REQ.SERVER.PING.CONNZ",
		}},
		{reader, false, []string{
			"payonce.tnt_a.order.paid", "another.subject", "$JS.API.STREAM.CREATE.PAYONCE", "$JS.API.STREAM.UPDATE.PAYONCE",
			"$JS.API.STREAM.PURGE.PAYONCE", "$JS.API.STREAM.DELETE.PAYONCE", "$JS.API.STREAM.MSG.DELETE.PAYONCE",
		}},
		{reader, false, ofConsumer("ledger")},
		{reader, false, ofConsumer("notifier")},
	} {
		for _, subject := range c.subjects {
			require.NoError(t, c.who.Publish(subject, []byte("?"))) // is no request, so the server does nothing
		}
		require.NoError(t, c.who.Publish("last", nil)) // and is refused
		var seen []string
		for subject := <-refused; subject != "last"; subject = <-refused {
			seen = append(seen, subject)
		}
		if c.may {
			require.Empty(t, seen)
		} else {
			require.Equal(t, c.subjects, seen)
		}
	}
	// How the handbook finds who publishes: the users of the protocol may not ask, and the monitoring port asks for no user.
	require.Equal(t, 8222, conf.HTTPPort)
	res, err := http.Get("http://" + at.server.MonitorAddr().String() + "/connz?auth=true")
	require.NoError(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.Contains(t, string(body), `"authorized_user": "reader"`)
	require.NotContains(t, string(body), "of-a-reader")

	info, err := js.Stream(t.Context(), streamName)
	require.NoError(t, err)
	require.Equal(t, uint64(3), info.CachedInfo().State.Msgs)
}

var violation = regexp.MustCompile(`(?i)permissions violation for publish to "([^"]+)"`)

// ofConsumer returns the subjects with which a consumer of the service could be read, changed and deleted.
func ofConsumer(name string) []string {
	return []string{
		"$JS.API.CONSUMER.DELETE.PAYONCE." + name, "$JS.API.CONSUMER.CREATE.PAYONCE." + name,
		"$JS.API.CONSUMER.CREATE.PAYONCE." + name + ".payonce.tnt_a", "$JS.API.CONSUMER.DURABLE.CREATE.PAYONCE." + name,
		"$JS.API.CONSUMER.MSG.NEXT.PAYONCE." + name, "$JS.ACK.PAYONCE." + name + ".1.1.1.1.1",
	}
}
