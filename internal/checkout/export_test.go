package checkout

import (
	"context"

	"example.com/payonce/db"
)

// MoveStep moves a step of a checkout on, as a phase does. No scene moves one that has ended: the phase would be fenced.
func MoveStep(ctx context.Context, q *db.Queries, tenantID, id string, step db.SagaStep, to db.SagaStepStatus) error {
	k := &saga{row: db.Checkout{TenantID: tenantID, ID: id}}
	return k.move(ctx, q, step, to)
}
