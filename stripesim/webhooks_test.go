package stripesim

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v76"
	"github.com/stripe/stripe-go/v76/webhook"
)

const whsec = "whsec_test"

// receiver is somebody's webhook endpoint. It verifies with Stripe's own package.
type receiver struct {
	*httptest.Server
	t      *testing.T
	mu     sync.Mutex
	got    []got
	refuse atomic.Int32 // answer this many with 500
}

type got struct {
	event     stripe.Event
	signature string
	err       error
	body      string
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{t: t}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	e, err := webhook.ConstructEvent(body, req.Header.Get("Stripe-Signature"), whsec)
	r.mu.Lock()
	r.got = append(r.got, got{e, req.Header.Get("Stripe-Signature"), err, string(body)})
	r.mu.Unlock()
	if r.refuse.Add(-1) >= 0 {
		w.WriteHeader(http.StatusInternalServerError)
	}
}

func (r *receiver) all() []got {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.got)
}

func (r *receiver) types() []string {
	var out []string
	for _, g := range r.all() {
		out = append(out, string(g.event.Type))
	}
	return out
}

func (b *bench) settle() {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	require.NoError(b.t, b.sim.WaitForWebhooks(ctx))
}

func listening(t *testing.T) (*bench, *receiver) {
	t.Helper()
	r := newReceiver(t)
	return setup(t, func(o *Options) { o.WebhookURL, o.WebhookSecret = r.URL, whsec }), r
}

