package idemcheck

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const responseMax = 1 << 20

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
}

type client struct {
	base    string
	profile Profile
	http    *http.Client
	run     string
	n       atomic.Int64
}

func newClient(base string, p Profile) *client {
	transport := &http.Transport{MaxIdleConnsPerHost: p.Concurrent, MaxConnsPerHost: p.Concurrent + 8, Proxy: http.ProxyFromEnvironment}
	return &client{
		base: strings.TrimSuffix(base, "/"), profile: p, run: strconv.FormatUint(rand.Uint64(), 36),
		http: &http.Client{Transport: transport, Timeout: p.Within, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		}},
	}
}

// newIntent makes what an intent needs, and a key.
func (c *client) newIntent(ctx context.Context) (intent, error) {
	n := c.n.Add(1)
	in := intent{
		key:       fmt.Sprintf("%sidemcheck-%s-%d", c.profile.Key.Prefix, c.run, n),
		variables: map[string]string{"n": fmt.Sprintf("%s%d", c.run, n)},
	}
	for i, step := range c.profile.Setup {
		r, err := c.send(ctx, step.Request, in, fmt.Sprintf("%s-setup-%d", in.key, i), c.profile.Headers)
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
	if key != "" {
		q.Header.Set(c.profile.Key.Header, key)
	}
	q.GetBody = nil // so that net/http sends nothing twice by itself
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

// once sends the intent's request once.
func (c *client) once(ctx context.Context, in intent) (response, error) {
	return c.send(ctx, c.profile.Intent, in, in.key, c.profile.Headers)
}

// final sends the intent's request until its response is final.
func (c *client) final(ctx context.Context, in intent) (response, error) {
	return c.finalOf(ctx, func() (response, error) { return c.once(ctx, in) })
}

func (c *client) finalOf(ctx context.Context, send func() (response, error)) (r response, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.profile.Within)
	defer cancel()
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		if r, err = send(); err == nil && !c.again(r.status) {
			return r, nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return r, errors.Join(fmt.Errorf("no final response within %s, the last was %s", c.profile.Within, r), err)
		}
	}
}

// again reports whether the same request is to be sent again.
func (c *client) again(status int) bool {
	s := c.profile.Status
	if slices.Contains(s.Pending, status) || slices.Contains(s.InFlight, status) {
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
	return r.status/100 == 2 && !slices.Contains(c.profile.Status.Pending, r.status)
}

// effects counts how often the intent has happened.
func (c *client) effects(ctx context.Context, in intent) (int, error) {
	e := c.profile.Effects
	if len(e.Command) > 0 {
		args := make([]string, len(e.Command))
		for i, arg := range e.Command {
			args[i] = expand(arg, in.variables)
		}
		out, err := exec.CommandContext(ctx, args[0], args[1:]...).Output() //nolint:gosec // the profile's own
		if err != nil {
			return 0, fmt.Errorf("count the effects: %w", err)
		}
		return strconv.Atoi(strings.TrimSpace(string(out)))
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
