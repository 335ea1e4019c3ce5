package histories

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	stripego "github.com/stripe/stripe-go/v76"

	"example.com/payonce/internal/stripe"
	"example.com/payonce/stripesim"
)

// rounds is how often everybody gets another chance before something counts as stuck.
const rounds = 12

// atStripe are all intents, newest first.
func (h *history) atStripe() (all []stripe.Intent) {
	h.Helper()
	w := stripe.Window{TenantID: stripe.NoTenant, From: time.Now().Add(-30 * 24 * time.Hour)}
	for {
		page, err := h.b.API.Gateway.ListIntents(h.Context(), w)
		require.NoError(h, err)
		all = append(all, page.Objects...)
		if !page.More {
			return all
		}
		w.After = page.Objects[len(page.Objects)-1].ID
	}
}

func (h *history) refundInDashboard(intent string) error {
	_, err := h.b.Stripe.Refunds.New(&stripego.RefundParams{PaymentIntent: stripego.String(intent), Amount: stripego.Int64(100)})
	var refused *stripego.Error
	if errors.As(err, &refused) {
		return errors.New(refused.Msg)
	}
	return err
}

// settle lets everything come to its end: clients ask until they have a final answer, customers leave their pages, and
// time passes.
func (h *history) settle() {
	h.Helper()
	h.tell("---- everything comes to its end")
	h.b.Sim.ClearFaults()
	var open string
	for round := range rounds {
		for _, r := range h.requests {
			if h.pending(r) {
				h.send(r)
			}
		}
		for _, secret := range h.secrets {
			if round > 0 && h.IntN(2) == 0 {
				h.customer(secret, h.IntN(3))
			}
		}
		h.complete()
		h.reconcile()
		if open = h.open(); open == "" && round > 1 {
			h.reconcile()
			return
		}
		h.pass([]time.Duration{30 * time.Minute, 2 * time.Hour, 13 * time.Hour}[min(round/4, 2)])
	}
	require.Fail(h, "something does not end", open)
}

// pending reports whether a client still waits for the answer. One that has never asked this life may have gone.
func (h *history) pending(r *request) bool {
	return r.last.Status != 0 && !r.last.Final()
}

// open is work that has not ended.
func (h *history) open() string {
	return h.b.Text(`SELECT string_agg(what, '; ') FROM (
		SELECT 'key ' || key || ' at ' || recovery_point || ': ' || coalesce(last_error, '') AS what FROM idempotency_keys WHERE finished_at IS NULL
		UNION ALL SELECT 'owed ' || payment_id FROM refunds_owed WHERE ended_at IS NULL
		UNION ALL SELECT 'payment ' || id || ' ' || status FROM payments WHERE status IN ('processing', 'requires_action')) o`)
}

// check compares what Stripe has with what is here.
func (h *history) check() {
	h.Helper()
	h.requireChargedOnce()
	lost := 0
	kept := map[string]string{}
	for _, listed := range h.atStripe() {
		i, err := h.b.API.Gateway.GetIntent(h.Context(), stripe.NoTenant, listed.ID) // A list may count what was released.
		require.NoError(h, err)
		exists := h.b.Count(`SELECT count(*) FROM orders WHERE id = $1`, i.OrderID) == 1
		payments := h.b.Text(`SELECT string_agg(p.status || ' ' || o.status, ', ') FROM payments p JOIN orders o ON o.id = p.order_id
			WHERE p.intent_id = $1 AND p.order_id = $2`, i.ID, i.OrderID)
		switch left := i.ReceivedMinor - i.RefundedMinor; {
		case i.Status == stripe.IntentSucceeded && left > 0:
			require.Empty(h, kept[i.OrderID], "%s is paid twice: with %s and %s", h.name(i.OrderID), h.name(i.ID), h.name(kept[i.OrderID]))
			kept[i.OrderID] = i.ID
			if !exists {
				lost++
				require.Contains(h, h.b.Discrepancies(), "unmatched_at_stripe "+i.ID, "the money of a lost order is forgotten")
				continue
			}
			require.Contains(h, payments, "succeeded ", "the money of %s is not here", h.name(i.ID))
		case i.Status == stripe.IntentRequiresCapture && exists:
			require.Contains(h, payments, "authorized authorized", "what is reserved on %s is not here", h.name(i.ID))
		case exists && slices.ContainsFunc(h.secrets, func(s string) bool { return strings.HasPrefix(s, i.ID+"_") }):
			if i.Status != stripe.IntentCanceled && i.Status != stripe.IntentSucceeded {
				status := h.b.Text(`SELECT status FROM orders WHERE id = $1`, i.OrderID)
				require.Equal(h, "open", status, "a customer can pay %s with %s, which is %s", h.name(i.OrderID), h.name(i.ID), i.Status)
			}
		}
	}
	h.requireRefundedOnce()
	h.requireNewIDs()
	requireWholeCheckouts(h) // part: checkouts
	for _, r := range h.requests {
		if r.last.Status != 0 {
			h.send(r)
		}
	}
	h.b.Unguarded(`UPDATE outbox_events SET created_at = clock_timestamp()`) // No relay is late: there is none.
	report := h.b.Audit()
	offends := report.Offends()
	require.Equal(h, lost, offends["I8e"], "%+v", report)
	delete(offends, "I8e")
	require.Empty(h, offends, "%+v", report)
}

// requireChargedOnce fails the test if money was taken for an order that had paid and not got it back.
func (h *history) requireChargedOnce() {
	h.Helper()
	kept, intents := map[string]int64{}, map[string]string{}
	for _, e := range h.b.Sim.Effects() {
		order := e.Metadata["order_id"]
		switch e.Kind {
		case stripesim.EffectCharge:
			require.Zero(h, kept[order], "%s is charged twice: with %s and %s", h.name(order), h.name(intents[order]), h.name(e.IntentID))
			kept[order] += e.Amount
			intents[order] = e.IntentID
		case stripesim.EffectRefund:
			kept[order] -= e.Amount
		case stripesim.EffectRefundFailed:
			kept[order] += e.Amount
		}
	}
}

// requireRefundedOnce fails the test if a refund was made twice.
func (h *history) requireRefundedOnce() {
	h.Helper()
	made := map[string]int{}
	for _, e := range h.b.Sim.Effects() {
		id := e.Metadata["refund_id"]
		switch {
		case id == "":
		case e.Kind == stripesim.EffectRefund:
			made[id]++
			require.LessOrEqual(h, made[id], 1, "the refund %s was made twice", id)
		case e.Kind == stripesim.EffectRefundFailed:
			made[id]--
		}
	}
}
