package payments_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/payments"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

// TestRefundsOfOnePaymentAskOneAtATime: those that wait for another refund ask the database as often as one would, and
// have their turns in the order in which they came.
func TestRefundsOfOnePaymentAskOneAtATime(t *testing.T) {
	t.Parallel()
	line := func(t *testing.T, test func(t *testing.T, turns payments.Turns)) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			turns := payments.Rules.NewTurns()
			test(t, turns)
			synctest.Wait()
			require.Zero(t, turns.Lines())
		})
	}

	t.Run("InOrder", func(t *testing.T) {
		t.Parallel()
		line(t, func(t *testing.T, turns payments.Turns) {
			var (
				ended atomic.Bool
				asked atomic.Int64
				asks  atomic.Bool
				made  []int
			)
			for i := range payments.Rules.RefundsMax {
				wait, leave, ok := turns.Enter("pay_a")
				require.True(t, ok)
				go func() {
					defer leave()
					require.NoError(t, wait(t.Context(), func() error {
						require.True(t, asks.CompareAndSwap(false, true), "two ask at a time")
						defer asks.Store(false)
						time.Sleep(time.Millisecond) // as the database takes
						asked.Add(1)
						if !ended.Load() {
							return payments.Rules.RefundInProgress()
						}
						made = append(made, i)
						return nil
					}))
				}()
				synctest.Wait() // it is in line
			}
			_, _, ok := turns.Enter("pay_a")
			require.False(t, ok, "the line is full")
			_, leave, ok := turns.Enter("pay_b")
			require.True(t, ok, "that of another payment is not")
			leave()
			time.Sleep(3 * time.Second)
			synctest.Wait()
			require.Less(t, asked.Load(), int64(40), "as often as one of them would")
			ended.Store(true)
			time.Sleep(time.Second)
			synctest.Wait()
			require.Len(t, made, payments.Rules.RefundsMax)
			require.IsIncreasing(t, made)
		})
	})

	t.Run("AtOnceWhenOneHasLeft", func(t *testing.T) {
		t.Parallel()
		line(t, func(t *testing.T, turns payments.Turns) {
			_, leave, _ := turns.Enter("pay_a")
			wait, leaveToo, _ := turns.Enter("pay_a")
			var ended atomic.Bool
			done, began := make(chan time.Duration), time.Now()
			go func() {
				defer leaveToo()
				require.NoError(t, wait(t.Context(), func() error {
					if !ended.Load() {
						return payments.Rules.RefundInProgress()
					}
					return nil
				}))
				done <- time.Since(began)
			}()
			time.Sleep(2*time.Second + time.Millisecond)
			ended.Store(true)
			leave()
			require.Equal(t, 2*time.Second+time.Millisecond, <-done)
		})
	})

	t.Run("AsLongAsSomebodyIsInIt", func(t *testing.T) {
		t.Parallel()
		line(t, func(t *testing.T, turns payments.Turns) {
			var leaves []func()
			for range payments.Rules.RefundsMax {
				_, leave, ok := turns.Enter("pay_a")
				require.True(t, ok)
				leaves = append(leaves, leave)
			}
			leaves[0]()
			_, leave, ok := turns.Enter("pay_a")
			require.True(t, ok, "one has left")
			leaves[0] = leave
			_, _, ok = turns.Enter("pay_a")
			require.False(t, ok, "the others have not, and a second line would ask beside them")
			for _, leave := range leaves {
				leave()
			}
		})
	})

	t.Run("WhatWasRecordedInTheLastMomentCounts", func(t *testing.T) {
		t.Parallel()
		line(t, func(t *testing.T, turns payments.Turns) {
			for last, want := range map[error]error{
				nil: nil, idempotency.ErrLeaseLost: idempotency.ErrLeaseLost, errors.New("cut off"): payments.Rules.RefundInProgress(), //nolint:err113 // any
			} {
				wait, leave, _ := turns.Enter("pay_a")
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				err := wait(ctx, func() error {
					time.Sleep(400 * time.Millisecond)
					if ctx.Err() == nil {
						return payments.Rules.RefundInProgress()
					}
					return last
				})
				cancel()
				leave()
				require.ErrorIs(t, err, want)
			}
		})
	})

	t.Run("AnyOtherErrorIsTheFirstLooks", func(t *testing.T) {
		t.Parallel()
		line(t, func(t *testing.T, turns payments.Turns) {
			cutOff := errors.New("cut off") //nolint:err113 // any
			wait, leave, _ := turns.Enter("pay_a")
			defer leave()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			looks := 0
			err := wait(ctx, func() error {
				looks++
				time.Sleep(2 * time.Second)
				return cutOff
			})
			require.ErrorIs(t, err, cutOff, "the look before it, of which it would say more, there was not")
			require.Equal(t, 1, looks)
			err = wait(t.Context(), func() error { looks++; return cutOff })
			require.ErrorIs(t, err, cutOff)
			require.Equal(t, 2, looks, "it is not tried again")
		})
	})

	t.Run("ForAWhile", func(t *testing.T) {
		t.Parallel()
		line(t, func(t *testing.T, turns payments.Turns) {
			for range 3 {
				wait, leave, _ := turns.Enter("pay_a")
				go func() {
					defer leave()
					began := time.Now()
					require.ErrorIs(t, wait(t.Context(), func() error { return payments.Rules.RefundInProgress() }), payments.Rules.RefundInProgress())
					require.Equal(t, payments.Rules.TurnWait, time.Since(began))
				}()
			}
			time.Sleep(payments.Rules.TurnWait + time.Millisecond)
		})
	})

	t.Run("WhileItsRequestLasts", func(t *testing.T) {
		t.Parallel()
		line(t, func(t *testing.T, turns payments.Turns) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			for range 2 {
				wait, leave, _ := turns.Enter("pay_a")
				go func() {
					defer leave()
					require.ErrorIs(t, wait(ctx, func() error { return payments.Rules.RefundInProgress() }), payments.Rules.RefundInProgress())
				}()
			}
			<-ctx.Done()
		})
	})

	t.Run("AndAnErrorEndsTheWait", func(t *testing.T) {
		t.Parallel()
		line(t, func(t *testing.T, turns payments.Turns) {
			wait, leave, _ := turns.Enter("pay_a")
			defer leave()
			failed := errors.New("the database is away")
			require.ErrorIs(t, wait(t.Context(), func() error { return failed }), failed)
		})
	})
}

