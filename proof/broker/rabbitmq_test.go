//go:build brokers

package broker_test

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/broker"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/proof/internal/installed"
	"example.com/payonce/testkit/brokertest"
	"example.com/payonce/testkit/port"
	"example.com/payonce/testkit/process"
)

// rabbitProgram is Debian's. The one in the path wants to be root or the user rabbitmq; this one is what it calls.
const rabbitProgram = "/usr/lib/rabbitmq/bin/rabbitmq-server"

// rabbitmq is a node of Debian's RabbitMQ, in a folder and on ports of its own, with an epmd of its own.
type rabbitmq struct {
	process.Child
	addr   string
	env    []string
	names  string       // the file that says which queue has which log
	places atomic.Int32 // an exchange each
}

func newRabbitMQ(t testing.TB) *rabbitmq {
	t.Helper()
	installed.Need(t, rabbitProgram, "epmd")
	s := stage(t)
	var ports [3]uint16
	for i := range ports {
		addr, err := port.Loopback(t.Context())
		require.NoError(t, err)
		ports[i] = addr.Port()
	}
	r := &rabbitmq{
		addr:  fmt.Sprintf("127.0.0.1:%d", ports[0]),
		names: s.Dir + "/db/payonce@localhost/quorum/payonce@localhost/names.dets",
	}
	files := map[string]string{
		"rabbitmq.conf": "listeners.tcp.1 = " + r.addr + "\n" +
			"log.file = false\nlog.console = true\nlog.console.formatter = json\n" +
			"max_message_size = 2097152\n",
		"enabled_plugins": "[].\n",
		".erlang.cookie":  "only-for-tests",
	}
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(s.Dir, name), []byte(text), 0o400))
	}
	env := []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + s.Dir, "LANG=C.UTF-8",
		"ERL_EPMD_ADDRESS=127.0.0.1", fmt.Sprintf("ERL_EPMD_PORT=%d", ports[1]),
		"RABBITMQ_NODENAME=payonce@localhost", fmt.Sprintf("RABBITMQ_DIST_PORT=%d", ports[2]),
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1}",
		"RABBITMQ_MNESIA_BASE=" + s.Dir + "/db", "RABBITMQ_LOG_BASE=" + s.Dir + "/log",
		"RABBITMQ_CONFIG_FILE=" + s.Dir + "/rabbitmq", "RABBITMQ_CONF_ENV_FILE=" + s.Dir + "/none",
		"RABBITMQ_ENABLED_PLUGINS_FILE=" + s.Dir + "/enabled_plugins",
		"RUNNING_UNDER_SYSTEMD=1", // so that the script becomes the server, and what is killed is the server
	}
	// The server would start a daemon, which stays.
	epmd := process.Child{
		Name: "epmd", Program: "/bin/sh", Group: s.Group, Log: s.Log, Env: env,
		Args: []string{"-c", `echo '{"msg":"serving"}' >&2; exec epmd -port $ERL_EPMD_PORT`},
	}
	_, err := epmd.Start(t.Context())
	require.NoError(t, err)
	s.Later(epmd.Kill)
	r.env = env
	r.Child = process.Child{
		Name: "rabbitmq", Program: "/bin/sh", Group: s.Group, Log: s.Log, Env: env,
		Args: []string{"-c", "exec " + rabbitProgram + " >&2"}, Says: "Server startup complete; 0 plugins started.",
	}
	r.start(t)
	s.Later(r.Kill)
	return r
}

func (r *rabbitmq) start(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*process.ReadyWithin) // Erlang starts slowly beside four other packages
	defer cancel()
	_, err := r.Start(ctx)
	require.NoError(t, err)
}

