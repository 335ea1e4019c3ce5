package erasure

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/postgres"
)

// limits are how many rows one statement takes.
type limits struct {
	batch  int   // orders of one transaction, which holds their locks
	orders int32 // that are read at once, to find those of the customer
	keys   int32 // with an answer, that are read at once
}

var usual = limits{batch: 100, orders: 20_000, keys: 5_000}

// commitsWithin is longer than a transaction that stores an answer, whose statements have timeouts of seconds. It may
// commit while the keys are read, with a time that the reading has passed by then.
const commitsWithin = 5 * time.Minute

// ErrUnknown means that the tenant has no such customer, and has erased none.
var ErrUnknown = errors.New("no order of the tenant has this customer_reference, and no erasure of it is recorded")

// UnfinishedError says what keeps the customer from being erased.
type UnfinishedError struct {
	Things []Thing // up to a hundred
	Erased int     // orders that were erased before something was begun on the others
}

// Thing is something that is not finished.
type Thing struct {
	Kind string // key, event, unread, received, owed, discrepancy, dispute
	ID   string
}

func (e *UnfinishedError) Error() string {
	return fmt.Sprintf("%d things of this customer are not finished", len(e.Things))
}

// Result is what was erased: of each table, the rows that show the customer no more.
type Result struct {
	Orders     int `json:"orders"`
	Keys       int `json:"keys"`
	Events     int `json:"events"`
	Deliveries int `json:"deliveries"`
	// ErasedAt is when the customer was last erased: now, or before if there was nothing to erase.
	ErasedAt time.Time `json:"erased_at"`
}

// Customer is one of a tenant's.
type Customer struct {
	TenantID  string
	Reference string // customer_reference of its orders
	Secret    []byte // the tenant's, with which the record names the customer
}

// batch is the orders of one transaction, and their keys that have an answer.
type batch struct {
	orders []string
	keys   []string
}

// Erase blanks what the tenant's customer is called, and records that actor has asked for it. It returns
// *UnfinishedError if something keeps it from that, and ErrUnknown if there is no such customer.
func Erase(ctx context.Context, pool *postgres.Pool, c Customer, actor string) (Result, error) {
	return usual.erase(ctx, pool, c, actor)
}

func (l limits) erase(ctx context.Context, pool *postgres.Pool, c Customer, actor string) (done Result, err error) {
	ctx = postgres.ForAllTenants(ctx, "erasure: keys, and events of Stripe, are read before it is known whose they are")
	e := db.ErasureMakeParams{TenantID: c.TenantID, Reference: c.Reference, Mac: c.mac(), Actor: actor}
	now, err := pool.OutboxNow(ctx) // the database's clock
	if err != nil {
		return done, fmt.Errorf("read the database's clock: %w", err)
	}
	e.Since = now.Add(-commitsWithin)
	batches, err := l.find(ctx, pool, c)
	if err != nil {
		return done, err
	}
	for _, b := range batches {
		e.OrderIds, e.Keys = b.orders, b.keys
		if err := done.add(ctx, pool, e); err != nil {
			return done, err
		}
	}
	done.ErasedAt, err = pool.ErasureLast(ctx, db.ErasureLastParams{TenantID: c.TenantID, ReferenceMac: e.Mac})
	if errors.Is(err, postgres.ErrNoRows) {
		return done, ErrUnknown
	}
	if err != nil {
		return done, fmt.Errorf("read when it was erased: %w", err)
	}
	return done, nil
}

// mac is how the record names the customer: who has the reference can prove that it was erased, and who has the table
// alone cannot find the reference by trying. The prefix keeps it apart from the fingerprints of requests, which are
// made with the same secret.
func (c Customer) mac() []byte {
	m := hmac.New(sha256.New, c.Secret)
	_, _ = m.Write([]byte("customer_reference\x00" + c.Reference))
	return m.Sum(nil)
}

// find returns the orders of the customer, in batches. It fails if something of any of them is unfinished.
func (l limits) find(ctx context.Context, pool *postgres.Pool, c Customer) ([]*batch, error) {
	var orders []string
	for page := (db.ErasureOrdersRow{}); ; {
		var err error
		page, err = pool.ErasureOrders(ctx, db.ErasureOrdersParams{
			TenantID: c.TenantID, Reference: c.Reference, After: page.LastID, LimitRows: l.orders,
		})
		if err != nil {
			return nil, fmt.Errorf("look for the customer's orders: %w", err)
		}
		if page.LastID == "" {
			break
		}
		orders = append(orders, page.Ids...)
	}
	var batches []*batch
	of := map[string]*batch{} // by the id of a resource
	for ids := range slices.Chunk(orders, l.batch) {
		b := &batch{orders: ids}
		batches = append(batches, b)
		unfinished, err := pool.ErasureUnfinished(ctx, db.ErasureUnfinishedParams{TenantID: c.TenantID, Ids: ids})
		if err != nil {
			return nil, fmt.Errorf("look for what is unfinished: %w", err)
		}
		if len(unfinished) > 0 {
			return nil, &UnfinishedError{Things: thingsOf(unfinished)}
		}
		resources, err := pool.ErasureResources(ctx, db.ErasureResourcesParams{TenantID: c.TenantID, Ids: ids})
		if err != nil {
			return nil, fmt.Errorf("read what was made for the orders: %w", err)
		}
		for _, id := range resources {
			of[id] = b
		}
	}
	return batches, l.findKeys(ctx, pool, c.TenantID, of)
}

// findKeys adds the keys that have an answer to the batches of their resources. No index leads from a resource to its
// keys: it would be written with every payment. So it reads the answered keys, which are those of the retention.
func (l limits) findKeys(ctx context.Context, pool *postgres.Pool, tenantID string, of map[string]*batch) error {
	if len(of) == 0 {
		return nil
	}
	after := db.ErasureKeysParams{LimitRows: l.keys}
	for {
		keys, err := pool.ErasureKeys(ctx, after)
		if err != nil {
			return fmt.Errorf("look for the customer's keys: %w", err)
		}
		if len(keys) == 0 {
			return nil
		}
		for _, k := range keys {
			if b := of[k.ResourceID]; b != nil && k.TenantID == tenantID {
				b.keys = append(b.keys, k.Key)
			}
			after.AfterAt, after.AfterTenant, after.AfterKey = k.FinishedAt, k.TenantID, k.Key
		}
	}
}

// add erases one batch.
func (r *Result) add(ctx context.Context, pool *postgres.Pool, e db.ErasureMakeParams) error {
	var made struct {
		Result
		Unfinished []string `json:"unfinished"`
	}
	err := pool.InTx(postgres.ForTenant(ctx, e.TenantID), func(q *db.Queries) error {
		answer, err := q.ErasureMake(ctx, e)
		if err != nil {
			return err
		}
		return json.Unmarshal([]byte(answer), &made)
	})
	if err != nil {
		return fmt.Errorf("erase %d orders: %w", len(e.OrderIds), err)
	}
	if len(made.Unfinished) > 0 {
		return &UnfinishedError{Things: thingsOf(made.Unfinished), Erased: r.Orders}
	}
	r.Orders += made.Orders
	r.Keys += made.Keys
	r.Events += made.Events
	r.Deliveries += made.Deliveries
	return nil
}

func thingsOf(list []string) (things []Thing) {
	for _, of := range list {
		kind, id, _ := strings.Cut(of, " ")
		things = append(things, Thing{kind, id})
	}
	return things
}
