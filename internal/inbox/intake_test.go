package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/inbox"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/pgproxy"
)

// crowd is an intake with one connection, which is held up by its first event, so that those that come now wait for it
// and share statements.
type crowd struct {
	*testing.T
	pool    *postgres.Pool
	proxy   *pgproxy.Proxy
	intake  *inbox.Intake
	release func()
	ahead   chan received
	results []chan received
}

type received struct {
	fresh bool
	err   error
}

func newCrowd(t *testing.T) *crowd {
	t.Helper()
	dsn := dbtest.URL(t)
	proxy, err := pgproxy.Start(dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, proxy.Close()) })
	pool, err := postgres.Open(t.Context(), dsn, postgres.Options{})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	through, err := postgres.Open(t.Context(), proxy.URL(), postgres.Options{MaxConn: 4}) // one of them for batches
	require.NoError(t, err)
	t.Cleanup(through.Close)
	release := make(chan struct{})
	c := &crowd{
		T: t, pool: pool, proxy: proxy, intake: inbox.NewIntake(through), ahead: make(chan received, 1),
		release: sync.OnceFunc(func() { close(release) }),
	}
	t.Cleanup(c.release)
	hold := proxy.Hold("name: InboxReceive ", release)
	go func() { c.ahead <- receiveBy(t.Context(), c.intake, event("ahead")) }()
	hold.Await(t)
	proxy.Seen()
	return c
}

func receiveBy(ctx context.Context, intake *inbox.Intake, e inbox.Received) received {
	fresh, err := intake.Receive(ctx, e)
	return received{fresh, err}
}

func event(id string) inbox.Received {
	return inbox.Received{
		Consumer: stripe, ID: id, Type: "payment_intent.succeeded", ObjectID: "pi_" + id,
		Payload: []byte(`{"id":"` + id + `"}`),
	}
}

// events are so many that some of them share a statement, whatever the scheduler does.
func events() (list []inbox.Received) {
	for i := range 100 {
		list = append(list, event(fmt.Sprintf("%03d", i)))
	}
	return list
}

func (c *crowd) send(ctx context.Context, list ...inbox.Received) {
	for _, e := range list {
		result := make(chan received, 1)
		c.results = append(c.results, result)
		go func() { result <- receiveBy(ctx, c.intake, e) }()
	}
}

// answers lets the statements go on, and returns the results of the events that were sent.
func (c *crowd) answers() (list []received) {
	c.Helper()
	c.release()
	for _, result := range c.results {
		list = append(list, <-result)
	}
	require.Equal(c, received{fresh: true}, <-c.ahead)
	return list
}

// stored lists the events that were stored as they were sent, but for the one ahead.
func (c *crowd) stored() (ids []string) {
	c.Helper()
	rows, err := c.pool.Raw().Query(c.Context(), `SELECT event_id FROM inbox_events WHERE event_id <> 'ahead'
		AND status = 'pending' AND object_id = 'pi_' || event_id AND payload_sha256 = sha256(payload)
		AND payload = convert_to('{"id":"' || event_id || '"}', 'UTF8') AND traceparent IS NULL ORDER BY 1`)
	require.NoError(c, err)
	defer rows.Close()
	for rows.Next() {
		var id string
		require.NoError(c, rows.Scan(&id))
		ids = append(ids, id)
	}
	require.NoError(c, rows.Err())
	return ids
}

// statements is how many of a query were sent since the first one is held up.
func (c *crowd) statements(query string) (n int) {
	for _, s := range c.proxy.Seen() {
		if strings.Contains(s, "name: "+query+" ") {
			n++
		}
	}
	return n
}

