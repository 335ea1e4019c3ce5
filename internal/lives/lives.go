package lives

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/postgres"
)

// holdReservations is longer than the 24 hours for which Stripe keeps a key at least. When the time ends, the reconciler knows
// what the lost life has paid.
const holdReservations = 26 * time.Hour

// lockWithin is how long Begin waits for sessions that write events.
const lockWithin = "5s"

// AlreadyBegunError says that the restore has a life already.
type AlreadyBegunError struct{ Number int64 }

func (e *AlreadyBegunError) Error() string {
	return fmt.Sprintf("this restore is known: life %d was recorded, and the write-ahead log has not gone back since; "+
		"if this is another restore, by pg_restore on the same server or from a copy of the same files, type -again", e.Number)
}

// Life is a life that has begun.
type Life struct {
	Number   int64     `json:"number"`
	BackupAt time.Time `json:"backup_at"` // from then on, what the database knew is lost
	BeganAt  time.Time `json:"began_at"`
	Feeds    int64     `json:"feeds_ended"`       // feeds whose cursors are unknown from now on
	Held     int64     `json:"reservations_held"` // reservations that do not run out meanwhile
}

// Begin records that a life begins: event ids and cursors of the lost life are never given again, payments of older orders
// first account for what it has made at Stripe, and held reservations wait for that. backupAt is the time of the backup; zero:
// that of the newest event. Without again an *AlreadyBegunError says that the restore is recorded. Only the owner of
// the tables may call Begin, while no process of the service runs.
func Begin(ctx context.Context, pool *postgres.Pool, backupAt time.Time, again bool) (life Life, err error) {
	if err := placeAll(ctx, pool); err != nil {
		return life, err
	}
	err = pool.InTx(ctx, func(q *db.Queries) error {
		life, err = begin(ctx, q, backupAt, again)
		return err
	})
	if postgres.IsDenied(err) {
		err = fmt.Errorf("%w; only the owner of the tables may, as with `api migrate`", err)
	}
	if err != nil {
		return Life{}, fmt.Errorf("begin a life: %w", err)
	}
	return life, nil
}

// placeAll gives events from before the backup their positions in the feed. They keep their ids, which the relay may have
// sent already.
func placeAll(ctx context.Context, pool *postgres.Pool) error {
	for {
		tenants, err := pool.LifeTenantsWithUnplacedEvents(ctx)
		if err != nil {
			return fmt.Errorf("look for events without a position: %w", err)
		}
		if len(tenants) == 0 {
			return nil
		}
		for _, tenantID := range tenants {
			if err := outbox.Place(ctx, pool, tenantID); err != nil {
				return err
			}
		}
	}
}

func begin(ctx context.Context, q *db.Queries, backupAt time.Time, again bool) (life Life, err error) {
	if err := q.LifeLockWithin(ctx, lockWithin); err != nil {
		return life, err
	}
	where, err := q.LifeWhere(ctx)
	if err != nil {
		return life, err
	}
	timeline, err := strconv.ParseInt(where.Timeline, 16, 64)
	if err != nil {
		return life, err
	}
	if where.AfterLast && timeline <= where.LastTimeline && !again {
		return life, &AlreadyBegunError{where.LastNumber}
	}
	if backupAt.IsZero() {
		backupAt = where.NewestAt
	}
	life = Life{Number: max(where.Now.Unix(), where.LastNumber+1), BackupAt: backupAt.UTC(), BeganAt: where.Now.UTC()}
	if err := q.LifeBegin(ctx, db.LifeBeginParams{
		Number: life.Number, BackupAt: life.BackupAt, SystemIdentifier: where.SystemIdentifier, Timeline: timeline,
		WalPosition: where.WalPosition,
	}); err != nil {
		return life, err
	}
	if err := q.LifeOfEvents(ctx, outbox.LifeOf(life.Number)); err != nil {
		return life, err
	}
	if life.Feeds, err = q.LifeEndFeeds(ctx); err != nil {
		return life, err
	}
	life.Held, err = q.LifeHoldReservations(ctx, holdReservations) // part: checkouts
	return life, err
}
