package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"example.com/payonce/internal/broker"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/inbox"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/reconcile"
	"example.com/payonce/internal/stripe"
)

// loops are those that follow payments, wired as in cmd/api (wire.go) and in the same process as the requests. They run
// from POST /loops/start until POST /loops/stop; GET /loops/counts says what they have done.
type loops struct {
	pool   *postgres.Pool
	relay  *outbox.Relay
	inbox  *inbox.Processor
	list   []serviceLoop
	counts struct{ published, reaped atomic.Int64 }
	stripe *listing

	mu      sync.Mutex
	end     context.CancelFunc
	running sync.WaitGroup
}

type serviceLoop struct {
	every time.Duration
	wake  <-chan struct{}
	run   func(context.Context) (int, error)
	done  *atomic.Int64 // may be nil
}

// counts are what the loops have done, as the driver reads them.
type counts struct{ Published, Reaped, Listed int64 }

// newRelayLoop comes first, because the keys wake the relay.
func newRelayLoop(ctx context.Context, pool *postgres.Pool, brokerURL string) (*loops, error) {
	to, err := broker.Open(ctx, brokerURL, broker.Options{}) // until the process ends
	if err != nil {
		return nil, err
	}
	l := &loops{pool: pool, relay: outbox.NewRelay(pool, to, outbox.RelayOptions{Render: payments.RenderEvents})}
	l.list = append(l.list, serviceLoop{250 * time.Millisecond, l.relay.Woken(), l.relay.RunOnce, &l.counts.published})
	return l, nil
}

// follow adds the loops that need the rest of the service.
func (l *loops) follow(keys *idempotency.Store, gateway *listing, money *payments.Service) {
	l.stripe = gateway
	reaper := idempotency.NewReaper(keys, keptFor, keptFor)
	l.inbox = inbox.NewProcessor(l.pool, map[string]inbox.Handler{payments.StripeEvents: money.WebhookHandler()},
		inbox.ProcessorOptions{Lease: time.Minute})
	reconciler := reconcile.New(l.pool, gateway, money, reconcile.Options{})
	l.list = append(l.list,
		serviceLoop{lookWhen, nil, reaper.RunOnce, &l.counts.reaped},
		serviceLoop{500 * time.Millisecond, l.inbox.Woken(), l.inbox.RunOnce, nil},
		serviceLoop{lookWhen, nil, reconciler.RunOnce, nil},
		serviceLoop{lookWhen, nil, l.makeDue, nil})
}

// makeDue makes each window of the reconciler due at once, which it otherwise is after half a minute to a week.
func (l *loops) makeDue(ctx context.Context) (int, error) {
	_, err := l.pool.Raw().Exec(ctx,
		"UPDATE reconciliation_windows SET next_at = '-infinity' WHERE next_at > clock_timestamp()")
	return 0, err
}

func (l *loops) start() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.end != nil {
		return
	}
	var ctx context.Context
	ctx, l.end = context.WithCancel(postgres.ForAllTenants(context.Background(), "the loops"))
	// A loop that was stopped in the middle of a window keeps its lease for longer than is measured.
	if _, err := l.pool.Raw().Exec(ctx, "UPDATE reconciliation_windows SET leased_until = '-infinity'"); err != nil {
		fmt.Fprintln(os.Stderr, "  loops:", err)
	}
	for _, one := range l.list {
		l.running.Go(func() { one.repeat(ctx) })
	}
}

func (l *loops) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.end != nil {
		l.end()
		l.end = nil
	}
	l.running.Wait()
}

// repeat is the loop of cmd/api, without its metrics.
func (s serviceLoop) repeat(ctx context.Context) {
	for ctx.Err() == nil {
		n, err := s.run(ctx)
		if err != nil && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, "  loops:", err)
		}
		if s.done != nil {
			s.done.Add(int64(n))
		}
		if n > 0 && err == nil {
			continue
		}
		select {
		case <-time.After(s.every):
		case <-s.wake:
		case <-ctx.Done():
		}
	}
}

func (l *loops) serve(mux interface {
	HandleFunc(pattern string, handle http.HandlerFunc)
}) {
	mux.HandleFunc("/loops/start", func(http.ResponseWriter, *http.Request) { l.start() })
	mux.HandleFunc("/loops/stop", func(http.ResponseWriter, *http.Request) { l.stop() })
	mux.HandleFunc("/loops/counts", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(counts{l.counts.published.Load(), l.counts.reaped.Load(), l.stripe.listed.Load()})
	})
}

// loops tells the service's loops to start or to stop, or reads their counts.
func (b *bench) loops(ctx context.Context, what string, into *counts) error {
	request, err := http.NewRequestWithContext(context.WithoutCancel(ctx), http.MethodPost,
		"http://"+b.peers+"/loops/"+what, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("/loops/%s: %s", what, response.Status)
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(response.Body).Decode(into)
}

// listing is an instant Stripe that remembers its intents and lists them.
type listing struct {
	instant
	listed atomic.Int64 // intents, in all pages

	mu      sync.Mutex
	intents []stripe.Intent // the oldest first
	byID    map[string]int
}

const (
	listPage  = 100
	listTakes = time.Second / 25 // Stripe allows 25 reads a second
)

func (g *listing) CreateIntent(ctx context.Context, c stripe.Call, n stripe.NewIntent) stripe.Outcome {
	outcome := g.instant.CreateIntent(ctx, c, n)
	intent := outcome.Intent
	intent.TenantID, intent.OrderID, intent.CreatedAt = n.TenantID, n.OrderID, time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.byID == nil {
		g.byID = map[string]int{}
	}
	g.byID[intent.ID] = len(g.intents)
	g.intents = append(g.intents, intent)
	return outcome
}

func (g *listing) ConfirmIntent(ctx context.Context, c stripe.Call, intentID, method string) stripe.Outcome {
	outcome := g.instant.ConfirmIntent(ctx, c, intentID, method)
	g.mu.Lock()
	defer g.mu.Unlock()
	intent := &g.intents[g.byID[intentID]]
	intent.Status, intent.ChargeID = outcome.Intent.Status, outcome.Intent.ChargeID
	intent.ReceivedMinor, intent.PaymentMethod = outcome.Intent.ReceivedMinor, method
	return outcome
}

func (g *listing) GetIntent(_ context.Context, _, id string) (stripe.Intent, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	i, ok := g.byID[id]
	if !ok {
		return stripe.Intent{}, stripe.ErrNoSuchObject
	}
	return g.intents[i], nil
}

// ListIntents returns the newest first.
func (g *listing) ListIntents(ctx context.Context, w stripe.Window) (page stripe.Page[stripe.Intent], err error) {
	select {
	case <-time.After(listTakes):
	case <-ctx.Done():
		return page, ctx.Err()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	last := len(g.intents)
	if w.After != "" {
		last = g.byID[w.After]
	}
	for first := last - 1; first >= 0 && !g.intents[first].CreatedAt.Before(w.From); first-- {
		if page.More = last-first > listPage; page.More {
			break
		}
		page.Objects = append(page.Objects, g.intents[first])
	}
	g.listed.Add(int64(len(page.Objects)))
	return page, nil
}

func (*listing) ListRefunds(context.Context, stripe.Window) (stripe.Page[stripe.Refund], error) {
	return stripe.Page[stripe.Refund]{}, nil
}

func (*listing) RefundsOf(context.Context, string, string) ([]stripe.Refund, error) { return nil, nil }
