package idemcheck

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/google/uuid"
)

const (
	responseMax   = 1 << 20
	connectWithin = 5 * time.Second
)

// response is what came back.
type response struct {
	status int
	header http.Header
	body   string
}

func (r response) String() string {
	body := strings.Join(strings.Fields(r.body), " ")
	if len(body) > 80 {
		body = strings.ToValidUTF8(body[:80], "") + "…"
	}
	return fmt.Sprintf("%d %s", r.status, body)
}

// intent is one thing that a client wants: its key, and what its requests have in common.
type intent struct {
	key       string
	variables map[string]string
	effects   Effects
}

type client struct {
	base    string
	profile Profile
	http    *http.Client
	run     string
	n       atomic.Int64
}

// newClient makes a client that follows no redirect. Unless it may go anywhere it connects to this machine only, by
// whatever name and to whatever port, and to no proxy.
func newClient(base string, p Profile, anywhere bool) *client {
	dialer := &net.Dialer{Timeout: connectWithin, Control: controlLoopback}
	transport := &http.Transport{
		MaxIdleConnsPerHost: p.Concurrent, MaxConnsPerHost: p.Concurrent + 8,
		// It is HTTP/1.1, where each request in flight has its own connection.
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &wire{Conn: conn}, nil
		},
	}
	if anywhere {
		dialer.Control, transport.Proxy = nil, http.ProxyFromEnvironment
	}
	return &client{
		base: strings.TrimSuffix(base, "/"), profile: p, run: strconv.FormatUint(rand.Uint64(), 36),
		http: &http.Client{Transport: transport, Timeout: p.Within, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		}},
	}
}

// controlLoopback refuses a connection to another machine, after its name was looked up.
func controlLoopback(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err == nil && !to.Addr().Unmap().IsLoopback() {
		err = fmt.Errorf("%s: %w", address, ErrNotLoopback)
	}
	return err
}

// newKey makes a key that was never used.
func (c *client) newKey(n int64, suffix string) string {
	if c.profile.Key.UUID {
		return uuid.NewString()
	}
	return fmt.Sprintf("%sidemcheck-%s-%d%s", c.profile.Key.Prefix, c.run, n, suffix)
}

// newIntent makes what an intent needs, and a key.
func (c *client) newIntent(ctx context.Context) (intent, error) {
	n := c.n.Add(1)
	in := intent{
		key:       c.newKey(n, ""),
		variables: map[string]string{"n": fmt.Sprintf("%s%d", c.run, n)},
		effects:   c.profile.Effects,
	}
	for i, step := range c.profile.Setup {
		key := c.newKey(n, fmt.Sprintf("-setup-%d", i))
		for name := range step.Headers {
			if strings.EqualFold(name, c.profile.Key.Header) {
				key = "" // it has one
			}
		}
		r, err := c.send(ctx, step.Request, in, key, c.profile.Headers)
		if err != nil {
			return in, fmt.Errorf("setup %d: %w", i+1, err)
		}
		if r.status/100 != 2 {
			return in, fmt.Errorf("setup %d: %s", i+1, r)
		}
		for name, path := range step.Capture {
			value, err := member(r.body, path)
			if err != nil {
				return in, fmt.Errorf("setup %d: %w", i+1, err)
			}
			in.variables[name] = fmt.Sprint(value)
		}
	}
	return in, nil
}

// request builds a request. Without a key it has none.
func (c *client) request(
	ctx context.Context, r Request, in intent, key string, headers map[string]string,
) (*http.Request, error) {
	target := expand(r.Path, in.variables)
	if !strings.HasPrefix(target, "http://") && !strings.HasPrefix(target, "https://") {
		target = c.base + target
	}
	body := expand(r.Body, in.variables)
	q, err := http.NewRequestWithContext(ctx, r.Method, target, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != "" {
		q.Header.Set("Content-Type", r.ContentType)
	}
	for _, more := range []map[string]string{headers, r.Headers} {
		for name, value := range more {
			q.Header.Set(name, expand(value, in.variables))
		}
	}
	if host := q.Header.Get("Host"); host != "" { // net/http sends no header of that name
		q.Host = host
	}
	if key != "" && c.profile.Key.Syntax == quoted {
		key = `"` + key + `"`
	}
	if key != "" {
		q.Header.Set(c.profile.Key.Header, key)
	}
	// So that net/http sends nothing twice by itself: it would if it had the body, or, without a body, knew the key.
	q.GetBody = nil
	for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		if values, ok := q.Header[name]; ok {
			delete(q.Header, name)
			q.Header[strings.ToLower(name)] = values
		}
	}
	return q, nil
}

func (c *client) send(
	ctx context.Context, r Request, in intent, key string, headers map[string]string,
) (response, error) {
	q, err := c.request(ctx, r, in, key, headers)
	if err != nil {
		return response{}, err
	}
	res, err := c.http.Do(q)
	if err != nil {
		return response{}, err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(res.Body, responseMax))
	return response{res.StatusCode, res.Header, string(body)}, err
}

// sendRaw sends the intent's request with the key's header as it is given.
func (c *client) sendRaw(ctx context.Context, in intent, value string) (response, error) {
	headers := maps.Clone(c.profile.Headers)
	if headers == nil {
		headers = map[string]string{}
	}
	headers[c.profile.Key.Header] = value
	return c.send(ctx, c.profile.Intent, in, "", headers)
}

// once sends the intent's request once.
func (c *client) once(ctx context.Context, in intent) (response, error) {
	return c.send(ctx, c.profile.Intent, in, in.key, c.profile.Headers)
}

