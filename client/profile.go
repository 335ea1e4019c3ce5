package client

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"
)

// Profile is what an API makes of an Idempotency-Key. [Payonce] is that of this project, [Draft] of any API that keeps
// to the IETF's draft, [Stripe] of Stripe's.
type Profile struct {
	ContentType string // of requests that name none

	// Quoted sends the key as the draft has it, in quotes. Few servers ask for it.
	Quoted bool

	// Wait is sent as Prefer: wait, in seconds, with each request but the first. None if it is 0.
	Wait time.Duration

	// KeyLifetime is how long the server is known to keep a key. A request that is older is not sent again: it would
	// be a new one. 0 where the server says 410 by itself.
	KeyLifetime time.Duration

	// MarksReplays: an answer that is given again has Idempotent-Replayed: true.
	MarksReplays bool

	// Judge says what an answer means.
	Judge func(*Response) Verdict

	// Check says what in a successful answer belies the request, or "". It sees replays as well.
	Check func(Request, *Response) string
}

// Verdict is what an answer means for the intent.
type Verdict int

// The verdicts of [Profile.Judge].
const (
	Unclear  Verdict = iota // nothing is known, and the same key will not tell: a person must look
	Answered                // final
	Again                   // send the same key again
	Pending                 // it is being worked on: as Again
	Caller                  // it waits for something of the caller's, such as 3-D Secure: the answer is given back as it is
	Nothing                 // refused before anything was done
	Mismatch                // the key was used for another request
	Expired                 // done once; the answer is no longer kept
)

// Payonce is the profile of payonce. Its problem pages, /problems/…, say what each answer asks of a client.
var Payonce = Profile{
	ContentType:  "application/json",
	Wait:         10 * time.Second,
	MarksReplays: true,
	Judge: func(r *Response) Verdict {
		var body struct {
			Status    string `json:"status"`
			Code      string `json:"code"`
			Retryable bool   `json:"retryable"`
		}
		isJSON := json.Unmarshal(r.Body, &body) == nil
		switch {
		case r.Status/100 == 3:
			return Unclear // the base is another's, or has moved
		case !isJSON && r.Status != http.StatusNoContent:
			return Again // a proxy's page, or half an answer
		case r.Status == http.StatusAccepted && body.Status == "requires_action":
			return Caller
		case r.Status == http.StatusAccepted:
			return Pending
		case r.Status/100 == 2:
			return Answered
		case body.Code == "idempotency-key-mismatch":
			return Mismatch
		case body.Code == "idempotency-key-expired":
			return Expired
		case r.Status >= 500, r.Status == http.StatusTooManyRequests, body.Retryable:
			return Again
		case r.Status == http.StatusPaymentRequired, r.Status == http.StatusConflict:
			return Answered
		case body.Code != "":
			return Nothing
		}
		return Again
	},
	Check: checkPayonce,
}

// echoes are members of an answer that must be as they were sent.
var echoes = []struct {
	path    *regexp.Regexp
	members []string
	object  string // the member that holds the id in the path
}{
	{regexp.MustCompile(`^/v1/orders$`), []string{"currency", "customer_reference"}, ""},
	{regexp.MustCompile(`^/v1/payments$`), []string{"order_id", "payment_method", "capture"}, ""},
	{regexp.MustCompile(`^/v1/payments/([^/]+)/refunds$`), []string{"amount", "reason"}, "payment_id"},
	{regexp.MustCompile(`^/v1/(?:orders|payments)/([^/]+)/(?:cancel|capture)$`), nil, "id"},
	{regexp.MustCompile(`^/v1/webhook-endpoints$`), []string{"url"}, ""},
}

func checkPayonce(q Request, r *Response) string {
	path, _, _ := strings.Cut(q.Path, "?")
	var sent, got map[string]any
	_ = json.Unmarshal(q.Body, &sent)
	if json.Unmarshal(r.Body, &got) != nil {
		return ""
	}
	for _, e := range echoes {
		match := e.path.FindStringSubmatch(path)
		if match == nil {
			continue
		}
		if e.object != "" && got[e.object] != match[1] {
			return fmt.Sprintf("the answer's %s is %v, and the request was about %s", e.object, got[e.object], match[1])
		}
		for _, name := range e.members {
			if want := sent[name]; want != nil && got[name] != want {
				return fmt.Sprintf("the answer's %s is %v, and %v was sent", name, got[name], want)
			}
		}
	}
	return ""
}

// Draft is the profile of an API of which nothing is known but that it keeps to
// https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/. It says that a key in flight is a 409
// and one of another request a 422, and leaves to the server what it does after an error: a 5xx may be what it will
// say for ever.
var Draft = Profile{
	ContentType: "application/json",
	KeyLifetime: 24 * time.Hour,
	Judge: func(r *Response) Verdict {
		switch {
		case r.Status == http.StatusAccepted:
			return Pending
		case r.Status/100 == 2:
			return Answered
		case r.Status == http.StatusUnprocessableEntity:
			return Mismatch
		case r.Status == http.StatusGone:
			return Expired
		case r.Status >= 500, r.Status == http.StatusConflict, r.Status == http.StatusTooManyRequests, r.Status == http.StatusRequestTimeout,
			r.Status == http.StatusTooEarly:
			return Again
		case r.Status == http.StatusPaymentRequired:
			return Answered
		case r.Status/100 == 4:
			return Nothing
		}
		return Unclear
	},
}

// Stripe is the profile of Stripe's API (https://docs.stripe.com/api/idempotent_requests): bodies are forms, a key is
// kept for at least 24 hours, and a 500 is an answer like any other, repeated under its key, from which nothing
// follows.
var Stripe = Profile{
	ContentType:  "application/x-www-form-urlencoded",
	KeyLifetime:  23 * time.Hour,
	MarksReplays: true,
	Judge: func(r *Response) Verdict {
		var body struct {
			Error struct {
				Type string `json:"type"`
				Code string `json:"code"`
			} `json:"error"`
		}
		_ = json.Unmarshal(r.Body, &body)
		replayed := r.Header.Get("Idempotent-Replayed") == "true"
		switch {
		case r.Status/100 == 2 && !json.Valid(r.Body):
			return Again
		case r.Status/100 == 2:
			return Answered
		case r.Status == http.StatusTooManyRequests, r.Status == http.StatusConflict:
			return Again
		case body.Error.Type == "idempotency_error":
			return Mismatch
		case r.Status >= 500 && replayed:
			return Unclear
		case r.Status >= 500:
			return Again
		case r.Status == http.StatusPaymentRequired:
			return Answered
		case r.Status/100 == 4 && replayed:
			return Answered // it had begun
		case r.Status/100 == 4:
			return Nothing
		}
		return Unclear
	},
}
