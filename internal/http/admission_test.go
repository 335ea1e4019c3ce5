package http

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/checkout"   // part: checkouts
	"example.com/payonce/internal/disputes"   // part: disputes
	"example.com/payonce/internal/keyhistory" // part: history
	"example.com/payonce/internal/outbox"     // part: events
	"example.com/payonce/internal/postgres"
)

// loaded is an admission with requests in it.
type loaded struct {
	*admission
	t *testing.T
}

func newLoaded(t *testing.T, of classLimits) loaded {
	t.Helper()
	limits := [classes]classLimits{}
	for i := range limits {
		limits[i] = of
	}
	return loaded{newAdmission(limits), t}
}

var (
	busy  = clientID{tenant: "ten_busy"}
	other = clientID{tenant: "ten_other"}
)

// anonymous is a client without an API key.
func anonymous(n byte) clientID {
	return clientID{network: netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, n}), 32)}
}

// send starts n requests, and returns how many have a slot as soon as nothing moves any more.
func (l loaded) send(id clientID, n int) (slots chan *slot, admitted int) {
	l.t.Helper()
	slots = make(chan *slot, n)
	for range n {
		go func() {
			if s, err := l.acquire(context.Background(), id, classRead); err == nil {
				slots <- &s
			}
		}()
	}
	synctest.Wait()
	return slots, len(slots)
}

// release releases a slot, and returns how many requests have one then.
func (l loaded) release(slots chan *slot) (admitted int) {
	l.t.Helper()
	(<-slots).release()
	synctest.Wait()
	return len(slots)
}

// drain releases slots until no request waits for one.
func (l loaded) drain(slots chan *slot) {
	for synctest.Wait(); len(slots) > 0; synctest.Wait() {
		(<-slots).release()
	}
}

