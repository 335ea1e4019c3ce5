package http

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"example.com/payonce/db"
	"example.com/payonce/internal/notifier"
)

const codeTooManyEndpoints = "too-many-endpoints"

const (
	endpointURLMax         = 2048
	endpointDescriptionMax = 200
)

// webhookEndpointsPart is where tenants say which events are sent to them, and where. Its file goes if events are only
// read, from the feed or the broker.
func webhookEndpointsPart() part {
	return part{
		routes: func(s *Server) []route {
			const one = "/v1/webhook-endpoints/{id}"
			return []route{
				{
					method: "POST", pattern: "/v1/webhook-endpoints",
					operation: notifier.CreateEndpoint, parse: endpointRequest,
				},
				{method: "GET", pattern: "/v1/webhook-endpoints", handle: s.listEndpoints, query: true},
				{method: "GET", pattern: one, handle: s.getEndpoint},
				{method: "POST", pattern: one + "/disable", operation: notifier.DisableEndpoint, parse: pathRequest},
				{method: "POST", pattern: one + "/enable", operation: notifier.EnableEndpoint, parse: pathRequest},
				{method: "POST", pattern: one + "/rotate-secret", operation: notifier.RotateSecret, parse: pathRequest},
				{method: "POST", pattern: one + "/test", operation: notifier.TestEndpoint, parse: pathRequest},
				{method: "GET", pattern: one + "/deliveries", handle: s.listDeliveries, query: true},
				{method: "GET", pattern: "/v1/webhook-deliveries/{id}", handle: s.getDelivery},
				{
					method: "POST", pattern: "/v1/webhook-deliveries/{id}/retry",
					operation: notifier.RetryDelivery, parse: pathRequest,
				},
			}
		},
		served: func(s *Server) bool { return s.o.Endpoints != nil },
		problems: []problemType{{
			Code: codeTooManyEndpoints, Title: "The tenant has as many webhook endpoints as it may have",
			Status: http.StatusConflict, Stored: true,
		}},
		problemFor: func(err error) *problem {
			if errors.Is(err, notifier.ErrTooManyEndpoints) {
				return &problem{code: codeTooManyEndpoints, detail: "A tenant may have 10 webhook endpoints. Enable one that is " +
					"disabled, or send more types of events to one of them."}
			}
			return nil
		},
	}
}

// endpointRequest does not ask where the URL's host is: the operation does, for a new key.
func endpointRequest(_ *http.Request, body []byte) (any, error) {
	var b struct {
		URL         *string   `json:"url"`
		Events      *[]string `json:"events"`
		Description *string   `json:"description" nullable:"true"`
	}
	if err := decodeObject(body, &b); err != nil {
		return nil, err
	}
	var c checks
	request := notifier.EndpointRequest{Description: b.Description, Events: []string{"*"}}
	if b.URL == nil {
		c.fail("/url", "is required")
	} else {
		request.URL = *b.URL
		c.text("/url", request.URL, 1, endpointURLMax)
	}
	if b.Description != nil {
		c.text("/description", *b.Description, 0, endpointDescriptionMax)
	}
	if b.Events != nil {
		request.Events = *b.Events
		checkEvents(&c, request.Events)
	}
	return request, c.err()
}

// checkEvents checks that a filter names types that the API documents, each once, or all with a star.
func checkEvents(c *checks, events []string) {
	if len(events) == 0 {
		c.fail("/events", `must name types of events, or be ["*"]; leave it out for all`)
	}
	if types := len(eventTypes()); len(events) > types { // and each that is wrong is answered with all types
		c.fail("/events", "must name at most %d types", types)
		return
	}
	for i, kind := range events {
		switch {
		case kind == "*" && len(events) > 1:
			c.fail(fmt.Sprintf("/events/%d", i), "must be alone: * is every type")
		case kind != "*" && !slices.Contains(eventTypes(), kind):
			c.fail(fmt.Sprintf("/events/%d", i), "is no type of an event; the types are %s", strings.Join(eventTypes(), ", "))
		case slices.Contains(events[:i], kind):
			c.fail(fmt.Sprintf("/events/%d", i), "is named twice")
		}
	}
}

func (s *Server) getEndpoint(w http.ResponseWriter, r *http.Request) {
	endpoint, err := s.o.Endpoints.Get(r.Context(), tenantOf(r).id, r.PathValue("id"))
	s.show(w, r, endpoint, err)
}

func (s *Server) getDelivery(w http.ResponseWriter, r *http.Request) {
	delivery, err := s.o.Endpoints.Delivery(r.Context(), tenantOf(r).id, r.PathValue("id"))
	s.show(w, r, delivery, err)
}

func (s *Server) listEndpoints(w http.ResponseWriter, r *http.Request) {
	q, limit, err := listQuery(r, "starting_after")
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	list, more, err := s.o.Endpoints.List(r.Context(), tenantOf(r).id, q.Get("starting_after"), limit)
	showList(s, w, r, list, more, err)
}

func (s *Server) listDeliveries(w http.ResponseWriter, r *http.Request) {
	q, limit, err := listQuery(r, "status", "starting_after")
	status := db.DeliveryStatus(q.Get("status"))
	if err == nil {
		err = knownStatus(string(status), db.AllDeliveryStatusValues())
	}
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	list, more, err := s.o.Endpoints.Deliveries(r.Context(), tenantOf(r).id, r.PathValue("id"), status,
		q.Get("starting_after"), limit)
	if errors.Is(err, notifier.ErrNoSuchDelivery) {
		err = badCursor("starting_after")
	} else if err != nil { // The endpoint of the path does not exist, which is no bad cursor.
		s.refuse(w, r, err)
		return
	}
	showList(s, w, r, list, more, err)
}
