package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/payonce/internal/postgres"
)

const (
	triesMax = 4                // how often a customer asks before giving up for now
	patience = 15 * time.Second // and how long for an answer: longer than anything here takes, unless it hangs
)

// side is one of the two sides of an exhibit: a shop, and all it has to do with.
type side struct {
	DB       *pgxpool.Pool // the shop's own
	provider *provider
	broker   *broker
	shop     shop

	ctx       context.Context
	pool      *postgres.Pool // DB, as payonce knows it
	dir       string         // for files of the shop's
	open      func(*side) shop
	admin     *pgxpool.Pool // the harness's
	crowd     int           // how many customers a scenario has
	orders    int
	customers []request // of the scenario's present part

	mu       sync.Mutex
	asked    []request
	told     []told
	changed  []string  // objects that a producer was asked to change
	messages []message // that a consumer was sent
	reads    count     // by customers who do not even want to pay
	queued   count     // payments that wait for a connection
}

// request is a customer's wish to pay an order.
type request struct {
	Tenant, Key, Order string
	Amount             int
	Clock              time.Time // what the clock of the host says that the request reaches
}

// answer is what the customer reads. Without a status there was none.
type answer struct {
	Status int
	Body   []byte
}

type told struct {
	request
	answer
}

// final reports whether a customer has reason to stop asking.
func (a answer) final() bool {
	switch a.Status {
	case http.StatusAccepted, http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests:
		return false
	}
	return a.Status >= 200 && a.Status < 500
}

// order is the order that the answer says is paid; empty if it says nothing like it.
func (a answer) order() string {
	var body struct {
		Order string `json:"order_id"`
	}
	_ = json.Unmarshal(a.Body, &body) // what is no JSON names no order
	return body.Order
}

// ---- what a scenario can do ----------------------------------------------------

// enter lets a fresh crowd in: as many customers, each with an order and a key.
func (s *side) enter() {
	s.customers = nil
	for range s.crowd {
		s.customers = append(s.customers, s.customer("alice", uuid.NewString()))
	}
}

// customer is a customer of the tenant with a new order to pay.
func (s *side) customer(tenant, key string) request {
	s.orders++
	r := request{Tenant: tenant, Key: key, Order: fmt.Sprintf("order-%d", s.orders), Amount: 1000 + s.orders,
		Clock: time.Now()}
	if s.shop.Order != nil {
		r.Order = s.shop.Order(tenant, r.Amount)
	}
	s.asked = append(s.asked, r)
	return r
}

// everyone does something at the same time.
func (s *side) everyone(does func(r request)) { together(s.customers, does) }

// together does something with each at the same time, and waits for all.
func together[T any](list []T, does func(T)) {
	var all sync.WaitGroup
	bugs := make(chan any, len(list))
	for _, item := range list {
		all.Go(func() {
			defer func() {
				if bug := recover(); bug != nil {
					bugs <- bug
				}
			}()
			does(item)
		})
	}
	all.Wait()
	select {
	case bug := <-bugs:
		panic(bug)
	default:
	}
}

// send sends the request once and notes what comes back.
func (s *side) send(r request) answer { return s.have(s.shop.Pay, r) }

// buy has the shop's client pay, and notes what it returns.
func (s *side) buy(r request) answer { return s.have(s.shop.Buy, r) }

