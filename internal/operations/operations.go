// Package operations registers operations of one's own: requests with an
// Idempotency-Key that are not part of this service, such as a tip on an order.
//
// One Operation says everything that the service needs to know about it, and a List
// gives each part of the service its share: the API its routes, the completer what it
// can resume, the history of a key its verdict and its link, the reconciler, the audit
// and the webhooks the charges at Stripe. So an operation cannot be known to one of them
// and unknown to another. docs/add-an-operation.md builds one.
package operations

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"strings"

	"example.com/payonce/db"
	"example.com/payonce/internal/calls"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/keyhistory" // part: history
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/postgres"
)

// Operation is one operation of one's own.
type Operation struct {
	// Name is in the table of keys and in the metadata of its PaymentIntents
	// (stripe.NewIntent.Operation). It must never change, because both keep it.
	Name string
	// New makes the operation. Begin runs for a new key, Run after it and after a crash.
	New func(Tools) idempotency.Operation

	// Post is the pattern of its route, such as /v1/orders/{id}/tips, and Parse turns an
	// HTTP request into the operation's own, whose JSON is fingerprinted and stored.
	// decode is strict. A *payments.InvalidError is answered with 400.
	Post  string
	Parse func(r *http.Request, decode func(into any) error) (any, error)

	// OpenAPI documents both routes: YAML with paths and components/schemas, which may
	// refer to all components of the service's own document.
	OpenAPI []byte

	// Kind begins the ids of its rows, such as tip_. Path followed by the id is where
	// Show shows one, and where the history of a key links to. Show returns
	// payments.ErrNotFound for a row that does not exist.
	Kind, Path string
	Show       func(ctx context.Context, q *db.Queries, tenantID, id string) (any, error)

	// Registered reads its charges at Stripe. An operation that makes no PaymentIntents
	// has none.
	payments.Registered
	// History is for an operation without Registered: it says what its keys made.
	History keyhistory.Describe // part: history
}

// Tools are what an operation works with. They are the service's own.
type Tools struct {
	Pool    *postgres.Pool
	Keys    *idempotency.Store
	Gateway payments.Gateway
	Calls   calls.Recorder
	Answers payments.Answers
}

// List is every operation of one's own. The program has one.
type List []Operation

// Registered is for payments.Options: the reconciler, the audit, the webhooks and
// whatever else reads all charges find it there.
func (l List) Registered() map[string]payments.Registered {
	registered := map[string]payments.Registered{}
	for _, o := range l {
		if o.Charges != nil {
			registered[o.Name] = o.Registered
		}
	}
	return registered
}

// Shares are the tables of the service that a List adds to.
type Shares struct {
	Operations map[string]idempotency.Operation // of the API and the completer
	History    map[string]keyhistory.Describe   // nil: keys have no history // part: history
	Paths      ids.Paths
}

// Register adds the operations to the service's tables. It panics if one is incomplete
// or has a name that is taken: such a service must not start, because it could not
// finish what it begins.
func (l List) Register(t Tools, s Shares) {
	for _, o := range l {
		if missing := o.missing(); missing != "" {
			panic(fmt.Sprintf("bug: the operation %q has no %s: see operations.Operation", o.Name, missing))
		}
		if _, taken := s.Operations[o.Name]; taken {
			panic(fmt.Sprintf("bug: there are two operations of the name %q", o.Name))
		}
		if _, taken := s.Paths[o.Kind]; taken {
			panic(fmt.Sprintf("bug: the ids of %q begin with %q, and so do those of another object", o.Name, o.Kind))
		}
		s.Operations[o.Name] = o.New(t)
		o.describe(s.History) // part: history
		maps.Copy(s.Paths, ids.Paths{o.Kind: o.Path})
	}
}

// missing names the first member that is not set.
func (o Operation) missing() string {
	for _, member := range []struct {
		name string
		set  bool
	}{
		{"Name", o.Name != ""},
		{"New", o.New != nil},
		{"Post", o.Post != ""},
		{"Parse", o.Parse != nil},
		{"OpenAPI of POST " + o.Post, strings.Contains(string(o.OpenAPI), o.Post+":")},
		{"OpenAPI of GET " + o.Path + "{id}", strings.Contains(string(o.OpenAPI), o.Path+"{id}:")},
		{"Idempotency-Key in its OpenAPI (#/components/parameters/IdempotencyKey)",
			strings.Contains(string(o.OpenAPI), "'#/components/parameters/IdempotencyKey'")},
		{"Kind", o.Kind != ""},
		{"Path", o.Path != ""},
		{"Show", o.Show != nil},
		{"Charge and Charges, or neither", (o.Charges == nil) == (o.Charge == nil)},
		{"Charges, or else a History; and no History beside them", (o.Charges == nil) != (o.History == nil)}, // part: history
	} {
		if !member.set {
			return member.name
		}
	}
	return ""
}
