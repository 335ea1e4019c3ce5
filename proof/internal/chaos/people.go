package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"example.com/payonce/stripesim"
)

// People move money at Stripe without the service: whoever sits at the dashboard makes
// refunds, cancels intents and has customers who dispute; and a browser pays with a client
// secret that it was once given, when the service has long gone on. What they did must be
// in our rows at the end, whoever told us, or nobody (I24).

// The people that a run may have (Config.People).
const (
	PeopleRefund  = "refunds"
	PeopleDispute = "disputes"
	PeopleCancel  = "cancels"
	PeopleCapture = "captures"
	PeopleBrowser = "browser"
)

// AllPeople are all of them.
var AllPeople = []string{PeopleRefund, PeopleDispute, PeopleCancel, PeopleCapture, PeopleBrowser}

type people struct {
	world *world
	who   []string

	mu       sync.Mutex
	secrets  []string          // that browsers hold, and have not paid with
	refunds  map[string]string // made at the dashboard, with their intents
	disputes []string
	paid     map[string]string // intents that a browser paid, with their orders
	canceled int
	captured int
}

func newPeople(w *world, who []string) *people {
	return &people{world: w, who: who, refunds: map[string]string{}, paid: map[string]string{}}
}

// hands are those of the people who take part. Each acts once or twice a second.
func (p *people) hands() (list []hand) {
	for _, one := range []struct {
		who  string
		does func(context.Context, *rand.Rand)
	}{
		{PeopleRefund, p.refund}, {PeopleDispute, p.dispute}, {PeopleCancel, p.cancel}, {PeopleCapture, p.capture},
		{PeopleBrowser, p.pay},
	} {
		if slices.Contains(p.who, one.who) {
			list = append(list, hand{300 * time.Millisecond, time.Second,
				func(ctx context.Context, r *rand.Rand) error {
					one.does(ctx, r)
					return nil
				}})
		}
	}
	return list
}

// run has them act until ctx ends.
func (p *people) run(ctx context.Context, seed uint64) {
	var all sync.WaitGroup
	for i, h := range p.hands() {
		all.Go(func() { _ = h.run(ctx, rand.New(rand.NewPCG(seed, uint64(i)+200))) }) // none of them fails
	}
	all.Wait()
}

// counts is what they have done.
func (p *people) counts() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return map[string]int{
		PeopleRefund: len(p.refunds), PeopleDispute: len(p.disputes), PeopleCancel: p.canceled,
		PeopleCapture: p.captured, PeopleBrowser: len(p.paid),
	}
}

// given remembers the secret of a customer who has failed 3-D Secure.
func (p *people) given(secret string) {
	if secret == "" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.secrets = append(p.secrets, secret)
}

// payLate is every browser that still has a secret, when its payment has long ended here.
func (p *people) payLate(ctx context.Context, r *rand.Rand) {
	for slices.Contains(p.who, PeopleBrowser) && ctx.Err() == nil {
		p.mu.Lock()
		left := len(p.secrets)
		p.mu.Unlock()
		if left == 0 {
			return
		}
		p.pay(ctx, r)
	}
}

// pay is a browser that tries another card, at once or much later.
func (p *people) pay(_ context.Context, r *rand.Rand) {
	p.mu.Lock()
	n := len(p.secrets)
	var secret string
	if n > 0 {
		i := r.IntN(n)
		secret = p.secrets[i]
		p.secrets = slices.Delete(p.secrets, i, i+1)
	}
	p.mu.Unlock()
	if secret == "" || p.world.sim.PayInBrowser(secret, goodCard) != nil { // Too late is as good as never.
		return
	}
	intent, _, _ := strings.Cut(secret, "_secret_")
	for _, e := range p.world.sim.Effects() {
		if e.Kind == stripesim.EffectCharge && e.IntentID == intent {
			p.mu.Lock()
			p.paid[intent] = e.Metadata["order_id"]
			p.mu.Unlock()
		}
	}
}

// someCharge is one of the latest charges.
func (p *people) someCharge(r *rand.Rand) (charge stripesim.Effect, ok bool) {
	var charges []stripesim.Effect
	for _, e := range p.world.sim.Effects() {
		if e.Kind == stripesim.EffectCharge {
			charges = append(charges, e)
		}
	}
	if len(charges) == 0 {
		return charge, false
	}
	return charges[len(charges)-1-r.IntN(min(len(charges), 100))], true
}

