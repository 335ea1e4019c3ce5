package payments_test

import (
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

// TestStaleCapture: the holder of a capture stands still, and loses its lease to another server.
func TestStaleCapture(t *testing.T) {
	t.Parallel()

	t.Run("GetsTheWinnersAnswer", func(t *testing.T) {
		t.Parallel()
		w := world.New(t)
		w.WatchHolders()
		first, second := w.Local(world.LocalOptions{Name: "first"}), w.Local(world.LocalOptions{Name: "second"})
		order := first.Order()
		payment := first.Authorize("k", order, visa).ID()
		moved := w.Sim.Hold(stripesim.Selector{Op: "intent.capture", OrderID: order}, stripesim.AfterEffect)
		late := world.Async(func() world.Answer { return first.Capture("c", payment, 700) })
		world.WaitHeld(w.T, moved)
		w.ExpireLeases()
		won := second.Capture("c", payment, 700)
		require.Equal(t, http.StatusOK, won.Status, won)
		require.False(t, won.Replayed())
		moved.Release()
		lost := <-late
		require.Equal(t, won.Identity(), lost.Identity())
		require.True(t, lost.Replayed())
		require.Positive(t, first.Metric("payonce_fenced_writes_total"))
		require.Zero(t, second.Metric("payonce_fenced_writes_total"))
		w.RequireSound()
	})

	// stopped is a capture that stands still before it is sent, and was refused meanwhile.
	stopped := func(t *testing.T) (w *world.World, first, second *world.Local, payment string, goOn func() world.Answer) {
		w = world.New(t)
		w.WatchHolders()
		reached, released := make(chan struct{}), make(chan struct{})
		release := sync.OnceFunc(func() { close(released) })
		t.Cleanup(release)
		o := world.LocalOptions{Name: "first"}
		o.Boundary = func(_, point string) {
			if point == "capture_recorded" {
				close(reached)
				<-released
			}
		}
		first, second = w.Local(o), w.Local(world.LocalOptions{Name: "second"})
		order := first.Order()
		payment = first.Authorize("k", order, visa).ID()
		late := world.Async(func() world.Answer { return first.Capture("c", payment, 700) })
		<-reached
		w.ExpireLeases()
		w.Sim.Inject(stripesim.Fault{Op: "intent.capture", Kind: stripesim.StoredError})
		require.Equal(t, "payment-failed", second.Capture("c", payment, 700).Code(), "another attempt would only repeat it")
		return w, first, second, payment, func() world.Answer { release(); return <-late }
	}

	t.Run("SendsNothingThatWasRefusedMeanwhile", func(t *testing.T) {
		t.Parallel()
		w, first, second, payment, goOn := stopped(t)
		sent := len(w.Posts("capture"))
		late := goOn()
		require.Equal(t, second.Capture("c", payment, 700).Identity(), late.Identity())
		require.Len(t, w.Posts("capture"), sent)
		require.Positive(t, first.Metric("payonce_fenced_writes_total"))
		require.Equal(t, http.StatusOK, second.Capture("d", payment, 300).Status)
		w.RequireSound()
	})

	t.Run("SendsNothingWhileAnotherIsAtWork", func(t *testing.T) {
		t.Parallel()
		w, first, second, payment, goOn := stopped(t)
		w.Sim.Inject(stripesim.Fault{Op: "intent.capture", Kind: stripesim.Reset})
		require.Equal(t, http.StatusAccepted, second.Capture("d", payment, 300).Status)
		sent := len(w.Posts("capture"))
		late := goOn()
		require.Equal(t, second.Capture("c", payment, 700).Identity(), late.Identity())
		require.Len(t, w.Posts("capture"), sent)
		require.Positive(t, first.Metric("payonce_fenced_writes_total"))
		require.Equal(t, http.StatusOK, second.Capture("d", payment, 300).Status)
		require.Equal(t, "300", w.Text(`SELECT captured_minor FROM payments WHERE id = $1`, payment))
		w.RequireSound()
	})
}

// TestCapturePastKeyLifetime: a capture was sent so long ago that Stripe may have forgotten its key. It is not sent again;
// whether it was made is read.
func TestCapturePastKeyLifetime(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind   string
		answer string
		want   string
	}{
		"ThatWasMadeIsMade":             {stripesim.Drop, "200 succeeded", "paid succeeded 700"},
		"ThatNeverArrivedIsNotRepeated": {stripesim.Reset, "payment-failed", "authorized authorized"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, today := world.LongAgo(t, aDay, world.LocalOptions{})
			order := b.API.Order()
			payment := b.API.Authorize("k", order, visa).ID()
			b.Sim.Inject(stripesim.Fault{Op: "intent.capture", Kind: c.kind})
			b.Sim.Inject(stripesim.Fault{Op: "intent.get", Kind: stripesim.Reset, Times: 3})
			require.Equal(t, http.StatusAccepted, b.API.Capture("c", payment, 700).Status)
			b.Sim.ClearFaults()
			sent := len(b.Posts("capture"))
			today()
			b.AgeWork(aDay)
			require.Equal(t, 1, b.API.Complete())
			require.Equal(t, c.answer, said(b.API.Capture("c", payment, 700)))
			require.Len(t, b.Posts("capture"), sent)
			require.Equal(t, c.want, b.Text(`SELECT concat_ws(' ', o.status, p.status, p.captured_minor)
				FROM payments p JOIN orders o ON o.id = p.order_id WHERE p.id = $1`, payment))
			if c.kind == stripesim.Reset {
				require.Equal(t, http.StatusOK, b.API.Capture("another", payment, 700).Status)
			}
			require.Equal(t, 1, b.Sim.ChargeCount(order))
			b.Reconcile()
			b.RequireClean()
		})
	}
}