// final sends the intent's request until its response is final.
func (c *client) final(ctx context.Context, in intent) (response, error) {
	return c.finalOf(ctx, func() (response, error) { return c.once(ctx, in) })
}

// finalOf is final with another way to send. It is a promise that a response is final within the profile's time. A status
// that is expected is final, also if duplicates get it too: an API may refuse with 409 for good.
func (c *client) finalOf(
	ctx context.Context, send func() (response, error), expected ...int,
) (r response, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.profile.Within)
	defer cancel()
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		var next response
		if next, err = send(); err == nil {
			r = next
		}
		if err == nil && (slices.Contains(expected, r.status) || !c.again(r.status)) || errors.Is(err, ErrNotLoopback) {
			return r, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			if r.status == 0 {
				return r, fmt.Errorf("no response within %s: %w", c.profile.Within, err)
			}
			return r, brokenBecause("no final response within %s, the last was %s", c.profile.Within, r)
		}
	}
}

// again reports whether the same request is to be sent again.
func (c *client) again(status int) bool {
	s := c.profile.Status
	if c.pending(status) || slices.Contains(s.InFlight, status) {
		return true
	}
	if len(s.Again) > 0 {
		return slices.Contains(s.Again, status)
	}
	return status == http.StatusTooManyRequests || status >= 500
}

func (c *client) succeeded(r response) bool {
	if s := c.profile.Status.Success; len(s) > 0 {
		return slices.Contains(s, r.status)
	}
	return r.status/100 == 2 && !c.pending(r.status)
}

func (c *client) pending(status int) bool {
	if s := c.profile.Status.Pending; len(s) > 0 {
		return slices.Contains(s, status)
	}
	return status == http.StatusAccepted && !slices.Contains(c.profile.Status.Success, status)
}

// happened waits until the intent has happened, for as long as a count must not change.
func (c *client) happened(ctx context.Context, in intent) (n int, err error) {
	for end := time.Now().Add(c.profile.Settle); ; {
		if n, err = c.count(ctx, in); err != nil || n > 0 || time.Now().After(end) {
			return n, err
		}
		if err := c.pause(ctx); err != nil {
			return n, err
		}
	}
}

// settled counts how often each intent has happened, until no count has changed for the profile's time, or one is more
// than wanted.
func (c *client) settled(ctx context.Context, want int, ins []intent) ([]int, error) {
	var last []int
	for changed := time.Now(); ; {
		counts := make([]int, len(ins))
		for i, in := range ins {
			var err error
			if counts[i], err = c.count(ctx, in); err != nil {
				return nil, err
			}
		}
		if !slices.Equal(counts, last) {
			last, changed = counts, time.Now()
		}
		if slices.Max(counts) > want || time.Since(changed) >= c.profile.Settle {
			return counts, nil
		}
		if err := c.pause(ctx); err != nil {
			return nil, err
		}
	}
}

// pause is the time between two counts.
func (c *client) pause(ctx context.Context) error {
	select {
	case <-time.After(c.profile.Settle / 10):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// count counts how often the intent has happened.
func (c *client) count(ctx context.Context, in intent) (int, error) {
	e := in.effects
	ctx, cancel := context.WithTimeout(ctx, e.Timeout)
	defer cancel()
	if len(e.Command) > 0 {
		args := make([]string, len(e.Command))
		for i, arg := range e.Command {
			args[i] = expand(arg, in.variables)
		}
		command := exec.CommandContext(ctx, args[0], args[1:]...) //nolint:gosec // the profile's own
		command.WaitDelay = time.Second                           // what it has started may outlive it, and hold its output
		out, err := command.Output()
		if ctx.Err() != nil {
			err = fmt.Errorf("the command took longer than %s: %w", e.Timeout, ctx.Err())
		}
		if err != nil {
			return 0, fmt.Errorf("count the effects: %w", err)
		}
		n, err := strconv.Atoi(strings.TrimSpace(string(out)))
		if err != nil {
			err = fmt.Errorf("count the effects: the command printed %.80q, which is no number", out)
		}
		return n, err
	}
	r, err := c.send(ctx, Request{Method: http.MethodGet, Path: e.URL}, in, "", c.profile.Headers)
	if err != nil {
		return 0, fmt.Errorf("count the effects: %w", err)
	}
	if r.status != http.StatusOK {
		return 0, fmt.Errorf("count the effects: %s", r)
	}
	value, err := member(r.body, e.Count)
	if err != nil {
		return 0, fmt.Errorf("count the effects: %w", err)
	}
	switch v := value.(type) {
	case []any:
		return len(v), nil
	case float64:
		if v != math.Trunc(v) || v < 0 || v > math.MaxInt32 {
			return 0, fmt.Errorf("count the effects: %v is no number of effects", v)
		}
		return int(v), nil
	}
	return 0, fmt.Errorf("count the effects: %q is neither a number nor a list", e.Count)
}

// member finds a member of a JSON text by a path of names and indexes.
func member(text, path string) (any, error) {
	var value any
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		return nil, fmt.Errorf("not JSON: %.80s", text)
	}
	if path == "" {
		return value, nil
	}
	for _, name := range strings.Split(path, ".") {
		switch v := value.(type) {
		case map[string]any:
			value = v[name]
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(v) {
				return nil, fmt.Errorf("no %s in %.80s", path, text)
			}
			value = v[i]
		default:
			return nil, fmt.Errorf("no %s in %.80s", path, text)
		}
	}
	if value == nil {
		return nil, fmt.Errorf("no %s in %.80s", path, text)
	}
	return value, nil
}
