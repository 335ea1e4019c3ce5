package protocol

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"example.com/payonce/internal/stripe"
)

// reply is what Stripe responds with.
type reply uint8

const (
	replyNone reply = iota
	replyDone
	replyDeclined
	replyConflict   // the object's state does not allow it
	replyTooMuch    // more than what is left to refund
	replyRefused    // refused for good
	replyExpired    // the network has dropped the authorization
	replyInvalid    // refused before the key was looked up: says nothing of an earlier attempt
	replyTurnedAway // 429
	replyError      // 500, which Stripe stores under the key
	replyReused     // the key was used with other parameters
	replyLost       // the connection ended
	replyCount
)

var replyNames = [...]string{
	replyNone: "nothing", replyDone: "200", replyDeclined: "402 declined", replyConflict: "400 unexpected state",
	replyTooMuch: "400 too large", replyRefused: "400 refused", replyExpired: "400 expired",
	replyInvalid: "404", replyTurnedAway: "429",
	replyError: "500, stored", replyReused: "400 key in use for another request", replyLost: "no response",
}

// bodies are the responses, as they are on the wire.
var bodies = map[reply]struct {
	status int
	body   string
}{
	replyDone:       {200, ""},
	replyDeclined:   {402, `{"error":{"type":"card_error","code":"card_declined","message":"declined"}}`},
	replyConflict:   {400, refusal("payment_intent_unexpected_state")},
	replyTooMuch:    {400, refusal("amount_too_large")},
	replyRefused:    {400, refusal("charge_not_refundable")},
	replyExpired:    {400, refusal("charge_expired_for_capture")},
	replyInvalid:    {404, refusal("resource_missing")},
	replyTurnedAway: {429, refusal("rate_limit")},
	replyError:      {500, `{"error":{"type":"api_error","message":"an error"}}`},
	replyReused:     {400, `{"error":{"type":"idempotency_error","message":"Keys for idempotent requests can only be used with the same parameters they were first used with."}}`},
}

func refusal(code string) string {
	return fmt.Sprintf(`{"error":{"type":"invalid_request_error","code":%q,"message":"refused"}}`, code)
}

// verdict is what the service concludes from a response.
type verdict struct {
	effect   stripe.Effect
	cached   bool
	replayed bool
	reused   bool // Stripe knows the key from another request
}

// verdicts are those of every response to every call, first and replayed, without and with an earlier attempt in
// doubt.
type verdicts map[stripe.Operation]*[replyCount][2][2]verdict

func (m *Model) classify(call uint8, r reply, replayed, doubt bool) verdict {
	return m.verdicts[operationOf(call)][r][index(replayed)][index(doubt)]
}

func index(b bool) int {
	if b {
		return 1
	}
	return 0
}

// canned is a server that gives one response to everything.
type canned struct {
	mu       sync.Mutex
	reply    reply
	replayed bool
}

func (c *canned) set(r reply, replayed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reply, c.replayed = r, replayed
}

func (c *canned) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reply == replyLost {
		panic(http.ErrAbortHandler)
	}
	if c.replayed {
		w.Header().Set("Idempotent-Replayed", "true")
	}
	body := bodies[c.reply].body
	if body == "" {
		body = object(r.URL.Path)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(bodies[c.reply].status)
	_, _ = io.WriteString(w, body)
}

// ask finds the verdicts by giving each response to the service's own client over a socket. So a change of how the
// service reads a response is one of the model.
func ask(ctx context.Context) (verdicts, error) {
	var stripeSays canned
	server := httptest.NewServer(&stripeSays)
	defer server.Close()
	found := verdicts{}
	for _, op := range []stripe.Operation{stripe.OpCreateIntent, stripe.OpConfirm, stripe.OpCancel, stripe.OpRefund,
		stripe.OpCapture} {
		found[op] = &[replyCount][2][2]verdict{}
		for r := replyDone; r < replyCount; r++ {
			for both := range 4 {
				replayed, doubt := both&1 != 0, both&2 != 0
				stripeSays.set(r, replayed)
				out := post(ctx, server.URL, op, stripe.Call{Key: "a key", InDoubt: doubt})
				if out.Replayed != (replayed && r != replyLost) {
					return nil, fmt.Errorf("%s, %s: replayed is %t", op, replyNames[r], out.Replayed)
				}
				concluded := verdict{effect: out.Effect, cached: out.ErrorCached, reused: out.Failure.Code == stripe.CodeKeyReused}
				found[op][r][index(replayed)][index(doubt)] = concluded
			}
		}
	}
	return found, nil
}

// object is the object that a call has made or changed.
func object(path string) string {
	if strings.HasSuffix(path, "/refunds") {
		return `{"id":"re_1","object":"refund","status":"succeeded","amount":100,"currency":"eur"}`
	}
	return `{"id":"pi_1","object":"payment_intent","status":"succeeded","amount":100,"currency":"eur"}`
}

// post makes a call with a client of its own, which remembers no earlier response.
func post(ctx context.Context, url string, op stripe.Operation, call stripe.Call) stripe.Outcome {
	c := stripe.New(stripe.Options{
		SecretKey: "sk_test_model", BaseURL: url, Timeout: 10 * time.Second,
		Limits: stripe.NewLimits(1e6, nil), Metrics: stripe.NewMetrics(nil), Log: slog.New(slog.DiscardHandler),
	})
	switch op {
	case stripe.OpCreateIntent:
		return c.CreateIntent(ctx, call, stripe.NewIntent{AmountMinor: 100, Currency: "eur"})
	case stripe.OpConfirm:
		return c.ConfirmIntent(ctx, call, "pi_1", "pm_card_visa")
	case stripe.OpCancel:
		return c.CancelIntent(ctx, call, "pi_1")
	case stripe.OpCapture:
		return c.CaptureIntent(ctx, call, "pi_1", 100)
	default:
		return c.CreateRefund(ctx, call, stripe.NewRefund{IntentID: "pi_1", AmountMinor: 100})
	}
}
