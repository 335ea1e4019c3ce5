package chaos

import (
	"context"
	"math/rand/v2"
	"time"

	"example.com/payonce/stripesim"
)

// late is longer than the service waits for Stripe.
const late = 2 * stripeTimeout

// hopelessKey is the key of a capture that gets 503 from Stripe until the faults end (hopeless): an alert must fire, because
// nobody knows meanwhile whether it took the money. People leave it alone, or the doubt would end early.
const hopelessKey = "capture-hopeless"

var hopeless = stripesim.Fault{Op: "intent.capture", Key: hopelessKey, Kind: stripesim.Refuse, Status: 503, HTML: true,
	Times: -1}

// stripesFaults is every fault that the simulator has, at least once, and how
// often. One is left out of refunds: a key that is forgotten before its day is
// over breaks Stripe's promise, and a second refund under it would be Stripe's.
// For an intent it is harmless, whose state refuses a second charge.
var stripesFaults = []stripesim.Fault{
	{Op: "intent.confirm", Kind: stripesim.Drop, Probability: 0.05},
	{Op: "intent.confirm", Kind: stripesim.Reset, Probability: 0.02},
	{Op: "intent.confirm", Kind: stripesim.ReusedDrop, Probability: 0.01},
	{Op: "intent.confirm", Kind: stripesim.ReusedReset, Probability: 0.01},
	{Op: "intent.confirm", Kind: stripesim.BlackHole, Probability: 0.01, Delay: late},
	{Op: "intent.confirm", Kind: stripesim.Delay, Probability: 0.02, Delay: late},
	{Op: "intent.confirm", Kind: stripesim.DelayBefore, Probability: 0.02, Delay: late},
	{Op: "intent.confirm", Kind: stripesim.DelayExecuting, Probability: 0.01, Delay: late},
	{Op: "intent.confirm", Kind: stripesim.SlowBody, Probability: 0.01, Delay: late},
	{Op: "intent.confirm", Kind: stripesim.Cut, Probability: 0.02, Bytes: 40},
	{Op: "intent.confirm", Kind: stripesim.StoredError, Probability: 0.01},
	{Op: "intent.confirm", Kind: stripesim.EffectStoredError, Probability: 0.01},
	{Op: "intent.confirm", Kind: stripesim.EffectError, Probability: 0.01},
	{Op: "intent.confirm", Kind: stripesim.EffectError, Probability: 0.01, HTML: true},
	{Op: "intent.confirm", Kind: stripesim.EffectForgotten, Probability: 0.01},
	{Op: "intent.confirm", Kind: stripesim.InvalidJSON, Probability: 0.01},
	{Op: "intent.confirm", Kind: stripesim.UnknownEnum, Probability: 0.01},
	{Op: "intent.confirm", Kind: stripesim.UnknownFields, Probability: 0.02},
	{Op: "intent.confirm", Kind: stripesim.Stale, Probability: 0.01},
	{Op: "intent.confirm", Kind: stripesim.LockTimeout, Probability: 0.01},
	{Op: "intent.confirm", Kind: stripesim.InUse, Probability: 0.01},
	{Op: "intent.confirm", Kind: stripesim.RetryError, Probability: 0.01},
	// Who is in doubt about a confirm or a refund looks, and sends again only what
	// did not happen, so Stripe hardly ever has to repeat itself. An intent that has
	// not been confirmed moves nothing: there one sends again at once, under the same
	// key. These make Stripe's own guard against a second effect be needed often.
	{Op: "intent.create", Kind: stripesim.Drop, Probability: 0.30},
	{Op: "intent.create", Kind: stripesim.Cut, Probability: 0.08, Bytes: 40},
	{Op: "intent.create", Kind: stripesim.EffectError, Probability: 0.06},
	{Op: "intent.create", Kind: stripesim.RateLimited, Probability: 0.02},
	{Op: "intent.create", Kind: stripesim.Unauthorized, Probability: 0.02},
	{Op: "intent.create", Kind: stripesim.Refuse, Probability: 0.01, Status: 503, HTML: true},
	{Op: "intent.create", Kind: stripesim.StoredError, Probability: 0.01},
	{Op: "intent.capture", Kind: stripesim.Drop, Probability: 0.05},
	{Op: "intent.capture", Kind: stripesim.BlackHole, Probability: 0.01, Delay: late},
	{Op: "intent.capture", Kind: stripesim.EffectError, Probability: 0.02},
	{Op: "intent.capture", Kind: stripesim.EffectStoredError, Probability: 0.01},
	{Op: "intent.capture", Kind: stripesim.StoredError, Probability: 0.01},
	{Op: "intent.capture", Kind: stripesim.Stale, Probability: 0.01},
	{Op: "intent.cancel", Kind: stripesim.Drop, Probability: 0.05},
	{Op: "intent.cancel", Kind: stripesim.EffectStoredError, Probability: 0.02},
	{Op: "refund.create", Kind: stripesim.Drop, Probability: 0.10},
	{Op: "refund.create", Kind: stripesim.EffectError, Probability: 0.05},
	{Op: "refund.create", Kind: stripesim.EffectStoredError, Probability: 0.02},
	{Op: "*.get", Kind: stripesim.Reset, Probability: 0.02},
	{Op: "*.get", Kind: stripesim.Silence, Probability: 0.01},
	{Op: "*.get", Kind: stripesim.Refuse, Probability: 0.01},
}

// atStripe arms the provider's faults for the whole run: what share of the calls
// goes wrong, and how. Each happens once for certain, spread over the first calls
// of its kind, so that none is left to luck.
func (n *nemesis) atStripe() {
	of := map[string]int{}
	for _, f := range stripesFaults {
		f.Probability, f.Skip = 0, 2+3*of[f.Op]
		of[f.Op]++
		n.arm(f)
	}
	for i, f := range stripesFaults {
		f.Times, f.Seed = -1, n.seed+uint64(i)+1
		n.arm(f)
	}
}

// arm arms a fault at Stripe. Of several that match a call, the first that was armed hits it.
func (n *nemesis) arm(f stripesim.Fault) { n.stripeFaults[n.world.sim.Inject(f)] = f.Kind }

// webhooksFaults are the ways in which events come otherwise than once, in order
// and in time.
var webhooksFaults = []stripesim.WebhookFault{
	{Kind: stripesim.WebhookDuplicate, Count: 3},
	{Kind: stripesim.WebhookDouble},
	{Kind: stripesim.WebhookReorder, Count: 4},
	{Kind: stripesim.WebhookBurst, Count: 6},
	{Kind: stripesim.WebhookDelay, Delay: 2 * time.Second},
	{Kind: stripesim.WebhookDrop},
	{Kind: stripesim.WebhookNever},
	{Kind: stripesim.WebhookWrongSignature},
	{Kind: stripesim.WebhookStale},
	{Kind: stripesim.WebhookVersion},
}

// hitWebhook arms one of them for the next events that come.
func (n *nemesis) hitWebhook(_ context.Context, r *rand.Rand) error {
	f := webhooksFaults[r.IntN(len(webhooksFaults))]
	id := n.world.sim.InjectWebhook(f)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.webhookFaults[id] = f.Kind
	return nil
}

// countStripe asks the simulator which faults have fired: it drops them when
// they are cleared.
func (n *nemesis) countStripe() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for id, fired := range n.world.sim.FaultsFired() {
		if fired > 0 {
			n.count["stripe_"+n.stripeFaults[id]] += fired
		}
	}
	for id, fired := range n.world.sim.WebhookFaultsFired() {
		if fired > 0 {
			n.count["webhook_"+n.webhookFaults[id]]++
		}
	}
}
