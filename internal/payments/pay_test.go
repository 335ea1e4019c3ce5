package payments_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/pgproxy"
	"example.com/payonce/testkit/world"
)

const (
	visa      = "pm_card_visa"
	declining = "pm_card_chargeDeclinedInsufficientFunds"
	careful   = "pm_card_threeDSecure2Required"
)

// bench is one server, and its completer where a test asks for it.
type bench struct {
	*testing.T
	w   *world.World
	api *world.Local
}

func setup(t *testing.T) bench { return setupWith(t, world.LocalOptions{}) }

func setupWith(t *testing.T, o world.LocalOptions) bench {
	t.Helper()
	t.Parallel()
	w := world.New(t)
	return bench{t, w, w.Local(o)}
}

// elsewhere is the same service with another account at Stripe, which is empty.
func (b bench) elsewhere() (bench, *stripesim.Sim) {
	b.Helper()
	sim, err := stripesim.New(stripesim.Options{})
	require.NoError(b.T, err)
	server := httptest.NewServer(sim.Handler())
	b.Cleanup(func() {
		server.Close()
		require.NoError(b.T, sim.Close())
	})
	return bench{b.T, b.w, b.w.Local(world.LocalOptions{Stripe: server.URL})}, sim
}

// inject arms a fault, and makes sure at the end that it happened.
func (b bench) inject(f stripesim.Fault) {
	b.Helper()
	id := b.w.Sim.Inject(f)
	b.Cleanup(func() { require.Positive(b.T, b.w.Sim.FaultsFired()[id], "the fault %+v did not happen", f) })
}

func (b bench) pay(key, order, method string) world.Answer {
	b.Helper()
	a := b.api.Pay(key, order, method)
	require.NoError(b.T, a.Err)
	return a
}

// unknown pays and expects to hear that nobody knows yet.
func (b bench) unknown(key, order, method string) world.Answer {
	b.Helper()
	a := b.pay(key, order, method)
	require.Equal(b.T, http.StatusAccepted, a.Status, a)
	require.Equal(b.T, "processing", a.Get("status"), a)
	return a
}

// succeeded pays and expects the money to have moved.
func (b bench) succeeded(key, order string) world.Answer {
	b.Helper()
	a := b.pay(key, order, visa)
	require.Equal(b.T, http.StatusCreated, a.Status, a)
	require.Equal(b.T, "succeeded", a.Get("status"))
	return a
}

// failed pays and expects a definite no, the same one for ever.
func (b bench) failed(code, key, order, method string) world.Answer {
	b.Helper()
	a := b.pay(key, order, method)
	require.Equal(b.T, code, a.Code(), a)
	require.Equal(b.T, http.StatusPaymentRequired, a.Status)
	require.Equal(b.T, a.Identity(), b.pay(key, order, method).Identity())
	return a
}

