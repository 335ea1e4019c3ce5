package idemcheck

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Verdict is what came of a check.
type Verdict string

// The verdicts.
const (
	Holds    Verdict = "holds"
	Broken   Verdict = "broken"
	NotAsked Verdict = "not asked"
)

// Result is one check, with what was seen.
type Result struct {
	Check    string        `json:"check"`
	Asks     string        `json:"asks"`
	Verdict  Verdict       `json:"verdict"`
	Evidence string        `json:"evidence"`
	Took     time.Duration `json:"took_ns"`
}

// broken is a promise that is not kept.
type broken struct{ evidence string }

func (b *broken) Error() string { return b.evidence }

func brokenBecause(format string, args ...any) error { return &broken{fmt.Sprintf(format, args...)} }

// notAsked is a check that the profile says nothing for.
type notAsked struct{ why string }

func (n *notAsked) Error() string { return n.why }

// check asks for one promise. It returns what it saw; a *broken or a *notAsked says why it does not hold, any other error
// that it could not be asked. Without a way to count effects none is asked.
type check struct {
	name, asks string
	ask        func(ctx context.Context, c *client) (evidence string, err error)
}

// Checks are all of them, in the order in which they are asked.
func checks() []check {
	return []check{
		{"missing key", "a request without a key is refused, and not executed", missingKey},
		{"invalid key", "an empty key, one that is too long and those of the profile are refused, and not executed", invalidKey},
		{"syntax", "a key is quoted, as a structured field is, or quoted and bare keys are one", syntax},
		{"replay", "a repeated request gets the first response, and has one effect; in capitals a key is another", replay},
		{"mismatch", "another request under a used key is refused, and not executed", mismatch},
		{"refusal", "a request that was refused for good is refused again, and has no effect", refusal},
		{"in flight", "duplicates at the same moment have one effect, and one response", inFlight},
		{"client gone", "a request whose client has gone is not executed again by its retry", clientGone},
		{"fault", "a request that failed before or after its effect has one effect with its retry", faults},
		{"scope by tenant", "a key of one tenant is no key of another", scopeByTenant},
		{"scope by endpoint", "a key at one endpoint is another key at another, or is refused there", scopeByEndpoint},
		{"safe methods", "a key on a request that changes nothing is ignored", safe},
		{"expiry", "a key whose response has expired does as is promised", expiry},
	}
}

// effect checks how often each intent has happened, late effects included.
func effect(ctx context.Context, c *client, want int, after string, ins ...intent) error {
	counts, err := c.settled(ctx, want, ins)
	for _, n := range counts {
		if n != want {
			return brokenBecause("%d effects after %s, expected %d", n, after, want)
		}
	}
	return err
}

// atMost checks that no intent has happened more often, late effects included.
func atMost(ctx context.Context, c *client, most int, after string, ins ...intent) error {
	counts, err := c.settled(ctx, most, ins)
	for _, n := range counts {
		if n > most {
			return brokenBecause("%d effects after %s, expected at most %d", n, after, most)
		}
	}
	return err
}

// refused checks a response that refuses a key.
func (c *client) refused(r response, status int, what string) error {
	if r.status != status {
		return brokenBecause("%s: %s, expected %d", what, r, status)
	}
	kind, _, _ := strings.Cut(r.header.Get("Content-Type"), ";")
	if _, err := member(r.body, ""); c.profile.Problems && (kind != "application/problem+json" || err != nil) {
		return brokenBecause("%s: the body is %q, expected application/problem+json", what, kind)
	}
	return nil
}

func missingKey(ctx context.Context, c *client) (string, error) {
	if c.profile.Key.Optional {
		return "", &notAsked{"a key is optional here"}
	}
	in, err := c.newIntent(ctx)
	if err != nil {
		return "", err
	}
	r, err := c.send(ctx, c.profile.Intent, in, "", c.profile.Headers)
	if err != nil {
		return "", err
	}
	if err := c.refused(r, c.profile.Status.Missing, "no key"); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d; no effect", r.status), effect(ctx, c, 0, "a request without a key", in)
}

