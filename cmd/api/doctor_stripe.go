package main

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"example.com/payonce/internal/stripe"
)

// doctorCall bounds one call to Stripe, and deliveredWithin is how old an event may be that no endpoint has acknowledged.
const (
	doctorCall      = doctorWithin / 2
	deliveredWithin = 5 * time.Minute
)

// answers is what Stripe said, all of it asked at the same time.
type answers struct {
	reads     []stripe.Reading // of stripe.Resources
	balance   stripe.Reading   // of stripe.BalanceTransactions
	writes    []stripe.Reading // of stripe.Writes
	account   stripe.Account
	accounted stripe.Reading
	endpoints []stripe.WebhookEndpoint
	listed    stripe.Reading
	event     stripe.Occurred
	occurred  stripe.Reading
}

// stripe examines the key and what Stripe knows of this service. It changes nothing there.
func (p patient) stripe(ctx context.Context, d *diagnosis) {
	e := environment{getenv: p.getenv}
	key, base := e.stripeKey(), e.baseURL("STRIPE_API_BASE")
	afterKey := []string{"stripe.reachable", "stripe.permissions", "stripe.account", "stripe.webhook_endpoint",
		"stripe.last_event", "clock.stripe"}
	if len(e.wrong) > 0 {
		d.say(bad, "stripe.key", "%s", strings.Join(e.wrong, "; "))
		d.notAsked("no key and address to ask with", afterKey...)
		return
	}
	a := ask(ctx, stripe.New(stripe.Options{
		SecretKey: key, BaseURL: base, Timeout: doctorCall, Limits: stripe.NewLimits(0, nil),
		Metrics: stripe.NewMetrics(nil), Log: slog.New(slog.DiscardHandler),
	}))
	if base == "https://api.stripe.com" {
		base = "" // as without the setting
	}
	mode(d, key, base, a)
	first := a.reads[0]
	switch {
	case first.Refused() && base != "":
		d.say(bad, "stripe.reachable", "%s of STRIPE_API_BASE, which is not Stripe, refuses the key: %w; set "+
			"STRIPE_SECRET_KEY to a key that it accepts (-keys of the simulator), or unset STRIPE_API_BASE to use Stripe",
			withoutUser(base), first.Err)
	case first.Refused():
		d.say(bad, "stripe.reachable", "Stripe refuses the key: %w; set STRIPE_SECRET_KEY to one of Stripe's dashboard, "+
			"Developers, API keys", first.Err)
	case first.Status == 0:
		d.say(bad, "stripe.reachable", "Stripe does not respond: %w; see the network, STRIPE_API_BASE, and status.stripe.com",
			first.Err)
	case first.Status == http.StatusTooManyRequests:
		d.say(warning, "stripe.reachable", "Stripe's rate limit is exhausted (429): lower STRIPE_RPS, and see who else uses "+
			"the account")
	case first.Status >= http.StatusInternalServerError:
		d.say(bad, "stripe.reachable", "Stripe has an error (%d): payments wait and are finished when it has not; see "+
			"status.stripe.com", first.Status)
	default:
		d.say(healthy, "stripe.reachable", "responded in %s", first.Answered.Sub(first.Asked).Round(time.Millisecond))
	}
	if first.Refused() || first.Status == 0 {
		d.notAsked("Stripe does not respond to this key", afterKey[1:5]...)
	} else {
		permissions(d, a)
		account(d, key, a)
		webhookEndpoint(d, a)
		p.lastEvent(d, a)
	}
	if first.Date.IsZero() {
		d.notAsked("no response of Stripe with a Date", "clock.stripe")
	} else {
		p.clock(d, "clock.stripe", "Stripe's", first.Date, first.Asked, first.Answered, time.Second)
	}
}

func ask(ctx context.Context, s *stripe.Client) (a answers) {
	a.reads = make([]stripe.Reading, len(stripe.Resources))
	a.writes = make([]stripe.Reading, len(stripe.Writes))
	var all sync.WaitGroup
	for i, w := range stripe.Writes {
		all.Go(func() { a.writes[i] = s.MayWrite(ctx, w) })
	}
	for i, r := range stripe.Resources {
		all.Go(func() { a.reads[i] = s.MayRead(ctx, r) })
	}
	all.Go(func() { a.balance = s.MayRead(ctx, stripe.BalanceTransactions) })
	all.Go(func() { a.account, a.accounted = s.Account(ctx) })
	all.Go(func() { a.endpoints, a.listed = s.WebhookEndpoints(ctx) })
	all.Go(func() { a.event, a.occurred = s.LastEvent(ctx) })
	all.Wait()
	return a
}