// TestCaptureOfALostLife: the database goes back to before a capture or a release that Stripe has made, and Stripe has
// forgotten its key. What comes then finds what was done.
func TestCaptureOfALostLife(t *testing.T) {
	t.Parallel()
	captures := func(key string, amount int64) func(*world.Local, string) world.Answer {
		return func(api *world.Local, payment string) world.Answer { return api.Capture(key, payment, amount) }
	}
	releases := func(api *world.Local, payment string) world.Answer { return api.CancelPayment("x", payment) }
	for name, c := range map[string]struct {
		lost, then   func(*world.Local, string) world.Answer
		answer, want string
	}{
		"IsMadeOnce":              {captures("c", 700), captures("c", 700), "200 succeeded", "paid succeeded 700"},
		"ExcludesAnotherAmount":   {captures("c", 700), captures("d", 300), "payment-not-capturable", "paid succeeded 700"},
		"ExcludesARelease":        {captures("c", 700), releases, "payment-not-cancelable", "paid succeeded 700"},
		"ReleaseIsMadeOnce":       {releases, releases, "200 canceled", "open canceled"},
		"ReleaseExcludesACapture": {releases, captures("c", 700), "payment-failed", "open canceled"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, today := world.LongAgo(t, aDay, world.LocalOptions{})
			order := b.API.Order()
			payment := b.API.Authorize("k", order, visa).ID()
			dsn := b.CopyDatabase()
			require.Equal(t, http.StatusOK, c.lost(b.API, payment).Status)
			today()
			r := world.BooksOn(b.OnDatabase(dsn))
			r.AgeWork(aDay)
			a := c.then(r.API, payment)
			require.Equal(t, c.answer, said(a), a)
			require.Equal(t, c.want, r.Text(`SELECT concat_ws(' ', o.status, p.status, p.captured_minor)
				FROM payments p JOIN orders o ON o.id = p.order_id WHERE p.id = $1`, payment))
			require.LessOrEqual(t, r.Sim.ChargeCount(order), 1)
			r.Reconcile()
			require.Empty(t, r.Discrepancies())
		})
	}

	t.Run("ThatTheBackupKnowsIsFinished", func(t *testing.T) {
		t.Parallel()
		var b *world.Books
		var dsn string
		b, today := world.LongAgo(t, aDay, world.LocalOptions{Boundary: func(_, point string) {
			if point == "capture_recorded" {
				dsn = b.CopyDatabase()
			}
		}})
		order := b.API.Order()
		payment := b.API.Authorize("k", order, visa).ID()
		require.Equal(t, http.StatusOK, b.API.Capture("c", payment, 700).Status)
		today()
		r := world.BooksOn(b.OnDatabase(dsn))
		r.AgeWork(aDay)
		sent := len(r.Posts("capture"))
		require.Equal(t, 1, r.API.Complete())
		require.Equal(t, "200 succeeded", said(r.API.Capture("c", payment, 700)))
		require.Len(t, r.Posts("capture"), sent)
		require.Equal(t, 1, r.Sim.ChargeCount(order))
	})
}
