package http

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/checkout"   // part: checkouts
	"example.com/payonce/internal/disputes"   // part: disputes
	"example.com/payonce/internal/keyhistory" // part: history
	"example.com/payonce/internal/outbox"     // part: events
	"example.com/payonce/internal/postgres"
)

// crowd is an admission with requests in it.
type crowd struct {
	*admission
	t *testing.T
}

func newCrowd(t *testing.T, of share) crowd {
	t.Helper()
	shares := [works]share{}
	for i := range shares {
		shares[i] = of
	}
	return crowd{newAdmission(shares), t}
}

var (
	many  = clientID{tenant: "ten_many"}
	other = clientID{tenant: "ten_other"}
)

// enters starts n requests, and returns how many have a place as soon as nothing moves any more.
func (c crowd) enters(id clientID, n int) (places chan *place, admitted int) {
	c.t.Helper()
	places = make(chan *place, n)
	for range n {
		go func() {
			if p, err := c.enter(context.Background(), id, workRead); err == nil {
				places <- &p
			}
		}()
	}
	synctest.Wait()
	return places, len(places)
}

// leaves gives a place back, and returns how many requests have one then.
func (c crowd) leaves(places chan *place) (admitted int) {
	c.t.Helper()
	(<-places).leave()
	synctest.Wait()
	return len(places)
}

// drain lets all go.
func (c crowd) drain(places chan *place) {
	for synctest.Wait(); len(places) > 0; synctest.Wait() {
		(<-places).leave()
	}
}

