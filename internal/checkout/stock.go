package checkout

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"example.com/payonce/db"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/stripe"
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
	if err != nil && !errors.Is(err, postgres.ErrNoRows) {
		return Stock{}, fmt.Errorf("read the stock of a SKU: %w", err)
	}
	return Stock{SKU: sku, Available: row.Available, Reserved: row.Reserved}, nil
}

// SetStock sets how much of a SKU can still be reserved. The value is absolute, so the
// request needs no idempotency key.
func (s *Service) SetStock(ctx context.Context, tenantID, sku string, available int64) (Stock, error) {
	row, err := s.pool.StockSet(ctx, db.StockSetParams{TenantID: tenantID, Sku: sku, Available: available})
	if err != nil {
		return Stock{}, fmt.Errorf("set the stock of a SKU: %w", err)
	}
	return Stock{SKU: row.Sku, Available: row.Available, Reserved: row.Reserved}, nil
}

// basket is the quantity of each SKU, sorted by SKU. That is the order in which every
// transaction locks them, so two checkouts of the same items cannot deadlock.
type basket struct {
	skus       []string
	quantities []int64
}

func basketOf(items []payments.Item) basket {
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

const ranOutMessage = "The reservation of the stock ran out."

// outOfStockCode is the failure code of a checkout that could not reserve its items, or not for long enough.
const outOfStockCode = "out_of_stock"

func (k *saga) outOfStock(message string) stripe.Failure {
	ending := " The card was not charged."
	if k.request.ManualCapture {
		ending = " What was reserved on the card is released, or returned if it was taken meanwhile."
	}
	return stripe.Failure{Code: outOfStockCode, Message: message + ending}
}

// reserve reserves the whole basket, or returns a shortage for which the caller rolls
// back. The locks only avoid deadlocks; overselling is prevented by the guard in the
// UPDATE and, behind that, by the row's own constraint.
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
	err = q.ReservationsInsert(ctx, db.ReservationsInsertParams{
		TenantID: tenantID, CheckoutID: checkoutID, Skus: b.skus, Quantities: b.quantities, Hold: reservationHold,
	})
	if err != nil {
		return fmt.Errorf("record the reservations of checkout %s: %w", checkoutID, err)
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

var errNotHeld = errors.New("the checkout no longer holds its reservations")

// end consumes or releases a checkout's reservations.
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