// TestPayment is a payment's life, and each way it can go wrong at Stripe, as a
// client sees it: what the answer is, what the same request gets later, and how
// often the card was charged.
func TestPayment(t *testing.T) {
	t.Parallel()

	t.Run("SucceedsOnceAndReplaysItsResponse", func(t *testing.T) {
		b := setup(t)
		order := b.api.Order()
		first := b.succeeded("k", order)
		require.Equal(t, "/v1/payments/"+first.ID(), first.Header.Get("Location"))
		require.False(t, first.Replayed())
		again := b.pay("k", order, visa)
		require.Empty(t, world.Disagreements([]world.Answer{first, again}))
		require.True(t, again.Replayed())
		require.JSONEq(t, string(first.Body), string(b.api.Get("/v1/payments/"+first.ID()).Body))
		paid := b.api.Get("/v1/orders/" + order)
		require.Equal(t, "paid", paid.Get("status"))
		require.Equal(t, first.ID(), paid.Get("payment_id"))
		require.Equal(t, paid.Get("amount"), paid.Get("amount_paid"))
		require.Equal(t, []world.Sent{{Method: "POST", Path: "/v1/payment_intents",
			Key: b.w.Tenant.ID + ":" + order + ":intent:1"}}, b.w.Posts("payment_intents"))
		require.Equal(t, b.w.Tenant.ID+":k:confirm", b.w.Posts("confirm")[0].Key)
		b.w.RequireChargedOnce(order)
	})

	t.Run("IsResumedByTheSameRequest", func(t *testing.T) {
		b := setup(t)
		order := b.api.Order()
		b.inject(stripesim.Fault{Op: "intent.confirm", Kind: stripesim.Drop})
		unknown := b.unknown("k", order, visa)
		known := b.succeeded("k", order) // The claim was given back, so nobody has to wait for a lease.
		require.Equal(t, unknown.ID(), known.ID())
		require.False(t, known.Replayed())
		require.Len(t, b.w.Posts("confirm"), 1, "it looked, and did not push")
		b.w.RequireChargedOnce(order)
	})

	t.Run("IsFinishedWithoutTheClient", func(t *testing.T) {
		b := setup(t)
		order := b.api.Order()
		b.inject(stripesim.Fault{Op: "intent.confirm", Kind: stripesim.Drop})
		b.unknown("k", order, visa)
		require.Equal(t, 1, b.api.Complete())
		require.True(t, b.succeeded("k", order).Replayed())
		b.w.RequireChargedOnce(order)
	})

	t.Run("ResendsWhenNothingHappened", func(t *testing.T) {
		b := setup(t)
		order := b.api.Order()
		b.inject(stripesim.Fault{Op: "intent.confirm", Kind: stripesim.Reset})
		b.unknown("k", order, visa)
		b.succeeded("k", order)
		require.Len(t, b.w.Posts("confirm"), 2)
		b.w.RequireChargedOnce(order)
	})

	t.Run("WaitsForAnIntentWhoseCreationIsUnknown", func(t *testing.T) {
		b := setup(t)
		order := b.api.Order()
		b.inject(stripesim.Fault{Op: "intent.create", Kind: stripesim.Drop})
		b.unknown("k", order, visa)
		b.succeeded("k", order)
		b.w.RequireChargedOnce(order) // and one intent: the same key had made it
	})

	t.Run("IsDeclinedAndAnotherCardPays", func(t *testing.T) {
		b := setup(t)
		order := b.api.Order()
		declined := b.failed("payment-declined", "k", order, declining)
		require.Equal(t, "insufficient_funds", *declined.Problem().DeclineCode)
		require.Equal(t, "failed", declined.Problem().Payment["status"])
		require.Equal(t, "open", b.api.Get("/v1/orders/"+order).Get("status"))
		b.succeeded("k2", order)
		require.Len(t, b.w.Posts("payment_intents"), 1, "the second payment uses the intent of the first")
		b.w.RequireChargedOnce(order)
	})

	t.Run("ReadsADeclineWhoseResponseWasLost", func(t *testing.T) {
		b := setup(t)
		order := b.api.Order()
		b.inject(stripesim.Fault{Op: "intent.confirm", Kind: stripesim.Drop})
		b.unknown("k", order, declining)
		require.Equal(t, "payment-in-progress", b.pay("k2", order, visa).Code(),
			"nobody knows yet that the order is free")
		b.failed("payment-declined", "k", order, declining)
		b.succeeded("k2", order)
		b.w.RequireChargedOnce(order)
	})

	t.Run("FailsForGoodWhenStripeRefuses", func(t *testing.T) {
		b := setup(t)
		order := b.api.Order()
		failed := b.failed("payment-failed", "k", order, "pm_nope")
		require.Nil(t, failed.Problem().DeclineCode)
		require.Equal(t, "resource_missing", failed.Problem().Payment["failure"].(map[string]any)["code"])
		b.succeeded("k2", order)
		b.w.RequireChargedOnce(order)
	})

	t.Run("RetriesATransientRefusalAtOnce", func(t *testing.T) {
		b := setup(t)
		order := b.api.Order()
		b.inject(stripesim.Fault{Op: "intent.confirm", Kind: stripesim.LockTimeout, Times: 2})
		b.succeeded("k", order)
		require.Len(t, b.w.Posts("confirm"), 3)
		b.w.RequireChargedOnce(order)
	})

	t.Run("WaitsAfterRepeatedRefusals", func(t *testing.T) {
		b := setup(t)
		order := b.api.Order()
		b.inject(stripesim.Fault{Op: "intent.*", Kind: stripesim.Unauthorized, Times: 3})
		b.unknown("k", order, visa)
		b.succeeded("k", order)
		b.w.RequireChargedOnce(order)
	})

	t.Run("KeepsADoubtThroughRefusals", func(t *testing.T) {
		// The money moved and nobody was told. What follows is about other
		// attempts: none of it may be taken for the truth about that one.
		b := setup(t)
		order := b.api.Order()
		b.inject(stripesim.Fault{Op: "intent.confirm", Kind: stripesim.Drop})
		b.inject(stripesim.Fault{Op: "intent.get", Kind: stripesim.Refuse, Status: 500})
		b.unknown("k", order, visa)
		b.unknown("k", order, visa) // it could not look
		b.inject(stripesim.Fault{Op: "intent.get", Kind: stripesim.Stale, Times: 2})
		b.inject(stripesim.Fault{Op: "intent.confirm", Kind: stripesim.Refuse, Status: 400,
			Code: "parameter_invalid_empty"})
		a := b.api.PayUntilFinal("k", order,
			visa) // it looked, was shown the past, sent again, was refused, looked again
		require.Equal(t, http.StatusCreated, a.Status, a)
		b.w.RequireChargedOnce(order)
	})

	t.Run("WaitsOnAnUnknownIntentStatus", func(t *testing.T) {
		b := setup(t)
		order := b.api.Order()
		b.inject(stripesim.Fault{Op: "intent.confirm", Kind: stripesim.UnknownEnum})
		b.unknown("k", order, visa)
		b.succeeded("k", order)
		b.w.RequireChargedOnce(order)
	})

	// The key of another account is in use now, or Stripe has deleted its test data:
	// the intent on which a card was declined is not there any more.
	t.Run("AbandonsAnIntentMissingAtStripe", func(t *testing.T) {
		b := setup(t)
		order := b.api.Order()
		b.failed("payment-declined", "k", order, declining)
		there, sim := b.elsewhere()
		there.failed("payment-failed", "k2", order, visa)
		there.succeeded("k3", order)
		require.Equal(t, 1, sim.ChargeCount(order))
		require.Zero(t, b.w.Sim.ChargeCount(order))
	})

	// While nobody knows what came of a confirm, that Stripe does not know the intent
	// is no answer: the money may have moved in the account where it is.
	t.Run("StaysUnknownWhenTheIntentIsMissingAtStripe", func(t *testing.T) {
		b := setup(t)
		order := b.api.Order()
		b.inject(stripesim.Fault{Op: "intent.confirm", Kind: stripesim.Drop})
		b.unknown("k", order, visa)
		there, _ := b.elsewhere()
		there.unknown("k", order, visa)
		b.succeeded("k", order)
		b.w.RequireChargedOnce(order)
	})

	t.Run("BeginsWhileStripeIsUnreachable", func(t *testing.T) {
		// A port that was free a moment ago may be another test's server by now, and that answers.
		nobody := "http://127.0.0.1:1"
		b := setupWith(t, world.LocalOptions{Stripe: nobody})
		order := b.api.Order()
		b.unknown("k", order, visa)
		back := bench{t, b.w, b.w.Local(world.LocalOptions{})}
		require.Equal(t, 1, back.api.Complete())
		require.True(t, back.succeeded("k", order).Replayed())
		b.w.RequireChargedOnce(order)
	})
}