// refund makes one at the dashboard, of a part or all that is left. Whoever does it writes a
// note, which may look like one of ours.
func (p *people) refund(ctx context.Context, r *rand.Rand) {
	charge, ok := p.someCharge(r)
	if !ok {
		return
	}
	form := url.Values{"payment_intent": {charge.IntentID}}
	if r.IntN(3) > 0 {
		form.Set("amount", strconv.FormatInt(1+r.Int64N(charge.Amount), 10))
	}
	if r.IntN(3) == 0 {
		form.Set("metadata[refund_id]", "RMA-"+strconv.Itoa(r.IntN(100)))
	}
	var made struct {
		ID string `json:"id"`
	}
	if !p.atDashboard(ctx, "/v1/refunds", form, &made) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refunds[made.ID] = charge.IntentID
}

// dispute is a customer who asks his bank for his money. The shop answers some.
func (p *people) dispute(ctx context.Context, r *rand.Rand) {
	charge, ok := p.someCharge(r)
	if !ok || r.IntN(3) > 0 { // rarer than refunds
		return
	}
	id, err := p.world.sim.OpenDispute(charge.ChargeID, "fraudulent", r.IntN(4) == 0)
	if err != nil { // It cannot be disputed now.
		return
	}
	p.mu.Lock()
	p.disputes = append(p.disputes, id)
	p.mu.Unlock()
	if evidence := [...]string{"", "winning_evidence", "losing_evidence"}[r.IntN(3)]; evidence != "" {
		p.atDashboard(ctx, "/v1/disputes/"+id, url.Values{"evidence[uncategorized_text]": {evidence}, "submit": {"true"}},
			nil)
	}
}

// cancel cancels an intent of a customer who takes too long, or releases what is reserved on his card.
func (p *people) cancel(ctx context.Context, r *rand.Rand) {
	waiting, err := p.world.strings(ctx,
		`SELECT intent_id FROM payments WHERE status IN ('requires_action', 'authorized') AND intent_id IS NOT NULL
			AND capturing_key IS DISTINCT FROM '`+hopelessKey+`'`)
	if err != nil || len(waiting) == 0 { // The database may be away.
		return
	}
	if p.atDashboard(ctx, "/v1/payment_intents/"+waiting[r.IntN(len(waiting))]+"/cancel", url.Values{}, nil) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.canceled++
	}
}