func TestAdmission(t *testing.T) {
	t.Parallel()
	of := classLimits{alone: 8, total: 8, least: 2}
	with := func(name string, of classLimits, test func(*testing.T, loaded)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { test(t, newLoaded(t, of)) })
		})
	}

	with("ActiveTenantsShareTheSlots", of, func(t *testing.T, l loaded) {
		slots, n := l.send(busy, 100)
		require.Equal(t, 8, n, "alone")
		others, n := l.send(other, 1)
		require.Equal(t, 1, n, "it is in no queue of another")
		require.Equal(t, 7, l.release(slots), "two have four each, so no other request is admitted")
		require.Equal(t, 6, l.release(slots))
		require.Equal(t, 5, l.release(slots))
		require.Equal(t, 4, l.release(slots))
		require.Equal(t, 4, l.release(slots))
		l.drain(others)
		time.Sleep(activeFor)
		last, n := l.send(busy, 1)
		require.Zero(t, n, "the other was active a moment ago")
		require.Len(t, slots, 4)
		time.Sleep(2 * activeFor)
		late, n := l.send(anonymous(1), 1)
		require.Equal(t, 1, n)
		_, admitted, err := l.enqueue(busy, classRead, false)
		require.NoError(t, err)
		synctest.Wait()
		require.Len(t, slots, 8, "it is alone again: a network is no tenant")
		require.NotNil(t, admitted, "others came first")
		l.drain(slots)
		l.drain(late)
		l.drain(last)
		require.Zero(t, l.queuedTenants)
	})

	with("ManyTenantsHaveTheLeastEach", of, func(t *testing.T, l loaded) {
		for _, id := range strings.Split("abcdefghij", "") {
			slots, _ := l.send(clientID{tenant: id}, 1)
			l.drain(slots)
		}
		slots, n := l.send(busy, 10)
		require.Equal(t, 2, n)
		l.drain(slots)
	})

	with("QueueIsFirstInFirstOut", classLimits{alone: 1}, func(t *testing.T, l loaded) {
		first, _, err := l.enqueue(busy, classRead, false)
		require.NoError(t, err)
		_, second, err := l.enqueue(busy, classRead, false)
		require.NoError(t, err)
		_, third, err := l.enqueue(busy, classRead, false)
		require.NoError(t, err)
		first.release()
		first.release() // does nothing
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

	with("QueuesAreBounded", classLimits{alone: 0}, func(t *testing.T, l loaded) {
		send := func(id clientID, n int) (err error) {
			for range n {
				_, _, err = l.enqueue(id, classRead, false)
			}
			return err
		}
		require.NoError(t, send(busy, queueMax))
		require.ErrorIs(t, send(busy, 1), errTenantQueueFull)
		require.Equal(t, codeRateLimited, errTenantQueueFull.code)
		require.NoError(t, send(anonymous(1), queueMax))
		require.ErrorIs(t, send(anonymous(1), 1), errAnonymousQueueFull)
		require.Equal(t, codeUnavailable, errAnonymousQueueFull.code)
		for n := range byte(3) {
			require.NoError(t, send(anonymous(n+2), queueMax))
		}
		require.ErrorIs(t, send(anonymous(5), 1), errAnonymousQueueFull)
		for _, tenant := range []string{"a", "b", "c"} { // whose queues no anonymous client fills
			require.NoError(t, send(clientID{tenant: tenant}, queueMax))
		}
		require.NoError(t, send(other, queuedLeast), "each tenant may have some")
		require.ErrorIs(t, send(other, 1), errOverloaded)
		require.Equal(t, codeUnavailable, errOverloaded.code)
	})

	with("FullQueueIsSaidLate", classLimits{alone: 0}, func(t *testing.T, l loaded) {
		for range queueMax {
			_, _, err := l.enqueue(busy, classRead, false)
			require.NoError(t, err)
		}
		began := time.Now()
		_, err := l.acquire(t.Context(), busy, classRead)
		require.ErrorIs(t, err, errTenantQueueFull)
		require.Equal(t, queueFullAfter, time.Since(began))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = l.acquire(ctx, busy, classRead)
		require.ErrorIs(t, err, errTenantQueueFull)
		require.Equal(t, queueFullAfter+time.Second, time.Since(began), "its time is over before")
	})

	with("WhatWasBegunIsNotRefusedAndGoesFirst", classLimits{alone: 1}, func(t *testing.T, l loaded) {
		held, err := l.acquire(t.Context(), busy, classWrite)
		require.NoError(t, err)
		order := make(chan string, 3*queueMax)
		begun := func(name string) {
			go func() {
				s, err := l.acquireBegun(t.Context(), busy, classWrite)
				if err == nil {
					order <- name
					s.release()
				}
			}()
			synctest.Wait()
		}
		for range queueMax {
			go func() {
				if s, err := l.acquire(t.Context(), busy, classWrite); err == nil {
					order <- "new"
					s.release()
				}
			}()
		}
		synctest.Wait()
		_, err = l.acquire(t.Context(), busy, classWrite)
		require.ErrorIs(t, err, errTenantQueueFull)
		ctx, cancel := context.WithTimeout(t.Context(), 3*queueFullAfter)
		defer cancel()
		began := time.Now()
		_, err = l.acquireBegun(ctx, busy, classWrite)
		require.ErrorIs(t, err, errTenantQueueSlow)
		require.Equal(t, 3*queueFullAfter, time.Since(began), "it waits for as long as it has")
		begun("first")
		begun("second")
		held.release()
		synctest.Wait()
		require.Len(t, order, queueMax+2)
		require.Equal(t, []string{"first", "second", "new"}, []string{<-order, <-order, <-order})
		require.Zero(t, l.queuedTenants)
		c := l.admission.client(busy)
		require.Zero(t, c.queued)
		require.Zero(t, c.queues[classWrite].begun)
	})

	with("ReadCountsByItsBytes", classLimits{alone: 10, total: 10, rate: 1000, burst: 100, kib: true}, func(t *testing.T, l loaded) {
		read := func(id clientID, kib int) (waited time.Duration) {
			began := time.Now()
			s, err := l.acquire(t.Context(), id, classRead)
			require.NoError(t, err)
			s.sent(kib<<10 + 1023)
			s.release()
			s.sent(1 << 20) // of a slot that is released
			return time.Since(began)
		}
		require.Zero(t, read(busy, 1_000_000))
		require.Zero(t, read(busy, 0), "it is alone")
		require.Zero(t, read(other, 0))
		require.Zero(t, read(busy, 550))
		require.InDelta(t, 450*time.Millisecond, read(busy, 0), float64(5*time.Millisecond), "550 KiB less what it may have at once")
		require.Zero(t, read(other, 0))
	})

	with("ReplayCountsByItsBytes", admissionLimits(16, 1)[classKeyed], func(t *testing.T, l loaded) {
		replay := func(id clientID) (waited time.Duration) {
			began := time.Now()
			s, err := l.acquire(t.Context(), id, classKeyed)
			require.NoError(t, err)
			s.sent(1 << 20)
			s.release()
			return time.Since(began)
		}
		replay(other)
		var waited time.Duration
		for range 24 { // a third of them at once
			waited += replay(busy)
		}
		require.InDelta(t, 2*time.Second, waited, float64(200*time.Millisecond))
		require.Zero(t, replay(other))
	})

	with("OtherResponsesCountByTheirNumber", classLimits{alone: 10, total: 10, rate: 1000, burst: 100}, func(t *testing.T, l loaded) {
		began := time.Now()
		for range 10 {
			s, err := l.acquire(t.Context(), anonymous(1), classDocument)
			require.NoError(t, err)
			s.sent(1 << 20)
			s.release()
		}
		require.Zero(t, time.Since(began))
	})

	with("TimedOutRequestLeavesTheQueue", classLimits{alone: 1}, func(t *testing.T, l loaded) {
		s, err := l.acquire(t.Context(), busy, classRead)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = l.acquire(ctx, busy, classRead)
		require.ErrorIs(t, err, errTenantQueueSlow)
		require.Zero(t, l.queuedTenants)
		s.release()
		_, n := l.send(busy, 1)
		require.Equal(t, 1, n, "it has no slot")
	})

	with("RateIsLimitedHoweverShortRequestsAre", classLimits{alone: 1, rate: 100, burst: 50}, func(t *testing.T, l loaded) {
		var done atomic.Int64
		var all sync.WaitGroup
		for range 500 {
			all.Go(func() {
				s, err := l.acquire(context.Background(), anonymous(1), classRefusal)
				done.Add(1)
				if err == nil {
					s.release()
				}
			})
		}
		synctest.Wait()
		require.EqualValues(t, 50, done.Load(), "the burst")
		time.Sleep(time.Second + time.Millisecond)
		require.EqualValues(t, 150, done.Load())
		all.Wait()
		time.Sleep(time.Hour)
		_, n := l.send(anonymous(1), 1)
		require.Equal(t, 1, n)
	})

	with("RateOfATenantIsLimitedOnlyBesideOthers", classLimits{alone: 100, total: 100, rate: 1, burst: 1},
		func(t *testing.T, l loaded) {
			slots, n := l.send(busy, 10)
			require.Equal(t, 10, n, "alone")
			l.drain(slots)
			others, n := l.send(other, 1)
			require.Equal(t, 1, n)
			slots, n = l.send(busy, 10)
			require.Equal(t, 1, n)
			time.Sleep(time.Second + time.Millisecond)
			require.Len(t, slots, 2)
			time.Sleep(time.Minute)
			l.drain(slots)
			l.drain(others)
		})

	with("NoTimerWaitsForASlot", classLimits{alone: 1, rate: 1000, burst: 1000}, func(t *testing.T, l loaded) {
		slots, n := l.send(anonymous(1), 2)
		require.Equal(t, 1, n)
		require.False(t, l.clients[anonymous(1)].queues[classRead].timerSet, "it would fire again and again until the first one ends")
		l.drain(slots)
	})

	with("InactiveClientsAreRemoved", of, func(t *testing.T, l loaded) {
		slots, _ := l.send(busy, 20)
		for range 3 {
			time.Sleep(activeFor)
			others, _ := l.send(other, 1)
			l.drain(others)
		}
		require.Contains(t, l.clients, busy, "its requests are still here")
		l.drain(slots)
		time.Sleep(3 * activeFor)
		_, _ = l.send(other, 1)
		require.NotContains(t, l.clients, busy)
	})
}

// TestEveryRouteTakesASlot: no route serves a request before those that are queued, but the probes.
func TestEveryRouteTakesASlot(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, nil)
	const key, readOnly = "payonce_a_b", "payonce_a_c"
	s.knows(key, tenant{id: "ten_a"})
	s.knows(readOnly, tenant{id: "ten_a", readOnly: true})
	r := httptest.NewRequest("GET", "/", nil)
	s.fillQueues(clientID{tenant: "ten_a"})
	s.fillQueues(clientID{network: s.networks.of(r.RemoteAddr)})
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
			require.Equal(t, http.StatusTooManyRequests, status(route.method, path, readOnly, "{}"), path)
			require.Equal(t, http.StatusTooManyRequests,
				status(route.method, path, key, strings.Repeat(" ", largeBody)+"{}"), path)
			require.Equal(t, http.StatusTooManyRequests,
				status(route.method, path, key, strings.Repeat(" ", bodyMax)+"{}"), "a body that is too large: %s", path)
			require.Equal(t, http.StatusTooManyRequests,
				status(route.method, path, key, "{"+cutOffHere), "a body that ends early: %s", path)
		}
	}
	require.Equal(t, http.StatusServiceUnavailable, status("GET", "/nothing", "", ""))
	// The two slots of a webhook, one after the other.
	queues := &s.admission.clients[clientID{network: s.networks.of(r.RemoteAddr)}].queues
	full := queues[classWebhook]
	queues[classWebhook] = queue{}
	require.Equal(t, http.StatusServiceUnavailable, status("POST", "/v1/webhooks/stripe", "", "{}"), "to be refused")
	queues[classWebhook], queues[classRefusal] = full, queue{}
	require.Equal(t, http.StatusServiceUnavailable, status("POST", "/v1/webhooks/stripe", "", "{}"), "to be checked")
	queues[classWebhook] = queue{}
	require.Equal(t, http.StatusBadRequest, status("POST", "/v1/webhooks/stripe", "", "{}"))
	require.Equal(t, http.StatusServiceUnavailable, status("DELETE", "/v1/orders", "", ""))
}