// TestCachedError is Stripe's worst answer: a 500 that is stored under the key and
// repeated for ever, whether the effect happened or not.
func TestCachedError(t *testing.T) {
	t.Parallel()

	t.Run("AfterTheMoneyMovedIsASuccess", func(t *testing.T) {
		b := setup(t)
		order := b.api.Order()
		b.inject(stripesim.Fault{Op: "intent.confirm", Kind: stripesim.EffectStoredError})
		b.unknown("k", order, visa)
		b.succeeded("k", order)
		b.w.RequireChargedOnce(order)
	})

	t.Run("WithoutEffectEndsInACanceledIntent", func(t *testing.T) {
		b := setup(t)
		order := b.api.Order()
		b.inject(stripesim.Fault{Op: "intent.confirm", Kind: stripesim.StoredError})
		b.unknown("k", order, visa)
		failed := b.failed("payment-failed", "k", order, visa)
		require.Equal(t, "provider_error", failed.Problem().Payment["failure"].(map[string]any)["code"])
		require.Len(t, b.w.Posts("confirm"), 2, "one more attempt, to learn that it is frozen")
		require.Equal(t, b.w.Tenant.ID+":"+order+":cancel:1", b.w.Posts("cancel")[0].Key)

		b.succeeded("k2", order) // with an intent of its own
		require.Len(t, b.w.Posts("payment_intents"), 2)
		b.w.RequireChargedOnce(order)
	})

	t.Run("OfACreationUsesTheNextIntent", func(t *testing.T) {
		for _, kind := range []string{stripesim.StoredError, stripesim.EffectStoredError} {
			t.Run(kind, func(t *testing.T) {
				b := setup(t)
				order := b.api.Order()
				b.inject(stripesim.Fault{Op: "intent.create", Kind: kind})
				b.unknown("k", order, visa)
				b.succeeded("k", order)
				require.Equal(t, b.w.Tenant.ID+":"+order+":intent:2", b.w.Posts("payment_intents")[2].Key)
				require.Zero(t, b.w.Count("SELECT count(*) FROM intent_searches"), "it was the first of its key")
				b.w.RequireChargedOnce(order)
			})
		}
	})

	t.Run("OfACreationWhoseFirstResponseWasLostUsesTheIntentThatItMadeOrTheNext", func(t *testing.T) {
		for kind, used := range map[string]int{stripesim.EffectStoredError: 1, stripesim.StoredError: 2} {
			t.Run(kind, func(t *testing.T) {
				b := setup(t)
				order := b.api.Order()
				b.inject(stripesim.Fault{Op: "intent.create", Kind: kind})
				b.unknown("k", order, visa)
				b.w.Exec("UPDATE stripe_calls SET request_ids = '{}'")
				b.succeeded("k", order)
				key := fmt.Sprintf("%s:%s:intent:%d", b.w.Tenant.ID, order, used)
				posts := b.w.Posts("payment_intents")
				require.Len(t, posts, used+1, "one more attempt, to learn that it is frozen")
				require.Equal(t, key, posts[used].Key)
				b.w.RequireChargedOnce(order)
			})
		}
	})

	t.Run("OfACancelIsSettledByReading", func(t *testing.T) {
		b := setup(t)
		order := b.api.Order()
		b.inject(stripesim.Fault{Op: "intent.confirm", Kind: stripesim.StoredError})
		b.inject(stripesim.Fault{Op: "intent.cancel", Kind: stripesim.EffectStoredError})
		b.unknown("k", order, visa)
		b.failed("payment-failed", "k", order, visa)
		b.succeeded("k2", order)
		b.w.RequireChargedOnce(order)
	})

	// Nobody confirms the intent any more, and while it is not canceled nobody may
	// say so. The stored error would repeat itself for a day.
	t.Run("OfACancelWithoutEffectIsNotTheLastCancel", func(t *testing.T) {
		b := setup(t)
		order := b.api.Order()
		b.inject(stripesim.Fault{Op: "intent.confirm", Kind: stripesim.StoredError})
		b.inject(stripesim.Fault{Op: "intent.cancel", Kind: stripesim.StoredError})
		b.unknown("k", order, visa)
		b.api.Complete()
		b.failed("payment-failed", "k", order, visa)
		cancel := b.w.Tenant.ID + ":" + order + ":cancel:1"
		require.Equal(t, []string{cancel, cancel, cancel + ":2"}, keysOf(b.w.Posts("cancel")),
			"one more attempt, to learn that it is frozen")
		b.succeeded("k2", order)
		b.w.RequireChargedOnce(order)
	})

	// The money moves after all, while the cancel's error repeats itself.
	t.Run("OfACancelThatCameTooLateIsASuccess", func(t *testing.T) {
		b := setup(t)
		order := b.api.Order()
		_, intent := b.pay("k", order, careful), b.w.Text("SELECT intent_id FROM payments")
		b.inject(stripesim.Fault{Op: "intent.cancel", Kind: stripesim.StoredError})
		cancel := func() world.Answer { return b.api.Post("/v1/orders/"+order+"/cancel", "cancel", `{}`) }
		require.Equal(t, http.StatusAccepted, cancel().Status)
		require.NoError(t, b.w.Sim.CompleteAuthentication(intent, true))
		require.Equal(t, "order-not-cancelable", cancel().Code())
		b.api.Complete()
		b.w.RequireChargedOnce(order)
	})

	t.Run("IsNotARetryableError", func(t *testing.T) {
		b := setup(t)
		order := b.api.Order()
		b.inject(stripesim.Fault{Op: "intent.confirm", Kind: stripesim.RetryError, Times: 3})
		for range 3 {
			b.unknown("k", order, visa)
		}
		b.succeeded("k", order)
		require.Empty(t, b.w.Posts("cancel"))
		b.w.RequireChargedOnce(order)
	})
}

