package payments

import (
	"context"
	"errors"
	"fmt"

	"example.com/payonce/db"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/postgres"
)

// The events of a payment in which nothing goes wrong are stored without data: they follow from columns that never
// change again (no statement sets created_at), which guards of the tables hold (order_contents_are_immutable,
// customer_is_only_erased, order_payment_is_immutable, payment_terms_are_immutable, succeeded_keeps_its_charge).
// RenderEvents makes the data when an event is published or listed, and it is the same each time, but for a customer who
// was erased since (package erasure). Where a column could differ from what the event says, the data is stored.

// OrderEvent is an event about an order, with the order as the API shows it.
func OrderEvent(kind string, row db.Order) outbox.Event {
	e := outbox.Event{TenantID: row.TenantID, AggregateID: row.ID, Version: row.Version, Type: kind}
	if !rendersOrder(kind, row) {
		e.Data = outbox.Data(orderOf(row))
	}
	return e
}

// PaymentEvent is an event about a payment, with the payment as the API shows it but for what the customer must do:
// that contains the client secret, and events are kept, sent and logged by others.
func PaymentEvent(kind string, row db.Payment) outbox.Event {
	e := outbox.Event{TenantID: row.TenantID, AggregateID: row.ID, Version: row.Version, Type: kind}
	if !rendersPayment(kind, row) {
		row.NextAction = nil
		e.Data = outbox.Data(PaymentOf(row))
	}
	return e
}

// rendersOrder reports whether orderAsOf will always show the order as it is now.
func rendersOrder(kind string, o db.Order) bool {
	untouched := o.AmountRefundedMinor == 0 && o.AmountDisputedMinor == 0
	switch kind {
	case "order.created":
		return untouched && o.Status == db.OrderStatusOpen && o.PaymentID == nil
	case "order.paid": // What a capture took does not follow from the event.
		return untouched && o.CapturedMinor == nil && o.Status == db.OrderStatusPaid && o.PaymentID != nil
	}
	return false
}

// orderAsOf is the order as it was when the event was written.
func orderAsOf(kind string, o db.Order) db.Order {
	o.Status, o.AmountRefundedMinor, o.AmountDisputedMinor = db.OrderStatusPaid, 0, 0
	if kind == "order.created" {
		o.Status, o.PaymentID, o.CapturedMinor = db.OrderStatusOpen, nil, nil
	}
	return o
}

// rendersPayment reports whether paymentAsOf will always show the payment as it is now. A payment that begins on the
// intent of an earlier one shows it from the start.
func rendersPayment(kind string, p db.Payment) bool {
	untouched := p.AmountRefundedMinor == 0 && p.AmountDisputedMinor == 0 && p.FailureCode == nil && p.NextAction == nil
	switch kind {
	case "payment.created":
		return untouched && !p.ManualCapture && p.Status == db.PaymentStatusProcessing && p.IntentID == nil && p.ChargeID == nil
	case "payment.succeeded":
		return untouched && !p.ManualCapture && p.Status == db.PaymentStatusSucceeded && p.IntentID != nil && p.ChargeID != nil
	}
	return false
}

// paymentAsOf is the payment as it was when the event was written.
func paymentAsOf(kind string, p db.Payment) db.Payment {
	p.Status, p.AmountRefundedMinor, p.AmountDisputedMinor = db.PaymentStatusSucceeded, 0, 0
	p.FailureCode, p.NextAction = nil, nil
	if kind == "payment.created" {
		p.Status, p.IntentID, p.ChargeID = db.PaymentStatusProcessing, nil, nil
	}
	return p
}

// RenderEvents is the outbox.Render of orders and payments. It reads all of them in two statements. An event whose row
// cannot be read stays without data, and keeps no other from being rendered.
func RenderEvents(ctx context.Context, pool *postgres.Pool, events []outbox.Envelope) error {
	err := renderTogether(ctx, pool, events)
	switch {
	case !postgres.IsUnreadable(err):
		return err
	case len(events) == 1:
		return nil
	}
	half := len(events) / 2
	return errors.Join(RenderEvents(ctx, pool, events[:half]), RenderEvents(ctx, pool, events[half:]))
}

func renderTogether(ctx context.Context, pool *postgres.Pool, events []outbox.Envelope) error {
	type aggregate struct{ tenantID, id string }
	var (
		waiting  = map[aggregate][]*outbox.Envelope{}
		orders   db.OrdersReadParams
		payments db.PaymentsReadParams
	)
	for i := range events {
		e := &events[i]
		if e.Data != nil {
			continue
		}
		of := aggregate{e.TenantID, e.Subject}
		waiting[of] = append(waiting[of], e)
		if len(waiting[of]) > 1 {
			continue
		}
		switch e.Type {
		case "order.created", "order.paid":
			orders.TenantIds, orders.Ids = append(orders.TenantIds, of.tenantID), append(orders.Ids, of.id)
		case "payment.created", "payment.succeeded":
			payments.TenantIds, payments.Ids = append(payments.TenantIds, of.tenantID), append(payments.Ids, of.id)
		}
	}
	if len(waiting) == 0 {
		return nil
	}
	err := pool.InReadTx(ctx, func(q *db.Queries) error {
		if err := q.PlanByIndex(ctx); err != nil {
			return err
		}
		paymentRows, err := q.PaymentsRead(ctx, payments)
		if err != nil {
			return err
		}
		for _, row := range paymentRows {
			for _, e := range waiting[aggregate{row.Payment.TenantID, row.Payment.ID}] {
				e.Data = outbox.Data(PaymentOf(paymentAsOf(e.Type, row.Payment)))
			}
		}
		orderRows, err := q.OrdersRead(ctx, orders)
		for _, row := range orderRows {
			for _, e := range waiting[aggregate{row.Order.TenantID, row.Order.ID}] {
				if order, err := readOrder(orderAsOf(e.Type, row.Order)); err == nil { // one that is damaged stays without
					e.Data = outbox.Data(order)
				}
			}
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("render events: %w", err)
	}
	return nil
}

var _ outbox.Render = RenderEvents
