package shop

import (
	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/world"
)

// Way is one course that a checkout can take, and how it ends.
type Way struct {
	Name   string
	Points []string // the recovery points on it
	Status int
	Code   string
	Course string
	Body   string
	// Prepare is called before the first request; nil is nothing.
	Prepare func(s Shop)
	// During happens between the first answer and the last; nil is nothing.
	During func(s Shop)
}

// RequireSurvives kills the work on a checkout right after a recovery point of its way; "none" kills nothing. The
// checkout must end as it would have ended, with every effect made once. The shop's server has m's Boundary.
func (w Way) RequireSurvives(s Shop, m *Mortal, point, key string) world.Answer {
	t := s.World.T
	t.Helper()
	m.DieAt(point)
	if w.Prepare != nil {
		w.Prepare(s)
	}
	s.Checkout(key, w.Body)
	a := s.AwaitWith(key, w.Body, func() {
		if w.During != nil {
			w.During(s)
		}
	})
	require.Equal(t, w.Status, a.Status, "killed at %s: %s", point, a)
	require.Equal(t, w.Code, a.Code(), "killed at %s: %s", point, a)
	require.Equal(t, w.Course, SagaOf(t, a).Course(), "killed at %s", point)
	require.Equal(t, 1, s.World.Count(`SELECT count(*) FROM checkouts WHERE idempotency_key = $1`, key), point)
	require.Equal(t, 1, s.World.Count(`SELECT count(*) FROM orders WHERE checkout_id IN
		(SELECT id FROM checkouts WHERE idempotency_key = $1)`, key), point)
	require.Empty(t, Violations(t, s.World.DB.Raw(), s.World.Sim), point)
	passed, diesAt := m.Past()
	require.Equal(t, w.Points, passed, "the recovery points of this way, killed at %s", point)
	if point != "none" {
		require.Empty(t, diesAt, "nobody died at %s", point)
	}
	return a
}

// CancelOrdersBehind has the database cancel every order behind the program's back, as soon as its payment has an
// intent: the payment is made and must be refunded.
func (s Shop) CancelOrdersBehind() {
	s.World.T.Helper()
	s.World.T.Cleanup(func() {
		s.World.Exec(dbtest.Undone(`DROP TRIGGER meddle ON payments; DROP FUNCTION meddle`))
	})
	s.World.Exec(dbtest.Undone(`CREATE FUNCTION meddle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN UPDATE orders
		SET status = 'canceled'; RETURN NULL; END $$;
		CREATE TRIGGER meddle AFTER UPDATE ON payments FOR EACH ROW WHEN (OLD.intent_id IS NULL
		AND NEW.intent_id IS NOT NULL) EXECUTE FUNCTION meddle()`))
}
