package stripesim

import "strings"

// operation is one of Stripe's endpoints.
type operation struct {
	name    string // what faults and holds call it
	method  string
	pattern string // with {id} where the object is named
	params  params
	// lock names the object the operation changes, if it exists already.
	// Called with mu held.
	lock func(*Sim, *call) string
	run  func(*tx, *call) (any, *apiError)
}

// operations are all there are. The table is filled in by init to keep it next
// to nothing: each entry points into the file of its resource.
var operations []*operation

var (
	createdFilter = orValue(
		integerParam, params{"gt": integerParam, "gte": integerParam, "lt": integerParam, "lte": integerParam},
	)
	retrieve   = params{"expand": expandParam}
	pageParams = params{
		"limit": integerParam, "starting_after": stringParam(5000), "ending_before": stringParam(5000),
		"expand": expandParam,
	}
)

func init() {
	self := func(_ *Sim, c *call) string { return c.id }
	operations = []*operation{
		{"intent.create", "POST", "/v1/payment_intents", createIntentParams, nil, (*tx).createIntent},
		{
			"intent.list", "GET", "/v1/payment_intents",
			pageParams.with(params{"customer": stringParam(5000), "created": createdFilter}),
			nil, (*tx).listIntents,
		},
		{"intent.search", "GET", "/v1/payment_intents/search", searchParams, nil, (*tx).searchIntents},
		{
			"intent.get", "GET", "/v1/payment_intents/{id}",
			retrieve.with(params{"client_secret": stringParam(5000)}),
			nil, (*tx).getIntent,
		},
		{"intent.update", "POST", "/v1/payment_intents/{id}", updateIntentParams, self, (*tx).updateIntent},
		{"intent.confirm", "POST", "/v1/payment_intents/{id}/confirm", confirmIntentParams, self, (*tx).confirmIntent},
		{"intent.capture", "POST", "/v1/payment_intents/{id}/capture", captureIntentParams, self, (*tx).captureIntent},
		{"intent.cancel", "POST", "/v1/payment_intents/{id}/cancel", cancelIntentParams, self, (*tx).cancelIntent},

		{
			"charge.list", "GET", "/v1/charges",
			pageParams.with(
				params{
					"payment_intent": stringParam(5000),
					"customer":       stringParam(5000),
					"transfer_group": stringParam(5000),
					"created":        createdFilter,
				},
			),
			nil, (*tx).listCharges,
		},
		{"charge.get", "GET", "/v1/charges/{id}", retrieve, nil, (*tx).getCharge},
		{
			"charge.update", "POST", "/v1/charges/{id}",
			retrieve.with(params{
				"metadata": metadataParam, "customer": unsupported, "description": unsupported, "fraud_details": unsupported,
				"receipt_email": unsupported, "shipping": unsupported, "transfer_group": unsupported,
			}),
			self, (*tx).updateCharge,
		},

		{"account.get", "GET", "/v1/account", retrieve, nil, (*tx).getAccount},

		{"payment_method.create", "POST", "/v1/payment_methods", createMethodParams, nil, (*tx).createMethod},
		{"payment_method.get", "GET", "/v1/payment_methods/{id}", retrieve, nil, (*tx).getMethod},

		{"refund.create", "POST", "/v1/refunds", createRefundParams, lockRefunded, (*tx).createRefund},
		{
			"refund.list", "GET", "/v1/refunds",
			pageParams.with(
				params{"payment_intent": stringParam(5000), "charge": stringParam(5000), "created": createdFilter},
			),
			nil, (*tx).listRefunds,
		},
		{"refund.get", "GET", "/v1/refunds/{id}", retrieve, nil, (*tx).getRefund},
		{
			"refund.update", "POST", "/v1/refunds/{id}",
			retrieve.with(params{"metadata": metadataParam}),
			self, (*tx).updateRefund,
		},
		{"refund.cancel", "POST", "/v1/refunds/{id}/cancel", retrieve, self, (*tx).cancelRefund},

		{
			"dispute.list", "GET", "/v1/disputes",
			pageParams.with(
				params{"payment_intent": stringParam(5000), "charge": stringParam(5000), "created": createdFilter},
			),
			nil, (*tx).listDisputes,
		},
		{"dispute.get", "GET", "/v1/disputes/{id}", retrieve, nil, (*tx).getDispute},
		{"dispute.update", "POST", "/v1/disputes/{id}", updateDisputeParams, self, (*tx).updateDispute},
		{"dispute.close", "POST", "/v1/disputes/{id}/close", retrieve, self, (*tx).closeDispute},

		{
			"balance_transaction.list", "GET", "/v1/balance_transactions",
			pageParams.with(
				params{
					"currency": stringParam(3),
					"payout":   stringParam(5000),
					"source":   stringParam(5000),
					"type":     stringParam(5000),
					"created":  createdFilter,
				},
			),
			nil, (*tx).listTxns,
		},
		{"balance_transaction.get", "GET", "/v1/balance_transactions/{id}", retrieve, nil, (*tx).getTxn},

		{
			"event.list", "GET", "/v1/events",
			pageParams.with(
				params{
					"type":             stringParam(5000),
					"types":            listOf(stringParam(5000)),
					"delivery_success": booleanParam,
					"created":          createdFilter,
				},
			),
			nil, (*tx).listEvents,
		},
		{"event.get", "GET", "/v1/events/{id}", retrieve, nil, (*tx).getEvent},

		{"webhook_endpoint.create", "POST", "/v1/webhook_endpoints", createEndpointParams, nil, (*tx).createEndpoint},
		{"webhook_endpoint.list", "GET", "/v1/webhook_endpoints", pageParams, nil, (*tx).listEndpoints},
		{"webhook_endpoint.get", "GET", "/v1/webhook_endpoints/{id}", retrieve, nil, (*tx).getEndpoint},
		{
			"webhook_endpoint.update", "POST", "/v1/webhook_endpoints/{id}", updateEndpointParams, self,
			(*tx).updateEndpoint,
		},
		{"webhook_endpoint.delete", "DELETE", "/v1/webhook_endpoints/{id}", params{}, self, (*tx).deleteEndpoint},
	}
	for _, op := range operations {
		routes[op.method+" "+op.pattern] = op
	}
}