func keysOf(posts []world.Sent) (keys []string) {
	for _, p := range posts {
		keys = append(keys, p.Key)
	}
	return keys
}

// TestCustomerMustAct: 3-D Secure is a state a payment waits in, not an answer.
func TestCustomerMustAct(t *testing.T) {
	t.Parallel()
	waiting := func(b bench, order string) (payment world.Answer, intent string) {
		b.Helper()
		a := b.pay("k", order, careful)
		require.Equal(b.T, http.StatusAccepted, a.Status, a)
		require.Equal(b.T, "requires_action", a.Get("status"))
		require.NotEmpty(b.T, a.Get("next_action", "client_secret"))
		intent, _ = a.Get("stripe", "payment_intent").(string)
		return a, intent
	}

	t.Run("AndDoes", func(t *testing.T) {
		b := setup(t)
		order := b.api.Order()
		first, intent := waiting(b, order)
		again, _ := waiting(b, order)
		require.Equal(t, first.Body, again.Body)
		require.Regexp(t, `^req_\w+$`, b.w.Text(`SELECT array_to_string(request_ids, ' ') FROM stripe_calls
			WHERE operation = 'confirm'`), "for Stripe's support")
		require.False(t, again.Replayed(), "it is not the last word")
		require.Equal(t, "payment-in-progress", b.pay("k2", order, visa).Code())
		require.NoError(t, b.w.Sim.CompleteAuthentication(intent, true))
		done := b.pay("k", order, careful)
		require.Equal(t, http.StatusCreated, done.Status, done)
		require.Nil(t, done.Get("next_action"))
		require.Equal(t, done.Identity(), b.pay("k", order, careful).Identity())
		b.w.RequireChargedOnce(order)
	})

	t.Run("AndFailsTo", func(t *testing.T) {
		b := setup(t)
		order := b.api.Order()
		_, intent := waiting(b, order)
		require.NoError(t, b.w.Sim.CompleteAuthentication(intent, false))
		b.failed("payment-failed", "k", order, careful)
		b.succeeded("k2", order)
		b.w.RequireChargedOnce(order)
	})

	t.Run("AndIsDeclinedAfterwards", func(t *testing.T) {
		b := setup(t)
		order := b.api.Order()
		const method = "pm_card_threeDSecureRequiredChargeDeclined"
		a := b.pay("k", order, method)
		require.Equal(t, "requires_action", a.Get("status"))
		require.NoError(t, b.w.Sim.CompleteAuthentication(a.Get("stripe", "payment_intent").(string), true))
		b.failed("payment-declined", "k", order, method)
		b.w.RequireSound()
	})

	t.Run("AndNeverDoes", func(t *testing.T) {
		b := setupWith(t, world.LocalOptions{ActionTimeout: time.Millisecond})
		order := b.api.Order()
		waiting(b, order)
		require.Equal(t, 1, b.api.Complete())
		canceled := b.failed("payment-failed", "k", order, careful)
		require.Equal(t, "canceled", canceled.Problem().Payment["status"])
		b.succeeded("k2", order)
		b.w.RequireChargedOnce(order)
	})

	t.Run("AndGivesUp", func(t *testing.T) {
		b := setup(t)
		order := b.api.Order()
		payment, _ := waiting(b, order)
		canceled := b.api.Post("/v1/payments/"+payment.ID()+"/cancel", "c", "")
		require.Equal(t, http.StatusOK, canceled.Status, canceled)
		require.Equal(t, "canceled", canceled.Get("status"))
		require.Equal(t, canceled.Identity(), b.api.Post("/v1/payments/"+payment.ID()+"/cancel", "c", "{}").Identity(),
			"an empty object is nothing")
		b.failed("payment-failed", "k", order, careful)
		b.succeeded("k2", order)
		require.Equal(t, "payment-not-cancelable",
			b.api.Post("/v1/payments/"+b.pay("k2", order, visa).ID()+"/cancel", "c2", "").Code())
		b.w.RequireChargedOnce(order)
	})

	t.Run("AndCancelsTheOrder", func(t *testing.T) {
		b := setup(t)
		order := b.api.Order()
		waiting(b, order)
		b.inject(stripesim.Fault{Op: "intent.cancel", Kind: stripesim.Drop})
		canceled := b.api.Post("/v1/orders/"+order+"/cancel", "c", "")
		require.Equal(t, http.StatusOK, canceled.Status, canceled)
		require.Equal(t, "canceled", canceled.Get("status"))
		b.failed("payment-failed", "k", order, careful)
		require.Equal(t, "order-not-payable", b.pay("k2", order, visa).Code())
		require.Zero(t, b.w.Sim.ChargeCount(order))
		b.w.RequireSound()
	})

	t.Run("AndPaysJustBeforeTheOrderIsCanceled", func(t *testing.T) {
		b := setup(t)
		order := b.api.Order()
		_, intent := waiting(b, order)
		require.NoError(t, b.w.Sim.CompleteAuthentication(intent, true))
		late := b.api.Post("/v1/orders/"+order+"/cancel", "c", "")
		require.Equal(t, "order-not-cancelable", late.Code(), late)
		require.Equal(t, 1, b.api.Complete())
		b.w.RequireChargedOnce(order)
	})
}

