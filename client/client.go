package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"
)

// Options configure a client. Base and Journal must be set.
type Options struct {
	Base    string      // the API's URL: https://pay.example.com. The journal holds it with each intent, without a user and password.
	Header  http.Header // sent with every request: Authorization. It is not written to the journal.
	Journal Journal
	Profile *Profile // [Payonce] if it is nil

	// FormerBases are addresses that the same server had before. What was begun at them is continued at Base; what was
	// begun at any other is an [ErrOtherServer].
	FormerBases []string

	// Timeout bounds one call of Do with all its attempts; the context may end it earlier. 2 minutes if it is 0.
	Timeout time.Duration

	// AttemptTimeout bounds one request and its response. 50 seconds if it is 0: payonce responds within 45.
	AttemptTimeout time.Duration

	// HTTP sends the requests; [http.DefaultTransport] if it is nil. It must not retry by itself under another key.
	// Redirects are never followed: they could send a key and a payment to another host.
	HTTP http.RoundTripper
}

// Client sends intents. Its methods may be called by several goroutines; calls for one intent run one after another.
type Client struct {
	o       Options
	profile Profile
	bases   []string // as records hold them: that of Base, and the former ones
	http    http.Client
	traces  bool // the transport is net/http's, which reports its connections
	retries budget
	turns   turns
	now     func() time.Time
}

// Request is what is sent for an intent. Two requests are equal if their methods, paths and media types are, and their
// bodies are the same bytes or the same JSON values.
type Request struct {
	Intent      string `json:"-"`
	Method      string `json:"method"`       // POST if it is empty
	Path        string `json:"path"`         // with its query; begins with a slash
	ContentType string `json:"content_type"` // that of the profile if it is empty
	Body        []byte `json:"body"`
}

// Response is what the server responded.
type Response struct {
	Status int         `json:"status"`
	Header http.Header `json:"header"` // from the journal: only Content-Type, Location and Request-Id
	Body   []byte      `json:"body"`

	Intent string `json:"-"`
	Key    string `json:"-"`

	// Final is false if the intent waits for the caller, who must do something first, such as 3-D Secure. Call Do again
	// afterwards.
	Final bool `json:"-"`
}

// OK reports whether the request took effect: a 2xx other than 202.
func (r *Response) OK() bool { return r.Status/100 == 2 && r.Status != http.StatusAccepted }

// String is the response for a log: its status, its media type, and the first 200 bytes of its body as text.
func (r *Response) String() string {
	if r == nil {
		return "no response"
	}
	text := fmt.Sprintf("%d %s", r.Status, cmp.Or(r.Header.Get("Content-Type"), "(no Content-Type)"))
	if len(r.Body) == 0 {
		return text
	}
	body, more := r.Body, ""
	if len(body) > shownMax {
		body, more = body[:shownMax], "…"
	}
	return text + " " + strings.ToValidUTF8(string(body), "") + more
}

const shownMax = 200 // bytes of a body that String shows

// bodyMax is the longest response body that is read, in bytes.
const bodyMax = 8 << 20

