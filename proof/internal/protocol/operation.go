package protocol

import (
	"example.com/payonce/internal/payments"
)

// operation is the operation of a key's slot.
func (m *Model) operation(k uint8) Operation {
	switch {
	case k < clients:
		return m.scope.asks[k]
	case k < sweepKey:
		return RefundAll
	}
	return sweep
}

// Operation is what a client asks for.
type Operation string

// The operations, by the names that the table of keys has.
const (
	noOperation   Operation = ""
	Pay           Operation = payments.CreatePayment
	CancelOrder   Operation = payments.CancelOrder
	CancelPayment Operation = payments.CancelPayment
	RefundAll     Operation = payments.CreateRefund
	RefundPart    Operation = payments.CreateRefund + " in part"
	sweep         Operation = payments.CancelAbandonedIntent
)
