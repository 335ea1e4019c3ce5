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
// JetStream, in a process of its own, so that it can be killed too.
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

// brokerProcess is that process.
type brokerProcess struct {
	process.Child
	dir, addr string
}

func newBroker(dir string, group *process.Group, logs *process.Log) (*brokerProcess, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return &brokerProcess{dir: dir, Child: process.Child{Name: "broker", Program: self, Group: group, Log: logs, Env: []string{"TMPDIR=" + dir}}}, nil
}

// start starts it where it was before, because its clients look for it there.
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

// url asks the broker to notice a dead consumer soon: nobody wants to wait for that.
func (b *brokerProcess) url() string { return "nats://" + b.addr + "?ack_wait=1s" }

// audience listens to the broker as some service downstream would, and notes
// what it hears for the first time.
type audience struct {
	stop func()

	mu    sync.Mutex
	heard map[string][]int64 // by subject: the versions, in the order in which they first came
	tell  func(inbox.Message)
}

func listen(url string) (*audience, error) {
	b, err := broker.Open(context.Background(), url, broker.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	a := &audience{heard: map[string][]int64{}}
	var listening sync.WaitGroup
	listening.Go(func() { _ = b.Consume(ctx, "demo", a.hear) }) // what it misses, the audit of what was heard will say
	a.stop = func() {
		cancel()
		listening.Wait()
		_ = b.Close()
	}
	return a, nil
}

// tellInstead passes on what is heard from now on, and notes no more of it.
func (a *audience) tellInstead(tell func(inbox.Message)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tell = tell
}

func (a *audience) hear(_ context.Context, m inbox.Message) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.tell != nil {
		a.tell(m)
		return nil
	}
	if !slices.Contains(a.heard[m.Subject], m.Version) {
		a.heard[m.Subject] = append(a.heard[m.Subject], m.Version)
	}
	return nil
}

// missing returns what an audience that should have heard the versions 1 to n of
// each subject has not, or not in this order.
func (a *audience) missing(want map[string]int64) (out []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for subject, n := range want {
		ordered := int64(len(a.heard[subject])) == n
		for i, version := range a.heard[subject] {
			ordered = ordered && version == int64(i)+1
		}
		if !ordered {
			out = append(out, fmt.Sprintf("of %s the versions 1 to %d were sent, and %v came", subject, n, a.heard[subject]))
		}
	}
	return out
}

// awaitAudience waits until everything that was published has been heard.
func (s *system) awaitAudience(ctx context.Context) []string {
	rows, err := s.pool.Raw().Query(ctx, `SELECT aggregate_id, max(version) FROM outbox_events WHERE tenant_id = $1 GROUP BY aggregate_id`, s.tenant.ID)
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
	missing := s.audience.missing(want)
	for began := time.Now(); len(missing) > 0 && time.Since(began) < patience && ctx.Err() == nil; time.Sleep(askAgain) {
		missing = s.audience.missing(want)
	}
	return missing
}