// New returns a client. It sends nothing; call [Client.Resume] next.
func New(o Options) (*Client, error) {
	var bases []string
	for _, base := range append([]string{o.Base}, o.FormerBases...) {
		normal, err := normalBase(base)
		if err != nil {
			return nil, err
		}
		bases = append(bases, normal)
	}
	if o.Journal == nil {
		return nil, errors.New("a client needs a journal: without one a crash loses the key, and the next request is a second payment")
	}
	header := http.Header{}
	for name, values := range o.Header {
		header[http.CanonicalHeaderKey(name)] = slices.Clone(values)
	}
	if header["Idempotency-Key"] != nil {
		return nil, errors.New("remove the Idempotency-Key from the headers: the client sets one for each intent")
	}
	o.Header = header
	if o.Profile == nil {
		o.Profile = &Payonce
	}
	if o.Profile.Classify == nil {
		return nil, errors.New("the profile has no function Classify")
	}
	if o.Timeout == 0 {
		o.Timeout = 2 * time.Minute
	}
	if o.AttemptTimeout == 0 {
		o.AttemptTimeout = 50 * time.Second
	}
	o.Base = strings.TrimRight(o.Base, "/")
	_, traces := cmp.Or(o.HTTP, http.DefaultTransport).(*http.Transport)
	return &Client{o: o, profile: *o.Profile, bases: bases, now: time.Now, traces: traces, http: http.Client{
		Transport:     o.HTTP,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// normalBase is an address as records hold it: equal ones are the same text, and it has no user and password.
func normalBase(base string) (string, error) {
	u, err := url.Parse(base)
	if err != nil { // which repeats the address, perhaps with a password
		return "", errors.New("the base is not a URL")
	}
	if u.Hostname() == "" || (u.Scheme != "http" && u.Scheme != "https") || u.RawQuery != "" || u.Fragment != "" {
		return "", fmt.Errorf("the base %q is not the URL of an HTTP API", u.Redacted())
	}
	host := strings.ToLower(u.Hostname())
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port := u.Port(); port != "" && port != map[string]string{"http": "80", "https": "443"}[u.Scheme] {
		host += ":" + port
	}
	return u.Scheme + "://" + host + strings.TrimRight(u.EscapedPath(), "/"), nil
}

// elsewhere is an error if a record is of another server: its key means nothing to this one, which would execute the
// request as a new one.
func (c *Client) elsewhere(r Record) error {
	if slices.Contains(c.bases, r.Base) {
		return nil
	}
	return fmt.Errorf("%w: %w: %q was begun at %q and this client sends to %q: use another journal for this server, "+
		"or if the server has moved, name its former address in FormerBases", ErrNotSent, ErrOtherServer, r.Intent, r.Base, c.bases[0])
}

// Do sends a request until the response is final, and returns it: a success, or a refusal that is final, such as a
// declined card, for which OK is false. If the intent is final already, Do returns the response from the journal and
// sends nothing.
//
// Errors:
//   - [*RefusedError]: the server did nothing. Correct the request and call Do again, under the same name.
//   - [*UnknownError]: it may have been done. Call Do again with the same request.
//   - those that wrap [ErrNotSent]: this call sent nothing.
//   - [*MismatchError], [*ExpiredError], [*BrokenPromiseError]: retrying does not help; an operator must look.
func (c *Client) Do(ctx context.Context, q Request) (*Response, error) {
	if q.Method == "" {
		q.Method = http.MethodPost
	}
	if q.ContentType == "" {
		q.ContentType = c.profile.ContentType
	}
	if err := c.valid(q); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	done, err := c.turns.take(ctx, q.Intent)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	defer done()
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	r := Record{Intent: q.Intent, Key: keyFor(c.o.Journal.ID(), q.Intent), Base: c.bases[0], Request: q, State: Sent, BegunAt: c.now().UTC()}
	stored, err := c.o.Journal.Begin(ctx, r)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrNotSent, err)
	case stored == nil:
		return c.send(ctx, r, false)
	}
	if err := c.elsewhere(*stored); err != nil {
		return nil, err
	}
	switch {
	case !sameRequest(stored.Request, q):
		return nil, fmt.Errorf("%w: %w: %q", ErrNotSent, ErrIntentChanged, q.Intent)
	case stored.State == Final:
		return stored.response(true), nil
	case stored.State == Broken:
		return nil, &BrokenPromiseError{Intent: stored.Intent, Key: stored.Key, What: stored.Broken, Response: stored.response(false)}
	}
	return c.send(ctx, *stored, true)
}

// valid finds what is wrong with a request before it is written to the journal, from which it must be read again as it is.
func (c *Client) valid(q Request) error {
	if q.Intent == "" {
		return errors.New("the request has no intent: name it, by a name that is the same after a restart")
	}
	for _, text := range []string{q.Intent, q.Method, q.Path, q.ContentType} {
		if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
			return fmt.Errorf("%q is not UTF-8 text", text)
		}
	}
	if method := strings.ToUpper(q.Method); method == http.MethodGet || method == http.MethodHead {
		return fmt.Errorf("a %s needs no key: send it with http.Client", method)
	}
	if !strings.HasPrefix(q.Path, "/") || strings.Contains(q.Path, "#") {
		return fmt.Errorf("the path %q must begin with a slash and have no fragment", q.Path)
	}
	_, err := http.NewRequest(q.Method, c.o.Base+q.Path, nil) //nolint:noctx // it is not sent
	return err
}

// Outcome is what [Client.Resume] returns for an intent: Response or Err is set, as Do returns them.
type Outcome struct {
	Intent   string
	Response *Response
	Err      error
}

// resumeAtOnce is how many intents Resume sends at the same time.
const resumeAtOnce = 8