func live(key string) bool {
	return strings.HasPrefix(key, "sk_live_") || strings.HasPrefix(key, "rk_live_")
}

// mode is whether money is real, and whether the key goes where it belongs.
func mode(d *diagnosis, key, base string, a answers) {
	kind := "a secret key"
	if strings.HasPrefix(key, "rk_") {
		kind = "a restricted key"
	}
	u, _ := url.Parse(base)
	switch {
	case !live(key):
		d.say(healthy, "stripe.key", "%s of test mode: no money moves", kind)
	case base != "" && u.Scheme == "http":
		d.say(bad, "stripe.key", "a live key is sent unencrypted to %s, which is not Stripe; unset STRIPE_API_BASE, or use a "+
			"test key, and roll this one", withoutUser(base))
	case a.event.ID != "" && !a.event.Livemode:
		d.say(bad, "stripe.key", "a live key, and %s responds with objects of test mode, so it is not Stripe; unset "+
			"STRIPE_API_BASE, or use a test key", withoutUser(base))
	case base != "":
		d.say(warning, "stripe.key", "a live key is sent to %s, which is not Stripe; unset STRIPE_API_BASE unless it is your "+
			"proxy", withoutUser(base))
	default:
		d.say(healthy, "stripe.key", "%s of live mode: real money", kind)
	}
}

// permissions are those to read and to write.
func permissions(d *diagnosis, a answers) {
	var lacks, unknown []string
	note := func(r stripe.Reading, permission string) {
		switch {
		case r.Forbidden():
			lacks = append(lacks, cmp.Or(r.Lacks, permission))
		case r.Err != nil:
			unknown = append(unknown, permission)
		}
	}
	for i, r := range a.reads {
		note(r, stripe.Resources[i].Permission)
	}
	for i, r := range a.writes {
		note(r, stripe.Writes[i].Permission)
	}
	lacks, unknown = slices.Compact(lacks), slices.Compact(unknown)
	switch {
	case len(lacks) > 0:
		d.say(bad, "stripe.permissions", "the key lacks %s, and payments, refunds or what is read after a lost response would "+
			"fail; give it the permission in Stripe's dashboard, Developers, API keys (docs/operations.md, Restricted Stripe keys)",
			strings.Join(lacks, ", "))
	case a.balance.Forbidden():
		d.say(warning, "stripe.permissions", "the key lacks %s: a refund made at Stripe, without a reason, of exactly what a "+
			"capture in part has released would be taken for that release, and not recorded; give it the permission "+
			"(docs/operations.md, Restricted Stripe keys)",
			cmp.Or(a.balance.Lacks, stripe.BalanceTransactions.Permission))
	case len(unknown) > 0:
		d.notAsked("Stripe did not say whether the key has "+strings.Join(unknown, ", "), "stripe.permissions")
	default:
		d.say(healthy, "stripe.permissions", "the key reads and writes what the service does")
	}
}

func account(d *diagnosis, key string, a answers) {
	switch {
	case a.accounted.Forbidden():
		d.say(warning, "stripe.account", "the key may not read its account (%s), which the service does not need; see in "+
			"Stripe's dashboard that charges and payouts are enabled", cmp.Or(a.accounted.Lacks, "not for restricted keys"))
	case a.accounted.Err != nil || a.account.ID == "":
		d.notAsked(reason(a.accounted), "stripe.account")
	case !a.account.ChargesEnabled && live(key):
		d.say(bad, "stripe.account", "%s may not take payments: Stripe's dashboard says what it needs to know", a.account.ID)
	case !a.account.ChargesEnabled:
		d.say(warning, "stripe.account", "%s may not take payments once it is live: Stripe's dashboard says what it needs "+
			"to know", a.account.ID)
	case !a.account.PayoutsEnabled:
		d.say(warning, "stripe.account", "%s takes payments, and its payouts are stopped: Stripe's dashboard says why",
			a.account.ID)
	default:
		d.say(healthy, "stripe.account", "%s may take payments and is paid out", a.account.ID)
	}
}

