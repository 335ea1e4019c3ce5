package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Options are those of a client. Base and Journal must be set.
type Options struct {
	Base    string      // where the API is: https://pay.example.com
	Header  http.Header // of every request: Authorization. It is not written to the journal.
	Journal Journal
	Profile *Profile // [Payonce] if it is nil

	// Timeout bounds one call of Do, with all its attempts, unless the context ends before. 1 minute if it is 0.
	Timeout time.Duration

	// AttemptTimeout bounds one request and its answer. 30 seconds if it is 0: longer than the server may work on it.
	AttemptTimeout time.Duration

	// HTTP sends the requests. Redirects are never followed: they could carry a key and a payment elsewhere.
	HTTP http.RoundTripper
}

// Client sends intents. Its methods may be called by several goroutines. Two calls for one intent take their turns.
type Client struct {
	o       Options
	profile Profile
	http    http.Client
	retries budget
	turns   turns
	now     func() time.Time
}

// Request is what an intent asks for. Two requests are the same if their methods and paths are, and their bodies mean
// the same.
type Request struct {
	Intent      string `json:"-"`
	Method      string `json:"method"` // POST if it is empty
	Path        string `json:"path"`   // with its query; begins with a slash
	ContentType string `json:"content_type"`
	Body        []byte `json:"body"`
}

// Response is an answer.
type Response struct {
	Status int         `json:"status"`
	Header http.Header `json:"header"` // from the journal: only Content-Type, Location and Request-Id
	Body   []byte      `json:"body"`

	Intent string `json:"-"`
	Key    string `json:"-"`

	// Final is false where the caller has something to do before the intent can end, such as 3-D Secure. Call Do again
	// after it.
	Final bool `json:"-"`
}

// OK tells whether what was asked for was done.
func (r *Response) OK() bool { return r.Status/100 == 2 && r.Status != http.StatusAccepted }

const answerMax = 8 << 20