// testServer is a server without a database.
type testServer struct {
	*Server
	metrics *prometheus.Registry
}

func newTestServer(t *testing.T, log *slog.Logger) testServer {
	t.Helper()
	pool, err := postgres.Open(t.Context(), "postgres://a@127.0.0.1:1/a", postgres.Options{})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	metrics := prometheus.NewRegistry()
	return testServer{NewServer(Options{
		Pool: pool, Operations: registered(), WebhookSecrets: []string{"whsec_a"}, Log: log, Metrics: metrics,
		Checkouts: new(checkout.Service),  // part: checkouts
		Disputes:  new(disputes.Service),  // part: disputes
		History:   new(keyhistory.Reader), // part: history
		Feed:      new(outbox.Feed),       // part: events
	}), metrics}
}

// knows has an API key in the cache of valid ones.
func (s testServer) knows(key string, t tenant) {
	t.macs = newMACs(nil)
	s.auth.known[sha256.Sum256([]byte(key))] = knownKey{tenant: t, until: time.Now().Add(time.Hour)}
}

// fillQueues fills all queues of a client, which is told so at once.
func (s testServer) fillQueues(id clientID) {
	s.admission.fullAfter = 0
	c := s.admission.client(id)
	for i := range c.queues {
		c.queues[i].inUse, c.queues[i].waiting = 1000, make([]chan struct{}, queueMax)
	}
}

