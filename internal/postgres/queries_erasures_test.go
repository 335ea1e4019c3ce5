package postgres_test

import (
	"testing"

	"example.com/payonce/db"
)

// Ada's orders are those whose names begin with a. Of the orders of the second table each has one thing that is
// unfinished, with its name, and the like of it that is finished.
const erasureRows = `
	orders
	  id      customer_reference  metadata     checkout_id
	  a_open  ada                 {"a":"b"}    .
	  a_paid  ada                 {"c":"d"}    chk_a
	  bob     bob                 {"a":"b"}    .
	  nobody  .                   {"a":"b"}    .

	payments
	  id      order_id  idempotency_key  status     intent_id  charge_id
	  pay_a   a_paid    k_pays           succeeded  pi_a       ch_a
	  pay_a0  a_paid    k_declined       failed     pi_0       .
	  pay_b   bob       k_bob            succeeded  pi_b       ch_b

	refunds
	  id      payment_id  order_id  idempotency_key  status     stripe_refund_id
	  rfd_a   pay_a       a_paid    k_refunds        succeeded  re_a
	  rfd_b   pay_b       bob       k_bobs_refund    succeeded  re_b

	idempotency_keys
	  key         resource_id  finished_at  answer_dropped_at  request
	  k_bob       pay_b        -1h          .                  r
	  k_checkout  chk_a        -3h          .                  r
	  k_dropped   a_paid       -9h          -1h                .
	  k_old       a_paid       -8h          .                  r
	  k_pays      pay_a        -2h          .                  .
	  k_refunds   rfd_a        -1h          .                  r

	outbox_events
	  aggregate_id  version  type           data                                                            position  published_at
	  a_paid        1        order.created  .                                                               1         -9h
	  a_paid        2        order.paid     {"id":"a_paid","customer_reference":"ada","metadata":{"c":"d"}}  2         -8h
	  bob           1        order.created  {"id":"bob","customer_reference":"bob","metadata":{"a":"b"}}     3         -7h

	consumer_positions
	  consumer  tenant_id  position
	  notifier  acme       2
	  notifier  acme:eu    2

	erasures
	  reference_mac                     erased_at  orders  keys  events  deliveries  actor
	  mac_mac_mac_mac_mac_mac_mac_mac_  -8h        1       1     1       1           Eve
	  mac_mac_mac_mac_mac_mac_mac_mac_  -7h        1       1     1       1           Eve
	  another_another_another_another_  -6h        1       1     1       1           Eve
`

