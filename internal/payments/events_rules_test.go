package payments_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/payments"
)

// TestRenderedEventsNeverChange: an event is stored without data only if it is rendered with the same bytes whatever
// becomes of its row within the guards of its table. Every state of a row is tried against every later one.
func TestRenderedEventsNeverChange(t *testing.T) {
	t.Parallel()
	amounts := []int64{0, 2}

	t.Run("OfAPayment", func(t *testing.T) {
		t.Parallel()
		var states []db.Payment
		at := ids.Now()
		for _, status := range []db.PaymentStatus{db.PaymentStatusProcessing, db.PaymentStatusRequiresAction,
			db.PaymentStatusSucceeded, db.PaymentStatusFailed, db.PaymentStatusCanceled} {
			for _, intent := range []*string{nil, ptr("pi_1"), ptr("pi_2")} {
				for _, charge := range []*string{nil, ptr("ch_1"), ptr("ch_2")} {
					for i := range 16 {
						p := db.Payment{ID: "pay_1", OrderID: "ord_1", AmountMinor: 1000, Currency: "usd", PaymentMethod: "pm",
							CreatedAt: at, Status: status, IntentID: intent, ChargeID: charge,
							AmountRefundedMinor: amounts[i&1], AmountDisputedMinor: amounts[i>>1&1]}
						if i&4 > 0 {
							p.FailureCode = ptr("card_declined")
						}
						if i&8 > 0 {
							p.NextAction = []byte(`{}`)
						}
						states = append(states, p)
					}
				}
			}
		}
		stays := func(before, after db.Payment) bool { // succeeded_keeps_its_charge, payment_transition_is_legal
			return before.Status != db.PaymentStatusSucceeded || after.Status == before.Status &&
				after.IntentID == before.IntentID && (before.ChargeID == nil || after.ChargeID == before.ChargeID)
		}
		for kind, want := range map[string]int{"payment.created": 1, "payment.succeeded": 4, "payment.failed": 0} {
			rendered := 0
			for _, before := range states {
				if payments.PaymentEvent(kind, before).Data != nil {
					continue
				}
				rendered++
				for _, after := range states {
					if stays(before, after) {
						require.JSONEq(t, string(outbox.Data(payments.PaymentOf(before))),
							string(outbox.Data(payments.PaymentOf(payments.Rules.PaymentAsOf(kind, after)))))
					}
				}
			}
			require.Equal(t, want, rendered, "states in which %s is stored without data", kind)
		}
	})

	t.Run("OfAnOrder", func(t *testing.T) {
		t.Parallel()
		var states []db.Order
		at := ids.Now()
		for _, status := range []db.OrderStatus{db.OrderStatusOpen, db.OrderStatusPaid, db.OrderStatusCanceled,
			db.OrderStatusPartiallyRefunded, db.OrderStatusRefunded} {
			for _, payment := range []*string{nil, ptr("pay_1"), ptr("pay_2")} {
				for i := range 4 {
					states = append(states, db.Order{ID: "ord_1", AmountMinor: 1000, Currency: "usd", Items: []byte("[]"),
						Metadata: []byte("{}"), CreatedAt: at, Status: status, PaymentID: payment,
						AmountRefundedMinor: amounts[i&1], AmountDisputedMinor: amounts[i>>1]})
				}
			}
		}
		stays := func(before, after db.Order) bool { // order_payment_is_immutable
			return before.PaymentID == nil || after.PaymentID == before.PaymentID
		}
		for kind, want := range map[string]int{"order.created": 1, "order.paid": 2, "order.canceled": 0} {
			rendered := 0
			for _, before := range states {
				if payments.OrderEvent(kind, before).Data != nil {
					continue
				}
				rendered++
				for _, after := range states {
					if stays(before, after) {
						require.JSONEq(t, string(outbox.Data(payments.Rules.OrderOf(before))),
							string(outbox.Data(payments.Rules.OrderOf(payments.Rules.OrderAsOf(kind, after)))))
					}
				}
			}
			require.Equal(t, want, rendered, "states in which %s is stored without data", kind)
		}
	})
}

// TestOrderThatCannotBeRead: a request that finds one fails, and shows nothing of it.
func TestOrderThatCannotBeRead(t *testing.T) {
	t.Parallel()
	whole := db.Order{ID: "ord_1", AmountMinor: 1000, Items: []byte("[]"), Metadata: []byte("{}")}
	require.Zero(t, payments.Rules.OrderOf(whole).AmountPaid, "it has no payment")
	items, metadata := whole, whole
	items.Items, metadata.Metadata = []byte("7"), []byte("7")
	require.Panics(t, func() { payments.Rules.OrderOf(items) })
	require.Panics(t, func() { payments.Rules.OrderOf(metadata) })
}