// Resume sends every intent of the journal that was begun and is not final: those of a process that crashed, and those
// that ended in an [UnknownError]. Call it when a process starts. It returns one Outcome for each, oldest first, except
// those that another call has ended meanwhile. Each may take Options.Timeout, so bound ctx if the server may be down: what
// is left then stays in the journal.
func (c *Client) Resume(ctx context.Context) ([]Outcome, error) {
	open, err := c.o.Journal.Open(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the open intents: %w", err)
	}
	outcomes := make([]Outcome, len(open))
	var all sync.WaitGroup
	slots := make(chan struct{}, resumeAtOnce)
	for i, r := range open {
		slots <- struct{}{}
		all.Add(1)
		go func() {
			defer func() { <-slots; all.Done() }()
			if err := c.elsewhere(r); err != nil {
				outcomes[i] = Outcome{Intent: r.Intent, Err: err}
				return
			}
			outcomes[i] = c.resume(ctx, r.Intent)
		}()
	}
	all.Wait()
	return slices.DeleteFunc(outcomes, func(o Outcome) bool { return o.Response == nil && o.Err == nil }), nil
}

// resume sends an intent if it is still open. One that was refused since Resume has listed it must not be begun again.
func (c *Client) resume(ctx context.Context, intent string) (o Outcome) {
	o.Intent = intent
	done, err := c.turns.take(ctx, intent)
	if err != nil {
		o.Err = fmt.Errorf("%w: %w", ErrNotSent, err)
		return o
	}
	defer done()
	r, err := c.o.Journal.Continue(ctx, intent)
	switch {
	case err != nil:
		o.Err = fmt.Errorf("%w: %w", ErrNotSent, err)
	case r != nil:
		if o.Err = c.elsewhere(*r); o.Err == nil {
			o.Response, o.Err = c.send(ctx, *r, true)
		}
	}
	return o
}

// Settle ends an intent whose outcome the caller has found elsewhere: by reading the object, or by the server's record of
// the key. Do returns the response from then on and sends nothing. It is for an [UnknownError], [MismatchError] or
// [ExpiredError] that stays; an intent that is not open, or not known, is an error.
func (c *Client) Settle(ctx context.Context, intent string, outcome Response) error {
	done, err := c.turns.take(ctx, intent)
	if err != nil {
		return err
	}
	defer done()
	r, err := c.o.Journal.Continue(ctx, intent)
	switch {
	case err != nil:
		return err
	case r == nil:
		return fmt.Errorf("%q is not an open intent", intent)
	}
	if err := c.elsewhere(*r); err != nil {
		return err
	}
	r.State, r.Response = Final, outcome.kept()
	return c.note(ctx, *r)
}

// send sends a request until the response is final. earlier: an attempt before this call may have reached the server.
func (c *Client) send(ctx context.Context, r Record, earlier bool) (*Response, error) {
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	c.retries.deposit()
	mayHaveArrived := earlier
	var last *Response
	var lastErr error
	for n := 0; ; n++ {
		if c.tooOld(r) {
			return nil, c.unsettled(ctx, r, mayHaveArrived, last, ErrKeyTooOld)
		}
		if ctx.Err() != nil {
			return nil, c.unsettled(ctx, r, mayHaveArrived, last, outOfTime(ctx, lastErr))
		}
		a := c.attempt(ctx, r, n > 0 || earlier)
		mayHaveArrived = mayHaveArrived || a.connections > 1
		class := ClassRetry
		if a.err == nil {
			class = c.profile.Classify(a.response)
		}
		if what := c.compare(ctx, &r, a, class); what != "" {
			return nil, c.broken(ctx, r, a.response, what)
		}
		switch class {
		case ClassFinal:
			r.State, r.Response = Final, a.response.kept()
			_ = c.note(ctx, r) // If it is lost, Resume gets the same response again.
			a.response.Final = true
			return a.response, nil
		case ClassCaller:
			return a.response, nil
		case ClassMismatch:
			return nil, &MismatchError{Intent: r.Intent, Key: r.Key, Response: a.response}
		case ClassExpired:
			return nil, &ExpiredError{Intent: r.Intent, Key: r.Key, Href: hrefOf(a.response), Response: a.response}
		case ClassRefused:
			if mayHaveArrived { // This refusal says nothing of the earlier attempt.
				return nil, &UnknownError{Intent: r.Intent, Key: r.Key, Response: a.response}
			}
			return nil, c.refused(ctx, r, a.response)
		case ClassUnclear:
			return nil, &UnknownError{Intent: r.Intent, Key: r.Key, Response: a.response, Err: a.err}
		case ClassRetry, ClassLater, ClassPending:
		}
		mayHaveArrived = mayHaveArrived || class != ClassLater && (a.response != nil || a.connections > 0 || !a.traced)
		last = cmp.Or(a.response, last)
		if ctx.Err() == nil || lastErr == nil { // an attempt that is cut short by the end says nothing
			lastErr = a.err
		}
		if !sleep(ctx, c.retries.wait(n, a.response, c.now())) {
			return nil, c.unsettled(ctx, r, mayHaveArrived, last, outOfTime(ctx, lastErr))
		}
	}
}

