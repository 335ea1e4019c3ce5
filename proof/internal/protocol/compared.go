package protocol

import (
	"fmt"
	"slices"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/compare"
	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/stripe"
)

// This file gives the model's rows and objects to package compare, so that what is concluded from a difference is the
// code's own conclusion.

const (
	tenant   = "t_model"
	currency = "eur"
)

var (
	orderID    = ids.Keyed(ids.Order, tenant, "order")
	paymentIDs = named(ids.Payment, pays)
	refundIDs  = named(ids.Refund, refunds)
	intentIDs  = [intents]string{"pi_1", "pi_2", "pi_3"}
	stripeIDs  = [refunds]string{"re_1", "re_2", "re_3", "re_4", "re_5", "re_6", "re_7"}
	now        = time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
)

// named are ids in the order in which they were made.
func named(prefix string, n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = ids.Keyed(prefix, tenant, fmt.Sprint(i))
	}
	slices.Sort(list)
	return list
}

// paymentID is the id of a payment, which an adopted one may have from a refund at Stripe.
func paymentID(n *state, k int) string {
	if id := n.pay[k].id; id != 0 {
		return paymentIDs[id-1]
	}
	return paymentIDs[k]
}

// comparedRows is what compared depends on.
type comparedRows struct {
	order      orderRow
	pay        [pays]paymentRow
	refund     [refunds]refundRow
	inProgress [keys]bool
	hours      uint8
	canceled   uint8 // the hour in which the order's cancel began
}

// orders are the orders that package compare has seen, so that each is made once.
type orders map[comparedRows]*compare.Order

const ordersMax = 20_000

// compared is the order as package compare sees it.
func (x *expander) compared(n *state) *compare.Order {
	rows := comparedRows{order: n.order, pay: n.pay, refund: n.refund, hours: n.hours}
	for k := range n.key {
		rows.inProgress[k] = inProgress(n.key[k])
	}
	for k := range clients {
		if n.order.canceling && x.m.scope.asks[k] == CancelOrder {
			rows.canceled = n.key[k].born
		}
	}
	o, ok := x.orders[rows]
	if !ok {
		if x.orders == nil || len(x.orders) >= ordersMax {
			x.orders = orders{}
		}
		o = x.makeOrder(n)
		x.orders[rows] = o
	}
	return o
}

// makeOrder makes an order for package compare.
func (x *expander) makeOrder(n *state) *compare.Order {
	row := db.Order{
		TenantID: tenant, ID: orderID, Status: orderStatuses[n.order.status], AmountMinor: fullPrice,
		Currency: currency, IntentsRetired: int32(n.order.retired),
	}
	o := &compare.Order{Row: &row}
	if n.order.canceling {
		for k := range uint8(clients) {
			if x.m.scope.asks[k] == CancelOrder {
				o.HolderKey = keyNames[k]
				o.HolderInProgress = inProgress(n.key[k]) && x.age(n, n.key[k].born) < compare.HolderPatience
			}
		}
		row.CancelingKey = &o.HolderKey
	}
	for k, p := range n.pay {
		if p.status == noPayment {
			continue
		}
		c := compare.Payment{Payment: db.Payment{
			TenantID: tenant, ID: paymentID(n, k), OrderID: orderID, Status: paymentStatuses[p.status],
			AmountMinor: fullPrice, Currency: currency, AmountRefundingMinor: int64(p.refunding),
			AmountRefundedMinor: int64(p.refunded), IntentNumber: int32(p.number),
			IntentClosed: p.flags&intentClosed != 0, ManualCapture: p.flags&manual != 0,
		}, Idle: x.age(n, p.since)}
		if p.intent != 0 {
			c.IntentID = &intentIDs[p.intent-1]
		}
		if p.flags&manual != 0 && p.status == succeeded {
			c.CapturedMinor = new(int64(p.captured))
		}
		if k < clients {
			c.IdempotencyKey, c.InProgress = keyNames[k], inProgress(n.key[k])
		}
		if p.capturing != 0 {
			c.CapturingKey, c.InProgress = &keyNames[p.capturing-1], inProgress(n.key[p.capturing-1])
		}
		o.Payments = append(o.Payments, c)
	}
	for r, row := range n.refund {
		if row.status == noRefund {
			continue
		}
		c := compare.RefundRow{Refund: db.Refund{
			TenantID: tenant, ID: refundIDs[r], OrderID: orderID, Status: refundStatuses[row.status],
			PaymentID: paymentID(n, int(row.payment)), AmountMinor: int64(row.units), Currency: currency,
		}}
		if row.stripe != 0 {
			c.StripeRefundID = &stripeIDs[row.stripe-1]
		}
		if r < ownRefunds {
			c.IdempotencyKey, c.InProgress = keyNames[r], inProgress(n.key[r])
		}
		o.Refunds = append(o.Refunds, c)
	}
	return o
}

func inProgress(k keyRow) bool { return k.point != noPoint && k.point != finished && !k.parked }