// webhookEndpoint looks for the endpoint by its path: the host under which the world sees the service is no setting.
func webhookEndpoint(d *diagnosis, a answers) {
	const id = "stripe.webhook_endpoint"
	if a.listed.Forbidden() {
		d.say(warning, id, "the key may not list webhook endpoints (%s), which the service does not need; look in Stripe's "+
			"dashboard, Developers, Webhooks", cmp.Or(a.listed.Lacks, "rak_webhook_read"))
		return
	}
	if a.listed.Err != nil {
		d.notAsked(reason(a.listed), id)
		return
	}
	var ours, enabled []stripe.WebhookEndpoint
	for _, e := range a.endpoints {
		if u, err := url.Parse(e.URL); err == nil && strings.HasSuffix(u.Path, stripe.WebhookPath) {
			ours = append(ours, e)
			if e.Enabled() {
				enabled = append(enabled, e)
			}
		}
	}
	switch {
	case len(ours) == 0:
		d.say(warning, id, "Stripe has no endpoint whose URL ends in %s: what happens there is noticed by polling, minutes "+
			"later; run `api setup stripe -url https://HOST%[1]s`, which makes one and prints its secret "+
			"(docs/webhooks-from-stripe.md)", stripe.WebhookPath)
	case len(enabled) == 0:
		d.say(bad, id, "%s (%s) is disabled, by hand or by Stripe after days of failures: fix its responses, and "+
			"%s, which enables it", ours[0].ID, ours[0].URL, setupAdvice(ours[0].URL))
	case len(enabled) > 1:
		d.say(warning, id, "%d endpoints end in %s: %s. Each is sent every event of the account, and what is signed with "+
			"another secret than those of STRIPE_WEBHOOK_SECRET is rejected here. Leave one that belongs to another "+
			"installation on this account; delete one that nothing uses in Stripe's dashboard, Developers, Webhooks",
			len(enabled), stripe.WebhookPath, listEndpoints(enabled))
	default:
		e := enabled[0]
		if wrong := wrongTypes(e.EnabledEvents); wrong != "" {
			d.say(warning, id, "%s (%s) is %s: what it is not sent is noticed by polling, minutes later, and what is not used "+
				"is work for nothing; %s, which corrects the list", e.ID, e.URL, wrong, setupAdvice(e.URL))
			return
		}
		d.say(healthy, id, "%s (%s) is enabled, and is sent exactly the types that are used", e.ID, e.URL)
	}
}

func listEndpoints(endpoints []stripe.WebhookEndpoint) string {
	var list []string
	for _, e := range endpoints {
		list = append(list, e.ID+" ("+e.URL+")")
	}
	return strings.Join(list, ", ")
}

// lastEvent is whether the newest event of a type that is used has arrived where it was sent.
func (p patient) lastEvent(d *diagnosis, a answers) {
	const id = "stripe.last_event"
	age := a.occurred.Answered.Add(p.skew).Sub(time.Unix(a.event.Created, 0)).Round(time.Second)
	switch {
	case a.occurred.Forbidden():
		d.say(warning, id, "the key may not read events (%s), which the service does not need",
			cmp.Or(a.occurred.Lacks, "rak_event_read"))
	case a.occurred.Err != nil:
		d.notAsked(reason(a.occurred), id)
	case a.event.ID == "":
		d.say(healthy, id, "none yet")
	case a.event.PendingWebhooks > 0 && age > deliveredWithin:
		d.say(warning, id, "%s (%s), %s, is not acknowledged by %d endpoints: look at their failures in Stripe's "+
			"dashboard, Developers, Webhooks", a.event.ID, a.event.Type, ofAge(age), a.event.PendingWebhooks)
	default:
		d.say(healthy, id, "%s (%s), %s, is acknowledged or on its way", a.event.ID, a.event.Type, ofAge(age))
	}
}

// ofAge says when something happened by another clock than ours, which may be ahead: a little always, and much at a
// simulator whose clock was advanced.
func ofAge(age time.Duration) string {
	if age < -clockWarn {
		return "dated " + (-age).String() + " ahead of our clock"
	}
	return "of " + max(age, 0).String() + " ago"
}

// reason is why a read failed, for notAsked. A 404 is of a proxy or a simulator that does not have the resource.
func reason(r stripe.Reading) string {
	if r.Err == nil {
		return "the response is none of Stripe's"
	}
	return r.Err.Error()
}