func TestWebhooks(t *testing.T) {
	t.Parallel()

	t.Run("DeliversSignedEvents", func(t *testing.T) {
		t.Parallel()
		b, r := listening(t)
		pi := b.paid("o1")
		request := b.header("Request-Id")
		b.settle()
		require.ElementsMatch(
			t, []string{"payment_intent.created", "charge.succeeded", "payment_intent.succeeded"},
			r.types(),
		)
		for _, g := range r.all() {
			require.NoError(t, g.err)
			require.Contains(t, g.signature, ",v0=")
			checkShape(t, shape{Body: []byte(g.body)})
			require.Contains(
				t, g.body, "\n  \"id\": \"evt_", "Stripe sends it indented: whoever verifies must verify the raw bytes",
			)
			if g.event.Type == "payment_intent.succeeded" {
				require.Equal(t, request, g.event.Request.ID)
				require.Equal(t, "confirm-o1", g.event.Request.IdempotencyKey)
				require.Equal(t, pi.ID, g.event.Data.Object["id"])
				require.Equal(t, "succeeded", g.event.Data.Object["status"])
			}
			if g.event.Type == "payment_intent.created" {
				require.Equal(t, "requires_payment_method", g.event.Data.Object["status"], "a snapshot of then")
			}
		}
	})

	t.Run("ShowsTheObjectAsItWas", func(t *testing.T) {
		t.Parallel()
		b, r := listening(t)
		b.create("o1", func(p *stripe.PaymentIntentParams) {
			p.Confirm, p.PaymentMethod = stripe.Bool(true), stripe.String("pm_card_visa")
		})
		b.settle()
		for _, g := range r.all() {
			if g.event.Type == "payment_intent.created" {
				require.Equal(t, "requires_confirmation", g.event.Data.Object["status"], "one request, two states")
			}
		}
	})

	t.Run("SetsOfEachFlow", func(t *testing.T) {
		t.Parallel()
		b, _ := listening(t)
		_, err := b.confirm(b.create("o1").ID, "k1", "pm_card_chargeDeclined")
		require.Error(t, err)
		require.Equal(t, "payment_intent.created charge.failed payment_intent.payment_failed", b.eventTypes())
		action, err := b.confirm(b.create("o2").ID, "k2", "pm_card_threeDSecure2Required")
		require.NoError(t, err)
		require.NoError(t, b.sim.CompleteAuthentication(action.ID, true))
		require.Contains(
			t,
			b.eventTypes(),
			"payment_intent.created payment_intent.requires_action charge.succeeded payment_intent.succeeded",
		)
		manual, err := b.confirm(
			b.create("o3", func(p *stripe.PaymentIntentParams) { p.CaptureMethod = stripe.String("manual") }).ID,
			"k3", "pm_card_visa",
		)
		require.NoError(t, err)
		_, err = b.api.PaymentIntents.Capture(manual.ID, &stripe.PaymentIntentCaptureParams{})
		require.NoError(t, err)
		require.Contains(
			t,
			b.eventTypes(),
			"charge.succeeded payment_intent.amount_capturable_updated charge.captured payment_intent.succeeded",
		)
		_, err = b.api.PaymentIntents.Cancel(b.create("o4").ID, &stripe.PaymentIntentCancelParams{})
		require.NoError(t, err)
		require.True(t, strings.HasSuffix(b.eventTypes(), "payment_intent.created payment_intent.canceled"))
		_, err = b.refund(manual.ID, "r", 0)
		require.NoError(t, err)
		require.True(t, strings.HasSuffix(b.eventTypes(), "refund.created charge.refunded"))
	})

	t.Run("CanArriveBeforeTheAnswer", func(t *testing.T) {
		t.Parallel()
		b, r := listening(t)
		pi := b.create("o1")
		h := b.sim.Hold(Selector{Op: "intent.confirm"}, AfterEffect)
		answered := make(chan error, 1)
		go func() { _, err := b.confirm(pi.ID, "k", "pm_card_visa"); answered <- err }()
		_, err := h.Wait(t.Context())
		require.NoError(t, err)
		require.Eventually(
			t,
			func() bool { return slices.Contains(r.types(), "payment_intent.succeeded") },
			30*time.Second, time.Millisecond,
		)
		h.Release()
		require.NoError(t, <-answered)
	})

	t.Run("RetriesUntilSomebodySays2xx", func(t *testing.T) {
		t.Parallel()
		b, r := listening(t)
		b.sim.SetWebhookRetry(time.Minute) // on the virtual clock
		r.refuse.Store(3)
		b.create("o1")
		for i := range 4 {
			b.settle()
			require.Len(t, r.all(), i+1)
			events, _ := b.fetch("/v1/events?delivery_success=false")
			require.Equal(t, i < 3, len(events) == 1)
			b.sim.Advance(time.Minute << i)
		}
		b.settle()
		require.Len(t, r.all(), 4)
		first, last := r.all()[0], r.all()[3]
		require.Equal(t, first.event.ID, last.event.ID)
		require.Equal(t, 4, len(b.sim.Deliveries()))
		require.Equal(t, 200, b.sim.Deliveries()[3].Status)
	})

	t.Run("GivesUpAfterThreeDays", func(t *testing.T) {
		t.Parallel()
		b, r := listening(t)
		r.refuse.Store(1000)
		b.create("o1")
		for range 80 {
			b.settle()
			b.sim.Advance(time.Hour)
		}
		b.settle()
		n := len(r.all())
		require.Greater(t, n, 60)
		b.sim.Advance(24 * time.Hour)
		b.settle()
		require.Len(t, r.all(), n)
		events, _ := b.fetch("/v1/events?delivery_success=false")
		require.Len(t, events, 1)
	})

	t.Run("GoesOnAfterARestart", func(t *testing.T) {
		t.Parallel()
		r := newReceiver(t)
		file := filepath.Join(t.TempDir(), "journal")
		opts := func(o *Options) { o.Store, o.WebhookURL, o.WebhookSecret = file, r.URL, whsec }
		t.Run("first life", func(t *testing.T) {
			b := setup(t, opts)
			b.create("o1")
			b.settle()
			r.refuse.Store(1)
			b.create("o2")
			b.settle()
			require.Len(t, r.all(), 2)
		})
		t.Run("second life", func(t *testing.T) {
			b := setup(t, opts)
			b.settle()
			require.Len(t, r.all(), 3, "the refused one again, the taken one not")
		})
	})

	t.Run("GoesToWhoWantsIt", func(t *testing.T) {
		t.Parallel()
		b, everything := listening(t)
		some := newReceiver(t)
		_, err := b.sim.AddWebhookEndpoint(DefaultKey, some.URL, whsec, "payment_intent.*")
		require.NoError(t, err)
		others := newReceiver(t)
		_, err = b.sim.AddWebhookEndpoint("sk_test_other", others.URL, whsec)
		require.NoError(t, err)
		b.paid("o1")
		b.settle()
		require.Len(t, everything.all(), 3)
		require.ElementsMatch(t, []string{"payment_intent.created", "payment_intent.succeeded"}, some.types())
		require.Empty(t, others.all())

		we := b.api.WebhookEndpoints.List(&stripe.WebhookEndpointListParams{})
		require.True(t, we.Next())
		_, err = b.api.WebhookEndpoints.Update(
			we.WebhookEndpoint().ID, &stripe.WebhookEndpointParams{Disabled: stripe.Bool(true)},
		)
		require.NoError(t, err)
		b.create("o2")
		b.settle()
		require.Len(t, some.all(), 2)
	})

	t.Run("CanBeResent", func(t *testing.T) {
		t.Parallel()
		b, r := listening(t)
		b.create("o1")
		b.settle()
		require.NoError(t, b.sim.Resend(r.all()[0].event.ID, 3))
		b.settle()
		require.Len(t, r.all(), 4)
		require.Error(t, b.sim.Resend("evt_none", 1))
	})

	t.Run("ListsEventsForTheBackfill", func(t *testing.T) {
		t.Parallel()
		b, _ := listening(t)
		b.paid("o1")
		all, _ := b.fetch("/v1/events")
		require.Len(t, all, 3)
		newer, _ := b.fetch("/v1/events?ending_before=" + all[2])
		require.Equal(t, all[:2], newer)
		two, _ := b.fetch("/v1/events?types[]=charge.succeeded&types[]=payment_intent.created")
		require.Len(t, two, 2)
		e, err := b.api.Events.Get(all[0], nil)
		require.NoError(t, err)
		require.Equal(t, apiVersion, e.APIVersion)
		b.sim.Advance(eventLifetime + time.Second)
		all, _ = b.fetch("/v1/events")
		require.Empty(t, all)
	})
}

