package payments

import (
	"context"
	"errors"
	"sync"
	"time"

	"example.com/payonce/internal/idempotency"
)

// refundsMax is how many refunds of one payment may be in progress in a process. Stripe makes one at a time and the
// others wait, so more would not have their turn while a request lasts.
const refundsMax = 32

// ErrRefundsWaiting says that no new refund of a payment is begun, because too many of its refunds wait already.
var ErrRefundsWaiting = errors.New("too many refunds of the payment wait for another one")

// refundTurns are the refunds that are in progress in this process, most of which wait for another refund of their
// payment. Of those of one payment the first in line asks the database, for all of them, and the others wait for it
// without: however many wait, the database is asked as often as for one (I30).
type refundTurns struct {
	mu       sync.Mutex
	payments map[paymentKey]*refundLine
}

type paymentKey struct{ tenantID, paymentID string }

// refundLine is the line of one payment.
type refundLine struct {
	n     int           // refunds in progress
	first chan struct{} // holds one token, for the first in line; Go hands it out in the order of those who wait
	left  chan struct{} // holds a token if one has left since the first one asked
}

func newRefundTurns() *refundTurns { return &refundTurns{payments: map[paymentKey]*refundLine{}} }

// enter joins the line of a payment, for as long as the refund is in progress. Nil: it is full.
func (t *refundTurns) enter(key paymentKey) *refundLine {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.payments[key]
	if l == nil {
		l = &refundLine{first: make(chan struct{}, 1), left: make(chan struct{}, 1)}
		l.first <- struct{}{}
		t.payments[key] = l
	}
	if l.n >= refundsMax {
		return nil
	}
	l.n++
	return l
}

// leave has the first in line ask at once: a refund of the payment has ended, or given up. Those of other processes it
// notices without.
func (t *refundTurns) leave(key paymentKey, l *refundLine) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l.n--; l.n == 0 {
		delete(t.payments, key)
	}
	select {
	case l.left <- struct{}{}:
	default:
	}
}

// wait calls take, which takes the refund's turn, until it does not return errRefundInFlight, for turnWait at most. It
// does so when the refund is the first in line, and holds nothing meanwhile. errRefundInFlight: its turn did not come in
// that while, nor in the caller's time.
func (l *refundLine) wait(ctx context.Context, take func() error) error {
	over := time.NewTimer(turnWait)
	defer over.Stop()
	select {
	case <-l.first:
	case <-over.C:
		return errRefundInFlight
	case <-ctx.Done():
		return errRefundInFlight
	}
	defer func() { l.first <- struct{}{} }()
	busy := false
	for pause := turnPause / 16; ; pause = min(2*pause, turnPause) {
		err := take()
		switch {
		case err == nil || errors.Is(err, idempotency.ErrLeaseLost):
			return err
		case busy && ctx.Err() != nil: // perhaps in the middle of a look, whose error says less than the look before it
			return errRefundInFlight
		}
		if busy = errors.Is(err, errRefundInFlight); !busy {
			return err
		}
		select {
		case <-time.After(idempotency.Jittered(pause)):
		case <-l.left:
		case <-over.C:
			return err
		case <-ctx.Done():
			return err
		}
	}
}
