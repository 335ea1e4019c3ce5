package payments

import (
	"context"

	"example.com/payonce/db"
	"example.com/payonce/internal/compare"
)

// Registered is what an operation of one's own says about the charges that it makes, in
// one place: so that the reconciler, the audit, the webhooks, the operator's page and
// the history of a key know them. It names itself in the metadata of its
// PaymentIntents (stripe.NewIntent.Operation). What an operation makes that is not
// registered is unknown to this service: it is never adopted, refunded or called
// unmatched. docs/add-an-operation.md builds one.
type Registered struct {
	// Charges reads the operation's charges of some orders, those that have not ended
	// included.
	Charges func(ctx context.Context, q *db.Queries, orders []compare.OrderRef) ([]compare.Charge, error)
	// Charge reads one, by the id of its row. ErrNotFound: there is none.
	Charge func(ctx context.Context, q *db.Queries, tenantID, id string) (compare.Charge, error)
}