// cutOffHere is where the connection of a request breaks.
const cutOffHere = "\x00"

// status is that of the response to a request.
func (s testServer) status(method, path, key string, body string) int {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if sent, ok := strings.CutSuffix(body, cutOffHere); ok {
		r.Body = io.NopCloser(io.MultiReader(strings.NewReader(sent), iotest.ErrReader(io.ErrUnexpectedEOF)))
	}
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

// TestRateLimitedQueueDoesNotStall: the limit allows a request between two looks at the clock, after which nothing but the
// timer would dispatch it.
func TestRateLimitedQueueDoesNotStall(t *testing.T) {
	t.Parallel()
	var all sync.WaitGroup
	for range 8 { // They wait more than they compute.
		l := newLoaded(t, classLimits{alone: 1, rate: 200_000, burst: 1})
		all.Go(func() {
			for i := range 2500 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				s, err := l.acquire(ctx, anonymous(1), classRefusal)
				cancel()
				if err != nil {
					t.Errorf("the request %d waits: %v", i, err)
					return
				}
				s.release()
			}
		})
	}
	all.Wait()
}

// TestAbortedRequestReleasesItsSlot: net/http's own panic goes on to net/http, and takes no slot with it.
func TestAbortedRequestReleasesItsSlot(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, slog.New(slog.DiscardHandler))
	aborts := s.observed(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		require.NoError(t, s.admit(r.Context(), r, classRefusal))
		panic(http.ErrAbortHandler)
	}))
	require.PanicsWithValue(t, http.ErrAbortHandler, func() {
		aborts.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/v1/orders", nil))
	})
	inUse, _ := s.SlotsInUse()
	require.Zero(t, inUse)
}