func invalidKey(ctx context.Context, c *client) (string, error) {
	values := slices.Clone(c.profile.Key.Invalid)
	if !c.profile.Key.Optional { // a key that is optional may be empty
		values = append(values, "")
	}
	if n := c.profile.Key.Longest; n > 0 {
		long := strings.Repeat("k", n+1)
		if c.profile.Key.Syntax == quoted {
			long = `"` + long + `"`
		}
		values = append(values, long)
	}
	if len(values) == 0 {
		return "", &notAsked{"a key is optional here, and the profile has neither key.longest nor key.invalid"}
	}
	var ins []intent
	var accepted []string
	for _, value := range values {
		in, err := c.newIntent(ctx)
		if err != nil {
			return "", err
		}
		r, err := c.sendRaw(ctx, in, value)
		if err != nil {
			return "", err
		}
		if err := c.refused(r, c.profile.Status.Invalid, fmt.Sprintf("the key %.30q of %d characters", value, len(value))); err != nil {
			accepted = append(accepted, err.Error())
		}
		ins = append(ins, in)
	}
	if len(accepted) > 0 {
		return "", brokenBecause("%s", strings.Join(accepted, "; "))
	}
	return fmt.Sprintf("%d for each of %d keys; no effect", c.profile.Status.Invalid, len(values)),
		effect(ctx, c, 0, "an invalid key", ins...)
}

func syntax(ctx context.Context, c *client) (string, error) {
	if c.profile.Key.Syntax == bare {
		return "", &notAsked{"the profile promises nothing of quoted keys: key.syntax"}
	}
	if c.profile.Key.Syntax == quoted {
		in, err := c.newIntent(ctx)
		if err != nil {
			return "", err
		}
		r, err := c.sendRaw(ctx, in, in.key)
		if err == nil {
			err = c.refused(r, c.profile.Status.Invalid, "a bare key")
		}
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("%d for a bare key; no effect", r.status), effect(ctx, c, 0, "a bare key", in)
	}
	in, first, err := c.done(ctx)
	if err != nil {
		return "", err
	}
	again, err := c.finalOf(ctx, func() (response, error) { return c.sendRaw(ctx, in, `"`+in.key+`"`) })
	if err == nil {
		err = c.same(first, again)
	}
	if err != nil {
		return "", err
	}
	return "a quoted key is the bare one; 1 effect", effect(ctx, c, 1, "a bare and a quoted key", in)
}

func replay(ctx context.Context, c *client) (string, error) {
	in, first, err := c.done(ctx)
	if err != nil {
		return "", err
	}
	for range 3 {
		again, err := c.final(ctx, in)
		if err != nil {
			return "", err
		}
		if err := c.same(first, again); err != nil {
			return "", err
		}
	}
	if err := effect(ctx, c, 1, "4 requests", in); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d, %d bytes, four times; 1 effect", first.status, len(first.body)), otherCase(ctx, c, in)
}

// otherCase sends another intent with the key of one that is done, in capitals: a table whose collation ignores case takes
// it for the same, and what is asked for is never done. A UUID is the same in capitals.
func otherCase(ctx context.Context, c *client, first intent) error {
	if c.profile.Key.UUID {
		return nil
	}
	in, err := c.newIntent(ctx)
	if err != nil {
		return err
	}
	in.key = c.profile.Key.Prefix + strings.ToUpper(strings.TrimPrefix(first.key, c.profile.Key.Prefix))
	r, err := c.final(ctx, in)
	if err != nil {
		return err
	}
	if r.status == c.profile.Status.Invalid {
		return nil // a key must not have capitals
	}
	if !c.succeeded(r) {
		return brokenBecause("another request with the key in capitals, which is another key: %s", r)
	}
	return effect(ctx, c, 1, "another request with the key in capitals", in)
}

// done is a new intent that has succeeded, and had its effect. More effects may follow.
func (c *client) done(ctx context.Context) (in intent, r response, err error) {
	if in, err = c.newIntent(ctx); err != nil {
		return in, r, err
	}
	if r, err = c.final(ctx, in); err != nil {
		return in, r, err
	}
	if !c.succeeded(r) {
		return in, r, fmt.Errorf("the intent did not succeed: %s", r)
	}
	n, err := c.happened(ctx, in)
	if err == nil && n != 1 {
		err = brokenBecause("%d effects after one request, expected 1", n)
	}
	return in, r, err
}

