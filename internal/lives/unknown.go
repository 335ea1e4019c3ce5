package lives

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/stripe"
)

// before is how much earlier than the backup the lost life may have sent what the backup does not know.
const before = 10 * time.Minute

// Intents lists PaymentIntents, newest first.
type Intents interface {
	ListIntents(context.Context, stripe.Window) (stripe.Page[stripe.Intent], error)
}

// Unknown is a tenant that Stripe's PaymentIntents name and this database does not have.
type Unknown struct {
	TenantID string           `json:"tenant_id"`
	Intents  int              `json:"intents"`
	Received map[string]int64 `json:"received"` // by currency, in its minor units
}

// UnknownTenants reads Stripe's list from before the backup until now. Tenants of other cells are among them.
func UnknownTenants(ctx context.Context, pool *postgres.Pool, intents Intents, life Life) ([]Unknown, error) {
	found := map[string]*Unknown{}
	window := stripe.Window{TenantID: stripe.NoTenant, From: life.BackupAt.Add(-before)}
	for {
		page, err := intents.ListIntents(ctx, window)
		if err != nil {
			return nil, fmt.Errorf("list the PaymentIntents of the lost time: %w", err)
		}
		for _, i := range page.Objects {
			if i.TenantID == "" {
				continue
			}
			u := found[i.TenantID]
			if u == nil {
				u = &Unknown{TenantID: i.TenantID, Received: map[string]int64{}}
				found[i.TenantID] = u
			}
			u.Intents++
			u.Received[i.Currency] += i.ReceivedMinor
		}
		if !page.More || len(page.Objects) == 0 {
			break
		}
		window.After = page.Objects[len(page.Objects)-1].ID
	}
	known, err := pool.TenantsKnown(ctx, slices.Collect(maps.Keys(found)))
	if err != nil {
		return nil, fmt.Errorf("read the tenants that Stripe names: %w", err)
	}
	for _, id := range known {
		delete(found, id)
	}
	var unknown []Unknown
	for _, id := range slices.Sorted(maps.Keys(found)) {
		unknown = append(unknown, *found[id])
	}
	return unknown, nil
}
