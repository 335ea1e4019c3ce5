package payments

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"example.com/payonce/db"
	"example.com/payonce/internal/idempotency"
)

// Stock is what can be sold of one SKU, as the API shows it.
type Stock struct {
	SKU       string `json:"sku"`
	Available int64  `json:"available"`
	Reserved  int64  `json:"reserved"`
}

// GetStock returns the stock of a SKU. One that was never set has none.
func (s *Service) GetStock(ctx context.Context, tenantID, sku string) (Stock, error) {
	row, err := s.pool.StockGet(ctx, db.StockGetParams{TenantID: tenantID, Sku: sku})
	if err != nil && !errors.Is(err, db.ErrNoRows) {
		return Stock{}, fmt.Errorf("read the stock of a SKU: %w", err)
	}
	return Stock{SKU: sku, Available: row.Available, Reserved: row.Reserved}, nil
}

// SetStock sets what can still be reserved of a SKU, whatever it was. That is
// why it needs no key: the same request twice says the same thing twice.
func (s *Service) SetStock(ctx context.Context, tenantID, sku string, available int64) (Stock, error) {
	row, err := s.pool.StockSet(ctx, db.StockSetParams{TenantID: tenantID, Sku: sku, Available: available})
	if err != nil {
		return Stock{}, fmt.Errorf("set the stock of a SKU: %w", err)
	}
	return Stock{SKU: row.Sku, Available: row.Available, Reserved: row.Reserved}, nil
}

// basket is how much of which SKU, each once and in the order of the SKUs. That
// is the order in which they are locked, by everybody: two checkouts that want
// the same things wait for each other once, and never in a circle.
type basket struct {
	skus       []string
	quantities []int64
}

func basketOf(items []Item) basket {
	sum := map[string]int64{}
	var b basket
	for _, item := range items {
		if _, ok := sum[item.SKU]; !ok {
			b.skus = append(b.skus, item.SKU)
		}
		sum[item.SKU] += item.Quantity
	}
	slices.Sort(b.skus) // As bytes, like the column's collation.
	for _, sku := range b.skus {
		b.quantities = append(b.quantities, sum[sku])
	}
	return b
}

// shortage is why a basket could not be reserved.
type shortage struct{ skus []string }

func (e *shortage) Error() string {
	const shown = 3
	list := e.skus
	if len(list) > shown {
		list = list[:shown]
	}
	text := "There is not enough of " + strings.Join(list, ", ")
	if more := len(e.skus) - len(list); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text + "."
}

const ranOutMessage = "The reservation ran out before the payment began."

func outOfStock(message string) Failure {
	return Failure{Code: "out_of_stock", Message: message + " The card was not charged."}
}

// reserve takes the whole basket, or returns a shortage for which the caller
// rolls back. The locks make it orderly; what makes it impossible to sell too
// much is the guard in the UPDATE, and behind that the row's own constraint.
func (b basket) reserve(ctx context.Context, q *db.Queries, tenantID, checkoutID string) error {
	stock, err := q.StockLock(ctx, db.StockLockParams{TenantID: tenantID, Skus: b.skus})
	if err != nil {
		return fmt.Errorf("lock the stock: %w", err)
	}
	n, err := q.StockReserve(ctx, db.StockReserveParams{TenantID: tenantID, Skus: b.skus, Quantities: b.quantities})
	if err != nil {
		return fmt.Errorf("reserve the stock: %w", err)
	}
	if int(n) < len(b.skus) {
		return &shortage{b.missing(stock)}
	}
	err = q.ReservationsInsert(ctx, db.ReservationsInsertParams{TenantID: tenantID, CheckoutID: checkoutID, Skus: b.skus, Quantities: b.quantities, Hold: reservationHold})
	if err != nil {
		return fmt.Errorf("note the reservations of checkout %s: %w", checkoutID, err)
	}
	return nil
}

func (b basket) missing(stock []db.Stock) (skus []string) {
	available := map[string]int64{}
	for _, row := range stock {
		available[row.Sku] = row.Available
	}
	for i, sku := range b.skus {
		if available[sku] < b.quantities[i] {
			skus = append(skus, sku)
		}
	}
	return skus
}

var errNotHeld = errors.New("the checkout does not hold its stock any more")

// end consumes or releases what a checkout holds of its basket.
func (b basket) end(ctx context.Context, q *db.Queries, tenantID, checkoutID string, as db.ReservationStatus) error {
	if _, err := q.StockLock(ctx, db.StockLockParams{TenantID: tenantID, Skus: b.skus}); err != nil {
		return fmt.Errorf("lock the stock: %w", err)
	}
	n, err := q.ReservationsEnd(ctx, db.ReservationsEndParams{TenantID: tenantID, CheckoutID: checkoutID, Status: as})
	if err != nil {
		return fmt.Errorf("end the reservations of checkout %s: %w", checkoutID, err)
	}
	if int(n) < len(b.skus) {
		return errNotHeld
	}
	return nil
}

// expireMax is how many checkouts one turn of ExpireReservations calls off.
const expireMax = 50

// ExpireReservations returns stock that is held by checkouts which nobody works
// on any more and whose payment has not begun: after a long outage, or when a
// checkout kills whoever takes it up. It returns how many there were. Any number
// may run.
//
// A reservation whose payment has begun never runs out. The customer may be
// charged this very moment, and what he is charged for must be there.
func (s *Service) ExpireReservations(ctx context.Context) (n int, err error) {
	for n < expireMax {
		found := false
		err := s.pool.InTx(ctx, func(q *db.Queries) error {
			due, err := q.ReservationOverdue(ctx)
			if found = err == nil; errors.Is(err, db.ErrNoRows) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("find reservations that ran out: %w", err)
			}
			found, err = s.expireCheckout(ctx, q, due)
			return err
		})
		if err != nil || !found {
			return n, err
		}
		n++
	}
	return n, nil
}

// expireCheckout fails the checkout before its payment began and gives the stock
// back, which is the first of its undoings; the rest is its own operation's. False:
// it has begun.
//
// The statement that found it read its steps as they were when that statement
// began, and its key as it was when that was locked. In between somebody may have
// taken the key, begun the payment, and given the key back.
func (s *Service) expireCheckout(ctx context.Context, q *db.Queries, due db.ReservationOverdueRow) (expired bool, err error) {
	k := &checkingOut{row: db.Checkout{TenantID: due.TenantID, ID: due.ID}, request: decode[CheckoutRequest](due.Request)}
	if k.row, k.steps, err = readCheckout(ctx, q, due.TenantID, due.ID); err != nil {
		return false, err
	}
	if k.step(db.SagaStepPay).Status != db.SagaStepStatusPending {
		return false, nil
	}
	if err := k.fail(ctx, q, db.SagaStepPay, outOfStock(ranOutMessage), false); err != nil {
		return false, err
	}
	if err := k.releaseStock(ctx, q); err != nil {
		return false, err
	}
	return true, idempotency.Hurry(ctx, q, due.TenantID, due.IdempotencyKey)
}

// releaseStock makes what the checkout holds available again. It joins q's
// transaction, and the step is done in it.
func (k *checkingOut) releaseStock(ctx context.Context, q *db.Queries) error {
	err := basketOf(k.request.Items).end(ctx, q, k.row.TenantID, k.row.ID, db.ReservationStatusReleased)
	if err != nil && !errors.Is(err, errNotHeld) { // What somebody took away by hand needs no release.
		return err
	}
	return k.undone(ctx, q, db.SagaStepReleaseStock, db.SagaStepReserveStock)
}