// same compares a replay with the first response.
func (c *client) same(first, again response) error {
	if first.status != again.status || first.body != again.body {
		return brokenBecause("the first response was %s, the repeated one %s", first, again)
	}
	for _, name := range c.profile.Replay.Same {
		if a, b := first.header.Get(name), again.header.Get(name); a != b {
			return brokenBecause("%s was %q, and is %q in the repeated response", name, a, b)
		}
	}
	for name, value := range c.profile.Replay.Marker {
		if got := again.header.Get(name); got != value {
			return brokenBecause("%s is %q in the repeated response, expected %q", name, got, value)
		}
	}
	return nil
}

func mismatch(ctx context.Context, c *client) (string, error) {
	if c.profile.OtherBody == "" {
		return "", &notAsked{"the profile has no other_body"}
	}
	in, first, err := c.done(ctx)
	if err != nil {
		return "", err
	}
	other := c.profile.Intent
	other.Body = c.profile.OtherBody
	r, err := c.send(ctx, other, in, in.key, c.profile.Headers)
	if err == nil {
		err = c.refused(r, c.profile.Status.Mismatch, "another body under the key")
	}
	if err == nil {
		err = effect(ctx, c, 1, "another body under the key", in)
	}
	if err != nil {
		return "", err
	}
	again, err := c.final(ctx, in)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d, and the first request still gets its response", r.status), c.same(first, again)
}

func refusal(ctx context.Context, c *client) (string, error) {
	if c.profile.Refused == "" {
		return "", &notAsked{"the profile has no refused_body"}
	}
	in, err := c.newIntent(ctx)
	if err != nil {
		return "", err
	}
	refused := c.profile.Intent
	refused.Body = c.profile.Refused
	for i := range 2 {
		r, err := c.finalOf(ctx, func() (response, error) {
			return c.send(ctx, refused, in, in.key, c.profile.Headers)
		}, c.profile.RefusedStatus)
		switch {
		case err != nil:
			return "", err
		case r.status != c.profile.RefusedStatus:
			return "", brokenBecause("request %d: %s, expected %d", i+1, r, c.profile.RefusedStatus)
		}
	}
	return fmt.Sprintf("%d twice; no effect", c.profile.RefusedStatus), effect(ctx, c, 0, "a refusal", in)
}

func faults(ctx context.Context, c *client) (string, error) {
	if len(c.profile.Faults) == 0 {
		return "", &notAsked{"the profile has no faults"}
	}
	var names []string
	orNone := ""
	for _, fault := range c.profile.Faults {
		in, err := c.newIntent(ctx)
		if err != nil {
			return "", err
		}
		if err := c.operate(ctx, fault.Request, in); err != nil {
			return "", fmt.Errorf("inject %q: %w", fault.Name, err)
		}
		first, firstErr := c.once(ctx, in)
		was := first.String()
		if firstErr != nil {
			was = "no response" // which may be the fault
		}
		again := c.final
		if fault.Status != 0 {
			again = c.once // the failure is final
		}
		last, err := again(ctx, in)
		if err != nil {
			return "", err
		}
		after := fmt.Sprintf("the fault %q (first %s, then %s)", fault.Name, was, last)
		switch {
		case fault.Status != 0 && (last.status != fault.Status || last.status != first.status || last.body != first.body):
			return "", brokenBecause("the failure was not kept after %s", after)
		case fault.Status == 0 && !c.succeeded(last):
			return "", brokenBecause("no success after %s", after)
		}
		counted := effect
		if fault.Status != 0 {
			counted, orNone = atMost, ", or none where the failure is kept" // before the effect, which then never happens
		}
		if err := counted(ctx, c, 1, after, in); err != nil {
			return "", err
		}
		names = append(names, fault.Name)
	}
	return strings.Join(names, ", ") + "; 1 effect each" + orNone, nil
}

// operate sends a request that is no client's: it has no key and no tenant.
func (c *client) operate(ctx context.Context, q Request, in intent) error {
	r, err := c.send(ctx, q, in, "", nil)
	if err == nil && r.status/100 != 2 {
		err = fmt.Errorf("%s %s: %s", q.Method, q.Path, r)
	}
	return err
}

