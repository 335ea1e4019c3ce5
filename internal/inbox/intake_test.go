package inbox_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/inbox"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/pgproxy"
)

// crowd is an intake all of whose statements are held up, so that whoever comes
// now waits for the next one.
type crowd struct {
	*testing.T
	pool    *postgres.Pool
	proxy   *pgproxy.Proxy
	intake  *inbox.Intake
	release func()
	results []chan error
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
	through, err := postgres.Open(t.Context(), proxy.URL(), postgres.Options{})
	require.NoError(t, err)
	t.Cleanup(through.Close)
	release := make(chan struct{})
	c := &crowd{
		T: t, pool: pool, proxy: proxy, intake: inbox.NewIntake(through.Queries),
		release: sync.OnceFunc(func() { close(release) }),
	}
	t.Cleanup(c.release)
	for i := range inbox.IntakesMax {
		hold := proxy.Hold("name: InboxReceive ", release)
		c.send(t.Context(), event(fmt.Sprint("ahead_", i)))
		<-hold.Fired()
	}
	proxy.Seen()
	return c
}

func event(id string) inbox.Received {
	return inbox.Received{
		Consumer: stripe, ID: id, Type: "payment_intent.succeeded", ObjectID: "pi_" + id,
		Payload: []byte(`{"id":"` + id + `"}`),
	}
}

// send sends an event and returns once it is under way, or waits.
func (c *crowd) send(ctx context.Context, e inbox.Received) {
	c.Helper()
	result, before := make(chan error, 1), c.intake.Waiting()
	c.results = append(c.results, result)
	go func() {
		_, err := c.intake.Receive(ctx, e)
		result <- err
	}()
	if len(c.results) > inbox.IntakesMax {
		require.Eventually(c, func() bool { return c.intake.Waiting() > before }, 10*time.Second, time.Millisecond)
	}
}

// answers lets the statements go on, and says what those heard who waited.
func (c *crowd) answers() (list []error) {
	c.Helper()
	c.release()
	for _, result := range c.results {
		list = append(list, <-result)
	}
	for _, err := range list[:inbox.IntakesMax] {
		require.NoError(c, err)
	}
	return list[inbox.IntakesMax:]
}

