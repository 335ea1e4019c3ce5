package protocol

import (
	"example.com/payonce/internal/payments"
)

// operation is the operation of a key's slot.
func (m *Model) operation(k uint8) Operation {
	switch {
	case k < clients:
		switch asked := m.scope.asks[k]; asked {
		case Authorize:
			return Pay
		case CapturePart:
			return Capture
		default:
			return asked
		}
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
	Authorize     Operation = payments.CreatePayment + " with manual capture"
	Capture       Operation = payments.CapturePayment
	CapturePart   Operation = payments.CapturePayment + " of a part"
	CancelOrder   Operation = payments.CancelOrder
	CancelPayment Operation = payments.CancelPayment
	RefundAll     Operation = payments.CreateRefund
	RefundPart    Operation = payments.CreateRefund + " in part"
	sweep         Operation = payments.CancelAbandonedIntent
)