// TestIntake: events that arrive at the same time share a statement, and not their results.
func TestIntake(t *testing.T) {
	t.Parallel()

	t.Run("SharesStatements", func(t *testing.T) {
		t.Parallel()
		c := newCrowd(t)
		c.send(t.Context(), events()...)
		for _, answer := range c.answers() {
			require.Equal(t, received{fresh: true}, answer)
		}
		require.Len(t, c.stored(), len(events()))
		require.Less(t, c.statements("InboxReceive"), len(events())/2)
	})

	t.Run("StoresNeighboursOfARejectedEvent", func(t *testing.T) {
		t.Parallel()
		c := newCrowd(t)
		list := events()
		for i := range list {
			if i%20 == 7 {
				list[i].Type = "no\x00text"
			}
		}
		c.send(t.Context(), list...)
		for i, answer := range c.answers() {
			if i%20 == 7 {
				require.True(t, postgres.IsRejected(answer.err), "%v", answer.err)
				require.False(t, answer.fresh)
				continue
			}
			require.Equal(t, received{fresh: true}, answer, list[i].ID)
		}
		require.Len(t, c.stored(), len(list)-5)
	})

	// Some are known, and each of the others comes twice.
	t.Run("ReportsEachEventAsNewOnce", func(t *testing.T) {
		t.Parallel()
		c := newCrowd(t)
		for i, e := range events() {
			if i%3 == 0 {
				require.Equal(t, received{fresh: true}, receiveBy(t.Context(), inbox.NewIntake(c.pool), e))
			}
		}
		c.send(t.Context(), events()...)
		c.send(t.Context(), events()...)
		fresh := make([]int, len(events()))
		for i, answer := range c.answers() {
			require.NoError(t, answer.err)
			if answer.fresh {
				fresh[i%len(fresh)]++
			}
		}
		for i, n := range fresh {
			require.Equal(t, min(i%3, 1), n, i)
		}
		require.Len(t, c.stored(), len(events()))
	})

	t.Run("EventsOfTwoConsumersAreTwo", func(t *testing.T) {
		t.Parallel()
		c := newCrowd(t)
		for _, e := range events() {
			other := e
			other.Consumer = "other"
			c.send(t.Context(), e, other)
		}
		for i, answer := range c.answers() {
			require.Equal(t, received{fresh: true}, answer, i)
		}
		require.Len(t, c.stored(), 2*len(events()))
	})

	// The sender must resend an event whose outcome is not known.
	t.Run("AStoreInDoubtIsResent", func(t *testing.T) {
		t.Parallel()
		for when, arm := range map[string]func(*pgproxy.Proxy, string) *pgproxy.Cut{"Before": (*pgproxy.Proxy).Before,
			"After": (*pgproxy.Proxy).After} {
			t.Run(when, func(t *testing.T) {
				t.Parallel()
				c := newCrowd(t)
				cut := arm(c.proxy, "name: InboxReceive ")
				c.send(t.Context(), events()...)
				inDoubt := 0
				for i, answer := range c.answers() {
					if answer.err == nil {
						require.Contains(t, c.stored(), events()[i].ID)
						continue
					}
					require.ErrorIs(t, answer.err, postgres.ErrInDoubt)
					inDoubt++
				}
				require.True(t, cut.HasFired(), "nothing was cut, so nothing was shown")
				require.Positive(t, inDoubt)
				for _, e := range events() {
					_, err := c.intake.Receive(t.Context(), e)
					require.NoError(t, err)
				}
				require.Len(t, c.stored(), len(events()))
			})
		}
	})

	t.Run("ADisconnectedSenderDoesNotBlockOthers", func(t *testing.T) {
		t.Parallel()
		c := newCrowd(t)
		ctx, leave := context.WithCancel(t.Context())
		c.send(ctx, event("gone"))
		c.send(t.Context(), event("a"), event("b"))
		leave()
		gone := <-c.results[0]
		require.ErrorIs(t, gone.err, context.Canceled)
		c.results = c.results[1:]
		require.Equal(t, []received{{fresh: true}, {fresh: true}}, c.answers())
		require.Subset(t, c.stored(), []string{"a", "b"})
		if errors.Is(gone.err, postgres.ErrNotSent) {
			require.NotContains(t, c.stored(), "gone")
		} else { // It left while its event was being stored.
			require.ErrorIs(t, gone.err, postgres.ErrInDoubt)
		}
	})

	// Two processes get the same events, in different orders.
	t.Run("ConcurrentStoresOfTheSameEventsDoNotDeadlock", func(t *testing.T) {
		t.Parallel()
		dsn := dbtest.URL(t)
		fresh := make([]atomic.Int64, len(events()))
		var all sync.WaitGroup
		for process := range 2 {
			own, err := postgres.Open(t.Context(), dsn, postgres.Options{})
			require.NoError(t, err)
			t.Cleanup(own.Close)
			intake, list := inbox.NewIntake(own), events()
			if process == 1 {
				slices.Reverse(list)
			}
			for i, e := range list {
				if process == 1 {
					i = len(list) - 1 - i
				}
				all.Go(func() {
					is, err := intake.Receive(t.Context(), e)
					if err != nil {
						t.Errorf("receive: %v", err)
					}
					if is {
						fresh[i].Add(1)
					}
				})
			}
		}
		all.Wait()
		for i := range fresh {
			require.EqualValues(t, 1, fresh[i].Load(), i)
		}
	})

	// The database hangs, and Stripe goes on sending: large events reach the limit by their payloads, small ones by their
	// number.
	for name, size := range map[string]int{"HoldsSoMuchAndNoMore": 1 << 20, "HoldsSoManyAndNoMore": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			holdsSoMuch(t, size)
		})
	}

	// Only a part of it is kept for the handler.
	t.Run("HasTheDigestOfWhatWasReceived", func(t *testing.T) {
		t.Parallel()
		c := newCrowd(t)
		c.release()
		part := event("part")
		part.Body = []byte(`{"id":"part","of":"a whole"}`)
		require.Equal(t, received{fresh: true}, receiveBy(t.Context(), c.intake, part))
		var n int
		require.NoError(t, c.pool.Raw().QueryRow(t.Context(), `SELECT count(*) FROM inbox_events WHERE event_id = 'part'
			AND payload = '{"id":"part"}' AND payload_sha256 = sha256('{"id":"part","of":"a whole"}')`).Scan(&n))
		require.Equal(t, 1, n)
	})

	t.Run("TakesOneThatIsLargerThanAllThatItHolds", func(t *testing.T) {
		t.Parallel()
		huge := event("a")
		huge.Payload = make([]byte, inbox.IntakeHeld+1)
		require.Equal(t, received{fresh: true}, receiveBy(t.Context(), inbox.NewIntake(dbtest.New(t)), huge))
	})

	t.Run("AnEventThatIsAloneIsOneStatement", func(t *testing.T) {
		t.Parallel()
		c := newCrowd(t)
		c.answers()
		for _, fresh := range []bool{true, false} {
			require.Equal(t, received{fresh: fresh}, receiveBy(t.Context(), c.intake, event("a")))
			require.Equal(t, 1, c.statements("InboxReceive"))
		}
	})
}