// stored lists the events that came while the statements were held up.
func (c *crowd) stored() (ids []string) {
	c.Helper()
	rows, err := c.pool.Raw().Query(c.Context(), `SELECT event_id FROM inbox_events WHERE event_id NOT LIKE 'ahead%'
		AND status = 'pending' AND object_id = 'pi_' || event_id AND payload_sha256 = sha256(payload)
		AND payload = convert_to('{"id":"' || event_id || '"}', 'UTF8') ORDER BY 1`)
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

// statements is how many of a query were sent since the crowd stands.
func (c *crowd) statements(query string) (n int) {
	for _, s := range c.proxy.Seen() {
		if strings.Contains(s, "name: "+query+" ") {
			n++
		}
	}
	return n
}

// TestIntake: events that come at the same time share a statement, and nothing
// else: not their fate.
func TestIntake(t *testing.T) {
	t.Parallel()

	t.Run("StoresWaitingEventsInOneStatement", func(t *testing.T) {
		t.Parallel()
		c := newCrowd(t)
		for _, id := range []string{"c", "a", "b", "a"} {
			c.send(t.Context(), event(id))
		}
		require.Equal(t, []error{nil, nil, nil, nil}, c.answers())
		require.Equal(t, []string{"a", "b", "c"}, c.stored(), "one came twice")
		require.Equal(t, 1, c.statements("InboxReceiveAll"))
	})

	t.Run("AnInvalidEventDoesNotBlockItsBatch", func(t *testing.T) {
		t.Parallel()
		c := newCrowd(t)
		bad := event("b")
		bad.Type = "no\x00text"
		for _, e := range []inbox.Received{event("a"), bad, event("c")} {
			c.send(t.Context(), e)
		}
		answers := c.answers()
		require.NoError(t, answers[0])
		require.True(t, postgres.IsRejected(answers[1]), "%v", answers[1])
		require.NoError(t, answers[2])
		require.Equal(t, []string{"a", "c"}, c.stored())
	})

	// Its sender must send again whatever nobody can vouch for.
	t.Run("AStoreInDoubtIsResent", func(t *testing.T) {
		t.Parallel()
		for when, arm := range map[string]func(*pgproxy.Proxy, string) *pgproxy.Cut{"Before": (*pgproxy.Proxy).Before,
			"After": (*pgproxy.Proxy).After} {
			t.Run(when, func(t *testing.T) {
				t.Parallel()
				c := newCrowd(t)
				cut := arm(c.proxy, "name: InboxReceiveAll ")
				c.send(t.Context(), event("a"))
				c.send(t.Context(), event("b"))
				for _, err := range c.answers() {
					require.ErrorIs(t, err, postgres.ErrInDoubt)
				}
				require.True(t, cut.HasFired(), "nothing was cut, so nothing was shown")
				for _, id := range []string{"a", "b"} {
					_, err := c.intake.Receive(t.Context(), event(id))
					require.NoError(t, err)
				}
				require.Equal(t, []string{"a", "b"}, c.stored())
			})
		}
	})

	t.Run("ADisconnectedSenderDoesNotBlockOthers", func(t *testing.T) {
		t.Parallel()
		c := newCrowd(t)
		ctx, leave := context.WithCancel(t.Context())
		c.send(ctx, event("a"))
		c.send(t.Context(), event("b"))
		leave()
		gone := <-c.results[inbox.IntakesMax]
		require.ErrorIs(t, gone, context.Canceled)
		require.ErrorIs(t, gone, postgres.ErrInDoubt)
		c.results = slices.Delete(c.results, inbox.IntakesMax, inbox.IntakesMax+1)
		require.Equal(t, []error{nil}, c.answers())
		require.Equal(t, []string{"a", "b"}, c.stored())
	})

	// Another process stores the same events, sorted as everybody does.
	t.Run("ConcurrentStoresOfTheSameEventsDoNotDeadlock", func(t *testing.T) {
		t.Parallel()
		c := newCrowd(t)
		c.send(t.Context(), event("b"))
		c.send(t.Context(), event("a"))
		other, err := c.pool.Raw().Begin(t.Context())
		require.NoError(t, err)
		insert := func(id string) error {
			_, err := other.Exec(
				t.Context(),
				`INSERT INTO inbox_events (consumer, event_id, status, type, payload) VALUES ($1, $2, 'pending',
					'other', '{}')`,
				stripe, id,
			)
			return err
		}
		require.NoError(t, insert("a"))
		c.release()
		require.Eventually(t, func() bool {
			var waits bool
			err := c.pool.Raw().QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity
				WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%InboxReceiveAll%'
				AND pid <> pg_backend_pid())`).Scan(&waits)
			return err == nil && waits
		}, 10*time.Second, 5*time.Millisecond)
		require.NoError(t, insert("b"))
		require.NoError(t, other.Commit(t.Context()))
		require.Equal(t, []error{nil, nil}, c.answers())
		require.Empty(t, c.stored(), "the other one's are there")
	})

	// The database hangs for an hour, and Stripe goes on sending. Most of those who
	// sent have left; what they sent is still held.
	t.Run("HoldsSoMuchAndNoMore", func(t *testing.T) {
		t.Parallel()
		c := newCrowd(t)
		large := func(id string) inbox.Received {
			e := event(id)
			e.Payload = []byte(`{"id":"` + id + `","of":"` + strings.Repeat("x", 1<<20) + `"}`)
			return e
		}
		most := inbox.IntakeHeld / len(large("000").Payload)
		ctx, leave := context.WithCancel(t.Context())
		for i := range most {
			c.send(ctx, large(fmt.Sprintf("%03d", i)))
		}
		leave()
		_, err := c.intake.Receive(t.Context(), large("one"))
		require.ErrorIs(t, err, inbox.ErrFull)
		require.NotErrorIs(t, err, postgres.ErrInDoubt, "it was not kept, for certain")
		c.release()
		require.Eventually(
			t,
			func() bool { return c.intake.Held() == 0 },
			20*time.Second, 10*time.Millisecond, "what is stored is let go",
		)
		_, err = c.intake.Receive(t.Context(), event("one"))
		require.NoError(t, err)
		require.Equal(t, []string{"one"}, c.stored(), "of those that were sent as a whole")
		var n int
		require.NoError(
			t,
			c.pool.Raw().
				QueryRow(t.Context(), "SELECT count(*) FROM inbox_events WHERE event_id NOT LIKE 'ahead%'").
				Scan(&n),
		)
		require.Equal(t, most+1, n)
	})

	t.Run("ReportsWhatIsNew", func(t *testing.T) {
		t.Parallel()
		for _, known := range []bool{false, true} {
			c := newCrowd(t)
			fresh := make(chan bool, 2)
			for _, id := range []string{"a", "b"} {
				if known {
					_, err := inbox.Receive(t.Context(), c.pool.Queries, event(id))
					require.NoError(t, err)
				}
				go func() {
					is, err := c.intake.Receive(t.Context(), event(id))
					if err != nil {
						t.Errorf("receive: %v", err)
					}
					fresh <- is
				}()
			}
			require.Eventually(t, func() bool { return c.intake.Waiting() == 2 }, 10*time.Second, time.Millisecond)
			c.release()
			require.Equal(t, !known, <-fresh)
			require.Equal(t, !known, <-fresh)
			require.Equal(t, 1, c.statements("InboxReceiveAll"))
		}
	})

	t.Run("TakesOneThatIsLargerThanAllThatItHolds", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.New(t)
		huge := event("a")
		huge.Payload = make([]byte, inbox.IntakeHeld+1)
		fresh, err := inbox.NewIntake(pool.Queries).Receive(t.Context(), huge)
		require.NoError(t, err)
		require.True(t, fresh)
	})

	t.Run("AStatementIsNotTooLarge", func(t *testing.T) {
		t.Parallel()
		c := newCrowd(t)
		for i := range 4 {
			large := event(fmt.Sprint(i))
			large.Payload = make([]byte, 400<<10)
			c.send(t.Context(), large)
		}
		require.Equal(t, []error{nil, nil, nil, nil}, c.answers())
		require.Equal(t, 2, c.statements("InboxReceiveAll"))
	})

	t.Run("AStatementHasItsLimits", func(t *testing.T) {
		t.Parallel()
		c := newCrowd(t)
		for i := range 100 {
			c.send(t.Context(), event(fmt.Sprintf("%03d", i)))
		}
		for _, err := range c.answers() {
			require.NoError(t, err)
		}
		require.Len(t, c.stored(), 100)
		require.Equal(t, 2, c.statements("InboxReceiveAll"))
	})
}
