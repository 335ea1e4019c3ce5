package protocol

// This file changes statuses, and holds each change against the graph that the database allows (I11).

type change struct{ from, to status }

var (
	legalPayments = map[change]bool{
		{processing, requiresAction}: true, {processing, succeeded}: true, {processing, failed}: true,
		{processing, canceled}: true, {requiresAction, succeeded}: true, {requiresAction, failed}: true,
		{requiresAction, canceled}: true,
		{processing, authorized}:   true, {requiresAction, authorized}: true,
		{authorized, succeeded}: true, {authorized, canceled}: true,
	}
	legalOrders = map[change]bool{
		{orderOpen, orderPaid}: true, {orderOpen, orderCanceled}: true,
		{orderOpen, orderAuthorized}: true, {orderAuthorized, orderOpen}: true,
		{orderAuthorized, orderPaid}: true, {orderAuthorized, orderCanceled}: true,
		{orderPaid, orderPartlyRefunded}: true, {orderPaid, orderRefunded}: true,
		{orderPartlyRefunded, orderPaid}: true, {orderPartlyRefunded, orderRefunded}: true,
		{orderRefunded, orderPaid}: true, {orderRefunded, orderPartlyRefunded}: true,
	}
	legalRefunds = map[change]bool{
		{refundPending, refundSucceeded}: true, {refundPending, refundFailed}: true,
		{refundPending, refundCanceled}: true, {refundSucceeded, refundFailed}: true,
		{refundSucceeded, refundCanceled}: true,
	}
)

// changes are those of statuses that were made.
type changes struct {
	payment, order, refund [statusMax][statusMax]bool
}

// statusMax is more than the statuses of any of the three.
const statusMax = 7

func (c *changes) add(d *changes) {
	for from := range statusMax {
		for to := range statusMax {
			c.payment[from][to] = c.payment[from][to] || d.payment[from][to]
			c.order[from][to] = c.order[from][to] || d.order[from][to]
			c.refund[from][to] = c.refund[from][to] || d.refund[from][to]
		}
	}
}

func (x *expander) setPayment(n *state, k uint8, to status) {
	p := &n.pay[k]
	x.changes.payment[p.status][to] = true
	if p.status != to && !legalPayments[change{p.status, to}] {
		n.broken = I11
	}
	p.status, p.since = to, n.hours
}

func (x *expander) setOrder(n *state, to status) {
	from := n.order.status
	x.changes.order[from][to] = true
	if from != to && !legalOrders[change{from, to}] {
		n.broken = I11
	}
	n.order.status = to
}

func (x *expander) setRefund(n *state, r uint8, to status) {
	from := n.refund[r].status
	x.changes.refund[from][to] = true
	if from != to && !legalRefunds[change{from, to}] {
		n.broken = I11
	}
	n.refund[r].status = to
}
