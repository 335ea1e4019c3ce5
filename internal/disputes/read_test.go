package disputes_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/compare"
	"example.com/payonce/internal/disputes"
	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/inbox"
	"example.com/payonce/internal/stripe"
	"example.com/payonce/testkit/pgproxy"
	"example.com/payonce/testkit/world"
)

func (b bench) recorded() int { return b.Count("SELECT count(*) FROM disputes") }

func TestRecordedDisputeIsReadWithOneRequest(t *testing.T) {
	t.Parallel()
	b := paid(t)
	log := &bytes.Buffer{}
	s, gateway := b.tap(disputes.Options{Log: slog.New(slog.NewTextHandler(log, nil))})
	id := b.dispute(false)
	require.NoError(t, s.Read(t.Context(), id))
	require.Contains(t, log.String(), `msg="dispute recorded"`)
	require.Len(t, gateway.asked, 2, "the intent says whose the dispute is")
	gateway.asked = nil
	require.NoError(t, s.Read(t.Context(), id))
	require.Equal(t, []string{"dispute " + id}, gateway.asked, "and the row from then on")
}

// adopter notes what it is asked to adopt.
type adopter struct {
	asked   []string
	pending bool
	err     error
}

func (a *adopter) AdoptDisputed(_ context.Context, i stripe.Intent) (pending bool, err error) {
	a.asked = append(a.asked, i.ID)
	return a.pending, a.err
}

// TestDisputeThatIsNotOursIsIgnored, and its intent is not adopted.
func TestDisputeThatIsNotOursIsIgnored(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*stripe.Intent) error{
		"OfAnIntentThatIsNotHere": func(*stripe.Intent) error { return stripe.ErrNoSuchObject },
		"OfAnIntentThatIsNotPaid": func(i *stripe.Intent) error { i.Status = stripe.IntentProcessing; return nil },
		"OfAnotherProgram":        func(i *stripe.Intent) error { i.TenantID, i.OrderID = "", ""; return nil },
		"OfAnOperationOfItsOwn":   func(i *stripe.Intent) error { i.Operation = "tip"; return nil },
		"OfAnotherInstallation":   func(i *stripe.Intent) error { i.TenantID = ids.New(ids.Tenant); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := paid(t)
			id := b.dispute(false)
			b.Unguarded("UPDATE payments SET intent_id = 'pi_another'")
			s, gateway := b.tap(disputes.Options{})
			gateway.intent = func(i stripe.Intent, err error) (stripe.Intent, error) {
				require.NoError(t, err)
				i.Charged = stripe.Order{}
				err = change(&i)
				return i, err
			}
			adopts := &adopter{pending: true}
			s.AdoptWith(adopts)
			require.NoError(t, s.Read(t.Context(), id))
			require.Zero(t, b.recorded())
			if name != "OfAnotherInstallation" { // It does not find the tenant.
				require.Empty(t, adopts.asked)
			}
			found, err := s.Compare(t.Context(), hourAgo)
			require.NoError(t, err)
			require.Empty(t, found)
		})
	}

	t.Run("OfAChargeWithoutAnIntent", func(t *testing.T) {
		t.Parallel()
		b := paid(t)
		id := b.dispute(false)
		s, gateway := b.tap(disputes.Options{})
		gateway.dispute = func(d stripe.Dispute, err error) (stripe.Dispute, error) {
			d.IntentID = ""
			return d, err
		}
		gateway.list = func(page stripe.Page[stripe.Dispute], err error) (stripe.Page[stripe.Dispute], error) {
			for i := range page.Objects {
				page.Objects[i].IntentID = ""
			}
			return page, err
		}
		require.NoError(t, s.Read(t.Context(), id))
		require.Equal(t, []string{"dispute " + id}, gateway.asked)
		gateway.asked = nil
		_, err := s.RunOnce(t.Context())
		require.NoError(t, err)
		found, err := s.Compare(t.Context(), hourAgo)
		require.NoError(t, err)
		require.Empty(t, found)
		require.Equal(t, []string{"list", "list"}, gateway.asked, "none is read by itself")
		require.Equal(t, 1, b.Count("SELECT count(*) FROM reconciliation_windows WHERE covered_through IS NOT NULL"))
		require.Zero(t, b.recorded())
	})
}

