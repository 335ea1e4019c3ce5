package world

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/pgproxy"
)

// Async runs f in a goroutine and returns the channel of its result.
func Async[T any](f func() T) <-chan T {
	c := make(chan T, 1)
	go func() { c <- f() }()
	return c
}

// WaitHeld waits until the simulator holds a request.
func WaitHeld(t testing.TB, h *stripesim.Hold) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	_, err := h.Wait(ctx)
	require.NoError(t, err, "no request has reached the hold")
}

// Reached sends a request of a server with ShortTimeouts until the proxy holds a statement of the request. A busy machine
// may use up the time of a request before; the lease is made to expire then, and the request is sent again.
func (w *World) Reached(held *pgproxy.Cut, request func() Answer) <-chan Answer {
	w.T.Helper()
	for end := time.Now().Add(Patience); ; w.ExpireLeases() {
		answer := Async(request)
		select {
		case <-held.Fired():
			return answer
		case a := <-answer:
			if held.HasFired() {
				return Async(func() Answer { return a })
			}
			require.Contains(w.T, []int{http.StatusAccepted, http.StatusConflict, http.StatusServiceUnavailable}, a.Status, a)
			require.True(w.T, time.Now().Before(end), "no request has reached the held statement; the last answer: %v", a)
		}
	}
}

// ShortTimeouts are options of a server whose test waits until a request's time is over. A busy machine may use such a
// time up, so what the test needs beside that request is another server's.
func ShortTimeouts(name string) LocalOptions {
	return LocalOptions{Name: name, StripeTimeout: ShortStripeTimeout, Lease: ShortLease}
}

// Proxy is a proxy to the database, which servers have instead of the database if they are given its URL. The sessions
// through the proxy may be those of an earlier test, with statements that are prepared.
func (w *World) Proxy() *pgproxy.Proxy {
	w.T.Helper()
	w.proxy = dbtest.Beside(w.T, w.URL, "proxy", func() (*pgproxy.Proxy, error) { return pgproxy.Start(w.forTests()) })
	return w.proxy
}

// Proxied is a server that talks to its database through a proxy.
func Proxied(t testing.TB, o LocalOptions) (*World, *Local, *pgproxy.Proxy) {
	t.Helper()
	w := New(t)
	proxy := w.Proxy()
	o.Database = proxy.URL()
	return w, w.Local(o), proxy
}

// ProxiedAnew is Proxied with sessions of the test's own: statements that are to be rewritten are not prepared yet.
func ProxiedAnew(t testing.TB, o LocalOptions) (*World, *Local, *pgproxy.Proxy) {
	t.Helper()
	w := New(t)
	proxy, err := pgproxy.Start(w.forTests())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, proxy.Close()) })
	o.Database = proxy.URL()
	return w, w.Local(o), proxy
}

// CommitLandsLate, of a proxy of ProxiedAnew, loses the answer of the COMMIT of a transaction that holds the
// statement, and lets the next read of the key see the recovery point before it. The
// function that it returns checks that both have happened.
func CommitLandsLate(t testing.TB, proxy *pgproxy.Proxy, statement, before string) (happened func()) {
	t.Helper()
	cut := proxy.AfterCommit("name: " + statement + " ")
	read := proxy.Rewrite("name: KeyRead ", `k\.recovery_point`, `'`+before+`'::text AS recovery_point`)
	return func() {
		t.Helper()
		require.True(t, cut.HasFired(), "nothing was cut, so nothing was shown")
		require.Positive(t, read.Happened())
	}
}

// EffectsOf counts what happened at Stripe, by kind.
func (w *World) EffectsOf(kind string) (n int) {
	for _, e := range w.Sim.Effects() {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

// OnlySeries is the value of the first label of the one series of a metric that has
// the value.
func (l *Local) OnlySeries(name string, value float64) (label string) {
	l.t.Helper()
	families, err := l.Metrics.Gather()
	require.NoError(l.t, err)
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			if m.GetGauge().GetValue()+m.GetCounter().GetValue() == value {
				require.Empty(l.t, label, "more than one series of %s", name)
				label = m.GetLabel()[0].GetValue()
			}
		}
	}
	require.NotEmpty(l.t, label, name)
	return label
}