// New returns a client.
func New(o Options) (*Client, error) {
	base, err := url.Parse(o.Base)
	if err != nil || base.Host == "" || (base.Scheme != "http" && base.Scheme != "https") {
		return nil, fmt.Errorf("the base %q is not the address of an HTTP API", o.Base)
	}
	if o.Journal == nil {
		return nil, errors.New("a client needs a journal: without one a crash forgets the key, and the next request is a second payment")
	}
	if o.Header.Get("Idempotency-Key") != "" {
		return nil, errors.New("the Idempotency-Key is the client's to set: one for all requests would be that of the first")
	}
	if o.Profile == nil {
		o.Profile = &Payonce
	}
	if o.Timeout == 0 {
		o.Timeout = time.Minute
	}
	if o.AttemptTimeout == 0 {
		o.AttemptTimeout = 30 * time.Second
	}
	o.Base = strings.TrimRight(o.Base, "/")
	return &Client{o: o, profile: *o.Profile, now: time.Now, http: http.Client{
		Transport:     o.HTTP,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Do has an intent done, and returns the answer: a success, or a refusal that is final, such as a declined card, for
// which OK is false. If the intent has ended before, Do returns the answer from the journal and sends nothing.
//
// Errors: those that wrap [ErrNotSent], after which nothing of it has left, now or ever; [*RefusedError]: the server did
// nothing; [*UnknownError]: call Do again, with the same request; [*MismatchError], [*ExpiredError] and [*BrokenPromiseError],
// after which a person must look.
func (c *Client) Do(ctx context.Context, q Request) (*Response, error) {
	if q.Method == "" {
		q.Method = http.MethodPost
	}
	if q.ContentType == "" {
		q.ContentType = c.profile.ContentType
	}
	if q.Intent == "" || !strings.HasPrefix(q.Path, "/") {
		return nil, fmt.Errorf("%w: a request needs the name of its intent, and a path that begins with a slash", ErrNotSent)
	}
	done, err := c.turns.take(ctx, q.Intent)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	defer done()
	r := Record{Intent: q.Intent, Key: keyFor(c.o.Journal.ID(), q.Intent), Request: q, State: Sent, BegunAt: c.now().UTC()}
	stored, err := c.o.Journal.Begin(ctx, r)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrNotSent, err)
	case stored == nil:
		return c.send(ctx, r, false)
	case !same(stored.Request, q):
		return nil, fmt.Errorf("%w: %w: %q", ErrNotSent, ErrIntentChanged, q.Intent)
	case stored.State == Final:
		res := *stored.Response
		res.Intent, res.Key, res.Final = stored.Intent, stored.Key, true
		return &res, nil
	default:
		return c.send(ctx, *stored, true)
	}
}

// Ended is an intent that [Client.Resume] took up: Response or Err is set, as Do returns them.
type Ended struct {
	Intent   string
	Response *Response
	Err      error
}

// Resume takes up what a dead process left: every intent of the journal that has been begun and has not ended. Call it
// when a process starts. It returns one Ended for each.
func (c *Client) Resume(ctx context.Context) ([]Ended, error) {
	open, err := c.o.Journal.Open(ctx)
	if err != nil {
		return nil, fmt.Errorf("list what is open: %w", err)
	}
	ended := make([]Ended, len(open))
	var all sync.WaitGroup
	slots := make(chan struct{}, 8)
	for i, r := range open {
		slots <- struct{}{}
		all.Add(1)
		go func() {
			defer func() { <-slots; all.Done() }()
			q := r.Request
			q.Intent = r.Intent
			res, err := c.Do(ctx, q)
			ended[i] = Ended{r.Intent, res, err}
		}()
	}
	all.Wait()
	return ended, nil
}

// send sends a request until its answer is final. earlier: an attempt before this call may have arrived.
func (c *Client) send(ctx context.Context, r Record, earlier bool) (*Response, error) {
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	c.retries.deposit()
	mayHaveArrived := earlier
	for attempt := 0; ; attempt++ {
		if c.profile.KeyLifetime > 0 && c.now().Sub(r.BegunAt) > c.profile.KeyLifetime {
			return nil, c.tooOld(ctx, r, mayHaveArrived)
		}
		res, arrived, err := c.attempt(ctx, r, attempt > 0 || earlier)
		verdict := Again
		if err == nil {
			verdict = c.profile.Judge(res)
		}
		if res != nil {
			before := r.Seen
			if what := c.compare(&r, res, verdict, err != nil); what != "" {
				return nil, &BrokenPromiseError{Intent: r.Intent, Key: r.Key, What: what, Response: res}
			}
			if r.Seen != before {
				_ = c.o.Journal.Note(context.WithoutCancel(ctx), r) // If it is lost, less is known of what was promised.
			}
		}
		switch verdict {
		case Answered:
			r.State, r.Response = Final, res.kept()
			_ = c.o.Journal.Note(context.WithoutCancel(ctx), r) // If it is lost, the request is sent again, and answered the same.
			res.Final = true
			return res, nil
		case Caller:
			return res, nil
		case Mismatch:
			return nil, &MismatchError{Intent: r.Intent, Key: r.Key, Response: res}
		case Expired:
			return nil, &ExpiredError{Intent: r.Intent, Key: r.Key, Href: href(res), Response: res}
		case Nothing:
			if mayHaveArrived {
				return nil, &UnknownError{Intent: r.Intent, Key: r.Key, Response: res}
			}
			return nil, c.refused(ctx, r, res)
		case Unclear:
			return nil, &UnknownError{Intent: r.Intent, Key: r.Key, Response: res, Err: err}
		}
		mayHaveArrived = mayHaveArrived || arrived && !(res != nil && res.Status == http.StatusTooManyRequests)
		if !sleep(ctx, c.retries.wait(attempt, res, c.now())) {
			if !mayHaveArrived {
				return nil, c.neverSent(ctx, r, err)
			}
			return nil, &UnknownError{Intent: r.Intent, Key: r.Key, Response: res, Err: errors.Join(ctx.Err(), err)}
		}
	}
}

// attempt sends a request once. A response with an error is one whose body was lost.
func (c *Client) attempt(ctx context.Context, r Record, again bool) (_ *Response, arrived bool, _ error) {
	ctx, cancel := context.WithTimeout(ctx, c.o.AttemptTimeout)
	defer cancel()
	var asked, connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { asked.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	})
	q, err := http.NewRequestWithContext(ctx, r.Request.Method, c.o.Base+r.Request.Path, bytes.NewReader(r.Request.Body))
	if err != nil {
		return nil, false, err
	}
	for name, values := range c.o.Header {
		q.Header[name] = values
	}
	if len(r.Request.Body) > 0 {
		q.Header.Set("Content-Type", r.Request.ContentType)
	}
	key := r.Key
	if c.profile.Quoted {
		key = `"` + key + `"`
	}
	q.Header.Set("Idempotency-Key", key)
	if again && c.profile.Wait > 0 {
		q.Header.Set("Prefer", fmt.Sprintf("wait=%d", int(c.profile.Wait.Seconds())))
	}
	answer, err := c.http.Do(q)
	if err != nil {
		// A transport that does not say when it connects may have sent anything.
		return nil, connected.Load() || !asked.Load(), err
	}
	defer answer.Body.Close()
	res := &Response{Status: answer.StatusCode, Header: answer.Header, Intent: r.Intent, Key: r.Key}
	res.Body, err = io.ReadAll(io.LimitReader(answer.Body, answerMax+1))
	if err == nil && len(res.Body) > answerMax {
		err = fmt.Errorf("the answer is longer than %d bytes", answerMax)
	}
	return res, true, err
}