var routes = map[string]*operation{}

// route finds the operation of a URL and the object it names. Literal segments
// win over ids, so /search is not an intent.
func route(method, path string) (*operation, string) {
	if op := routes[method+" "+path]; op != nil {
		return op, ""
	}
	parts := strings.Split(path, "/") // "", v1, resource, id, action
	if len(parts) < 4 || parts[3] == "" {
		return nil, ""
	}
	id := parts[3]
	parts[3] = "{id}"
	return routes[method+" "+strings.Join(parts, "/")], id
}

// Operation describes one of the endpoints that the simulator serves.
type Operation struct {
	Name    string // as faults and holds name it
	Method  string
	Pattern string   // with {id} where the object is named
	Params  []string // all that it knows, sorted
	Refused []string // of those, and of what is inside them: what it does not act on, and refuses by name
	Ignored []string // what it takes and does not act on
}

// Operations lists the endpoints. A test compares their parameters with Stripe's.
func Operations() []Operation {
	list := make([]Operation, len(operations))
	for i, op := range operations {
		list[i] = Operation{
			op.name, op.method, op.pattern, sortedKeys(op.params),
			op.params.named(func(r rule) bool { return r.refused }), op.params.named(func(r rule) bool { return r.ignored }),
		}
	}
	return list
}

func operationNames() []string {
	names := []string{"*.post", "*.get"}
	for _, op := range operations {
		names = append(names, op.name)
	}
	return names
}

func (c *call) name() string {
	if c.op == nil {
		return "unknown"
	}
	return c.op.name
}
