package idemcheck

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
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
// that it could not be asked.
type check struct {
	name, asks string
	counts     bool // needs effects that can be counted
	ask        func(ctx context.Context, c *client) (evidence string, err error)
}

// Checks are all of them, in the order in which they are asked.
func checks() []check {
	return []check{
		{"missing key", "a request without a key is refused, and not executed", false, missingKey},
		{"invalid key", "an empty key, and one that is too long, are refused, and not executed", false, invalidKey},
		{"replay", "a repeated request gets the first response, and has one effect", true, replay},
		{"mismatch", "another request under a used key is refused, and not executed", true, mismatch},
		{"refusal", "a request that was refused for good is refused again, and has no effect", true, refusal},
		{"in flight", "duplicates at the same moment have one effect, and one response", true, inFlight},
		{"client gone", "a request whose client has gone is not executed again by its retry", true, clientGone},
		{"fault after the effect", "a request that failed after its effect is not executed again by its retry", true, faults},
		{"scope by tenant", "a key of one tenant is no key of another", true, scope},
		{"safe methods", "a key on a request that changes nothing is ignored", false, safe},
		{"expiry", "a key whose response has expired does as is promised", true, expiry},
	}
}

// effect checks how often an intent has happened.
func effect(ctx context.Context, c *client, in intent, want int, after string) error {
	if !c.profile.counted() {
		return nil
	}
	n, err := c.effects(ctx, in)
	if err == nil && n != want {
		err = brokenBecause("%d effects after %s, expected %d", n, after, want)
	}
	return err
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
	switch {
	case err != nil:
		return "", err
	case r.status != c.profile.Status.Missing:
		return "", brokenBecause("%s, expected %d", r, c.profile.Status.Missing)
	}
	return fmt.Sprint(r.status), effect(ctx, c, in, 0, "a request without a key")
}

func invalidKey(ctx context.Context, c *client) (string, error) {
	if c.profile.Key.Longest == 0 {
		return "", &notAsked{"the profile has no key.longest"}
	}
	in, err := c.newIntent(ctx)
	if err != nil {
		return "", err
	}
	r, err := c.send(ctx, c.profile.Intent, in, strings.Repeat("k", c.profile.Key.Longest+1), c.profile.Headers)
	switch {
	case err != nil:
		return "", err
	case r.status != http.StatusBadRequest:
		return "", brokenBecause("a key of %d characters: %s, expected 400", c.profile.Key.Longest+1, r)
	}
	return "400", effect(ctx, c, in, 0, "a key that is too long")
}

func replay(ctx context.Context, c *client) (string, error) {
	in, first, err := c.done(ctx)
	if err != nil {
		return "", err
	}
	for i := range 3 {
		again, err := c.final(ctx, in)
		if err != nil {
			return "", err
		}
		if err := c.same(first, again); err != nil {
			return "", err
		}
		if err := effect(ctx, c, in, 1, fmt.Sprintf("%d requests", i+2)); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%d, %d bytes, four times; 1 effect", first.status, len(first.body)), nil
}

// done is a new intent that has succeeded, and had its effect.
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
	return in, r, effect(ctx, c, in, 1, "one request")
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
	switch {
	case err != nil:
		return "", err
	case r.status != c.profile.Status.Mismatch:
		return "", brokenBecause("another body under the key: %s, expected %d", r, c.profile.Status.Mismatch)
	}
	if err := effect(ctx, c, in, 1, "another body under the key"); err != nil {
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
		r, err := c.finalOf(ctx, func() (response, error) { return c.send(ctx, refused, in, in.key, c.profile.Headers) })
		switch {
		case err != nil:
			return "", err
		case r.status != c.profile.RefusedStatus:
			return "", brokenBecause("request %d: %s, expected %d", i+1, r, c.profile.RefusedStatus)
		}
		if err := effect(ctx, c, in, 0, "a refusal"); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%d twice; no effect", c.profile.RefusedStatus), nil
}

func inFlight(ctx context.Context, c *client) (string, error) {
	in, err := c.newIntent(ctx)
	if err != nil {
		return "", err
	}
	n := c.profile.Concurrent
	responses, errs := make([]response, n), make([]error, n)
	start := make(chan struct{})
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			<-start
			responses[i], errs[i] = c.once(ctx, in)
		})
	}
	close(start)
	all.Wait()
	seen := map[int]int{}
	var first *response
	for i, r := range responses {
		if errs[i] != nil {
			return "", errs[i]
		}
		seen[r.status]++
		switch {
		case c.succeeded(r) && first == nil:
			first = &responses[i]
		case c.succeeded(r) && (r.status != first.status || r.body != first.body):
			return "", brokenBecause("two duplicates got %s and %s", *first, r)
		case !c.succeeded(r) && !c.again(r.status):
			return "", brokenBecause("a duplicate got %s", r)
		}
	}
	last, err := c.final(ctx, in)
	if err != nil {
		return "", err
	}
	if first != nil && (last.status != first.status || last.body != first.body) {
		return "", brokenBecause("a duplicate got %s, and a retry %s", *first, last)
	}
	if !c.succeeded(last) {
		return "", brokenBecause("after %d duplicates the intent got %s", n, last)
	}
	return fmt.Sprintf("%d at once: %s; 1 effect", n, tally(seen)), effect(ctx, c, in, 1, fmt.Sprintf("%d duplicates at once", n))
}