// TestIntentOfADisputeIsAdopted if no payment has it, and only then.
func TestIntentOfADisputeIsAdopted(t *testing.T) {
	t.Parallel()
	read := func(t *testing.T, a disputes.Adopter, operation string) (bench, string, error) {
		b, intent, id, _ := disputedUnseen(t)
		s, gateway := b.tap(disputes.Options{})
		gateway.intent = func(i stripe.Intent, err error) (stripe.Intent, error) {
			i.Operation = operation
			return i, err
		}
		if a != nil {
			s.AdoptWith(a)
		}
		return b, intent, s.Read(t.Context(), id)
	}

	t.Run("AndIsRecordedOnceItIs", func(t *testing.T) {
		t.Parallel()
		a := &adopter{pending: true}
		b, intent, err := read(t, a, "")
		require.ErrorContains(t, err, "belongs to no payment yet: "+intent)
		require.Equal(t, []string{intent}, a.asked)
		require.Zero(t, b.recorded())
	})

	t.Run("UnlessNoPaymentWillHaveIt", func(t *testing.T) {
		t.Parallel()
		a := &adopter{}
		b, intent, err := read(t, a, "")
		require.NoError(t, err, "the reconciler reports the intent")
		require.Equal(t, []string{intent}, a.asked)
		require.Zero(t, b.recorded())
	})

	t.Run("OrTheReasonIsReturned", func(t *testing.T) {
		t.Parallel()
		why := errors.New("the order is locked")
		_, _, err := read(t, &adopter{err: why}, "")
		require.ErrorIs(t, err, why)
	})

	t.Run("ByTheReconcilerAloneWithoutAnAdopter", func(t *testing.T) {
		t.Parallel()
		_, intent, err := read(t, nil, "")
		require.ErrorContains(t, err, "belongs to no payment yet: "+intent)
	})

	// A payment of ours has the intent, whatever its metadata says.
	t.Run("ByTheReconcilerIfItsMetadataNamesAnotherOperation", func(t *testing.T) {
		t.Parallel()
		a := &adopter{}
		_, intent, err := read(t, a, "tip")
		require.ErrorContains(t, err, "belongs to no payment yet: "+intent)
		require.Empty(t, a.asked)
	})

	t.Run("NotIfItsPaymentHasSucceeded", func(t *testing.T) {
		t.Parallel()
		b := paid(t)
		id := b.dispute(false)
		s, _ := b.tap(disputes.Options{})
		a := &adopter{err: errors.New("asked in vain")}
		s.AdoptWith(a)
		require.NoError(t, s.Read(t.Context(), id))
		require.Empty(t, a.asked)
		require.Equal(t, 1, b.recorded())
	})
}

// TestDisputeIsNotWrittenOverAnother: its row has another version by now.
func TestDisputeIsNotWrittenOverAnother(t *testing.T) {
	t.Parallel()
	b := paid(t)
	b.dispute(false)
	b.rounds()
	row, err := b.DB.DisputeOfStripeID(t.Context(), b.Text("SELECT stripe_dispute_id FROM disputes"))
	require.NoError(t, err)
	before := row
	before.Version = 7
	require.ErrorIs(t, disputes.Write(t.Context(), b.DB.Queries, before, row), disputes.ErrMoved)
}

// TestInquiryLeavesItsPaymentAsItIs: nothing is withdrawn, so that nothing of the payment changes.
func TestInquiryLeavesItsPaymentAsItIs(t *testing.T) {
	t.Parallel()
	b := paid(t)
	b.dispute(true)
	before := b.Text("SELECT updated_at FROM payments")
	b.rounds()
	require.Equal(t, 1, b.recorded())
	require.Equal(t, before, b.Text("SELECT updated_at FROM payments"))
}

