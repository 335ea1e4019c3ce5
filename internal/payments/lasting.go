package payments

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/postgres"
)

// Lists of what is open or processing must find one such row among any number of others, and an index that has each of
// them would cost every payment a new entry in each index of its order and of itself. So the index has those that stay
// so for a while, which most do not; a list reads the younger ones along the primary key. A loop marks them, and
// stores until when it has, in the same transaction: a list looks at what was created after that, so a loop that stands
// still makes lists slower, and not wrong.

const (
	// lastsAfter is longer than clocks differ and than a request takes, because what is inserted later than it is marked
	// would be missed. A busy tenant makes some ten thousand orders in it, which a list reads in some ten milliseconds.
	lastsAfter = 15 * time.Minute
	markAtOnce = 500 // rows that a transaction marks and holds locks of
)

// MarkLasting marks some of the orders that are open for a while, and of the payments that are processing, and returns
// how many. Any number of processes may call it; one at a time marks.
func (s *Service) MarkLasting(ctx context.Context) (marked int, err error) {
	err = s.pool.InTx(ctx, func(q *db.Queries) error {
		marked, err = markLasting(ctx, q)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("mark orders and payments as lasting: %w", err)
	}
	return marked, nil
}

func markLasting(ctx context.Context, q *db.Queries) (int, error) {
	if err := q.ListsWindowInsert(ctx); err != nil {
		return 0, err
	}
	w, err := q.ListsWindowLock(ctx, lastsAfter)
	if errors.Is(err, postgres.ErrNoRows) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if err := q.PlanByIndex(ctx); err != nil {
		return 0, err
	}
	from, until := ids.Floor(w.FromAt), ids.Floor(w.UntilAt)
	orders, err := q.OrdersMarkLasting(ctx, db.OrdersMarkLastingParams{
		FromID: ids.Order + from, UntilID: ids.Order + until, LimitRows: markAtOnce,
	})
	if err != nil {
		return 0, err
	}
	payments, err := q.PaymentsMarkLasting(ctx, db.PaymentsMarkLastingParams{
		FromID: ids.Payment + from, UntilID: ids.Payment + until, LimitRows: markAtOnce,
	})
	if err != nil {
		return 0, err
	}
	if orders < markAtOnce && payments < markAtOnce { // Otherwise there may be more.
		if err := q.ListsWindowCover(ctx, w.UntilAt.Truncate(time.Millisecond)); err != nil {
			return 0, err
		}
	}
	return int(orders + payments), nil
}

// markedUntil is the part of an id at which the index of lasting rows ends.
func (s *Service) markedUntil(ctx context.Context) (string, error) {
	until, err := s.pool.ListsMarkedUntil(ctx)
	return ids.Floor(until), err
}