func TestQueriesOfErasures(t *testing.T) {
	t.Parallel()
	ada := []string{"a_open", "a_paid"}
	const scope = `SET LOCAL payonce.tenants = 'acme:eu'`
	made := db.ErasureMakeParams{
		TenantID: tenant, Reference: "ada", Mac: []byte("mac_mac_mac_mac_mac_mac_mac_mac_"), Actor: "Ada",
		OrderIds: []string{"a_open", "a_paid", "bob"}, Keys: []string{"k_checkout", "k_dropped", "k_bob"}, Since: at("-150m"),
	}
	checkQueries(t, erasureRows, []queryCase{
		{rule: "FindsTheCustomersOrders", query: q.ErasureOrders,
			with: db.ErasureOrdersParams{TenantID: tenant, Reference: "ada", LimitRows: 9}, want: `
			row LastID=nobody Ids=[a_open a_paid]`},
		{rule: "ReadsAPage", query: q.ErasureOrders,
			with: db.ErasureOrdersParams{TenantID: tenant, Reference: "bob", After: "a_open", LimitRows: 2}, want: `
			row LastID=bob Ids=[bob]`},
		{rule: "EndsWithAnEmptyPage", query: q.ErasureOrders,
			with: db.ErasureOrdersParams{TenantID: tenant, Reference: "ada", After: "nobody", LimitRows: 9}, want: `
			row`},
		{rule: "NamesWhatWasMadeForThem", query: q.ErasureResources, any: true,
			with: db.ErasureResourcesParams{TenantID: tenant, Ids: ada}, want: `
			row a_open
			row a_paid
			row chk_a
			row pay_a
			row pay_a0
			row rfd_a`},
		{rule: "ReadsThoseOfAllTenantsInOrder", query: q.ErasureKeys, with: db.ErasureKeysParams{LimitRows: 99}, want: `
			row twin Key=k_pays ResourceID=a_paid FinishedAt=-8h1m
			row Key=k_old ResourceID=a_paid FinishedAt=-8h
			row twin Key=k_dropped ResourceID=chk_a FinishedAt=-3h1m
			row Key=k_checkout ResourceID=chk_a FinishedAt=-3h
			row twin Key=k_refunds ResourceID=pay_a FinishedAt=-2h1m
			row Key=k_pays ResourceID=pay_a FinishedAt=-2h
			row twin Key=k_bob ResourceID=rfd_a FinishedAt=-1h1m
			row twin Key=k_checkout ResourceID=pay_b FinishedAt=-1h1m
			row Key=k_bob ResourceID=pay_b FinishedAt=-1h
			row Key=k_refunds ResourceID=rfd_a FinishedAt=-1h`},
		{rule: "ReadsOnAfterTheLast", query: q.ErasureKeys, with: db.ErasureKeysParams{
			AfterAt: at("-1h1m"), AfterTenant: twin, AfterKey: "k_bob", LimitRows: 2}, want: `
			row twin Key=k_checkout ResourceID=pay_b FinishedAt=-1h1m
			row Key=k_bob ResourceID=pay_b FinishedAt=-1h`},
		{rule: "FindsTheLast", query: q.ErasureLast, with: db.ErasureLastParams{
			TenantID: tenant, ReferenceMac: []byte("mac_mac_mac_mac_mac_mac_mac_mac_")}, want: `
			row -7h`},
		{rule: "FindsNone", query: q.ErasureLast, with: db.ErasureLastParams{
			TenantID: tenant, ReferenceMac: []byte("never_never_never_never_never_ne")}, want: `
			no row`},
		{rule: "FindsNoneOfAnotherTenant", query: q.ErasureLast, with: db.ErasureLastParams{
			TenantID: "third", ReferenceMac: []byte("mac_mac_mac_mac_mac_mac_mac_mac_")}, want: `
			no row`},
		{rule: "FindsNothingUnfinished", query: q.ErasureUnfinished,
			with: db.ErasureUnfinishedParams{TenantID: tenant, Ids: ada}, want: `
			no row`},
		{rule: "FindsEachKindOfWhatIsUnfinished", query: q.ErasureUnfinished, given: unfinishedRows, any: true,
			with: db.ErasureUnfinishedParams{TenantID: tenant, Ids: ada}, want: `
			row discrepancy pi_differs
			row event a_open-1
			row key pay_a
			row owed pay_a
			row received evt_charge
			row received evt_intent
			row received evt_refund
			row received evt_subject`},
		{rule: "StopsForWhatIsUnfinished", query: q.ErasureMake, first: scope, with: made, given: `
			idempotency_keys
			  key    resource_id
			  unfin  pay_a
			`, want: `
			returns {"unfinished": ["key pay_a"]}
			locks orders/a_open
			locks orders/a_paid`},
		{rule: "ErasesWhole", query: q.ErasureMake, first: scope, with: made, want: `
			returns {"keys": 3, "events": 2, "orders": 2, "deliveries": 0}
			changes idempotency_keys/k_checkout: answer_body=null answer_dropped_at=now answer_headers=null
				answer_status=null answer_version=null request=null
			changes idempotency_keys/k_pays: answer_body=null answer_dropped_at=now answer_headers=null
				answer_status=null answer_version=null
			changes idempotency_keys/k_refunds: answer_body=null answer_dropped_at=now answer_headers=null
				answer_status=null answer_version=null request=null
			changes orders/a_open: customer_reference=null metadata={}
			changes orders/a_paid: customer_reference=null metadata={}
			changes outbox_events/a_paid/2: data=60 bytes
			inserts erasures/\x6d61635f6d61635f6d61635f6d61635f6d61635f6d61635f6d61635f6d61635f/now: actor=Ada
				db_role=postgres events=2 keys=3 orders=2`},
		{rule: "ErasesNoOtherCustomer", query: q.ErasureMake, first: scope,
			with: but(made, func(p *db.ErasureMakeParams) { p.Reference = "eve" }), want: `
			returns {}`},
		{rule: "NamesItsTenant", query: q.ErasureMake, first: `SET LOCAL payonce.tenants = 'acme,eu'`, with: made, want: `
			error 42501`},
		{rule: "NamesATenant", query: q.ErasureMake, first: `SET LOCAL payonce.tenants = ''`, with: made, want: `
			error 42501`},
		{rule: "MayBeForAllTenants", query: q.ErasureMake, first: `SET LOCAL payonce.tenants = '*'`,
			with: but(made, func(p *db.ErasureMakeParams) { p.Reference = "eve" }), want: `
			returns {}`},
	})
}

// unfinishedRows has each kind of what keeps the customer from being erased, with its near misses: of another customer,
// or finished.
const unfinishedRows = `
	idempotency_keys
	  key        resource_id
	  unfin      pay_a
	  unfin_bob  pay_b

	outbox_events
	  aggregate_id  version  published_at
	  a_open        1        .
	  bob           2        .

	inbox_events
	  consumer  event_id     status   tenant_id  subject  version  object_id
	  other     evt_subject  parked   acme:eu    pay_a    9        .
	  stripe    evt_bob      pending  .          .        .        pi_b
	  stripe    evt_charge   parked   .          .        .        ch_a
	  stripe    evt_done     done     .          .        .        pi_a
	  stripe    evt_intent   pending  .          .        .        pi_a
	  stripe    evt_refund   pending  .          .        .        re_a

	refunds_owed
	  payment_id  ended_at
	  pay_a       .
	  pay_a0      -1h
	  pay_b       .

	discrepancies
	  object_id   order_id  resolved_at
	  pi_bob      bob       .
	  pi_differs  a_paid    .
	  pi_solved   a_paid    -1h
`
