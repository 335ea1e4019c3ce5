package stripe

import (
	"context"
	"errors"
	"net/http"
	"regexp"
	"time"

	stripego "github.com/stripe/stripe-go/v76"
)

// Resource is a kind of object that the service reads, as the permissions of restricted keys name it.
type Resource struct {
	Permission string // to read it: Stripe's name, as far as it is known
	list       string
}

// Resources are what the service must be able to read, or a recovery cannot.
var Resources = []Resource{
	{"rak_payment_intent_read", "/v1/payment_intents"},
	{"rak_charge_read", "/v1/charges"},
	{"rak_charge_read", "/v1/refunds"},
	{"rak_dispute_read", "/v1/disputes"}, // part: disputes
}

// BalanceTransactions tell a refund of a captured payment from what its capture released. Without them the service takes a
// refund of exactly so much, made at Stripe without a reason, for the release.
var BalanceTransactions = Resource{"rak_balance_transaction_source_read", "/v1/balance_transactions"}

// Write is a call that the service makes, in a form that has no effect.
type Write struct {
	Permission string // Stripe's name, as far as it is known
	path       string
	ofIntent   bool   // the intent is a parameter
	refused    string // the code with which Stripe refuses it to a key that may make it
}

// Writes are the calls that the service must be able to make. The intent does not exist, so that there is nothing to
// change, and an intent is not made without an amount. Whether Stripe looks for the amount before it looks at the
// permissions is not documented: then the first of them finds nothing, and the second, of the same permission, does.
var Writes = []Write{
	{"rak_payment_intent_write", "/v1/payment_intents", false, "parameter_missing"},
	{"rak_payment_intent_write", "/v1/payment_intents/" + noIntent + "/confirm", false, "resource_missing"},
	{"rak_payment_intent_write", "/v1/payment_intents/" + noIntent + "/capture", false, "resource_missing"},
	{"rak_payment_intent_write", "/v1/payment_intents/" + noIntent + "/cancel", false, "resource_missing"},
	{"rak_charge_write", "/v1/refunds", true, "resource_missing"},
}

const noIntent = "pi_0payonceDoctorMakesNone"

// Reading is how a single call of an inspection went.
type Reading struct {
	Err    error     // nil: the object was read
	Status int       // 0: no response
	Lacks  string    // of a 403: the permission that Stripe says is missing; empty if it names none
	Type   string    // of an error: Stripe's type
	Date   time.Time // Stripe's clock, in whole seconds; zero if the response had none
	Stored bool      // the response is the first one to its key, repeated

	Asked, Answered time.Time // our clock
}

// Refused reports whether Stripe rejected the key itself.
func (r Reading) Refused() bool { return r.Status == http.StatusUnauthorized }

// Forbidden reports whether the key may not read, or write, this.
func (r Reading) Forbidden() bool { return r.Status == http.StatusForbidden }

// Account is the account of a key.
type Account struct {
	stripego.APIResource
	ID             string `json:"id"`
	ChargesEnabled bool   `json:"charges_enabled"`
	PayoutsEnabled bool   `json:"payouts_enabled"`
}

// Occurred is an event as Stripe's list has it.
type Occurred struct {
	ID              string `json:"id"`
	Type            string `json:"type"`
	Created         int64  `json:"created"`
	PendingWebhooks int64  `json:"pending_webhooks"` // endpoints that have not acknowledged it yet
	Livemode        bool   `json:"livemode"`
}

// MayRead reads one object of a resource.
func (s *Client) MayRead(ctx context.Context, r Resource) Reading {
	var any stripego.APIResource
	return s.inspect(ctx, r.list+"?limit=1", &any)
}

// MayWrite requests what cannot be done. Nil in Err: it was refused for that, and not for want of a permission.
func (s *Client) MayWrite(ctx context.Context, w Write) Reading {
	params := stripego.Params{Context: ctx}
	if w.ofIntent {
		params.AddExtra("payment_intent", noIntent)
	}
	var any stripego.APIResource
	r, refused := s.call(ctx, http.MethodPost, w.path, &params, &any)
	switch {
	case refused != nil && string(refused.Code) == w.refused:
		r.Err = nil
	case r.Err == nil:
		r.Err = errNotRefused
	}
	return r
}

var errNotRefused = errors.New("what cannot be done was not refused, so this is not Stripe")

// Account reads the account of the key.
func (s *Client) Account(ctx context.Context) (Account, Reading) {
	var a Account
	r := s.inspect(ctx, "/v1/account", &a)
	return a, r
}

// LastEvent is the newest event of the account that the endpoint is sent; zero if there is none.
func (s *Client) LastEvent(ctx context.Context) (Occurred, Reading) {
	var list struct {
		stripego.APIResource
		Data []Occurred `json:"data"`
	}
	path := "/v1/events?limit=1"
	for _, t := range WebhookTypes {
		path += "&types[]=" + t
	}
	r := s.inspect(ctx, path, &list)
	if len(list.Data) == 0 {
		return Occurred{}, r
	}
	return list.Data[0], r
}

func (s *Client) inspect(ctx context.Context, path string, into stripego.LastResponseSetter) Reading {
	r, _ := s.call(ctx, http.MethodGet, path, &stripego.Params{Context: ctx}, into)
	return r
}

// call is without the limits and the metrics of the service's own calls.
func (s *Client) call(
	ctx context.Context, method, path string, params stripego.ParamsContainer, into stripego.LastResponseSetter,
) (r Reading, refused *stripego.Error) {
	r.Asked = time.Now()
	err := s.doOnce(ctx, func(ctx context.Context, x *exchange) error {
		params.GetParams().Context = ctx
		err := s.api.PaymentIntents.B.Call(method, path, s.o.SecretKey, params, into)
		r.Answered, r.Status = time.Now(), int(x.status.Load())
		if h := x.header.Load(); h != nil {
			r.Date, _ = http.ParseTime(h.Get("Date")) // zero, if it is none
			r.Stored = h.Get("Idempotent-Replayed") == "true"
		}
		return err
	})
	r.Err = safe(err)
	if errors.As(err, &refused) {
		r.Type = string(refused.Type)
	}
	if refused != nil && r.Forbidden() {
		if named := permission.FindStringSubmatch(refused.Msg); named != nil {
			r.Lacks = named[1]
		}
	}
	return r, refused
}

// permission is how Stripe names one in the message of a 403, such as 'rak_charge_read'.
var permission = regexp.MustCompile(`'([a-z_]+_(?:read|write))'`)
