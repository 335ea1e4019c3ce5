package operations_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/compare"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/keyhistory" // part: history
	"example.com/payonce/internal/operations"
	"example.com/payonce/internal/payments"
)

const withoutKey = "/v1/tips: /v1/tips/{id}:"

func complete() operations.Operation {
	return operations.Operation{
		Name:  "create_tip",
		New:   func(operations.Tools) idempotency.Operation { return idempotency.Operation{} },
		Post:  "/v1/tips",
		Parse: func(*http.Request, func(any) error) (any, error) { return nil, nil },
		OpenAPI: []byte("paths:\n  /v1/tips:\n    post:\n      parameters:\n" +
			"        - {$ref: '#/components/parameters/IdempotencyKey'}\n  /v1/tips/{id}: {}\n"),
		Kind: "tip_", Path: "/v1/tips/",
		Show: func(context.Context, *db.Queries, string, string) (any, error) { return nil, nil },
		Registered: payments.Registered{
			Charges: func(context.Context, *db.Queries, []compare.OrderRef) ([]compare.Charge, error) {
				return nil, nil
			},
			Charge: func(context.Context, *db.Queries, string, string) (compare.Charge, error) {
				return compare.Charge{}, nil
			},
		},
	}
}

func shares() operations.Shares {
	return operations.Shares{
		Operations: map[string]idempotency.Operation{"create_payment": {}},
		History:    map[string]keyhistory.Describe{}, // part: history
		Paths:      ids.Paths{ids.Payment: "/v1/payments/"},
	}
}

func TestRegisterAddsToEveryTable(t *testing.T) {
	t.Parallel()
	list, to := operations.List{complete()}, shares()
	list.Register(operations.Tools{}, to)
	require.Contains(t, to.Operations, "create_tip")
	require.Contains(t, to.History, "create_tip") // part: history
	require.Equal(t, "/v1/tips/", to.Paths["tip_"])
	require.Contains(t, list.Registered(), "create_tip")
}

// An operation that lacks one of its registrations would be unknown to a part of the
// service, so the service does not start, and says what is missing.
func TestRegisterRefusesWhatIsIncomplete(t *testing.T) {
	t.Parallel()
	for says, without := range map[string]func(*operations.Operation){
		`has no Name`:                     func(o *operations.Operation) { o.Name = "" },
		`has no New`:                      func(o *operations.Operation) { o.New = nil },
		`has no Post`:                     func(o *operations.Operation) { o.Post = "" },
		`has no Parse`:                    func(o *operations.Operation) { o.Parse = nil },
		`has no OpenAPI of POST /v1/fees`: func(o *operations.Operation) { o.Post = "/v1/fees" },
		`has no OpenAPI of GET /v1/fees/`: func(o *operations.Operation) { o.Path = "/v1/fees/" },
		`has no Idempotency-Key`:          func(o *operations.Operation) { o.OpenAPI = []byte(withoutKey) },
		`has no Kind`:                     func(o *operations.Operation) { o.Kind = "" },
		`has no Show`:                     func(o *operations.Operation) { o.Show = nil },
		`has no Charge and Charges`:       func(o *operations.Operation) { o.Charge = nil },
		// part: history {
		`or else a History`: func(o *operations.Operation) { o.Registered = payments.Registered{} },
		// part: history }
		`two operations of the name`:        func(o *operations.Operation) { o.Name = "create_payment" },
		`and so do those of another object`: func(o *operations.Operation) { o.Kind = ids.Payment },
	} {
		o := complete()
		without(&o)
		func() {
			defer func() { require.Contains(t, recover(), says) }()
			operations.List{o}.Register(operations.Tools{}, shares())
		}()
	}
}