// capture takes what is reserved, or a part of it.
func (p *people) capture(ctx context.Context, r *rand.Rand) {
	held, err := p.world.strings(ctx, `SELECT intent_id || ' ' || amount_minor FROM payments WHERE status = 'authorized'
		AND capturing_key IS DISTINCT FROM '`+hopelessKey+`'`)
	if err != nil || len(held) == 0 {
		return
	}
	intent, of, _ := strings.Cut(held[r.IntN(len(held))], " ")
	amount, err := strconv.ParseInt(of, 10, 64)
	if err != nil || p.world.sim.CaptureInDashboard(intent, 1+r.Int64N(amount)) != nil { // We were faster.
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.captured++
}

// atDashboard changes something at Stripe. Not done: Stripe refused it, or one of the faults that are meant for the service
// met it, and nobody knows.
func (p *people) atDashboard(ctx context.Context, path string, form url.Values, into any) (done bool) {
	return p.atStripe(ctx, http.MethodPost, path, form, into)
}

// atStripe makes a request to Stripe that is not ours: it has no Idempotency-Key.
func (p *people) atStripe(ctx context.Context, method, path string, form url.Values, into any) (done bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, method, p.world.stripe.URL+path, strings.NewReader(form.Encode()))
	if err != nil {
		return false
	}
	q.Header.Set("Authorization", "Bearer "+stripeKey)
	q.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	res, err := http.DefaultClient.Do(q)
	if err != nil {
		return false
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	return err == nil && res.StatusCode == http.StatusOK && (into == nil || json.Unmarshal(body, into) == nil)
}

// deadline of every dispute, and of every authorization of the first half of a run: near enough for the alerts that warn
// of it. Those of the second half last as long as networks keep them, so a run ends with some.
const deadline = 20 * time.Hour

// end ends what people have left open, and what is near its deadline.
func (p *people) end(ctx context.Context) error {
	// The shop accepts the disputes that have not ended: while one waits for it, an alert fires.
	for _, id := range p.disputes {
		p.atDashboard(ctx, "/v1/disputes/"+id+"/close", nil, nil)
	}
	expiring, err := p.world.strings(ctx, `SELECT intent_id FROM payments
		WHERE status = 'authorized' AND capture_before < clock_timestamp() + interval '1 day'`)
	if err != nil {
		return err
	}
	for _, intent := range expiring {
		p.atDashboard(ctx, "/v1/payment_intents/"+intent+"/cancel", nil, nil)
	}
	return nil
}

// settle has the reconciler look now, instead of in some minutes, and waits until what people did is in our rows.
func (p *people) settle(ctx context.Context) error {
	_, _, err := p.world.until(ctx, adoptedWithin, func() (string, error) {
		if _, err := p.world.pool.Raw().Exec(ctx, `UPDATE reconciliation_windows SET next_at = '-infinity'`); err != nil {
			return "", err
		}
		_, missing, err := p.unknown(ctx)
		if err != nil || len(missing) == 0 {
			return "", err
		}
		rest(ctx, time.Second)
		return fmt.Sprintf("%d things that people did are not in our rows", len(missing)), nil
	}, nil)
	return err
}

// adoptedWithin is for reading Stripe's lists, as often as it takes. What it takes longer is a violation.
const adoptedWithin = 30 * time.Second

// unknown lists what people did that is not in our rows.
func (p *people) unknown(ctx context.Context) (looked int, missing []string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	atStripe := map[string]int64{} // what each intent has given back
	gone := map[string]bool{}      // refunds that failed
	ended := map[string]string{}   // intents that were charged or canceled
	for _, e := range p.world.sim.Effects() {
		switch e.Kind {
		case stripesim.EffectCharge:
			atStripe[e.IntentID] -= e.Amount
			ended[e.IntentID] = e.Kind
		case stripesim.EffectCancel:
			ended[e.IntentID] = e.Kind
		case stripesim.EffectRefund:
			atStripe[e.IntentID] += e.Amount
		case stripesim.EffectRefundFailed:
			atStripe[e.IntentID] -= e.Amount
			gone[e.RefundID] = true
		}
	}
	// Tables and columns are named in JSON, so that a service without them is one that knows nothing of it.
	known, err := p.world.pairs(ctx, `SELECT stripe_refund_id, coalesce(to_jsonb(r) ->> 'origin', '') FROM refunds r
		WHERE stripe_refund_id IS NOT NULL`)
	if err != nil {
		return 0, nil, err
	}
	for id, intent := range p.refunds {
		looked++
		origin, ok := known[id]
		if !ok && gone[id] {
			continue // It failed before its payment was finished here: no money moved, and there was nothing to adopt.
		}
		if !ok || origin != "provider" {
			missing = append(missing, fmt.Sprintf("refund %s of %s, made at the dashboard, is no refund of origin "+
				"provider here (found %t, origin %q, failed %t)", id, intent, ok, origin, gone[id]))
		}
	}
	held, err := p.world.strings(ctx, `SELECT intent_id FROM payments WHERE status = 'authorized'`)
	if err != nil {
		return 0, nil, err
	}
	looked += len(held)
	for _, intent := range held {
		if how := ended[intent]; how != "" {
			missing = append(missing, fmt.Sprintf("%s ended at Stripe (%s), and is authorized here", intent, how))
		}
	}
	orders, err := p.world.pairs(ctx, `SELECT id, status::text FROM orders`)
	if err != nil {
		return 0, nil, err
	}
	for intent, order := range p.paid {
		looked++
		status, ok := orders[order]
		back := atStripe[intent] == 0 // All went back: it came too late for its order.
		if !ok || !back && !slices.Contains([]string{"paid", "partially_refunded", "refunded"}, status) {
			missing = append(missing, fmt.Sprintf("a browser paid %s, and order %s is %q", intent, order, status))
		}
	}
	if len(p.disputes) == 0 {
		return looked, missing, nil
	}
	tables, err := p.world.count(ctx, `SELECT count(*) FROM pg_class WHERE oid = to_regclass('disputes')`)
	if err != nil {
		return 0, nil, err
	}
	disputes := map[string]string{}
	if tables > 0 {
		if disputes, err = p.world.pairs(ctx, `SELECT stripe_dispute_id, status FROM disputes`); err != nil {
			return 0, nil, err
		}
	}
	for _, id := range p.disputes {
		looked++
		var there struct {
			Status string `json:"status"`
		}
		if !p.atStripe(ctx, http.MethodGet, "/v1/disputes/"+id, nil, &there) {
			return 0, nil, fmt.Errorf("read dispute %s at Stripe", id)
		}
		if here, ok := disputes[id]; !ok || here != there.Status {
			missing = append(missing, fmt.Sprintf("dispute %s is %s at Stripe and %q here", id, there.Status, here))
		}
	}
	return looked, missing, nil
}

// people checks that what was done at Stripe without us is in our rows.
func (j *checks) people(ctx context.Context, p *people) error {
	if len(p.who) == 0 {
		return nil
	}
	looked, missing, err := p.unknown(ctx)
	slices.Sort(missing)
	j.add("I24", "what people did at Stripe is in our rows", byEffects, looked, missing)
	return err
}