// clockMayStep is how far this machine's clock may be set back without making the age of an intent unknown. It is less than
// what the profiles' KeyLifetime leaves of the server's.
const clockMayStep = 30 * time.Minute

// tooOld reports whether the server may have forgotten the key. An intent that was begun in the future has no age: the clock
// was ahead by an unknown time.
func (c *Client) tooOld(r Record) bool {
	age := c.now().Sub(r.BegunAt)
	return c.profile.KeyLifetime > 0 && (age > c.profile.KeyLifetime || age < -clockMayStep)
}

// outOfTime is why a call ends: the context's error, also if it only has no time left for another attempt, and the last
// attempt's.
func outOfTime(ctx context.Context, err error) error {
	end := cmp.Or(ctx.Err(), context.DeadlineExceeded)
	if err == nil {
		return end
	}
	return fmt.Errorf("%w, after: %w", end, err)
}

// attempt is a request that was sent once. A response with an error is one whose body was lost.
type attempt struct {
	response    *Response
	err         error
	connections int  // that the transport got for it; net/http gets another if an idle one turns out to be closed
	traced      bool // the transport reports its connections; one that does not may have sent anything
}

func (c *Client) attempt(ctx context.Context, r Record, again bool) (a attempt) {
	ctx, cancel := context.WithTimeout(ctx, c.o.AttemptTimeout)
	defer cancel()
	var asked atomic.Bool
	var got atomic.Int32
	defer func() { a.traced, a.connections = c.traces || asked.Load(), int(got.Load()) }()
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { asked.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { got.Add(1) },
	})
	q, err := http.NewRequestWithContext(ctx, r.Request.Method, c.o.Base+r.Request.Path, bytes.NewReader(r.Request.Body))
	if err != nil {
		return attempt{err: err}
	}
	for name, values := range c.o.Header {
		q.Header[name] = slices.Clone(values)
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
	response, err := c.http.Do(q)
	if err != nil {
		return attempt{err: err}
	}
	defer func() { _ = response.Body.Close() }()
	a.response = &Response{Status: response.StatusCode, Header: response.Header, Intent: r.Intent, Key: r.Key}
	a.response.Body, a.err = io.ReadAll(io.LimitReader(response.Body, bodyMax+1))
	if a.err == nil && len(a.response.Body) > bodyMax {
		a.err = fmt.Errorf("the response is longer than %d bytes", bodyMax)
	}
	return a
}

// compare compares a response with the request and with earlier responses, and returns what cannot be true. What it
// learns is added to the record and noted.
func (c *Client) compare(ctx context.Context, r *Record, a attempt, v Class) string {
	if a.response == nil {
		return ""
	}
	res, whole := a.response, a.err == nil
	success := res.Status/100 == 2
	if r.Seen.Done && !success && whole && v == ClassFinal {
		return fmt.Sprintf("an earlier response said that it was done, and this one is %d", res.Status)
	}
	// What a proxy says by itself has not been near the server.
	if !success || v == ClassRetry && (whole || !ours(res.Header)) {
		return ""
	}
	unmarked := c.profile.MarksReplays && r.Seen.Done && res.Header.Get("Idempotent-Replayed") != "true"
	if unmarked && !whole {
		return "" // A gateway may have dropped the mark, and what else would tell is lost.
	}
	now := Seen{Done: r.Seen.Done || res.Status != http.StatusAccepted, Location: res.Header.Get("Location")}
	if whole {
		var object struct {
			ID any `json:"id"`
		}
		_ = json.Unmarshal(res.Body, &object)
		now.ID, _ = object.ID.(string)
		if c.profile.Check != nil {
			if what := c.profile.Check(r.Request, res); what != "" {
				return what
			}
		}
	}
	before := r.Seen
	if unmarked && !sameObject(before, now) {
		return "an earlier response said that it was done, and this one is not marked as a replay of it"
	}
	for _, field := range []struct {
		name        string
		before, now string
	}{{"id", before.ID, now.ID}, {"Location", placeOf(before.Location), placeOf(now.Location)}} {
		if field.before != "" && field.now != "" && field.before != field.now {
			return fmt.Sprintf("the response's %s is %s, and an earlier response's was %s", field.name, field.now, field.before)
		}
	}
	r.Seen = Seen{Done: now.Done, ID: cmp.Or(now.ID, before.ID), Location: cmp.Or(now.Location, before.Location)}
	if r.Seen != before && v != ClassFinal { // which is noted with the response
		_ = c.note(ctx, *r) // If it is lost, later responses are compared with less.
	}
	return ""
}

