package stripesim

import (
	"fmt"
	"net/http"
	"strings"
)

// The four types of error there are on the wire.
const (
	typeAPI         = "api_error"
	typeCard        = "card_error"
	typeIdempotency = "idempotency_error"
	typeInvalid     = "invalid_request_error"
)

// failure is Stripe's error object: the body of every refusal and, on an intent,
// the memory of the last one.
type failure struct {
	Charge            string  `json:"charge,omitempty"`
	Code              string  `json:"code,omitempty"`
	DeclineCode       string  `json:"decline_code,omitempty"`
	DocURL            string  `json:"doc_url,omitempty"`
	Message           string  `json:"message,omitempty"`
	Param             string  `json:"param,omitempty"`
	PaymentIntent     *intent `json:"payment_intent,omitempty"`
	PaymentMethod     *method `json:"payment_method,omitempty"`
	PaymentMethodType string  `json:"payment_method_type,omitempty"`
	RequestLogURL     string  `json:"request_log_url,omitempty"`
	Type              string  `json:"type"`
}

// apiError is a refusal on its way out.
type apiError struct {
	failure
	status   int
	executed bool              // execution had begun: the idempotency layer keeps this answer
	headers  map[string]string // extra ones
	nameless bool              // no Request-Id: Stripe never processed the request
	html     bool              // said by a proxy in front of Stripe, in HTML
}

func refuse(status int, kind, code, param, format string, args ...any) *apiError {
	e := &apiError{status: status, failure: failure{
		Type: kind, Code: code, Param: param, Message: fmt.Sprintf(format, args...),
	}}
	e.DocURL = docURL(code)
	return e
}

// invalid is a 400 found before anything was executed.
func invalid(code, param, format string, args ...any) *apiError {
	return refuse(400, typeInvalid, code, param, format, args...)
}

// conflict is a 400 found while executing: the object is in the way. The intent
// travels in the answer.
func conflict(pi *intent, code, param, format string, args ...any) *apiError {
	e := refuse(400, typeInvalid, code, param, format, args...)
	e.PaymentIntent = pi
	e.executed = true
	return e
}

func missing(status int, what, id, param string) *apiError {
	return refuse(status, typeInvalid, "resource_missing", param, "No such %s: '%s'", what, id)
}

func docURL(code string) string {
	if code == "" {
		return ""
	}
	return "https://stripe.com/docs/error-codes/" + strings.ReplaceAll(code, "_", "-")
}

// body renders the refusal for the request it answers.
func (e *apiError) body(requestID string) []byte {
	if e.html {
		return fmt.Appendf(
			nil,
			"<html>\r\n<head><title>%d %s</title></head>\r\n<body>\r\n<center><h1>%[1]d "+
				"%[2]s</h1></center>\r\n<hr><center>nginx</center>\r\n</body>\r\n</html>\r\n",
			e.status,
			http.StatusText(e.status),
		)
	}
	f := e.failure
	if !e.nameless {
		f.RequestLogURL = "https://dashboard.stripe.com/test/logs/" + requestID
	}
	return render(struct {
		Error failure `json:"error"`
	}{f})
}

func unauthorized(header, key string) *apiError {
	if key == "" {
		if header != "" {
			return refuse(401, typeInvalid, "", "", "Invalid API Key provided: %s", mask(header))
		}
		return refuse(
			401, typeInvalid, "", "",
			"You did not provide an API key. You need to provide your API key in the Authorization header, using "+
				"Bearer auth (e.g. 'Authorization: Bearer YOUR_SECRET_KEY'). See "+
				"https://stripe.com/docs/api#authentication for details, or we can help at "+
				"https://support.stripe.com/.",
		)
	}
	return refuse(401, typeInvalid, "", "", "Invalid API Key provided: %s", mask(key))
}

// mask hides the middle of a key, as Stripe does when it complains about one.
func mask(key string) string {
	if len(key) <= 12 {
		return strings.Repeat("*", len(key))
	}
	return key[:8] + strings.Repeat("*", len(key)-12) + key[len(key)-4:]
}

func unrecognized(method, path string) *apiError {
	return refuse(
		404, typeInvalid, "", "",
		"Unrecognized request URL (%s: %s). If you are trying to list objects, remove the trailing slash. If you are "+
			"trying to retrieve an object, make sure you passed a valid (non-empty) identifier in your code. Please "+
			"see https://stripe.com/docs or we can help at https://support.stripe.com/.",
		method, path,
	)
}

func lockTimeout() *apiError {
	e := refuse(
		429, typeInvalid, "lock_timeout", "",
		"This object cannot be accessed right now because another API request or Stripe process is currently "+
			"accessing it. If you see this error intermittently, retry the request. If you see this error frequently "+
			"and are making multiple concurrent requests to a single object, make your requests serially or at a "+
			"lower rate. For more details, see https://stripe.com/docs/rate-limits#object-lock-timeouts.",
	)
	e.nameless = true
	return e
}

func rateLimited(reason string) *apiError {
	e := refuse(
		429, typeInvalid, "rate_limit", "",
		"Testmode request rate limit exceeded, the rate limits in testmode are lower than livemode. You can learn "+
			"more about rate limits here https://stripe.com/docs/rate-limits.",
	)
	e.headers = map[string]string{"Stripe-Rate-Limited-Reason": reason}
	return e
}

func keyInUse(key string) *apiError {
	return refuse(
		409, typeInvalid, "idempotency_key_in_use", "",
		"There is currently another in-progress request using this Idempotent Key (that probably means you submitted "+
			"twice, and the other request is still going through): %s. Please try again later.",
		key,
	)
}

func serverError(status int) *apiError {
	return refuse(
		status, typeAPI, "", "",
		"Sorry! There was an error while talking to one of our backends. Support has been notified.",
	)
}