func (s *side) have(pay func(context.Context, request) answer, r request) answer {
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	var a answer
	if err := process(func() { a = pay(ctx, r) }); errors.Is(err, errKilled) {
		a = answer{}
	} else if err != nil {
		a = answer{Status: http.StatusInternalServerError, Body: []byte(err.Error())}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = append(s.told, told{r, a})
	return a
}

// insist sends the request until the answer is final, or patience ends.
func (s *side) insist(r request) { insistBy(s.send, r) }

func insistBy(send func(request) answer, r request) {
	for range triesMax {
		if send(r).final() {
			return
		}
		time.Sleep(20 * time.Millisecond) // a polite client; nothing depends on it
	}
}

// timePasses makes everything older: what the database remembers, and what the
// provider does. Then the shop does what it does once a minute.
func (s *side) timePasses(d time.Duration) {
	s.provider.timePasses(d)
	age(s.ctx, s.admin, d)
	if s.shop.Tidy != nil {
		for range 3 {
			must(process(func() { s.shop.Tidy(s.ctx) }))
		}
	}
}

// setup runs the statements that a shop's schema is made of.
func (s *side) setup(sql string) { exec(s.ctx, s.DB, sql) }

// restart drops what the shop had in memory.
func (s *side) restart() { s.shop = s.open(s) }

// ---- what a shop can use ----------------------------------------------------

// charge moves the money, or panics; key is the provider's idempotency key, and
// empty is none. What it returns is the answer to the customer.
func (s *side) charge(ctx context.Context, key string, r request) answer {
	charge, err := s.provider.Charge(ctx, key, r.Order, r.Amount)
	must(err)
	return receipt(r, charge)
}

// receipt is the usual answer: an object of ours, with an id of its own.
func receipt(r request, charge string) answer {
	return answer{http.StatusCreated,
		fmt.Appendf(nil, `{"id": "pay_%s", "status": "succeeded", "order_id": %q, "amount": %d, "charge": %q}`,
			uuid.NewString()[:8], r.Order, r.Amount, charge)}
}

// refusal is an answer that says no.
func refusal(status int, why string) answer {
	return answer{status, fmt.Appendf(nil, `{"error": %q}`, why)}
}

// querier is a pool or a transaction.
type querier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// exec runs a statement and returns how many rows it changed.
func exec(ctx context.Context, q querier, sql string, args ...any) int64 {
	tag, err := q.Exec(ctx, sql, args...)
	must(err)
	return tag.RowsAffected()
}

// found scans a row, if there is one.
func found(row pgx.Row, into ...any) bool {
	err := row.Scan(into...)
	if !errors.Is(err, pgx.ErrNoRows) {
		must(err)
	}
	return err == nil
}

// inTx runs f in a transaction, which ends with it: by COMMIT, or, if the process is
// killed in it, as when its connection breaks.
func inTx(ctx context.Context, db *pgxpool.Pool, f func(tx pgx.Tx)) {
	tx, err := db.Begin(ctx)
	must(err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // after the commit there is nothing to roll back
	f(tx)
	must(tx.Commit(ctx))
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// ---- processes --------------------------------------------------------------

var errKilled = errors.New("the process was killed")

// process runs f as a process of its own would. An error in it is one that
// was not handled; errKilled is no error of its own.
func process(f func()) error {
	err, done := errKilled, make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if bug := recover(); bug != nil {
				err = fmt.Errorf("%v", bug)
			}
		}()
		f()
		err = nil
	}()
	<-done
	return err
}

// die ends the process that calls it, here and now. Transactions that it has
// open are rolled back; nothing else of it runs.
func die() { runtime.Goexit() }

// meeting is where two who must overlap wait for each other.
type meeting struct {
	mu     sync.Mutex
	places map[string]chan struct{} // closed: no process waits here any more
}

// meetWithin is how long one waits for another who cannot come and cannot say
// so, because a lock in the database holds it.
const meetWithin = time.Second

// meet waits at the place until the other is there, too.
func (m *meeting) meet(place string) {
	opened, waits := m.place(place)
	if waits {
		m.leave(place)
	}
	select {
	case <-opened:
	case <-time.After(meetWithin):
	}
}

// leave releases the requests that wait at the place: no other will come.
func (m *meeting) leave(place string) {
	opened, _ := m.place(place)
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case <-opened:
	default:
		close(opened)
	}
}

func (m *meeting) place(name string) (opened chan struct{}, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.places == nil {
		m.places = map[string]chan struct{}{}
	}
	if opened, known = m.places[name]; !known {
		opened = make(chan struct{})
		m.places[name] = opened
	}
	return opened, known
}

// age makes every instant in the database older. Triggers are off meanwhile: to
// them the passing of time would look like an edit.
func age(ctx context.Context, db *pgxpool.Pool, d time.Duration) {
	inTx(ctx, db, func(tx pgx.Tx) {
		rows, err := tx.Query(ctx, `
			SELECT quote_ident(c.relname), string_agg(format('%1$I = (%1$I - $1::interval)::%2$s', a.attname,
				a.atttypid::regtype), ', '),
				EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = c.oid AND NOT t.tgisinternal)
			FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND NOT a.attisdropped
			WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
			  AND a.atttypid IN ('timestamptz'::regtype, 'date'::regtype)
			GROUP BY c.oid, c.relname`)
		must(err)
		type table struct {
			Name, Instants string
			Triggers       bool
		}
		tables, err := pgx.CollectRows(rows, pgx.RowToStructByPos[table])
		must(err)
		for _, t := range tables {
			if t.Triggers {
				exec(ctx, tx, "ALTER TABLE "+t.Name+" DISABLE TRIGGER USER")
			}
			exec(ctx, tx, "UPDATE "+t.Name+" SET "+t.Instants, d)
			if t.Triggers {
				exec(ctx, tx, "ALTER TABLE "+t.Name+" ENABLE TRIGGER USER")
			}
		}
	})
}
