package ledger

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"example.com/payonce/db"
	"example.com/payonce/internal/inbox"
)

// disputePrefix begins the types of the events of disputes.
const disputePrefix = "dispute."

var disputeTypes = []string{"dispute.created", "dispute.updated", "dispute.won", "dispute.lost"}

// WithDisputes books the movements of disputes, and passes all other events to next. A
// movement is in the currency in which the account is settled, so it is booked from its
// row and not from the event, which shows the dispute in the charge's currency. Every
// movement belongs to the version of one event, and every event is applied once.
func WithDisputes(next inbox.Handler) inbox.Handler {
	return inbox.Handler{
		Types: slices.Concat(next.Types, disputeTypes),
		Apply: func(ctx context.Context, q *db.Queries, e inbox.Event, prepared any) error {
			if !strings.HasPrefix(e.Type, disputePrefix) {
				return next.Apply(ctx, q, e, prepared)
			}
			return bookDispute(ctx, q, e)
		},
	}
}

func bookDispute(ctx context.Context, q *db.Queries, e inbox.Event) error {
	here, err := q.LedgerBasisOfDispute(ctx, db.LedgerBasisOfDisputeParams{
		TenantID: e.TenantID, DisputeID: e.Subject, Version: e.Version,
	})
	if err != nil {
		return fmt.Errorf("look up %s: %w", e.Subject, err)
	}
	if !here { // See isDue.
		return fmt.Errorf("%w: %s", errNotHere, e.Subject)
	}
	if err := q.LedgerBookDispute(ctx, db.LedgerBookDisputeParams{
		TenantID: e.TenantID, DisputeID: e.Subject, Version: e.Version, EventID: e.ID,
	}); err != nil {
		return fmt.Errorf("book %s: %w", e.ID, err)
	}
	return nil
}