func TestWebhookFaults(t *testing.T) {
	t.Parallel()
	only := func(f WebhookFault) WebhookFault { f.Type = "payment_intent.created"; return f }
	inject := func(t *testing.T, f WebhookFault) (*bench, *receiver) {
		t.Helper()
		b, r := listening(t)
		b.sim.SetWebhookRetry(time.Minute)
		id := b.sim.InjectWebhook(f)
		t.Cleanup(func() { require.Positive(t, b.sim.WebhookFaultsFired()[id], "the fault never fired") })
		return b, r
	}

	t.Run("Duplicate", func(t *testing.T) {
		t.Parallel()
		b, r := inject(t, only(WebhookFault{Kind: WebhookDuplicate, Count: 3}))
		b.create("o1")
		b.settle()
		require.Len(t, r.all(), 3)
		require.Equal(t, r.all()[0].event.ID, r.all()[2].event.ID)
	})
	t.Run("DuplicateToAnotherNode", func(t *testing.T) {
		t.Parallel()
		node := newReceiver(t)
		b, r := inject(t, only(WebhookFault{Kind: WebhookDuplicate, URL: node.URL}))
		b.create("o1")
		b.settle()
		require.Len(t, r.all(), 1)
		require.Len(t, node.all(), 1)
		require.NoError(t, node.all()[0].err)
	})
	t.Run("Double", func(t *testing.T) {
		t.Parallel()
		b, r := inject(t, only(WebhookFault{Kind: WebhookDouble}))
		b.create("o1")
		b.settle()
		require.Len(t, r.all(), 2)
		one, two := r.all()[0].event, r.all()[1].event
		require.NotEqual(t, one.ID, two.ID)
		require.Equal(t, one.Data.Object["id"], two.Data.Object["id"])
		listed, _ := b.fetch("/v1/events")
		require.Len(t, listed, 2, "both exist")
	})
	t.Run("Reorder", func(t *testing.T) {
		t.Parallel()
		b, r := inject(t, WebhookFault{Kind: WebhookReorder, Count: 3})
		b.create("o1")
		b.settle()
		require.Empty(t, r.all())
		b.paid("o1")
		require.Eventually(t, func() bool { return len(r.all()) == 3 }, 30*time.Second, time.Millisecond)
		require.Equal(t, []string{"payment_intent.succeeded", "charge.succeeded", "payment_intent.created"}, r.types())
	})
	t.Run("Burst", func(t *testing.T) {
		t.Parallel()
		b, r := inject(t, only(WebhookFault{Kind: WebhookBurst, Count: 20}))
		for i := range 20 {
			require.Empty(t, r.all())
			b.create(fmt.Sprint(i))
		}
		b.settle()
		require.Len(t, r.all(), 20)
	})
	t.Run("Delay", func(t *testing.T) {
		t.Parallel()
		b, r := inject(t, only(WebhookFault{Kind: WebhookDelay, Delay: 3 * time.Hour}))
		b.create("o1")
		b.settle()
		require.Empty(t, r.all())
		b.sim.Advance(3 * time.Hour)
		b.settle()
		require.Len(t, r.all(), 1)
		require.NoError(t, r.all()[0].err)
	})
	t.Run("Drop", func(t *testing.T) {
		t.Parallel()
		b, r := inject(t, only(WebhookFault{Kind: WebhookDrop}))
		b.create("o1")
		b.sim.Advance(100 * time.Hour)
		b.settle()
		require.Empty(t, r.all())
		undelivered, _ := b.fetch("/v1/events?delivery_success=false")
		require.Len(t, undelivered, 1)
	})
	t.Run("Never", func(t *testing.T) {
		t.Parallel()
		b, r := inject(t, only(WebhookFault{Kind: WebhookNever, OrderID: "o1"}))
		b.create("o1")
		b.create("o2")
		b.settle()
		require.Len(t, r.all(), 1)
		listed, _ := b.fetch("/v1/events")
		require.Len(t, listed, 1)
	})
	for kind, want := range map[string]string{
		WebhookWrongSignature: "no valid signature", WebhookStale: "tolerance", WebhookVersion: "API version",
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b, r := inject(t, only(WebhookFault{Kind: kind}))
			r.refuse.Store(1)
			b.create("o1")
			b.settle()
			require.ErrorContains(t, r.all()[0].err, want)
			b.sim.Advance(time.Minute) // the next attempt is sound
			b.settle()
			require.Len(t, r.all(), 2)
			require.NoError(t, r.all()[1].err)
		})
	}
	t.Run("ClearingSendsWhatWasKeptBack", func(t *testing.T) {
		t.Parallel()
		b, r := listening(t)
		b.sim.InjectWebhook(WebhookFault{Kind: WebhookReorder, Count: 5})
		b.create("o1")
		b.sim.ClearWebhookFaults()
		b.settle()
		require.Len(t, r.all(), 1)
	})
}