// TestEventAboutADispute: it only says which dispute to read.
func TestEventAboutADispute(t *testing.T) {
	t.Parallel()
	b := paid(t)
	id := b.dispute(false)
	s, gateway := b.tap(disputes.Options{})
	applied := 0
	handler := s.WebhookHandler(inbox.Handler{
		Prepare: func(context.Context, inbox.Event) (any, error) { return "next", nil },
		Apply:   func(context.Context, *db.Queries, inbox.Event, any) error { applied++; return nil },
		Settled: func(_ context.Context, events []inbox.Event) (types []string, _ error) {
			for _, e := range events {
				types = append(types, e.Type)
			}
			return types, nil
		},
	})
	event := func(kind, payload string) inbox.Event { return inbox.Event{Type: kind, Payload: []byte(payload)} }
	about := func(id string) inbox.Event {
		return event("charge.dispute.created", `{"id":"evt_1","object":"event","type":"charge.dispute.created",
			"data":{"object":{"id":"`+id+`","object":"dispute"}}}`)
	}
	apply := func(e inbox.Event, prepared any) error {
		return b.api.Pool.InTx(t.Context(), func(q *db.Queries) error { return handler.Apply(t.Context(), q, e, prepared) })
	}

	settled, err := handler.Settled(t.Context(), []inbox.Event{about(id), event("charge.refunded", `{}`)})
	require.NoError(t, err)
	require.Equal(t, []string{"charge.refunded"}, settled)

	require.Nil(t, s.WebhookHandler(inbox.Handler{}).Settled)

	prepared, err := handler.Prepare(t.Context(), event("charge.refunded", `{}`))
	require.NoError(t, err)
	require.Equal(t, "next", prepared)
	require.NoError(t, apply(event("charge.refunded", `{}`), prepared))
	require.Equal(t, 1, applied)

	_, err = handler.Prepare(t.Context(), event("charge.dispute.created", `{`))
	require.ErrorIs(t, err, inbox.ErrPoison)
	require.Empty(t, gateway.asked)

	prepared, err = handler.Prepare(t.Context(), about(""))
	require.NoError(t, err)
	require.Empty(t, gateway.asked, "it names none")
	require.NoError(t, apply(about(""), prepared))

	prepared, err = handler.Prepare(t.Context(), about("du_of_another_account"))
	require.NoError(t, err)
	require.NoError(t, apply(about("du_of_another_account"), prepared))
	require.Zero(t, b.recorded())

	prepared, err = handler.Prepare(t.Context(), about(id))
	require.NoError(t, err)
	require.NoError(t, apply(about(id), prepared))
	require.Equal(t, 1, b.recorded())
	require.ErrorContains(t, apply(about(id), prepared), "charge.dispute.created: ", "what was read before is old by now")
	require.Equal(t, 1, applied)
}

// TestListOfDisputes: a cursor belongs to the list that it continues, and a list has what all its filters leave.
func TestListOfDisputes(t *testing.T) {
	t.Parallel()
	b := paid(t)
	other := b.other()
	b.dispute(false)
	b.dispute(true)
	other.dispute(false)
	b.rounds()
	ofB := b.Text("SELECT id FROM disputes WHERE payment_id = $1 LIMIT 1", b.payment)
	require.Equal(t, http.StatusOK, b.api.Get("/v1/disputes?starting_after="+ofB+"&payment_id="+b.payment).Status)
	for _, query := range []string{"payment_id=" + other.payment, "order_id=" + other.order} {
		require.Equal(t, "invalid-request", b.api.Get("/v1/disputes?starting_after="+ofB+"&"+query).Code(), query)
	}
	none := b.api.Get("/v1/disputes?limit=1&payment_id=" + b.payment + "&order_id=" + other.order)
	require.Empty(t, none.Get("data"))
	require.Equal(t, false, none.Get("has_more"))
	require.Equal(t, http.StatusNotFound, b.api.Get("/v1/disputes/"+ids.New(ids.Dispute)).Status)
	require.Equal(t, http.StatusNotFound, b.api.Get("/v1/disputes/"+b.payment).Status)
}

// TestOrderThatIsKnownIsNotSearchedFor: the caller names the order of a payment, whatever the metadata of its intent says
// by now.
func TestOrderThatIsKnownIsNotSearchedFor(t *testing.T) {
	t.Parallel()
	b := paid(t)
	b.dispute(false)
	proxy, err := pgproxy.Start(b.URL)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, proxy.Close()) })
	server := b.Local(world.LocalOptions{Name: "proxied", Database: proxy.URL()})
	gateway := &tapped{Gateway: b.api.Gateway.(disputes.Gateway)}
	gateway.intent = func(i stripe.Intent, err error) (stripe.Intent, error) {
		i.OrderID, i.Operation, i.Charged = ids.New(ids.Order), "tip", stripe.Order{}
		return i, err
	}
	order := compare.OrderRef{TenantID: b.Tenant.ID, OrderID: b.order}
	proxy.Seen()
	s := disputes.New(server.Pool, gateway, disputes.Options{})
	require.NoError(t, s.ReadOf(t.Context(), order, b.Text("SELECT intent_id FROM payments")))
	require.Equal(t, 1, b.recorded())
	for _, statement := range proxy.Seen() {
		require.NotContains(t, statement, "name: PaymentOfIntentElsewhere ")
	}
}
