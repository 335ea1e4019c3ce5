package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"example.com/payonce/internal/broker"
	"example.com/payonce/testkit/port"
	"example.com/payonce/testkit/process"
)

// brokerRole as the first of three arguments makes a program that runs chaos the
// broker (Main), with the other two. So it is a process, and can be killed.
const brokerRole = "broker"

// serveBroker runs NATS with JetStream until ctx ends. What it has acknowledged
// is synced.
func serveBroker(ctx context.Context, dir, addr string, stderr io.Writer) error {
	log := slog.New(slog.NewJSONHandler(stderr, nil))
	b, err := broker.Open(ctx, "embedded:"+dir+"?listen="+addr, broker.Options{Log: log})
	if err != nil {
		return err
	}
	log.Info("serving", "addr", addr)
	<-ctx.Done()
	return b.Close()
}

const (
	stream   = "PAYONCE"
	subjects = "payonce.>"
)

// events is the broker, and what the harness knows of its log.
type events struct {
	child process.Child
	addr  string
	conn  *nats.Conn

	mu   sync.Mutex
	sent map[string]int // how often each message was sent, as far as we heard
}

func newEvents(ctx context.Context, program, dir string, group *process.Group, log *process.Log) (*events, error) {
	free, err := port.Loopback(ctx)
	if err != nil {
		return nil, err
	}
	addr := free.String()
	e := &events{addr: addr, sent: map[string]int{}}
	e.child = process.Child{
		Name: "broker", Program: program, Args: []string{brokerRole, filepath.Join(dir, "broker"), addr},
		Env: []string{"TMPDIR=" + dir}, Group: group, Log: log,
	}
	if err := e.start(ctx); err != nil {
		return nil, err
	}
	e.conn, err = nats.Connect("nats://"+addr, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond),
		nats.Name("chaos"))
	if err != nil {
		return nil, err
	}
	// A subscriber beside the stream also receives what the stream drops as a duplicate.
	_, err = e.conn.Subscribe(subjects, func(m *nats.Msg) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.sent[m.Header.Get(jetstream.MsgIDHeader)]++
	})
	return e, err
}

// start starts the broker where it was, and waits until it serves.
func (e *events) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, process.ReadyWithin)
	defer cancel()
	for {
		_, err := e.child.Start(ctx)
		if !errors.Is(err, process.ErrEnded) { // its port was in use, for a moment
			return err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return err
		}
	}
}

func (e *events) stop() {
	if e.conn != nil {
		e.conn.Close()
	}
	_ = e.child.Stop()
}

// suppressed is how many messages the stream dropped because it had them, or
// more: it lacks what was sent while it was disconnected.
func (e *events) suppressed() (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, times := range e.sent {
		n += times - 1
	}
	return n
}

// message is one in the broker's log.
type message struct {
	id   string
	body []byte
	at   time.Time
}

// read is the whole log, oldest first.
func (e *events) read(ctx context.Context) ([]message, error) {
	js, err := jetstream.New(e.conn)
	if err != nil {
		return nil, err
	}
	s, err := js.Stream(ctx, stream)
	if err != nil {
		return nil, fmt.Errorf("find the broker's log: %w", err)
	}
	last := s.CachedInfo().State.LastSeq
	if last == 0 {
		return nil, nil
	}
	c, err := s.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return nil, err
	}
	list := make([]message, 0, last)
	messages, err := c.Messages()
	if err != nil {
		return nil, err
	}
	defer messages.Stop()
	for {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return nil, fmt.Errorf("read the broker's log: %w", err)
		}
		meta, err := m.Metadata()
		if err != nil {
			return nil, err
		}
		list = append(list, message{m.Headers().Get(jetstream.MsgIDHeader), m.Data(), meta.Timestamp})
		if meta.Sequence.Stream >= last {
			return list, nil
		}
	}
}

// behind is how many messages the consumers have not acknowledged.
func (e *events) behind(ctx context.Context) (n uint64, err error) {
	js, err := jetstream.New(e.conn)
	if err != nil {
		return 0, err
	}
	for _, name := range consumers {
		c, err := js.Consumer(ctx, stream, name)
		if err != nil {
			return 0, fmt.Errorf("ask how far %s is: %w", name, err)
		}
		info := c.CachedInfo()
		n += info.NumPending + uint64(info.NumAckPending)
	}
	return n, nil
}

// consumers of the service, as the broker knows them.
var consumers = []string{"ledger", "notifier"}