// holdsSoMuch sends events with contents of this size while nothing is stored.
func holdsSoMuch(t *testing.T, size int) {
	t.Helper()
	c := newCrowd(t)
	of := func(id string) inbox.Received {
		e := event(id)
		e.Payload = []byte(`{"id":"` + id + `","of":"` + strings.Repeat("x", size) + `"}`)
		return e
	}
	held := inbox.IntakeEach + len(event("ahead").Payload)
	most := (inbox.IntakeHeld - held) / (inbox.IntakeEach + len(of("00000").Payload))
	results := make(chan error, 2*most)
	for i := range 2 * most {
		go func() {
			_, err := c.intake.Receive(t.Context(), of(fmt.Sprintf("%05d", i)))
			results <- err
		}()
	}
	for range most { // The others wait.
		err := <-results
		require.ErrorIs(t, err, postgres.ErrFull)
		require.NotErrorIs(t, err, postgres.ErrInDoubt, "it was not stored")
	}
	c.release()
	for range most {
		require.NoError(t, <-results)
	}
	require.Equal(t, received{fresh: true}, receiveBy(t.Context(), c.intake, event("one")))
	require.Equal(t, []string{"one"}, c.stored(), "of those that were sent as a whole")
	var n int
	require.NoError(t, c.pool.Raw().QueryRow(t.Context(),
		"SELECT count(*) FROM inbox_events WHERE event_id NOT IN ('ahead', 'one')").Scan(&n))
	require.Equal(t, most, n)
}
