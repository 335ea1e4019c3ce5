package audit

import (
	"context"
	"fmt"
	"time"

	"example.com/payonce/internal/disputes"
	"example.com/payonce/internal/postgres"
)

// compareDisputes is the audit's comparison of disputes with Stripe.
func compareDisputes(
	ctx context.Context, pool *postgres.Pool, gateway disputes.Gateway, since time.Time,
) postgres.Check {
	check := postgres.Check{ID: "I24d", Name: "disputes agree with those at Stripe"}
	var err error
	if check.Rows, err = disputes.New(pool, gateway, disputes.Options{}).Compare(ctx, since); err != nil {
		check.Err = fmt.Errorf("compare disputes: %w", err)
	}
	return check
}
