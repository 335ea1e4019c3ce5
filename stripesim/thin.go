package stripesim

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Thin events name their object and have nothing else of it (https://docs.stripe.com/event-destinations). A destination at
// Stripe is thin or not; here an endpoint is, once SetThin has made it so. Who wants both kinds registers the same URL
// twice.

// SetThin decides whether an endpoint, or that of Options if id is empty, gets thin events from now on.
func (s *Sim) SetThin(id string, thin bool) error {
	if id == "" {
		id = configuredEndpoint
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.st.endpoints.byID[id] == nil && (id != configuredEndpoint || s.outbox.fixed == nil) {
		return fmt.Errorf("no webhook endpoint %q", id)
	}
	if s.thin == nil {
		s.thin = map[string]bool{}
	}
	s.thin[id] = thin
	return nil
}

// thinEvent is what a thin endpoint is sent.
type thinEvent struct {
	ID       string       `json:"id"`
	Object   string       `json:"object"`
	Type     string       `json:"type"`
	Livemode bool         `json:"livemode"`
	Created  string       `json:"created"`
	Context  *string      `json:"context"`
	Reason   *thinReason  `json:"reason"`
	Related  *thinRelated `json:"related_object"`
}

type thinReason struct {
	Type    string       `json:"type"`
	Request eventRequest `json:"request"`
}

type thinRelated struct {
	ID   string `json:"id"`
	Type string `json:"type"`
	URL  string `json:"url"`
}

// pathsOf are the paths of the objects that events are about.
var pathsOf = map[string]string{
	"payment_intent": "/v1/payment_intents/", "charge": "/v1/charges/", "refund": "/v1/refunds/", "dispute": "/v1/disputes/",
}

// thinOf renders an event for a thin endpoint. Its id is another one than the snapshot's.
func thinOf(e *event) []byte {
	t := thinEvent{
		ID: "evt_test_" + strings.TrimPrefix(e.ID, "evt_"), Object: "v2.core.event", Type: "v1." + e.Type,
		Created: time.Unix(e.Created, 0).UTC().Format("2006-01-02T15:04:05.000Z"),
	}
	if e.Request.ID != nil {
		t.Reason = &thinReason{"request", e.Request}
	}
	var of struct {
		ID     string `json:"id"`
		Object string `json:"object"`
	}
	_ = json.Unmarshal(render(e.Data.Object), &of) // It is JSON; an object without an id is not related.
	if of.ID != "" {
		t.Related = &thinRelated{of.ID, of.Object, pathsOf[of.Object] + of.ID}
	}
	return indented(t)
}

// Ping sends an endpoint the thin event with which Stripe tries a destination, and returns the status of the response.
func (s *Sim) Ping(ctx context.Context, id string) (int, error) {
	if id == "" {
		id = configuredEndpoint
	}
	s.mu.Lock()
	target := s.st.endpoints.byID[id]
	if id == configuredEndpoint {
		target = s.outbox.fixed
	}
	at := s.now()
	s.mu.Unlock()
	if target == nil {
		return 0, fmt.Errorf("no webhook endpoint %q", id)
	}
	body := indented(thinEvent{
		ID: fmt.Sprintf("evt_test_ping%d", at.UnixNano()), Object: "v2.core.event", Type: "v2.core.event_destination.ping",
		Created: at.UTC().Format("2006-01-02T15:04:05.000Z"),
		Related: &thinRelated{id, "v2.core.event_destination", "/v2/core/event_destinations/" + id},
	})
	return s.push(target.URL, body, signature(body, target.Secret, bend{}))
}

func indented(v any) []byte {
	var pretty bytes.Buffer
	_ = json.Indent(&pretty, render(v), "", "  ") // it is JSON
	return pretty.Bytes()
}