// place is an exchange with its queues.
func (r *rabbitmq) place(t testing.TB) brokertest.Place {
	exchange := fmt.Sprintf("payonce.%d", r.places.Add(1))
	return brokertest.Place{
		URL:  fmt.Sprintf("amqp://guest:guest@%s/?consumers=ledger,notifier&exchange=%s", r.addr, exchange),
		Stop: func() { require.NoError(t, r.Stop()) }, Kill: func() { require.NoError(t, r.Kill()) }, Start: r.start,
		Raw: func(t testing.TB, body string) {
			ch := r.channel(t)
			require.NoError(t, ch.Confirm(false))
			confirm, err := ch.PublishWithDeferredConfirm(exchange, "a.stranger", true, false, amqp.Publishing{Body: []byte(body)})
			require.NoError(t, err)
			require.True(t, confirm.Wait())
		},
		Freeze: func(t testing.TB) func() {
			require.NoError(t, r.Pause())
			return func() { require.NoError(t, r.Resume()) }
		},
	}
}

// lasting is a place whose queues outlive a kill. The server writes the name of a new queue's log to its disk after up to
// three seconds, whatever was confirmed meanwhile: a queue that was made just before the server was killed is empty.
func (r *rabbitmq) lasting(t testing.TB) brokertest.Place {
	at := r.place(t)
	u, err := url.Parse(at.URL)
	require.NoError(t, err)
	exchange := u.Query().Get("exchange")
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(time.Second, cancel)
	require.NoError(t, open(t, at.URL).Consume(ctx, "ledger", nil)) // makes the queues
	require.Eventually(t, func() bool {
		names, err := os.ReadFile(r.names)
		return err == nil && bytes.Contains(names, []byte(exchange+".ledger")) && bytes.Contains(names, []byte(exchange+".notifier"))
	}, 30*time.Second, 50*time.Millisecond, "the names of the queues are not written")
	return at
}

func (r *rabbitmq) channel(t testing.TB) *amqp.Channel {
	t.Helper()
	conn, err := amqp.Dial("amqp://guest:guest@" + r.addr + "/")
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.CloseDeadline(time.Now().Add(time.Second)) })
	ch, err := conn.Channel()
	require.NoError(t, err)
	return ch
}

// TestRabbitMQ has one server for all, because a start takes seconds.
func TestRabbitMQ(t *testing.T) {
	t.Parallel()
	r := newRabbitMQ(t)
	t.Run("Contract", func(t *testing.T) {
		brokertest.Suite{
			Server: "RabbitMQ", Place: r.place, Lasts: r.lasting, Open: open, Shared: true, TooLarge: 3 << 20,
			Failures: 2, Kills: kills(t),
		}.Run(t)
	})
	t.Run("Examined", r.examined)
	t.Run("WithoutAQueue", r.withoutAQueue)
	t.Run("GivenBack", r.givenBack)
	t.Run("LowOnMemory", r.lowOnMemory)
	t.Run("Service", func(t *testing.T) { // its ledger is a consumer
		at := strings.Replace(r.place(t).URL, "consumers=ledger,notifier", "consumers=ledger,notifier,reader", 1)
		w := paid(t, at, nil)
		w.Until("the ledger has booked it", func() bool { return w.Count("SELECT count(*) FROM ledger_entries") == 2 })
	})
}

func (r *rabbitmq) examined(t *testing.T) {
	at := r.place(t)
	for range 2 {
		st, err := broker.Examine(t.Context(), at.URL)
		require.NoError(t, err)
		require.True(t, st.Missing, "to ask does not make it")
		require.Regexp(t, `^RabbitMQ \d`, st.Reached)
	}
	brokertest.Publish(t, open(t, at.URL), brokertest.Event("ord_1", 1))
	st, err := broker.Examine(t.Context(), at.URL)
	require.NoError(t, err)
	require.False(t, st.Missing)
	require.Contains(t, st.Stream, "2 quorum queues")
	require.Empty(t, append(st.Loses, st.Differs...))

	// A queue of an administrator's, which is not durable, is used, and is reported.
	other := r.place(t).URL
	u, err := url.Parse(other)
	require.NoError(t, err)
	queue := u.Query().Get("exchange") + ".ledger"
	ch := r.channel(t)
	_, err = ch.QueueDeclare(queue, true, false, false, false, amqp.Table{"x-max-length": 1})
	require.NoError(t, err)
	brokertest.Publish(t, open(t, other), brokertest.Event("ord_1", 1))
	waiting, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	require.NoError(t, err)
	require.Equal(t, 1, waiting.Messages)
	st, err = broker.Examine(t.Context(), other)
	require.NoError(t, err)
	require.Len(t, st.Loses, 1)
	require.Contains(t, st.Loses[0], "the queue "+queue+" differs: arg 'x-")

	_, err = broker.Examine(t.Context(), strings.Replace(at.URL, "guest:guest@", "guest:wrong-secret@", 1))
	require.ErrorContains(t, err, "connect to RabbitMQ at "+r.addr)
	require.NotContains(t, err.Error(), "wrong-secret")
}

