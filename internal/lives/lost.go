package lives

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/postgres"
)

// Log passes on the events that the broker has kept from a time on.
type Log func(ctx context.Context, from time.Time, each func([]outbox.Envelope) error) error

// Lost is what the broker knows of the lost life and this database does not.
type Lost struct {
	Events  map[string]int `json:"events"` // by type
	Tenants []string       `json:"unknown_tenants"`
	// CameBack are subjects of what the lost life has ended and the backup has brought back, by the event's type.
	CameBack map[string][]string `json:"came_back"`
}

// Repair is what a person must do about the subjects of lost events of a type.
type Repair struct {
	Do string // what to do with each
	// needed returns which of the subjects need the repair.
	needed func(ctx context.Context, pool *postgres.Pool, subjects []string) ([]string, error)
}

// Repairs are by type of event. Each part of the service adds the repairs for its own events.
var Repairs = map[string]Repair{}

// ReadLost reads the broker's log from before the backup until now.
func ReadLost(ctx context.Context, pool *postgres.Pool, log Log, life Life) (lost Lost, err error) {
	lost.Events = map[string]int{}
	tenants, subjects := map[string]bool{}, map[string]map[string]bool{}
	err = log(ctx, life.BackupAt.Add(-before), func(events []outbox.Envelope) error {
		var p db.LifeLostEventsParams
		for _, e := range events {
			p.TenantIds, p.AggregateIds = append(p.TenantIds, e.TenantID), append(p.AggregateIds, e.Subject)
			p.Versions, p.Lives = append(p.Versions, e.Version), append(p.Lives, e.Life)
		}
		missing, err := pool.LifeLostEvents(ctx, p)
		for _, n := range missing {
			e := events[n-1]
			lost.Events[e.Type]++
			tenants[e.TenantID] = true
			if _, ok := Repairs[e.Type]; ok {
				if subjects[e.Type] == nil {
					subjects[e.Type] = map[string]bool{}
				}
				subjects[e.Type][e.Subject] = true
			}
		}
		return err
	})
	if err != nil {
		return Lost{}, fmt.Errorf("read what the broker has kept: %w", err)
	}
	known, err := pool.TenantsKnown(ctx, slices.Collect(maps.Keys(tenants)))
	if err != nil {
		return Lost{}, fmt.Errorf("read the tenants that the broker names: %w", err)
	}
	for _, id := range known {
		delete(tenants, id)
	}
	lost.Tenants = slices.Sorted(maps.Keys(tenants))
	lost.CameBack = map[string][]string{}
	for eventType, of := range subjects {
		needed, err := Repairs[eventType].needed(ctx, pool, slices.Collect(maps.Keys(of)))
		if err != nil {
			return Lost{}, fmt.Errorf("look for what lost %s events have ended: %w", eventType, err)
		}
		if len(needed) > 0 {
			lost.CameBack[eventType] = needed
		}
	}
	return lost, nil
}