// TestRefundThatIsOverLeavesItsLine: else a payment whose refunds end, or are refused, could have no more of them in the
// end, and one that does not exist would be remembered for ever.
func TestRefundThatIsOverLeavesItsLine(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	api := w.Local(world.LocalOptions{})
	payment := api.Pay("k", api.Order(), visa).ID()
	for name, of := range map[string]struct {
		payment, body string
		status        int
	}{
		"Made":               {payment, `{"amount":300}`, http.StatusCreated},
		"MoreThanIsLeft":     {payment, `{"amount":99999999}`, http.StatusConflict},
		"OfAnUnknownPayment": {ids.Keyed(ids.Payment, w.Tenant.ID, "unknown"), `{"amount":300}`, http.StatusNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			a := api.Post("/v1/payments/"+of.payment+"/refunds", name, of.body)
			require.Equal(t, of.status, a.Status, a)
			require.Zero(t, payments.Rules.LinesOf(api.Payments))
		})
	}
}

// TestBurstOfRefundsOfOnePayment: as many as may wait are begun, and hold no connection meanwhile. The others are
// refused, and nothing of them is recorded. One that another process has begun does not wait here either, and is tried
// again later.
func TestBurstOfRefundsOfOnePayment(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	api := w.Local(world.LocalOptions{Name: "one", StripeTimeout: time.Minute, Lease: 4 * time.Minute})
	payment := api.Pay("k", api.Order(), visa).ID()
	w.Sim.Inject(stripesim.Fault{Op: "refund.create", Kind: stripesim.RateLimited, Times: -1})
	require.Equal(t, http.StatusAccepted, refund(w.Local(world.LocalOptions{}), "elsewhere", payment).Status)
	w.Sim.ClearFaults()
	hold := w.Sim.Hold(stripesim.Selector{Op: "refund.create"}, stripesim.BeforeEffect)
	t.Cleanup(hold.Release) // a test that fails must not wait for it
	send := func(key string) <-chan world.Answer {
		return world.Async(func() world.Answer {
			return api.Post("/v1/payments/"+payment+"/refunds", key, `{"amount":1}`)
		})
	}
	first := send("first")
	world.WaitHeld(w.T, hold)
	const more = 8
	answers := make(chan world.Answer)
	for i := range payments.Rules.RefundsMax - 1 + more {
		go func() { answers <- <-send(fmt.Sprint("burst-", i)) }()
	}
	for range more {
		a := <-answers
		require.Equal(t, http.StatusTooManyRequests, a.Status, a)
		require.Equal(t, "1", a.Header.Get("Retry-After"))
	}
	recorded := func() int { return w.Count(`SELECT count(*) FROM idempotency_keys WHERE operation = 'create_refund'`) }
	w.Until("the others are recorded", func() bool { return recorded() == payments.Rules.RefundsMax+1 })
	a := refund(api, "elsewhere", payment)
	require.Equal(t, http.StatusAccepted, a.Status, "the line is full, so a refund that waits in it would get 429: %s", a)
	require.Contains(t, w.Text(`SELECT last_error FROM idempotency_keys WHERE key = 'elsewhere'`), "another refund")
	w.Until("no refund that waits holds a connection", func() bool {
		most := int32(0)
		for range 100 {
			most = max(most, api.Pool.Stat().InUse)
			time.Sleep(time.Millisecond)
		}
		return most <= 1
	})
	hold.Release()
	require.Equal(t, http.StatusCreated, (<-first).Status)
	for range payments.Rules.RefundsMax - 1 {
		a := <-answers
		require.Contains(t, []int{http.StatusCreated, http.StatusAccepted}, a.Status, a)
	}
	require.Equal(t, payments.Rules.RefundsMax+1, recorded())
	require.Zero(t, payments.Rules.LinesOf(api.Payments), "nobody waits any more")
}
