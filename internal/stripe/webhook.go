package stripe

import (
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stripe/stripe-go/v76/webhook"
)

// ErrBadWebhook says that a webhook is not a signed event of Stripe's.
var ErrBadWebhook = errors.New("not a signed event of Stripe's")

// webhookTolerance is how old a webhook's signature may be, Stripe's own default, and how far in the future its time.
const webhookTolerance = 300 * time.Second

// CheckWebhookHeader checks what can be checked of a Stripe-Signature before the body is read: its form and its time.
// ErrBadWebhook: no body could match it.
func CheckWebhookHeader(header string) error {
	if until := time.Until(signedAt(header)); until > webhookTolerance {
		return fmt.Errorf("%w: its time is %s in the future", ErrBadWebhook, until.Round(time.Second))
	}
	why := webhook.ValidatePayloadWithTolerance(nil, header, "", webhookTolerance)
	if why == nil || errors.Is(why, webhook.ErrNoValidSignature) && strings.Contains(header, "v1=") {
		return nil // Only the body can tell.
	}
	return fmt.Errorf("%w: %w", ErrBadWebhook, why)
}

// signedAt is the time in a Stripe-Signature, the last one as stripe-go has it; zero if there is none. stripe-go checks
// that it is not too old, and not that it is not in the future.
func signedAt(header string) (at time.Time) {
	for pair := range strings.SplitSeq(header, ",") {
		if value, ok := strings.CutPrefix(pair, "t="); ok {
			if seconds, err := strconv.ParseInt(value, 10, 64); err == nil {
				at = time.Unix(seconds, 0)
			}
		}
	}
	return at
}

// VerifyWebhook checks the signature of the raw body against each secret; there are
// several while one is being rolled. ErrBadWebhook: it matches none, or is too old.
func VerifyWebhook(body []byte, header string, secrets []string) error {
	var why error
	for _, secret := range secrets {
		if why = webhook.ValidatePayloadWithTolerance(body, header, secret, webhookTolerance); why == nil {
			return nil
		}
	}
	return fmt.Errorf("%w: %w", ErrBadWebhook, why)
}

// Webhook is what is read of an event of Stripe's. Everything but its id and type is
// a hint: the snapshot may be old, or of another API version.
type Webhook struct {
	ID, Type string
	ObjectID string // of the object that the event is about; may be empty
	// Related is the type of that object if the event is thin, such as payment_intent: a thin event has the object's type and
	// id, and nothing else of it (https://docs.stripe.com/event-destinations).
	Related string
	Thin    bool
	// Intent is the PaymentIntent that the event is about: its id, or empty, and the
	// ids from its metadata.
	Intent Intent
}

// Hint is as much of the event as ReadWebhook has read, as an event: its id and type, the ids of its object, and those in
// the object's metadata. It is what is stored until the event is applied (ADR 76), and ReadWebhook reads the same from it.
func (w Webhook) Hint() []byte {
	e := event{ID: w.ID, Type: w.Type}
	if w.Thin {
		e.Object, e.RelatedObject = thinEvent, related{ID: w.ObjectID, Type: w.Related}
		return encodeHint(e)
	}
	object := &e.Data.Object
	object.ID = w.ObjectID
	object.Metadata = map[string]string{
		"tenant_id": w.Intent.TenantID, "order_id": w.Intent.OrderID, operationKey: w.Intent.Operation,
	}
	maps.DeleteFunc(object.Metadata, func(_, value string) bool { return value == "" })
	var err error
	if w.Intent.ID != "" {
		object.PaymentIntent, err = jsontext.AppendQuote(nil, w.Intent.ID)
	}
	if err != nil {
		panic(err) // Strings that were read from JSON are valid in it.
	}
	return encodeHint(e)
}

func encodeHint(e event) []byte {
	hint, err := json.Marshal(e, json.Deterministic(true), json.OmitZeroStructFields(true))
	if err != nil {
		panic(err) // as in Hint
	}
	return hint
}

// thinEvent is the object of a thin event; that of a snapshot is event.
const thinEvent = "v2.core.event"

// SnapshotType is the type of the snapshot that says the same as an event: v1.payment_intent.succeeded is the thin
// payment_intent.succeeded.
func SnapshotType(eventType string) string { return strings.TrimPrefix(eventType, "v1.") }

// idMax is the length of an id of Stripe's, as Stripe promises it.
const idMax = 255

// ReadWebhook reads an event of Stripe's. ErrBadWebhook: it is none.
func ReadWebhook(payload []byte) (Webhook, error) {
	event, err := readEvent(payload)
	if err != nil {
		return Webhook{}, fmt.Errorf("%w: %w", ErrBadWebhook, err)
	}
	if event.ID == "" || len(event.ID) > idMax || strings.ContainsRune(event.ID+event.Type, 0) {
		return Webhook{}, fmt.Errorf("%w: it has no id", ErrBadWebhook)
	}
	w := Webhook{ID: event.ID, Type: event.Type, Intent: event.intent()}
	if i := w.Intent; len(i.ID) > idMax || strings.ContainsRune(i.ID+i.TenantID+i.OrderID+i.Operation, 0) {
		w.Intent = Intent{}
	}
	object := event.Data.Object.ID
	if w.Thin = event.Object == thinEvent; w.Thin {
		object, w.Intent = event.RelatedObject.ID, Intent{}
	}
	if len(object) > idMax || strings.ContainsRune(object, 0) {
		return w, nil
	}
	w.ObjectID = object
	if of := event.RelatedObject; w.Thin && len(of.Type) <= idMax && !strings.ContainsRune(of.Type, 0) {
		if w.Related = of.Type; w.Related == "payment_intent" {
			w.Intent.ID = object
		}
	}
	return w, nil
}

// event is as much of an event as we read.
type event struct {
	ID            string  `json:"id"`
	Object        string  `json:"object"`
	Type          string  `json:"type"`
	RelatedObject related `json:"related_object"`
	Data          struct {
		Object struct {
			ID            string            `json:"id"`
			Object        string            `json:"object"`
			PaymentIntent jsontext.Value    `json:"payment_intent"` // its id, or all of it
			Metadata      map[string]string `json:"metadata"`
		} `json:"object"`
	} `json:"data"`
}

// related names the object of a thin event.
type related struct {
	ID   string `json:"id"`
	Type string `json:"type"`
}

// readEvent reads an event, without its object if that does not have the expected
// form: it is an event all the same.
func readEvent(payload []byte) (e event, err error) {
	if unmarshal(payload, &e) == nil {
		return e, nil
	}
	var head struct {
		ID   string `json:"id"`
		Type string `json:"type"`
	}
	err = unmarshal(payload, &head)
	return event{ID: head.ID, Type: head.Type}, err
}

// unmarshal reads Stripe's JSON, leniently and in one pass. encoding/json scans
// everything twice, and took a third of a webhook's processor time.
func unmarshal(payload []byte, into any) error {
	return json.Unmarshal(payload, into, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}

// intent is the PaymentIntent that the event's object is or belongs to.
func (e event) intent() Intent {
	object := e.Data.Object
	intent := Intent{
		TenantID: object.Metadata["tenant_id"], OrderID: object.Metadata["order_id"],
		Operation: object.Metadata[operationKey],
	}
	if object.Object == "payment_intent" {
		intent.ID = object.ID
		return intent
	}
	var expanded struct {
		ID string `json:"id"`
	}
	if unmarshal(object.PaymentIntent, &intent.ID) != nil && unmarshal(object.PaymentIntent, &expanded) == nil {
		intent.ID = expanded.ID
	}
	return intent
}