// compare holds an answer against the request and the answers before it, and returns what belies them.
func (c *Client) compare(r *Record, res *Response, v Verdict, lost bool) string {
	if res.Status/100 != 2 {
		return ""
	}
	replayed := res.Header.Get("Idempotent-Replayed") == "true"
	if c.profile.MarksReplays && r.Seen.Done && !replayed && res.Status != http.StatusAccepted {
		return "an earlier answer said that it was done, and this one is not marked as its replay"
	}
	now := Seen{Done: r.Seen.Done || res.Status != http.StatusAccepted, Location: res.Header.Get("Location")}
	if !lost {
		var object struct {
			ID string `json:"id"`
		}
		_ = json.Unmarshal(res.Body, &object)
		now.ID = object.ID
		if c.profile.Check != nil && (v == Answered || v == Pending || v == Caller) {
			if what := c.profile.Check(r.Request, res); what != "" {
				return what
			}
		}
	}
	for _, pair := range []struct {
		name   string
		before *string
		now    string
	}{{"id", &r.Seen.ID, now.ID}, {"Location", &r.Seen.Location, now.Location}} {
		if *pair.before != "" && pair.now != "" && *pair.before != pair.now {
			return fmt.Sprintf("the answer's %s is %s, and an earlier answer's was %s", pair.name, pair.now, *pair.before)
		}
		if pair.now != "" {
			*pair.before = pair.now
		}
	}
	r.Seen.Done = now.Done
	return ""
}

// refused ends an intent of which the server did nothing. It may be begun again, with the same request or another.
func (c *Client) refused(ctx context.Context, r Record, res *Response) error {
	r.State, r.Response = Refused, nil
	if err := c.o.Journal.Note(context.WithoutCancel(ctx), r); err != nil {
		return &UnknownError{Intent: r.Intent, Key: r.Key, Response: res, Err: err} // Resume will send it.
	}
	return &RefusedError{Intent: r.Intent, Key: r.Key, Response: res}
}

func (c *Client) neverSent(ctx context.Context, r Record, cause error) error {
	r.State = Refused
	if err := c.o.Journal.Note(context.WithoutCancel(ctx), r); err != nil {
		return &UnknownError{Intent: r.Intent, Key: r.Key, Err: errors.Join(cause, err)}
	}
	return fmt.Errorf("%w: %w", ErrNotSent, errors.Join(cause, ctx.Err()))
}

func (c *Client) tooOld(ctx context.Context, r Record, mayHaveArrived bool) error {
	if !mayHaveArrived {
		return c.neverSent(ctx, r, ErrKeyTooOld)
	}
	return &UnknownError{Intent: r.Intent, Key: r.Key, Err: ErrKeyTooOld}
}

// kept is what the journal holds of an answer.
func (r *Response) kept() *Response {
	kept := &Response{Status: r.Status, Header: http.Header{}, Body: r.Body}
	for _, name := range []string{"Content-Type", "Location", "Request-Id"} {
		if value := r.Header.Get(name); value != "" {
			kept.Header.Set(name, value)
		}
	}
	return kept
}

func href(r *Response) string {
	var body struct {
		Resource struct {
			Href string `json:"href"`
		} `json:"resource"`
	}
	_ = json.Unmarshal(r.Body, &body)
	return body.Resource.Href
}

func same(a, b Request) bool {
	return a.Method == b.Method && a.Path == b.Path && a.ContentType == b.ContentType &&
		(bytes.Equal(a.Body, b.Body) || sameJSON(a.Body, b.Body))
}

func sameJSON(a, b []byte) bool {
	x, okX := parse(a)
	y, okY := parse(b)
	return okX && okY && reflect.DeepEqual(x, y)
}

func parse(text []byte) (value any, ok bool) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber() // 9007199254740993 is not 9007199254740992
	return value, d.Decode(&value) == nil && !d.More()
}
