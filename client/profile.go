package client

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Profile describes how an API treats an Idempotency-Key. [Payonce] is that of payonce, [Draft] that of any API that
// follows the IETF's draft, [Stripe] that of Stripe. Copy one and change it for another API:
//
//	mine := client.Draft
//	mine.KeyLifetime = time.Hour
type Profile struct {
	ContentType string // of requests that name none

	// Quoted sends the key in quotes, as the draft has it. Few servers want them.
	Quoted bool

	// Wait is sent with each retry as Prefer: wait, in whole seconds: the server may hold the request until it has an
	// answer. Not sent if it is 0.
	Wait time.Duration

	// KeyLifetime is how long the server keeps a key at least, counted from Begin by this machine's clock. After that
	// the request is not sent again, because the server would execute it again. 0 if the server refuses expired keys.
	KeyLifetime time.Duration

	// MarksReplays: the server sends Idempotent-Replayed: true with each response that it repeats. If it once said that
	// a request was done, a later response without the header is a second execution, and a [BrokenPromiseError].
	MarksReplays bool

	// Classify tells what a response means. It must be set, and is called for whole responses only.
	Classify func(*Response) Class

	// Check compares a success, replayed or not, with the request. It returns what contradicts it, or "". It may be nil.
	Check func(Request, *Response) string
}

// Class is what a response means for an intent.
type Class int

// The classes of [Profile.Classify].
const (
	ClassUnclear  Class = iota // retrying with the key will not tell whether it was done
	ClassFinal                 // final
	ClassRetry                 // it may have been done: retry
	ClassLater                 // nothing was done and nothing is held under the key, yet: retry
	ClassPending               // it is in progress: retry
	ClassCaller                // it waits for the caller, such as for 3-D Secure: return the response as it is
	ClassRefused               // refused, nothing was done and nothing is held under the key
	ClassMismatch              // the key was used for another request
	ClassExpired               // it was done, and the response is deleted
)

func (c Class) String() string {
	names := []string{"Unclear", "Final", "Retry", "Later", "Pending", "Caller", "Refused", "Mismatch", "Expired"}
	if c < 0 || int(c) >= len(names) {
		return "Class(" + strconv.Itoa(int(c)) + ")"
	}
	return names[c]
}

// Payonce is the profile of payonce: its problem documents say what a client should do (code, retryable).
var Payonce = Profile{
	ContentType:  "application/json",
	Wait:         10 * time.Second,
	MarksReplays: true,
	Classify:     classifyPayonce,
	Check:        checkPayonce,
}

func classifyPayonce(r *Response) Class {
	var body struct {
		Type      string `json:"type"` // of a problem: ends with the code
		Object    string `json:"object"`
		ID        string `json:"id"`
		Status    any    `json:"status"` // of an object a word, of a problem a number
		Code      string `json:"code"`
		Retryable bool   `json:"retryable"`
	}
	ours := json.Unmarshal(r.Body, &body) == nil
	status, _ := body.Status.(string)
	problem := ours && body.Code != "" && strings.HasSuffix(body.Type, "/problems/"+body.Code)
	object := ours && body.Object != "" && (body.ID != "" || status != "")
	switch {
	case r.Status/100 == 3:
		return ClassUnclear // the API does not redirect: the base is wrong
	case r.Status >= 400 && !problem, r.Status < 400 && !object:
		return ClassRetry // of a proxy, which may say anything with any status
	case r.Status == http.StatusAccepted && body.Status == "requires_action":
		return ClassCaller
	case r.Status == http.StatusAccepted:
		return ClassPending
	case r.Status/100 == 2:
		return ClassFinal
	case body.Code == "idempotency-key-mismatch":
		return ClassMismatch
	case body.Code == "idempotency-key-expired":
		return ClassExpired
	// Sent before a key is claimed, so if it is the first response the key is still unused.
	case body.Code == "payment-in-progress", body.Code == "rate-limited", body.Code == "unavailable":
		return ClassLater
	case body.Retryable, r.Status >= 500, r.Status == http.StatusTooManyRequests:
		return ClassRetry
	case r.Status == http.StatusPaymentRequired, r.Status == http.StatusConflict:
		return ClassFinal // and stored
	case r.Status/100 == 4:
		return ClassRefused
	}
	return ClassUnclear
}