func scopeByTenant(ctx context.Context, c *client) (string, error) {
	if len(c.profile.OtherTenant) == 0 {
		return "", &notAsked{"the profile has no other_tenant"}
	}
	in, first, err := c.done(ctx)
	if err != nil {
		return "", err
	}
	// The other tenant's intent has objects of its own, and the same key.
	other := &client{base: c.base, profile: c.profile, http: c.http, run: c.run + "o"}
	other.profile.Headers = c.profile.OtherTenant
	theirs, err := other.newIntent(ctx)
	if err != nil {
		return "", err
	}
	theirs.key = in.key
	r, err := other.final(ctx, theirs)
	switch {
	case err != nil:
		return "", err
	case r.body == first.body:
		return "", brokenBecause("another tenant got the response of the first: %s", r)
	case !other.succeeded(r):
		return "", brokenBecause("another tenant cannot use the key: %s", r)
	}
	if err := effect(ctx, other, 1, "the other tenant's request", theirs); err != nil {
		return "", err
	}
	return "each tenant has its own effect under the key", effect(ctx, c, 1, "the other tenant's request", in)
}

func scopeByEndpoint(ctx context.Context, c *client) (string, error) {
	endpoint := c.profile.OtherEndpoint
	if endpoint.Path == "" {
		return "", &notAsked{"the profile has no other_endpoint"}
	}
	in, first, err := c.done(ctx)
	if err != nil {
		return "", err
	}
	theirs, err := c.newIntent(ctx)
	if err != nil {
		return "", err
	}
	theirs.key, theirs.effects = in.key, endpoint.Effects
	var expected []int
	if endpoint.Refused {
		expected = []int{c.profile.Status.Mismatch}
	}
	r, err := c.finalOf(ctx, func() (response, error) {
		return c.send(ctx, endpoint.Request, theirs, theirs.key, c.profile.Headers)
	}, expected...)
	switch {
	case err != nil:
		return "", err
	case endpoint.Refused:
		if err := c.refused(r, c.profile.Status.Mismatch, "the key at another endpoint"); err != nil {
			return "", err
		}
		if err := effect(ctx, c, 0, "the key at another endpoint", theirs); err != nil {
			return "", err
		}
		return fmt.Sprintf("%d at another endpoint; no effect", r.status), effect(ctx, c, 1, "the key at another endpoint", in)
	case r.body == first.body:
		return "", brokenBecause("another endpoint gave the response of the first: %s", r)
	case !c.succeeded(r):
		return "", brokenBecause("the key cannot be used at another endpoint: %s", r)
	}
	if err := effect(ctx, c, 1, "the key at another endpoint", theirs); err != nil {
		return "", err
	}
	return "each endpoint has its own effect under the key", effect(ctx, c, 1, "the key at another endpoint", in)
}

func safe(ctx context.Context, c *client) (string, error) {
	if c.profile.Safe.Path == "" {
		return "", &notAsked{"the profile has no safe request"}
	}
	in, first, err := c.done(ctx)
	if err != nil {
		return "", err
	}
	r, err := c.send(ctx, c.profile.Safe, in, in.key, c.profile.Headers)
	if err != nil {
		return "", err
	}
	if r.status/100 != 2 || r.body == first.body && r.status == first.status && r.status != http.StatusOK {
		return "", brokenBecause("%s %s with a used key: %s", c.profile.Safe.Method, c.profile.Safe.Path, r)
	}
	return fmt.Sprintf("%d with a used key; no further effect", r.status), effect(ctx, c, 1, "a safe request with the key", in)
}

func expiry(ctx context.Context, c *client) (string, error) {
	if c.profile.Expire == nil {
		return "", &notAsked{"the profile has no way to have responses expire"}
	}
	in, _, err := c.done(ctx)
	if err != nil {
		return "", err
	}
	if err := c.operate(ctx, *c.profile.Expire, in); err != nil {
		return "", fmt.Errorf("have responses expire: %w", err)
	}
	r, err := c.finalOf(ctx, func() (response, error) { return c.once(ctx, in) }, c.profile.Status.Expired)
	if err != nil {
		return "", err
	}
	if want := c.profile.Status.Expired; want != 0 {
		if r.status != want {
			return "", brokenBecause("%s after the expiry, expected %d", r, want)
		}
		return fmt.Sprintf("%d; no further effect", r.status), effect(ctx, c, 1, "the expiry", in)
	}
	return "executed again, as the profile says", effect(ctx, c, 2, "the expiry", in)
}

// loopback reports whether an address is on this machine.
func loopback(address string) bool {
	u, err := url.Parse(address)
	if err != nil {
		return false
	}
	if u.Hostname() == "localhost" {
		return true
	}
	ip := net.ParseIP(u.Hostname())
	return ip != nil && ip.IsLoopback()
}