// TestOrderIsPaidOnce whatever keys are used, and whoever asks.
func TestOrderIsPaidOnce(t *testing.T) {
	t.Parallel()

	// The payment takes the order and then its key. A cancel that took them the other
	// way round would wait for it, and it for the cancel.
	t.Run("OrCanceledByTheSameKeyAtOnce", func(t *testing.T) {
		b := setup(t)
		b.w.Exec(`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET deadlock_timeout = %L', current_database(), ` +
			`'1min'); END $$`) // so that nobody resolves it
		api, order := b.w.Local(world.LocalOptions{}), b.api.Order()
		var paid, canceled world.Answer
		b.w.WhileLocked(2, func() {
			done := make(chan struct{})
			go func() {
				defer close(done)
				paid = api.Pay("k", order, visa)
			}()
			b.w.Until("the payment waits for the order", func() bool { return b.w.WaitingForLocks() == 1 })
			canceled = api.Post("/v1/orders/"+order+"/cancel", "k", "")
			<-done
		}, "SELECT FROM orders WHERE id = $1 FOR UPDATE", order)
		require.Equal(t, http.StatusCreated, paid.Status, paid)
		require.Equal(t, "idempotency-key-mismatch", canceled.Code(), canceled)
		b.w.RequireChargedOnce(order)
	})

	t.Run("ByOneOfManyKeysAtOnce", func(t *testing.T) {
		b := setupWith(t, world.LocalOptions{Name: "one"})
		other := b.w.Local(world.LocalOptions{Name: "other"})
		for range 5 {
			order := b.api.Order()
			answers := world.Together(20, func(i int) world.Answer {
				api := []*world.Local{b.api, other}[i%2]
				return api.Pay(order+string(rune('a'+i)), order, visa)
			})
			won := 0
			for _, a := range answers {
				switch a.Code() {
				case "payment-in-progress":
					require.NotEmpty(t, a.Header.Get("Retry-After"))
				case "order-already-paid":
				default:
					require.Equal(t, http.StatusCreated, a.Status, a)
					won++
				}
			}
			require.Equal(t, 1, won)
			b.w.RequireChargedOnce(order)
		}
	})

	t.Run("AndReplaysItsResponse", func(t *testing.T) {
		b := setup(t)
		order := b.api.Order()
		b.succeeded("k", order)
		paid := b.pay("k2", order, visa)
		require.Equal(t, "order-already-paid", paid.Code())
		again := b.pay("k2", order, visa)
		require.True(t, again.Replayed())
		require.Equal(t, paid.Identity(), again.Identity())
		b.w.RequireChargedOnce(order)
	})

	t.Run("InProgressIsNotStored", func(t *testing.T) {
		b := setup(t)
		order := b.api.Order()
		b.inject(stripesim.Fault{Op: "intent.confirm", Kind: stripesim.Reset})
		b.unknown("k", order, declining)
		require.Equal(t, "payment-in-progress", b.pay("k2", order, visa).Code())
		require.Empty(t, b.w.RecoveryPoint("k2"))
		b.failed("payment-declined", "k", order, declining)
		require.False(t, b.succeeded("k2", order).Replayed(), "the same key is a first request again")
		b.w.RequireChargedOnce(order)
	})

	t.Run("OfEachTenant", func(t *testing.T) {
		b := setup(t)
		stranger := b.w.NewTenant()
		theirs := b.api.As(stranger)
		order, theirOrder := b.api.Order(), theirs.Order()
		mine := b.succeeded("k", order)
		require.Equal(t, http.StatusNotFound, theirs.Pay("k", order, visa).Status,
			"another tenant's order is not there, and neither is the key")
		their := theirs.Pay("k", theirOrder, visa)
		require.Equal(t, http.StatusCreated, their.Status, their)
		require.False(t, their.Replayed())
		require.NotEqual(t, mine.ID(), their.ID())
		for _, path := range []string{"/v1/orders/" + order, "/v1/payments/" + mine.ID()} {
			require.Equal(t, http.StatusNotFound, theirs.Get(path).Status)
			require.Equal(t, http.StatusOK, b.api.Get(path).Status)
		}
		for path, key := range map[string]string{"/v1/orders/" + order + "/cancel": "a",
			"/v1/payments/" + mine.ID() + "/cancel": "b"} {
			require.Equal(t, http.StatusNotFound, theirs.Post(path, key, "").Status)
		}
		require.Equal(t, []any{}, theirs.Get("/v1/payments?order_id="+order).Get("data"))
		require.Equal(t, http.StatusBadRequest, theirs.Get("/v1/payments?starting_after="+mine.ID()).Status)
		require.Len(t, theirs.Get("/v1/payments").Get("data"), 1)
		b.w.RequireChargedOnce(order)
		b.w.RequireChargedOnce(theirOrder)
	})
}