func TestAdmission(t *testing.T) {
	t.Parallel()
	of := share{alone: 8, all: 8, least: 2}
	in := func(name string, of share, test func(*testing.T, crowd)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { test(t, newCrowd(t, of)) })
		})
	}

	in("OneTenantTakesNoOthersPlace", of, func(t *testing.T, c crowd) {
		places, n := c.enters(many, 100)
		require.Equal(t, 8, n, "alone")
		others, n := c.enters(other, 1)
		require.Equal(t, 1, n, "no other is before it")
		require.Equal(t, 7, c.leaves(places), "two have four each, so no other is let in")
		require.Equal(t, 6, c.leaves(places))
		require.Equal(t, 5, c.leaves(places))
		require.Equal(t, 4, c.leaves(places))
		require.Equal(t, 4, c.leaves(places))
		c.drain(others)
		time.Sleep(activeFor)
		last, n := c.enters(many, 1)
		require.Zero(t, n, "the other was active a moment ago")
		require.Len(t, places, 4)
		time.Sleep(2 * activeFor)
		late, n := c.enters(clientID{network: netip.MustParsePrefix("192.0.2.1/32")}, 1)
		require.Equal(t, 1, n)
		_, admitted, err := c.arrive(many, workRead)
		require.NoError(t, err)
		synctest.Wait()
		require.Len(t, places, 8, "it is alone again: a network is no tenant")
		require.NotNil(t, admitted, "others came first")
		c.drain(places)
		c.drain(late)
		c.drain(last)
		require.Zero(t, c.room)
	})

	in("ManyTenantsHaveTheLeastEach", of, func(t *testing.T, c crowd) {
		for _, id := range strings.Split("abcdefghij", "") {
			places, _ := c.enters(clientID{tenant: id}, 1)
			c.drain(places)
		}
		places, n := c.enters(many, 10)
		require.Equal(t, 2, n)
		c.drain(places)
	})

	in("FirstComeIsFirstServed", share{alone: 1}, func(t *testing.T, c crowd) {
		first, _, err := c.arrive(many, workRead)
		require.NoError(t, err)
		_, second, err := c.arrive(many, workRead)
		require.NoError(t, err)
		_, third, err := c.arrive(many, workRead)
		require.NoError(t, err)
		first.leave()
		first.leave() // does nothing
		<-second
		require.Never(t, func() bool {
			select {
			case <-third:
				return true
			default:
				return false
			}
		}, time.Second, time.Second)
	})

	in("LinesAreBounded", share{alone: 0}, func(t *testing.T, c crowd) {
		arrive := func(id clientID, n int) (err error) {
			for range n {
				_, _, err = c.arrive(id, workRead)
			}
			return err
		}
		stranger := func(n byte) clientID {
			return clientID{network: netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, n}), 32)}
		}
		require.NoError(t, arrive(many, waitersMax))
		require.ErrorIs(t, arrive(many, 1), errShareUsedUp)
		require.Equal(t, codeRateLimited, errShareUsedUp.code)
		require.NoError(t, arrive(stranger(1), waitersMax))
		require.ErrorIs(t, arrive(stranger(1), 1), errAllWaiting)
		require.Equal(t, codeUnavailable, errAllWaiting.code)
		for n := range byte(3) {
			require.NoError(t, arrive(stranger(n+2), waitersMax))
		}
		require.ErrorIs(t, arrive(stranger(5), 1), errAllWaiting)
		for _, tenant := range []string{"a", "b", "c"} { // whose room no stranger fills
			require.NoError(t, arrive(clientID{tenant: tenant}, waitersMax))
		}
		require.ErrorIs(t, arrive(other, 1), errAllWaiting)
	})

	in("WhoseTimeIsOverGivesUp", share{alone: 1}, func(t *testing.T, c crowd) {
		p, err := c.enter(t.Context(), many, workRead)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = c.enter(ctx, many, workRead)
		require.ErrorIs(t, err, errAllWaiting)
		require.Zero(t, c.room)
		p.leave()
		_, n := c.enters(many, 1)
		require.Equal(t, 1, n, "it has no place")
	})

	in("PaceHoldsAlsoWhenEachIsShort", share{alone: 1, pace: time.Second / 100, burst: time.Second / 2},
		func(t *testing.T, c crowd) {
			var done atomic.Int64
			var all sync.WaitGroup
			for range 500 {
				all.Go(func() {
					p, err := c.enter(context.Background(), many, workRefuse)
					done.Add(1)
					if err == nil {
						p.leave()
					}
				})
			}
			synctest.Wait()
			require.EqualValues(t, 51, done.Load(), "what is saved up, and one")
			time.Sleep(time.Second + time.Millisecond)
			require.EqualValues(t, 151, done.Load())
			all.Wait()
			time.Sleep(time.Hour)
			_, n := c.enters(many, 1)
			require.Equal(t, 1, n)
		})

	in("PaceYieldsToOthersOnly", share{alone: 100, all: 100, pace: time.Second, yields: true}, func(t *testing.T, c crowd) {
		places, n := c.enters(many, 10)
		require.Equal(t, 10, n, "alone")
		c.drain(places)
		others, n := c.enters(other, 1)
		require.Equal(t, 1, n)
		places, n = c.enters(many, 10)
		require.Equal(t, 1, n)
		time.Sleep(time.Second + time.Millisecond)
		require.Len(t, places, 2)
		time.Sleep(time.Minute)
		c.drain(places)
		c.drain(others)
	})

	in("NoTimerWaitsForAPlace", share{alone: 1, pace: time.Millisecond, burst: time.Second}, func(t *testing.T, c crowd) {
		places, n := c.enters(many, 2)
		require.Equal(t, 1, n)
		require.False(t, c.clients[many].lines[workRead].paced, "it would fire again and again until the first one leaves")
		c.drain(places)
	})

	in("ForgetsWhoIsGone", of, func(t *testing.T, c crowd) {
		places, _ := c.enters(many, 20)
		for range 3 {
			time.Sleep(activeFor)
			others, _ := c.enters(other, 1)
			c.drain(others)
		}
		require.Contains(t, c.clients, many, "its requests are still here")
		c.drain(places)
		time.Sleep(3 * activeFor)
		_, _ = c.enters(other, 1)
		require.NotContains(t, c.clients, many)
	})
}

