// Package stripesim is a Stripe that can be broken on purpose and asked
// afterwards what really happened.
//
// # What it is for
//
// "The customer is charged once" cannot be proved by the program that claims it:
// its own tables would agree with it even if it were wrong. So the proof has a
// second witness. The simulator speaks Stripe's API of 2023-10-16 over a real
// socket, keeps its own journal, and imports nothing of this project, so that it
// cannot share a mistake with it. Its log of effects ([Effect]) is written by
// the transaction that takes the money, is only appended to, and does not know
// what was answered to whom. Tests, the demo, chaos and the load test all count
// the same thing: [Sim.ChargeCount].
//
// # What it promises
//
//   - A request that is answered has happened; its transaction was in the
//     journal before the answer left. Kill the process at any instruction and
//     start it on the same file: objects, idempotency keys, effects and
//     undelivered webhooks are what they were, and a line cut short by the kill
//     is as if it had never begun.
//   - The idempotency layer is Stripe's, in Stripe's order (idempotency.go):
//     keys span endpoints, parameters are compared parsed, a key in use is a
//     409, everything an execution said is replayed, 402 and 500 included, and
//     nothing that came before the execution is.
//   - An intent takes money at most once, whichever client and key:
//     its state machine refuses the second confirm. Two intents are two charges.
//     Nothing here tries to save the caller from that.
//   - An authorisation takes no money: only its capture is a charge in the log, of
//     the captured amount. What was authorised is captured, released or expired
//     in the end, whichever [ReleaseRegime] decides what a release looks like.
//   - A forgotten key (a day on the clock, or PruneKeys) executes again. For a
//     refund that is a second refund.
//   - A fault that is armed fires when it says, is counted, and says on which
//     request. A script with a misspelt kind, operation or field is refused, for
//     a test that breaks nothing proves nothing.
//   - With a Seed, ids are the same for the same requests in the same order;
//     faults with a probability carry a seed of their own.
//
// # What it does not promise
//
// It is not Stripe. Where the real one is unknown or different,
// DIFFERENCES.md says so; a parameter it does not act on is refused by name
// rather than swallowed. It survives kill -9, not the loss of power. It is not
// safe to expose: any sk_test_ key can be let in, and the admin port is not
// authenticated at all.
//
// # Using it
//
//	sim, err := stripesim.New(stripesim.Options{})
//	api := httptest.NewServer(sim.Handler())        // for stripe-go: BackendConfig.URL
//	port, err := sim.Listen("127.0.0.1:0", true)    // or with TLS and HTTP/2 on offer, as Stripe has it
//	admin := httptest.NewServer(sim.AdminHandler()) // the same faults over HTTP, and as a page with buttons
//
//	sim.Inject(stripesim.Fault{Op: "intent.confirm", Kind: stripesim.Drop}) // charged, and the response dropped
//	held := sim.Hold(stripesim.Selector{Op: "intent.confirm"}, stripesim.AfterEffect)
//	_, err = held.Wait(ctx) // the money has moved, the caller does not know: the time to kill it
//	held.Release()
//
//	sim.Advance(25 * time.Hour) // keys are forgotten, webhooks retried, authorisations nearer their end
//	sim.ChargeCount("order_1")  // 1, or there is a bug
//
// The folder is a module of its own, so that tests of another project can use it
// too: copy the folder, or name it in a replace directive. It imports the
// standard library only; what go.mod requires is for its own tests.
//
// # Faults by what they leave behind
//
//	effect  key      client sees      kinds
//	no      free     no answer        Reset ReusedReset BlackHole Silence
//	no      free     a refusal        Unauthorized RateLimited LockTimeout InUse Refuse RetryError
//	no      frozen   500              StoredError
//	yes     stored   it, late         DelayBefore DelayExecuting Delay SlowBody
//	yes     stored   no answer        Drop ReusedDrop Cut
//	yes     stored   something else   EffectError InvalidJSON UnknownEnum UnknownFields Stale
//	yes     frozen   500              EffectStoredError
//	yes     free     5xx              EffectForgotten
//
// The refusals without effect come before the key is looked at, so they also hit
// the replay of a known key. A client on net/http that reuses a connection and
// gets Reset or Drop on it sends the request again on its own, because it carries
// an idempotency key: what it reports is then the second answer. Webhooks have faults of their own ([WebhookFault]).
// [Sim.SetRequestsPerConnection] is no fault: Stripe ends a connection after so many requests by itself.
package stripesim