// withoutAQueue: an exchange drops a message that it has no queue for, and confirms it.
func (r *rabbitmq) withoutAQueue(t *testing.T) {
	at := strings.Replace(r.place(t).URL, "consumers=ledger,notifier&", "", 1)
	b := open(t, at)
	errs := b.Publish(t.Context(), []outbox.Envelope{brokertest.Event("ord_1", 1), brokertest.Event("ord_2", 1)})
	for _, err := range errs {
		require.ErrorContains(t, err, "no queue of RabbitMQ is bound to the exchange")
		require.NotErrorIs(t, err, outbox.ErrPermanent)
	}
	u, err := url.Parse(at)
	require.NoError(t, err)
	ch := r.channel(t)
	q, err := ch.QueueDeclare("", false, true, true, false, nil)
	require.NoError(t, err)
	require.NoError(t, ch.QueueBind(q.Name, "tnt_a.order.*", u.Query().Get("exchange"), false, nil))
	brokertest.Publish(t, b, brokertest.Event("ord_1", 1))
}

// givenBack is why a message that failed is held: one that is given back comes after those that follow it.
func (r *rabbitmq) givenBack(t *testing.T) {
	at := r.place(t).URL
	b := open(t, at)
	for version := int64(1); version <= 3; version++ {
		brokertest.Publish(t, b, brokertest.Event("ord_1", version))
	}
	u, err := url.Parse(at)
	require.NoError(t, err)
	queue := u.Query().Get("exchange") + ".ledger"
	ch := r.channel(t)
	require.NoError(t, ch.Qos(1, 0, false))
	messages, err := ch.Consume(queue, "", false, false, false, false, nil)
	require.NoError(t, err)
	m := <-messages
	require.Equal(t, "ord_1-1", m.MessageId)
	require.NoError(t, m.Nack(false, true))
	var order []string
	for len(order) < 3 {
		m := <-messages
		order = append(order, m.MessageId)
		require.NoError(t, m.Ack(false))
	}
	require.Equal(t, []string{"ord_1-2", "ord_1-3", "ord_1-1"}, order)
}

// lowOnMemory: a server with an alarm reads nothing more, and so confirms nothing.
func (r *rabbitmq) lowOnMemory(t *testing.T) {
	b := open(t, r.place(t).URL)
	brokertest.Publish(t, b, brokertest.Event("ord_1", 1))
	r.ctl(t, "set_vm_memory_high_watermark", "absolute", "1")
	begun := time.Now()
	errs := b.Publish(t.Context(), []outbox.Envelope{brokertest.Event("ord_1", 2)})
	require.ErrorContains(t, errs[0], "RabbitMQ accepts no messages: low on memory")
	require.Less(t, time.Since(begun), 5*time.Second)
	r.ctl(t, "set_vm_memory_high_watermark", "0.9")
	require.Eventually(t, func() bool {
		return b.Publish(t.Context(), []outbox.Envelope{brokertest.Event("ord_1", 2)})[0] == nil
	}, 30*time.Second, 50*time.Millisecond)
}

// ctl is rabbitmqctl.
func (r *rabbitmq) ctl(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/usr/lib/rabbitmq/bin/rabbitmqctl", append([]string{"-n", "payonce@localhost"}, args...)...)
	cmd.Env = r.env
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
}