// TestCancelBeginsMeanwhile: between the look at an order and the claim a cancel of it
// has begun. Whoever pays now pays an order that is about to be closed. An order is looked at if T1 could not take
// its payment for its first.
func TestCancelBeginsMeanwhile(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	proxy, err := pgproxy.Start(w.URL)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, proxy.Close()) })
	api := w.Local(world.LocalOptions{Database: proxy.URL()})
	order := api.Order()
	goOn := make(chan struct{})
	looked := proxy.Hold("-- name: OrderToPay", goOn)
	require.Equal(t, http.StatusPaymentRequired, api.Pay("declined", order, "pm_card_visa_chargeDeclined").Status)
	answer := world.Async(func() world.Answer { return api.Pay("k", order, visa) })
	looked.Await(t)
	w.Exec(`UPDATE orders SET canceling_key = 'c' WHERE id = $1`, order)
	close(goOn)
	a := <-answer
	require.Equal(t, "payment-in-progress", a.Code(), a)
	require.Equal(t, 1, w.Count(`SELECT count(*) FROM payments`))
	require.Zero(t, w.Sim.ChargeCount(order))
}

// TestClientHangsUp: the work goes on, on whatever the service had begun.
func TestClientHangsUp(t *testing.T) {
	b := setup(t)
	order := b.api.Order()
	moving := b.w.Sim.Hold(stripesim.Selector{Op: "intent.confirm"}, stripesim.BeforeEffect)
	ctx, hangUp := context.WithCancel(t.Context())
	gone := world.Async(func() world.Answer {
		return b.api.DoContext(ctx, "POST", "/v1/payments", world.PayBody(order, visa), "Idempotency-Key: k")
	})
	world.WaitHeld(b.w.T, moving)
	hangUp()
	require.Error(t, (<-gone).Err)
	// Nothing would be unsafe about work that ends here and is taken up after its
	// lease. But whoever asks again would wait that long for an answer.
	const goesOn = "the work goes on: the time to a final answer is that of the work, not of a lease"
	require.Never(t, func() bool { return len(moving.Waiting()) == 0 }, 300*time.Millisecond, 5*time.Millisecond,
		goesOn) // by then the server has heard of it
	moving.Release()
	require.Eventually(t, func() bool { return b.w.RecoveryPoint("k") == "finished" }, time.Minute, 10*time.Millisecond,
		goesOn) // There is no completer.
	require.True(t, b.succeeded("k", order).Replayed())
	require.Len(t, b.w.Posts("confirm"), 1)
	b.w.RequireChargedOnce(order)
}

// A client that hangs up before its key was looked up cannot be told from one that has only closed its
// sending side, so its request is carried out. It has met no error of ours.
func TestClientHangsUpBeforeTheClaim(t *testing.T) {
	b := setup(t)
	order := b.api.Order()
	tx, err := b.w.DB.Raw().Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }() // a test that fails must not wait for it
	_, err = tx.Exec(t.Context(), `LOCK TABLE idempotency_keys`)
	require.NoError(t, err)
	ctx, hangUp := context.WithCancel(t.Context())
	gone := world.Async(func() world.Answer {
		return b.api.DoContext(ctx, "POST", "/v1/payments", world.PayBody(order, visa), "Idempotency-Key: k")
	})
	b.w.Until("the key is looked up", func() bool { return b.w.WaitingForLocks() == 1 })
	hangUp()
	require.Error(t, (<-gone).Err)
	require.NoError(t, tx.Rollback(t.Context()))
	b.w.Until("the request is carried out", func() bool { return b.w.RecoveryPoint("k") == "finished" })
	require.True(t, b.succeeded("k", order).Replayed())
	b.w.RequireChargedOnce(order)
}