func tally(seen map[int]int) string {
	statuses := make([]int, 0, len(seen))
	for status := range seen {
		statuses = append(statuses, status)
	}
	slices.Sort(statuses)
	parts := make([]string, len(statuses))
	for i, status := range statuses {
		parts[i] = fmt.Sprintf("%d ×%d", status, seen[status])
	}
	return strings.Join(parts, ", ")
}

// clientGone sends whole requests on connections that it closes at once, and then retries.
func clientGone(ctx context.Context, c *client) (string, error) {
	const tries = 10
	for range tries {
		in, err := c.newIntent(ctx)
		if err != nil {
			return "", err
		}
		if err := c.abandon(ctx, in); err != nil {
			return "", err
		}
		r, err := c.final(ctx, in)
		if err != nil {
			return "", err
		}
		if !c.succeeded(r) {
			return "", brokenBecause("after the client had gone, a retry got %s", r)
		}
		// The abandoned request may still be at work when its retry has its response.
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
		if err := effect(ctx, c, in, 1, "a client that had gone, and its retry"); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%d requests, each retried; 1 effect each", tries), nil
}

// abandon writes the request to a connection of its own, and closes that.
func (c *client) abandon(ctx context.Context, in intent) error {
	q, err := c.request(ctx, c.profile.Intent, in, in.key, c.profile.Headers)
	if err != nil {
		return err
	}
	if q.URL.Scheme == "https" { // What is closed within TLS looks the same: the request is sent and not waited for.
		short, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
		defer cancel()
		if res, err := c.http.Do(q.WithContext(short)); err == nil {
			_ = res.Body.Close()
		}
		return nil
	}
	address := q.URL.Host
	if q.URL.Port() == "" {
		address = net.JoinHostPort(q.URL.Hostname(), "80")
	}
	conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	return q.Write(conn)
}

func faults(ctx context.Context, c *client) (string, error) {
	if len(c.profile.Faults) == 0 {
		return "", &notAsked{"the profile has no faults"}
	}
	var names []string
	for _, fault := range c.profile.Faults {
		in, err := c.newIntent(ctx)
		if err != nil {
			return "", err
		}
		if r, err := c.send(ctx, fault.Request, in, "", nil); err != nil || r.status/100 != 2 {
			return "", fmt.Errorf("inject %q: %s, %w", fault.Name, r, err)
		}
		first, firstErr := c.once(ctx, in)
		last, err := c.final(ctx, in)
		if err != nil {
			return "", err
		}
		after := fmt.Sprintf("the fault %q (first %s, %v; then %s)", fault.Name, first, firstErr, last)
		if !c.succeeded(last) {
			return "", brokenBecause("no success after %s", after)
		}
		if err := effect(ctx, c, in, 1, after); err != nil {
			return "", err
		}
		names = append(names, fault.Name)
	}
	return strings.Join(names, ", ") + "; 1 effect each", nil
}

func scope(ctx context.Context, c *client) (string, error) {
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
	if err := effect(ctx, other, theirs, 1, "the other tenant's request"); err != nil {
		return "", err
	}
	return "each tenant has its own effect under the key", effect(ctx, c, in, 1, "the other tenant's request")
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
	return fmt.Sprintf("%d with a used key", r.status), nil
}

func expiry(ctx context.Context, c *client) (string, error) {
	if c.profile.Expire == nil {
		return "", &notAsked{"the profile has no way to have responses expire"}
	}
	in, _, err := c.done(ctx)
	if err != nil {
		return "", err
	}
	if r, err := c.send(ctx, *c.profile.Expire, in, "", nil); err != nil || r.status/100 != 2 {
		return "", fmt.Errorf("have responses expire: %s, %w", r, err)
	}
	r, err := c.final(ctx, in)
	if err != nil {
		return "", err
	}
	if want := c.profile.Status.Expired; want != 0 {
		if r.status != want {
			return "", brokenBecause("%s after the expiry, expected %d", r, want)
		}
		return fmt.Sprint(r.status), effect(ctx, c, in, 1, "the expiry")
	}
	return "executed again, as the profile says", effect(ctx, c, in, 2, "the expiry")
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
