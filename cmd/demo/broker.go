package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"example.com/payonce/internal/broker"
	"example.com/payonce/internal/inbox"
	"example.com/payonce/testkit/process"
)

// brokerRole as the first argument makes this program the broker: NATS with
// JetStream. It is a separate process so that a scene can kill it.
const brokerRole = "broker"

func serveBroker(ctx context.Context, dir, addr string, stderr io.Writer) error {
	log := slog.New(slog.NewJSONHandler(stderr, nil))
	b, err := broker.Open(ctx, "embedded:"+dir+"?listen="+addr, broker.Options{Log: log})
	if err != nil {
		return err
	}
	log.Info("serving", "addr", b.(interface{ Addr() string }).Addr())
	<-ctx.Done()
	return b.Close()
}

type brokerProcess struct {
	process.Child
	dir, addr string
}

func newBroker(dir string, group *process.Group, logs *process.Log) (*brokerProcess, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return &brokerProcess{dir: dir, Child: process.Child{
		Name: "broker", Program: self, Group: group, Log: logs, Env: []string{"TMPDIR=" + dir},
	}}, nil
}

// start starts the broker; a second time, at the same address, because its clients
// reconnect to that.
func (b *brokerProcess) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, process.ReadyWithin)
	defer cancel()
	b.Args = []string{brokerRole, b.dir, cmp.Or(b.addr, process.AnyPort)}
	at, err := b.Child.Start(ctx)
	if err == nil {
		b.addr = at.Addr
	}
	return err
}

// url sets a short ack_wait, so that the scene that kills a consumer does not take
// half a minute.
func (b *brokerProcess) url() string { return "nats://" + b.addr + "?ack_wait=1s" }

// subscriber is a consumer of the broker, like another service would be. It keeps
// which version of which object arrived, each at its first delivery.
type subscriber struct {
	stop func()

	mu       sync.Mutex
	versions map[string][]int64 // by subject, in the order of their arrival
	forward  func(inbox.Message)
}

func subscribe(url string) (*subscriber, error) {
	b, err := broker.Open(context.Background(), url, broker.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &subscriber{versions: map[string][]int64{}}
	var consuming sync.WaitGroup
	// An error needs no handling here: events that do not arrive fail the check at the end.
	consuming.Go(func() { _ = b.Consume(ctx, "demo", s.handle) })
	s.stop = func() {
		cancel()
		consuming.Wait()
		_ = b.Close()
	}
	return s, nil
}

// forwardTo passes every later event to a function instead of keeping its version:
// the console may run for hours.
func (s *subscriber) forwardTo(forward func(inbox.Message)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forward = forward
}

func (s *subscriber) handle(_ context.Context, m inbox.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.forward != nil {
		s.forward(m)
		return nil
	}
	if !slices.Contains(s.versions[m.Subject], m.Version) {
		s.versions[m.Subject] = append(s.versions[m.Subject], m.Version)
	}
	return nil
}

// missingVersions returns the subjects of which not all versions, 1 to the wanted
// one, have arrived in order.
func (s *subscriber) missingVersions(want map[string]int64) (out []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for subject, n := range want {
		ordered := int64(len(s.versions[subject])) == n
		for i, version := range s.versions[subject] {
			ordered = ordered && version == int64(i)+1
		}
		if !ordered {
			out = append(out,
				fmt.Sprintf("%s: versions 1 to %d were published, %v arrived", subject, n, s.versions[subject]))
		}
	}
	return out
}

// waitForEvents waits until every event in the outbox has arrived at the subscriber.
func (s *system) waitForEvents(ctx context.Context) []string {
	rows, err := s.pool.Raw().Query(ctx,
		`SELECT aggregate_id, max(version) FROM outbox_events WHERE tenant_id = $1 GROUP BY aggregate_id`, s.tenant.ID)
	if err != nil {
		return []string{err.Error()}
	}
	defer rows.Close()
	want := map[string]int64{}
	for rows.Next() {
		var subject string
		var version int64
		if err := rows.Scan(&subject, &version); err != nil {
			return []string{err.Error()}
		}
		want[subject] = version
	}
	if err := rows.Err(); err != nil {
		return []string{err.Error()}
	}
	missing := s.subscriber.missingVersions(want)
	for began := time.Now(); len(missing) > 0 && time.Since(began) < waitTimeout && ctx.Err() == nil; {
		time.Sleep(pollInterval)
		missing = s.subscriber.missingVersions(want)
	}
	return missing
}
