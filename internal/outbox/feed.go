package outbox

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"example.com/payonce/db"
	"example.com/payonce/internal/postgres"
)

// ErrUnknownCursor means that a reader cannot continue from its cursor: there is no such event, or events after it have
// been removed, which the reader would miss.
var ErrUnknownCursor = errors.New("no event with this id to continue from")

// Feed lists a tenant's events in an order that never changes, and into which nothing is
// ever inserted.
type Feed struct {
	pool   *postgres.Pool
	render Render
}

// NewFeed returns the feed of all tenants. render may be nil if all events are stored with their data.
func NewFeed(pool *postgres.Pool, render Render) *Feed { return &Feed{pool: pool, render: render} }

// List returns up to limit events that follow the event named by after, from
// the oldest that is still kept if after is empty. Of large ones it returns fewer. What was committed before
// the call is in the list, whether or not a relay or a broker is there.
//
// A failover takes no position away that was returned: whoever continues behind it would miss what takes its place.
// postgres.ErrStandbyAway: the synchronous standby may not have these events yet.
func (f *Feed) List(
	ctx context.Context, tenantID, after string, limit int,
) (events []Envelope, hasMore bool, err error) {
	for {
		// Before the page is read: an event that a relay places in between is on the page. If this were read
		// afterwards, every event could have a position by then, and still be missing from the page.
		behind, err := f.pool.FeedIsBehind(ctx, tenantID)
		if err != nil {
			return nil, false, fmt.Errorf("look for events without a position in the feed of %s: %w", tenantID, err)
		}
		events, ended, err := f.page(ctx, tenantID, after, limit+1)
		switch {
		case err != nil && (!behind || !errors.Is(err, ErrUnknownCursor)):
			return nil, false, err
		case ended:
			return f.confirmed(ctx, tenantID, events, true)
		case len(events) > limit:
			return f.confirmed(ctx, tenantID, events[:limit], true)
		case !behind:
			return f.confirmed(ctx, tenantID, events, false)
		}
		// The page is not full: place what has been committed meanwhile, and read again.
		// Whether that was committed, if its response is lost, is read as well.
		if err := Place(ctx, f.pool, tenantID); err != nil && !errors.Is(err, postgres.ErrInDoubt) {
			return nil, false, err
		}
	}
}

// confirmed returns a page once the standby has it. Nothing is lost with an empty one.
func (f *Feed) confirmed(ctx context.Context, tenantID string, events []Envelope, hasMore bool) ([]Envelope, bool, error) {
	if len(events) > 0 {
		if err := f.pool.AwaitStandby(ctx, tenantID); err != nil {
			return nil, false, err
		}
	}
	return events, hasMore, nil
}

// An event may have 110 KB, so they are read a few at a time, until they are many bytes.
const (
	eventsAtOnce   = 21 // one statement for a page of the usual size
	eventsBytesMax = 1 << 20
)

// page reads events. Ended: there are more, and it ends early, because these are many bytes, or before one that cannot be
// rendered: a reader that was given what follows would never see that one once its row is repaired. It does not begin
// with one.
func (f *Feed) page(
	ctx context.Context, tenantID, after string, limit int,
) (events []Envelope, ended bool, err error) {
	position, err := f.position(ctx, tenantID, after)
	if err != nil {
		return nil, false, err
	}
	for bytes := 0; ; {
		n := min(limit-len(events), eventsAtOnce)
		rows, err := f.pool.FeedList(
			ctx, db.FeedListParams{TenantID: tenantID, AfterPosition: position,
				LimitRows: int32(n)}, //nolint:gosec // at most 21
		)
		if err != nil {
			return nil, false, fmt.Errorf("list events: %w", err)
		}
		read := make([]Envelope, len(rows))
		for i, row := range rows {
			position = row.Position
			read[i] = EnvelopeOf(
				db.OutboxLeaseRow{
					TenantID: row.TenantID, AggregateID: row.AggregateID, Life: row.Life, Version: row.Version, Type: row.Type,
					Data: row.Data, Traceparent: row.Traceparent, CreatedAt: row.CreatedAt,
				},
			)
		}
		if f.render != nil {
			if err := f.render(ctx, f.pool, read); err != nil {
				return nil, false, err
			}
		}
		if len(events) > 0 {
			// What follows may have been removed since the read before, by which these are no longer what comes next.
			switch _, err := f.position(ctx, tenantID, events[len(events)-1].ID); {
			case errors.Is(err, ErrUnknownCursor): // The next page says so.
				return events, true, nil
			case err != nil:
				return nil, false, err
			}
		}
		for _, e := range read {
			switch {
			case e.Data == nil && len(events) == 0:
				return nil, false, fmt.Errorf("event %s cannot be rendered: its payment or order cannot be read", e.ID)
			case e.Data == nil: // The next page says which event.
				return events, true, nil
			}
			events = append(events, e)
			bytes += len(e.Data)
		}
		switch {
		case len(read) < n || len(events) == limit:
			return events, false, nil
		case bytes > eventsBytesMax:
			return events[:len(events)-1], true, nil // The last one shows that there are more.
		}
	}
}

// position is the position in the feed of the event with this id; empty: before the first one.
func (f *Feed) position(ctx context.Context, tenantID, eventID string) (int64, error) {
	if eventID == "" {
		return 0, nil
	}
	aggregateID, life, version, ok := parseEventID(eventID)
	if !ok {
		return 0, ErrUnknownCursor
	}
	position, err := f.pool.FeedCursor(
		ctx, db.FeedCursorParams{
			TenantID: tenantID, AggregateID: aggregateID, Version: version, Life: life, EventID: eventID,
		},
	)
	if errors.Is(err, postgres.ErrNoRows) {
		return 0, ErrUnknownCursor
	}
	if err != nil {
		return 0, fmt.Errorf("find event %s in the feed: %w", eventID, err)
	}
	return position, nil
}

// parseEventID is the inverse of EventID.
func parseEventID(id string) (aggregateID string, life, version int64, ok bool) {
	at := strings.LastIndexByte(id, '-')
	if at <= 0 {
		return "", 0, 0, false
	}
	sequence, _ := strconv.ParseInt(id[at+1:], 10, 64)
	life, version = ofSequence(sequence)
	if EventID(id[:at], sequence) != id { // one event, one spelling; what is no number has another
		return "", 0, 0, false
	}
	return id[:at], life, version, true
}