// echoes are the members of an object that must be as they were sent.
var echoes = []struct {
	path    *regexp.Regexp
	members []string
	id      string // the member that must be the id in the path
}{
	{regexp.MustCompile(`^/v1/orders$`), []string{"currency", "customer_reference"}, ""},
	{regexp.MustCompile(`^/v1/payments$`), []string{"order_id", "payment_method", "capture"}, ""},
	{regexp.MustCompile(`^/v1/payments/([^/]+)/refunds$`), []string{"amount", "reason"}, "payment_id"},
	{regexp.MustCompile(`^/v1/(?:orders|payments)/([^/]+)/(?:cancel|capture)$`), nil, "id"},
}

func checkPayonce(q Request, r *Response) string {
	path, _, _ := strings.Cut(q.Path, "?")
	sent, _ := parseJSON(q.Body)
	got, _ := parseJSON(r.Body)
	request, _ := sent.(map[string]any)
	object, ok := got.(map[string]any)
	if !ok {
		return ""
	}
	for _, e := range echoes {
		match := e.path.FindStringSubmatch(path)
		if match == nil {
			continue
		}
		if e.id != "" {
			id, err := url.PathUnescape(match[1])
			if err != nil {
				id = match[1]
			}
			if object[e.id] != id {
				return fmt.Sprintf("the response's %s is %v, and the request was for %s", e.id, object[e.id], id)
			}
		}
		for _, name := range e.members {
			if want := request[name]; want != nil && !reflect.DeepEqual(object[name], want) {
				return fmt.Sprintf("the response's %s is %v, and the request's %v", name, object[name], want)
			}
		}
	}
	return ""
}

// Draft is the profile of an API of which nothing is known but that it follows
// https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/: a key in progress is a 409, and one of
// another request a 422. What the server does after a 5xx the draft leaves open, so it is retried and never believed to
// mean that nothing was done. Set KeyLifetime to what the server documents.
var Draft = Profile{
	ContentType: "application/json",
	KeyLifetime: 23 * time.Hour,
	Classify:    classifyDraft,
}

func classifyDraft(r *Response) Class {
	switch r.Status {
	case http.StatusAccepted:
		return ClassPending
	case http.StatusUnprocessableEntity:
		return ClassMismatch
	case http.StatusGone:
		return ClassExpired
	case http.StatusPaymentRequired:
		return ClassFinal
	case http.StatusTooManyRequests:
		return ClassLater
	case http.StatusConflict, http.StatusRequestTimeout, http.StatusTooEarly:
		return ClassRetry
	}
	switch r.Status / 100 {
	case 2:
		return ClassFinal
	case 4:
		return ClassRefused
	case 5:
		return ClassRetry
	}
	return ClassUnclear
}

// Stripe is the profile of Stripe's API v1 (https://docs.stripe.com/api/idempotent_requests): bodies are forms, and keys
// are kept for at least 24 hours. A 500 is stored and repeated like any other response, and says neither that the
// request was executed nor that it was not: the first is retried, its replay is an [UnknownError]. Then read the
// object, or its events; a request under another name may charge twice.
var Stripe = Profile{
	ContentType:  "application/x-www-form-urlencoded",
	KeyLifetime:  23 * time.Hour,
	MarksReplays: true,
	Classify:     classifyStripe,
}

func classifyStripe(r *Response) Class {
	var body struct {
		Object string `json:"object"`
		ID     string `json:"id"`
		Status string `json:"status"`
		Error  *struct {
			Type string `json:"type"`
		} `json:"error"`
	}
	isJSON := json.Unmarshal(r.Body, &body) == nil
	replayed := r.Header.Get("Idempotent-Replayed") == "true"
	advice := r.Header.Get("Stripe-Should-Retry")
	switch {
	case r.Status/100 == 2 && isJSON && body.Object != "" && body.ID+body.Status != "":
		return ClassFinal
	case r.Status/100 == 3:
		return ClassUnclear
	case !isJSON || body.Error == nil:
		return ClassRetry // not from the API: a proxy, an edge
	case r.Status == http.StatusConflict: // before the type, which fakes of Stripe get wrong
		return ClassRetry
	case body.Error.Type == "idempotency_error":
		return ClassMismatch
	case r.Status == http.StatusTooManyRequests:
		return ClassLater
	case r.Status == http.StatusPaymentRequired:
		return ClassFinal
	case advice == "true" && !replayed:
		return ClassRetry
	case r.Status >= 500 || r.Status == http.StatusFailedDependency: // which has been executed in part
		if replayed || advice == "false" {
			return ClassUnclear
		}
		return ClassRetry
	case replayed:
		return ClassFinal // a 4xx after execution had begun, which is stored
	}
	return ClassRefused
}
