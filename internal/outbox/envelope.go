package outbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"example.com/payonce/internal/postgres"
)

// Source is the CloudEvents source of every event. Source and id together identify an event globally: ids begin with
// the random id of an aggregate.
const Source = "/payonce"

// Envelope is an event as other systems get it: CloudEvents 1.0 in JSON, the same bytes from every broker, in the feed
// and in a tenant's webhook.
type Envelope struct {
	ID          string
	Type        string
	Subject     string // the aggregate's id; events of one subject are delivered in order
	TenantID    string
	Life        int64 // of the database (LifeOf)
	Version     int64 // the aggregate's; life + version is what CloudEvents calls sequence
	Time        time.Time
	Traceparent string
	Data        json.RawMessage
}

// cloudEvent is the wire format. Extension attributes of CloudEvents are strings
// of lower-case letters and digits.
type cloudEvent struct {
	SpecVersion     string          `json:"specversion"`
	ID              string          `json:"id"`
	Source          string          `json:"source"`
	Type            string          `json:"type"`
	Subject         string          `json:"subject"`
	Time            time.Time       `json:"time"`
	DataContentType string          `json:"datacontenttype"`
	TenantID        string          `json:"tenantid"`
	Sequence        string          `json:"sequence"`
	Traceparent     string          `json:"traceparent,omitempty"`
	Data            json.RawMessage `json:"data"`
}

// Render sets the data of the events that were stored without it. One that it cannot render stays without.
type Render func(ctx context.Context, pool *postgres.Pool, events []Envelope) error

// MarshalJSON fails if Data is not JSON, or missing.
func (e Envelope) MarshalJSON() ([]byte, error) {
	if e.Data == nil {
		return nil, fmt.Errorf("event %s was stored without data, and there is nothing to render it from", e.ID)
	}
	return json.Marshal(cloudEvent{
		SpecVersion: "1.0", ID: e.ID, Source: Source, Type: e.Type, Subject: e.Subject, Time: e.Time.UTC(),
		DataContentType: "application/json",
		TenantID:        e.TenantID, Sequence: strconv.FormatInt(e.Life+e.Version, 10),
		Traceparent: e.Traceparent, Data: e.Data,
	})
}

// UnmarshalJSON is for consumers. It rejects messages that our relay cannot have sent: a consumer that guessed at their
// meaning could book wrong amounts.
func (e *Envelope) UnmarshalJSON(body []byte) error {
	var c cloudEvent
	if err := json.Unmarshal(body, &c); err != nil {
		return err
	}
	sequence, err := strconv.ParseInt(c.Sequence, 10, 64)
	life, version := ofSequence(sequence)
	if err != nil || version < 1 {
		return fmt.Errorf("the sequence of event %q is not a version: %q", c.ID, c.Sequence)
	}
	if c.SpecVersion != "1.0" || c.Type == "" || c.TenantID == "" || c.ID != EventID(c.Subject, sequence) {
		return fmt.Errorf("not an event of ours: %q from %q", c.ID, c.Source)
	}
	*e = Envelope{
		ID: c.ID, Type: c.Type, Subject: c.Subject, TenantID: c.TenantID, Life: life, Version: version,
		Time: c.Time, Traceparent: c.Traceparent, Data: c.Data,
	}
	return nil
}

// ErrPermanent means that a broker will never accept a message: too large, forbidden by a policy, impossible to encode.
// After any other error a retry may succeed.
var ErrPermanent = errors.New("the broker will never accept this message")

// ErrIDTaken means that the broker dropped an event as a repetition of a message that is another: another publisher has sent
// it under the event's id. The broker takes the event once it has forgotten that message's id.
var ErrIDTaken = errors.New("the broker has a message of another publisher under this event's id")
