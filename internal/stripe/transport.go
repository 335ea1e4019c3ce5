package stripe

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
)

// doOnce runs an attempt with its deadline and records what happened on the wire.
func (s *Client) doOnce(ctx context.Context, attempt func(context.Context, *exchange) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	x := &exchange{}
	ctx = context.WithValue(ctx, exchangeKey{}, x)
	// Before there is a connection it is certain that nothing was sent; whatever is
	// written to one may arrive.
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { x.sent.Store(true) },
	})
	return attempt(ctx, x)
}

// exchange is what happened on the wire during one attempt, which the library's errors
// do not say: whether anything was sent, and what came back if it was not JSON.
type exchange struct {
	sent   atomic.Bool
	status atomic.Int64
	header atomic.Pointer[http.Header]
}

type exchangeKey struct{}

// oneAttempt is the transport. When a reused connection dies, net/http silently sends
// a request again if it believes that is safe: if the request has an Idempotency-Key,
// and a body that can be read again or none. To prevent that, GetBody is removed and,
// for a request without a body, the header is given a non-canonical name, which
// net/http does not recognise; on the wire header names have no case.
//
// It also sets the length of the body. The library does not, so net/http would send
// it in chunks, which a proxy may reject or forward as an empty POST.
type oneAttempt struct{ base http.RoundTripper }

func (t oneAttempt) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.GetBody = nil
	if r.Body != nil && r.ContentLength == 0 {
		body, err := io.ReadAll(r.Body) // a form of a few hundred bytes, in memory already
		if err != nil {
			return nil, fmt.Errorf("read a call's body: %w", err)
		}
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	if r.ContentLength == 0 {
		r.Body = nil
		if key, ok := r.Header["Idempotency-Key"]; ok {
			delete(r.Header, "Idempotency-Key")
			r.Header["idempotency-key"] = key
		}
	}
	res, err := t.base.RoundTrip(r)
	if x, ok := r.Context().Value(exchangeKey{}).(*exchange); ok && res != nil {
		x.status.Store(int64(res.StatusCode))
		x.header.Store(&res.Header)
	}
	if err == nil {
		res.Body = withoutNUL(bounded(res.Body, answerMax))
	}
	return res, err
}

// answerMax is the length of a response that is read, after decompression. A page of a hundred objects with all the
// metadata that Stripe allows has two thirds of it.
const answerMax = 8 << 20

// errAnswerTooLong is the end of a longer response. What the call did is then unknown, as after a lost connection.
var errAnswerTooLong = fmt.Errorf("the response is longer than %d bytes", answerMax)

// bounded is a body that fails after limit bytes, in place of one that fills the memory.
func bounded(body io.ReadCloser, limit int64) io.ReadCloser {
	return struct {
		io.Reader
		io.Closer
	}{&boundedReader{body, limit}, body}
}

type boundedReader struct {
	next io.Reader
	left int64
}

func (b *boundedReader) Read(p []byte) (int, error) {
	if int64(len(p)) > b.left+1 { // one more, to see whether there is more
		p = p[:b.left+1]
	}
	n, err := b.next.Read(p)
	if int64(n) > b.left {
		n, err = int(b.left), errAnswerTooLong
	}
	b.left -= int64(n)
	return n, err
}

// withoutNUL is a response without U+0000, which JSON has a way to write, and
// neither text nor jsonb of PostgreSQL's can hold. In the message of a decline it
// would keep a payment from ever being settled, and in one object's metadata the
// reconciler from all others on its page.
func withoutNUL(answer io.ReadCloser) io.ReadCloser {
	body, err := io.ReadAll(answer) // as the library would
	if err != nil {
		body = nil // Half an answer says nothing, and the library would copy it.
	}
	for rest := body; ; {
		at := bytes.Index(rest, []byte(`\u0000`))
		if at < 0 {
			break
		}
		if (at-len(bytes.TrimRight(rest[:at], `\`)))%2 == 0 { // or its backslash is one that was meant
			copy(rest[at:], `\ufffd`)
		}
		rest = rest[at+len(`\u0000`):]
	}
	return struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(body), failing{err}), answer}
}

// failing is the end of a body: as it was read.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	return 0, io.EOF
}