// ours reports whether the headers of a response whose body is lost are the API's: they name an object, or the request.
func ours(h http.Header) bool {
	return h.Get("Location") != "" || strings.HasPrefix(h.Get("Request-Id"), "req_")
}

// sameObject reports whether two responses name the same object, by its id or its Location. A gateway may have dropped the
// mark of a replay, and a header.
func sameObject(before, now Seen) bool {
	place := placeOf(before.Location)
	return before.ID != "" && before.ID == now.ID || place != "" && place == placeOf(now.Location) ||
		now.ID != "" && strings.HasSuffix(place, "/"+now.ID)
}

// placeOf is what a Location names, however it is written: a gateway may have made it absolute.
func placeOf(location string) string {
	u, err := url.Parse(location)
	if err != nil {
		return location
	}
	return u.EscapedPath()
}

// broken ends an intent: a server that loses a key would charge again with each attempt.
func (c *Client) broken(ctx context.Context, r Record, res *Response, what string) error {
	r.State, r.Broken, r.Response = Broken, what, res.kept()
	err := c.note(ctx, r)
	return &BrokenPromiseError{Intent: r.Intent, Key: r.Key, What: what, Response: res, Err: err}
}

// refused ends an intent for which the server did nothing. It may be begun again, with the same request or another.
func (c *Client) refused(ctx context.Context, r Record, res *Response) error {
	r.State, r.Response = Refused, nil
	if err := c.note(ctx, r); err != nil {
		return &UnknownError{Intent: r.Intent, Key: r.Key, Response: res, Err: err} // Resume will send it.
	}
	return &RefusedError{Intent: r.Intent, Key: r.Key, Response: res}
}

// unsettled is the error of a call that stops without a final response. res is the last one, if any.
func (c *Client) unsettled(ctx context.Context, r Record, mayHaveArrived bool, res *Response, cause error) error {
	if mayHaveArrived {
		return &UnknownError{Intent: r.Intent, Key: r.Key, Response: res, Err: cause}
	}
	if res != nil { // Later, and nothing else
		return c.refused(ctx, r, res)
	}
	r.State = Refused // so that Resume does not send what the caller was told was not sent
	if err := c.note(ctx, r); err != nil {
		return &UnknownError{Intent: r.Intent, Key: r.Key, Response: res, Err: errors.Join(cause, err)}
	}
	return fmt.Errorf("%w: %w", ErrNotSent, cause)
}

// noteTimeout bounds a write to the journal after the context of its call has ended.
const noteTimeout = 10 * time.Second

// note writes to the journal what is known now, also if the call was canceled.
func (c *Client) note(ctx context.Context, r Record) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteTimeout)
	defer cancel()
	return c.o.Journal.Note(ctx, r)
}

// response is the one that a record holds.
func (r *Record) response(final bool) *Response {
	if r.Response == nil {
		return nil
	}
	kept := r.Response.kept()
	kept.Intent, kept.Key, kept.Final = r.Intent, r.Key, final
	return kept
}

// kept is a copy of what the journal holds of a response.
func (r *Response) kept() *Response {
	kept := &Response{Status: r.Status, Header: http.Header{}, Body: bytes.Clone(r.Body)}
	for _, name := range []string{"Content-Type", "Location", "Request-Id"} {
		if value := r.Header.Get(name); value != "" {
			kept.Header.Set(name, value)
		}
	}
	return kept
}

func hrefOf(r *Response) string {
	var body struct {
		Resource struct {
			Href string `json:"href"`
		} `json:"resource"`
	}
	_ = json.Unmarshal(r.Body, &body)
	return body.Resource.Href
}

func sameRequest(a, b Request) bool {
	return a.Method == b.Method && a.Path == b.Path && a.ContentType == b.ContentType &&
		(bytes.Equal(a.Body, b.Body) || sameJSON(a.Body, b.Body))
}

func sameJSON(a, b []byte) bool {
	x, okX := parseJSON(a)
	y, okY := parseJSON(b)
	return okX && okY && reflect.DeepEqual(x, y)
}

func parseJSON(text []byte) (value any, ok bool) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber() // 9007199254740993 is not 9007199254740992
	if d.Decode(&value) != nil {
		return nil, false
	}
	_, err := d.Token() // More is false before a } too many
	return value, errors.Is(err, io.EOF)
}
