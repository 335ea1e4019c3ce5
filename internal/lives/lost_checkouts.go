package lives

import (
	"context"

	"example.com/payonce/internal/postgres"
)

func init() {
	Repairs["checkout.completed"] = Repair{
		Do: "it was completed, and it is not here: its stock was sold, set the stock",
		needed: func(ctx context.Context, pool *postgres.Pool, subjects []string) ([]string, error) {
			return pool.LifeCheckoutsMissing(ctx, subjects)
		},
	}
}