// TestEveryRequestTakesItsTurn: no route lets a request in before those that wait, but the probes.
func TestEveryRequestTakesItsTurn(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, nil)
	const key = "payonce_a_b"
	s.auth.known[keyDigest(sha256.Sum256([]byte(key)))] = knownKey{
		tenant: tenant{id: "ten_a", macs: newMACs(nil)}, until: time.Now().Add(time.Hour),
	}
	r := httptest.NewRequest("GET", "/", nil)
	for _, id := range []clientID{{tenant: "ten_a"}, {network: clientNetwork(r.RemoteAddr)}} {
		c := s.admission.seen(id)
		for i := range c.lines {
			c.lines[i].taken, c.lines[i].waiting = 1000, make([]chan struct{}, waitersMax)
		}
	}
	status := s.status
	for _, route := range s.servedRoutes() {
		path := strings.NewReplacer("{", "", "}", "").Replace(route.pattern)
		switch {
		case path == "/healthz":
			require.Equal(t, http.StatusOK, status(route.method, path, "", ""))
		case path == "/readyz": // 503 because there is no database
		case route.open:
			require.Equal(t, http.StatusServiceUnavailable, status(route.method, path, "", "{}"), path)
		default:
			require.Equal(t, http.StatusServiceUnavailable, status(route.method, path, "", "{}"), "without a key: %s", path)
			require.Equal(t, http.StatusTooManyRequests, status(route.method, path, key, "{}"), path)
			require.Equal(t, http.StatusTooManyRequests,
				status(route.method, path, key, strings.Repeat(" ", largeBody)+"{}"), path)
		}
	}
	require.Equal(t, http.StatusServiceUnavailable, status("GET", "/nothing", "", ""))
	// The two places of a webhook, one after the other.
	lines := &s.admission.clients[clientID{network: clientNetwork(r.RemoteAddr)}].lines
	full := lines[workWebhook]
	lines[workWebhook] = line{}
	require.Equal(t, http.StatusServiceUnavailable, status("POST", "/v1/webhooks/stripe", "", "{}"), "to be refused")
	lines[workWebhook], lines[workRefuse] = full, line{}
	require.Equal(t, http.StatusServiceUnavailable, status("POST", "/v1/webhooks/stripe", "", "{}"), "to be checked")
	lines[workWebhook] = line{}
	require.Equal(t, http.StatusBadRequest, status("POST", "/v1/webhooks/stripe", "", "{}"))
	require.Equal(t, http.StatusServiceUnavailable, status("DELETE", "/v1/orders", "", ""))
}

// testServer is a server without a database.
type testServer struct{ *Server }

func newTestServer(t *testing.T, log *slog.Logger) testServer {
	t.Helper()
	pool, err := postgres.Open(t.Context(), "postgres://a@127.0.0.1:1/a", postgres.Options{})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return testServer{NewServer(Options{
		Pool: pool, Operations: registered(), WebhookSecrets: []string{"whsec_a"}, Log: log,
		Checkouts: new(checkout.Service),  // part: checkouts
		Disputes:  new(disputes.Service),  // part: disputes
		History:   new(keyhistory.Reader), // part: history
		Feed:      new(outbox.Feed),       // part: events
	})}
}

// status is that of the response to a request.
func (s testServer) status(method, path, key string, body string) int {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Content-Type", contentJSON)
	r.Header.Set("Stripe-Signature", signatureOfNow())
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	return w.Code
}

// signatureOfNow could be right: only the body can tell.
func signatureOfNow() string {
	return fmt.Sprintf("t=%d,v1=%s", time.Now().Unix(), strings.Repeat("0", 64))
}

// TestReadLimit: it is a hundred times that of new work.
func TestReadLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for perSecond, burst := range map[float64]int{2: 2 * 200, 0.01: 2} {
			l := newReadLimits(perSecond)
			for range burst {
				require.NoError(t, l.take("ten_a"))
			}
			require.Equal(t, codeRateLimited, problemOf(l.take("ten_a")).code)
			require.NoError(t, l.take("ten_b"))
			time.Sleep(time.Second)
			require.NoError(t, l.take("ten_a"))
		}
		off := newReadLimits(0)
		for range 1000 {
			require.NoError(t, off.take("ten_a"))
		}
	})
}

// TestTimerIsSetWhenThePaceHasJustCome: the pace allows a request between two looks at the clock, after which nothing but
// its timer would let it in.
func TestTimerIsSetWhenThePaceHasJustCome(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, share{alone: 1, pace: 5 * time.Microsecond})
	for i := range 20_000 {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		p, err := c.enter(ctx, clientID{network: netip.MustParsePrefix("192.0.2.1/32")}, workRefuse)
		cancel()
		require.NoError(t, err, i)
		p.leave()
	}
}

// TestAbortedRequestLeavesItsPlace: net/http's own panic goes on to net/http, and takes no place with it.
func TestAbortedRequestLeavesItsPlace(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, slog.New(slog.DiscardHandler))
	aborts := s.observed(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		require.NoError(t, s.admit(r.Context(), r, workRefuse))
		panic(http.ErrAbortHandler)
	}))
	require.PanicsWithValue(t, http.ErrAbortHandler, func() {
		aborts.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/v1/orders", nil))
	})
	taken, _ := s.PlacesTaken()
	require.Zero(t, taken)
}
