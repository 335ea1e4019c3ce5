package payments

import (
	"context"

	"example.com/payonce/db"
	"example.com/payonce/internal/compare"
)

// Registered reads the charges of an operation that is not this package's, for the
// reconciler, the audit, the webhooks and whatever else reads all charges. The operation
// is named in the metadata of its PaymentIntents (stripe.NewIntent.Operation).
// What an operation makes that is not registered is unknown to this service: it is never
// adopted, refunded or called unmatched. Package operations registers operations.
type Registered struct {
	// Charges reads the operation's charges of some orders, those that have not ended included.
	Charges func(ctx context.Context, q *db.Queries, orders []compare.OrderRef) ([]compare.Charge, error)
	// Charge reads one, by the id of its row. ErrNotFound: there is none.
	Charge func(ctx context.Context, q *db.Queries, tenantID, id string) (compare.Charge, error)
}