// seen is an intent as Stripe shows it.
func (x *expander) seen(n *state, id uint8) stripe.Intent {
	it := n.at.intent[id-1]
	i := stripe.Intent{
		ID: intentIDs[id-1], Status: intentStatuses[it.status], AmountMinor: fullPrice, Currency: currency,
		TenantID: tenant, OrderID: orderID, CreatedAt: now.Add(-x.age(n, it.born)),
		ManualCapture: it.manual,
	}
	if it.status == paid {
		i.ReceivedMinor, i.RefundedMinor = int64(it.took()), int64(x.returned(n, id))
	}
	return i
}

// seenRefund is a refund as Stripe shows it.
func (x *expander) seenRefund(n *state, j int) stripe.Refund {
	r := n.at.refund[j]
	shown := stripe.Refund{
		ID: stripeIDs[j], Status: refundStatuses[r.status], IntentID: intentIDs[r.intent-1],
		AmountMinor: int64(r.units), Currency: currency, TenantID: tenant, OrderID: orderID,
	}
	if r.row != 0 {
		shown.RefundID, shown.PaymentID = refundIDs[r.row-1], paymentIDs[r.of]
	}
	return shown
}

// adoptable reports whether the intent would be adopted once the cancel of the order is withdrawn.
func (x *expander) adoptable(n *state, id uint8) bool {
	open := *n
	open.order.canceling = false
	return n.pay[adoptedPayment].status == noPayment && x.m.has(Adoption) &&
		compare.Intent(x.seen(&open, id), x.compared(&open)).Result == compare.Adoptable
}

// adopt is adoptAs: it creates the rows of money that is provably the order's.
func (x *expander) adopt(n *state, id uint8) {
	o := x.compared(n)
	if !x.m.has(Adoption) || n.pay[adoptedPayment].status != noPayment ||
		compare.Intent(x.seen(n, id), o).Result != compare.Adoptable {
		return
	}
	p := &n.pay[adoptedPayment]
	*p = paymentRow{status: processing, number: uint8(o.NextNumber(intentIDs[id-1])), intent: id}
	for _, r := range n.at.refund {
		if r.status != noRefund && r.intent == id && r.row != 0 && n.pay[r.of].status == noPayment {
			p.id = r.of + 1
			break
		}
	}
	if n.at.intent[id-1].manual {
		p.flags, p.captured = manual, n.at.intent[id-1].received
	}
	if n.at.intent[id-1].status == held {
		x.setPayment(n, adoptedPayment, authorized)
		x.setOrder(n, orderAuthorized)
		return
	}
	x.setPayment(n, adoptedPayment, succeeded)
	x.intentEnded(n, id)
	open := n.order.status == orderOpen
	if open {
		x.setOrder(n, orderPaid)
		n.order.payment = adoptedPayment + 1
	}
	x.applyRefunds(n, id)
	if !open && x.m.has(LateIsRefunded) {
		x.refundRest(n, adoptedPayment)
	}
}

// applyRefunds brings the rows of an intent's refunds to what Stripe's list says, those first that have a row.
func (x *expander) applyRefunds(n *state, id uint8) {
	for _, known := range []bool{true, false} {
		for j, r := range n.at.refund {
			if r.status == noRefund || r.intent != id {
				continue
			}
			shown, o := x.seenRefund(n, j), x.compared(n)
			has := slices.ContainsFunc(o.Refunds, func(row compare.RefundRow) bool { return shown.Is(row.Refund) })
			if has != known {
				continue
			}
			d := compare.RefundOf(shown, o)
			switch d.Result {
			case compare.StatusChanged:
				row := uint8(slices.Index(refundIDs, d.Discrepancy.RefundID))
				x.applyRefund(n, row, uint8(j+1), r.status)
				x.expediteRefund(n, row)
			case compare.InProgress:
				x.expediteNamed(n, d.Key)
			case compare.Adoptable:
				x.adoptRefund(n, j, o)
			case compare.Agrees, compare.Abandoned, compare.Unaccounted, compare.Differs, compare.Unregistered:
			}
		}
	}
}

func (x *expander) expediteRefund(n *state, r uint8) {
	if r < ownRefunds {
		x.expedite(n, r)
	}
}

func (x *expander) expediteNamed(n *state, key string) {
	if k := slices.Index(keyNames[:], key); k >= 0 {
		x.expedite(n, uint8(k))
	}
}

// adoptRefund creates the rows of a refund that Stripe has and the database has not.
func (x *expander) adoptRefund(n *state, j int, o *compare.Order) {
	r, slot := n.at.refund[j], uint8(othersRefund)
	if compare.IsOwnRefund(x.seenRefund(n, j), o) {
		slot = r.row - 1
	}
	if slot == othersRefund && n.refund[slot].status != noRefund {
		slot++
	}
	k := x.paidPayment(n)
	if n.refund[slot].status != noRefund || r.status == refundPending || r.units > n.pay[k].took()-n.pay[k].refunding {
		return
	}
	x.addRefundRow(n, slot, refundRow{status: refundPending, units: r.units, payment: uint8(k), stripe: uint8(j + 1)})
	x.applyRefund(n, slot, uint8(j+1), r.status)
}
