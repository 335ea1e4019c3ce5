package lives

import (
	"context"

	"example.com/payonce/internal/postgres"
)

func init() {
	Repairs["webhook_endpoint.disabled"] = Repair{
		Do: "it was disabled, and it is enabled here: disable it again",
		needed: func(ctx context.Context, pool *postgres.Pool, subjects []string) ([]string, error) {
			return pool.LifeEndpointsEnabled(ctx, subjects)
		},
	}
}
