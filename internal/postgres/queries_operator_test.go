package postgres_test

import (
	"strings"
	"testing"

	"example.com/payonce/db"
)

func init() {
	defaults["operator_actions"] = values(map[string]string{"actor": "Ada", "kind": "try_now", "subject": "ord",
		"reason": "because"})
}

// The key of an object has its name. The first key is due before all others.
const operatorWorkRows = `
	idempotency_keys
	  key       leased_until  next_attempt_at  parked_at  finished_at  created_at  recovery_point
	  awaits    -9h           +1h              .          .            -2h         action_required
	  finished  -9h           -9h              .          -1h          -9h         finished
	  first     -9h           -9h              .          .            -1h         started
	  held      +2h           -2h              .          .            -3h         started
	  held_2    +3h           -2h              .          .            -6h         started
	  overdue   -9h           -3h              .          .            -4h         started
	  parked    -9h           -4h              -1h        .            -5h         action_required
	  refunds   -9h           +2h              .          .            -7h         started
	  sent      -9h           +3h              .          .            -8h         started
	  waits     -9h           +4h              .          .            -9h         started

	payments
	  id       idempotency_key  order_id  amount_minor
	  pay_1    overdue          ord_1     700
	  pay_2    unused           ord_2     800

	refunds
	  id     idempotency_key  payment_id  order_id  amount_minor  stripe_key
	  ref_1  refunds          pay_1       ord_1     300           acme:eu:ref_1:refund
	  ref_2  unused           pay_2       ord_2     400           acme:eu:ref_2:refund

	stripe_call_rows
	  stripe_key               outcome  first_sent_at
	  acme:eu:awaits:confirm   done     -9h
	  acme:eu:first:create     unknown  -9h
	  acme:eu:held:confirm     sent     -9h
	  acme:eu:held_2:confirm   unknown  -8h
	  acme:eu:held_2:refund    unknown  -6h
	  acme:eu:ref_1:refund     unknown  -5h
	  acme:eu:sent:confirm     sent     -7h

	stripe_call_rows
	  tenant_id  stripe_key              outcome
	  acme       acme:eu:parked:confirm  unknown
`

func TestQueriesOfOperatorWork(t *testing.T) {
	t.Parallel()
	const object = "OrderID PaymentID AmountMinor Currency"
	const released = `UPDATE idempotency_keys SET leased_until = clock_timestamp() - interval '9 seconds'
		WHERE key = 'overdue' AND tenant_id = 'acme:eu'`
	const delayed = `UPDATE idempotency_keys SET next_attempt_at = clock_timestamp() - interval '9 seconds'
		WHERE key = 'overdue' AND tenant_id = 'acme:eu'`
	ours := db.OperatorWorkParams{TenantID: tenant, ResourceID: "pay_overdue", ScanMax: 99, LimitRows: 99}
	checkQueries(t, operatorWorkRows, []queryCase{
		{rule: "ReadsTheMostUrgentFirst", query: q.OperatorWork, show: object,
			with: db.OperatorWorkParams{ScanMax: 99, LimitRows: 99}, want: `
			row twin Key=refunds Unknown=true OrderID=ord_1 PaymentID=pay_1 AmountMinor=300 Currency=eur
			row Key=parked
			row twin Key=parked Overdue=true
			row Key=overdue Overdue=true OrderID=ord_1 PaymentID=pay_1 AmountMinor=700 Currency=eur
			row twin Key=held Overdue=true
			row Key=first Overdue=true
			row Key=sent Unknown=true
			row Key=refunds Unknown=true OrderID=ord_1 PaymentID=pay_1 AmountMinor=300 Currency=eur
			row Key=held_2 Held=true Unknown=true
			row twin Key=awaits
			row Key=waits
			row twin Key=waits
			row twin Key=sent
			row twin Key=overdue Held=true OrderID=ord_1 PaymentID=pay_2 AmountMinor=700 Currency=eur
			row twin Key=held_2 Held=true
			row Key=held Held=true
			row twin Key=finished
			row Key=awaits`},
		{rule: "NamesThePaymentThatItCaptures", query: q.OperatorWork, show: object, given: `
			payments
			  id          order_id  status      capture_before  capturing_key  capturing_minor  manual_capture  intent_id
			  pay_first   ord_77    authorized  +9h             first          400              true            pi_77
			  pay_strays  ord_78    authorized  +9h             first          500              true            pi_78
			  pay_waits   ord_79    authorized  +9h             another        600              true            pi_79

			payments
			  tenant_id  id         order_id  status      capture_before  capturing_key  capturing_minor  manual_capture  intent_id
			  acme       pay_first  ord_80    authorized  +9h             first          700              true            pi_80`,
			with: db.OperatorWorkParams{TenantID: tenant, Keys: []string{"first", "waits"}, ScanMax: 99, LimitRows: 99}, want: `
			row Key=first Overdue=true OrderID=ord_77 PaymentID=pay_first AmountMinor=400 Currency=eur
			row Key=waits`},
		{rule: "ReadsAFew", query: q.OperatorWork, with: db.OperatorWorkParams{ScanMax: 99, LimitRows: 3}, want: `
			row twin Key=refunds Unknown=true
			row Key=parked
			row twin Key=parked Overdue=true`},
		{rule: "BeginsWithWhatIsDueFirst", query: q.OperatorWork,
			with: db.OperatorWorkParams{ScanMax: 3, LimitRows: 99}, want: `
			row twin Key=refunds Unknown=true
			row twin Key=held Overdue=true
			row Key=first Overdue=true`},
		{rule: "ReadsThatOnOneObject", query: q.OperatorWork, with: ours, want: `
			row Key=overdue Overdue=true`},
		{rule: "ReadsThatUnderSomeKeys", query: q.OperatorWork, show: "NextAt",
			with: but(ours, func(p *db.OperatorWorkParams) { p.Keys = []string{"held", "parked", "missing"} }), want: `
			row Key=parked NextAt=-4h
			row Key=overdue NextAt=-3h Overdue=true
			row Key=held Held=true NextAt=+2h`},
		{rule: "LeavesTimeAfterTheLease", query: q.OperatorWork, with: ours, first: released, want: `
			row Key=overdue`},
		{rule: "LeavesTimeToTakeOver", query: q.OperatorWork, with: ours, first: delayed, want: `
			row Key=overdue`},
		{rule: "KnowsFirstConfirms", query: q.OperatorWork, with: db.OperatorWorkParams{ScanMax: 99, LimitRows: 99},
			first: confirmed("acme:eu/first", "acme:eu/held", "acme/waits", "acme/held_2"), want: `
			row twin Key=refunds Unknown=true
			row Key=parked
			row Key=first Overdue=true Unknown=true
			row twin Key=parked Overdue=true
			row Key=overdue Overdue=true
			row twin Key=held Overdue=true
			row twin Key=waits Unknown=true
			row Key=sent Unknown=true
			row Key=refunds Unknown=true
			row Key=held_2 Held=true Unknown=true
			row twin Key=awaits
			row Key=waits
			row twin Key=sent
			row twin Key=overdue Held=true
			row twin Key=held_2 Held=true
			row Key=held Held=true
			row twin Key=finished
			row Key=awaits`},
		{rule: "KnowsFirstConfirms", query: q.OperatorWorkCounts, with: int32(99),
			first: confirmed("acme:eu/first", "acme/waits", "acme/held_2"), want: `
			row Unfinished=18 Parked=2 AwaitingCustomer=2 Overdue=4 Unknown=6 UnknownSeconds=-99h`},
		{rule: "KnowsFirstConfirmsThatHaveAnOutcome", query: q.OperatorWorkCounts, with: int32(99),
			first: confirmed("acme:eu/first", "acme/waits") + "; " +
				"UPDATE payments SET confirm_request_id = 'req' WHERE idempotency_key = 'waits';" +
				`INSERT INTO stripe_call_rows (tenant_id, stripe_key, operation, resource_id, params_sha256, outcome)
				VALUES ('acme:eu', 'acme:eu:first:confirm', 'confirm', 'pay', '', 'refused')`, want: `
			row Unfinished=18 Parked=2 AwaitingCustomer=2 Overdue=4 Unknown=4 UnknownSeconds=-8h`},
		{rule: "KnowsFirstConfirmsBesideThatOfATwin", query: q.OperatorWorkCounts, with: int32(99),
			first: confirmed("acme:eu/first") + `;
				INSERT INTO stripe_call_rows (tenant_id, stripe_key, operation, resource_id, params_sha256, outcome)
				VALUES ('acme', 'acme:eu:first:confirm', 'confirm', 'pay', '', 'refused')`, want: `
			row Unfinished=18 Parked=2 AwaitingCustomer=2 Overdue=4 Unknown=5 UnknownSeconds=-99h`},
		{rule: "Counts", query: q.OperatorWorkCounts, with: int32(99), want: `
			row Unfinished=18 Parked=2 AwaitingCustomer=2 Overdue=4 Unknown=4 UnknownSeconds=-8h`},
		{rule: "KnowsEveryOutcome", query: q.OperatorWorkCounts, with: int32(99), first: "DELETE FROM stripe_call_rows",
			want: `
			row Unfinished=18 Parked=2 AwaitingCustomer=2 Overdue=4`},
		{rule: "BeginsWithWhatIsDueFirst", query: q.OperatorWorkCounts, with: int32(4), want: `
			row Unfinished=4 Parked=2 Overdue=2 Unknown=1 UnknownSeconds=-6h1m`},
		{rule: "LeavesTimeAfterTheLease", query: q.OperatorWorkCounts, with: int32(99), first: released, want: `
			row Unfinished=18 Parked=2 AwaitingCustomer=2 Overdue=3 Unknown=4 UnknownSeconds=-8h`},
		{rule: "LeavesTimeToTakeOver", query: q.OperatorWorkCounts, with: int32(99), first: delayed, want: `
			row Unfinished=18 Parked=2 AwaitingCustomer=2 Overdue=3 Unknown=4 UnknownSeconds=-8h`},
	})
}

const operatorRows = `
	outbox_events
	  aggregate_id  version  seq  published_at  parked_at  position  data
	  a             1        10   .             -2h        .         {}
	  a             2        20   .             .          .         {}
	  a             3        30   -1h           .          1         {}
	  b             1        15   .             .          .         {}
	  b             2        40   .             -3h        .         {"a":1}
	  b             3        50   .             .          .         {}
	  b             4        60   .             .          .         {}

	inbox_events
	  consumer  event_id  status   leased_until  parked_at  last_error
	  ledger    applied   done     -1h           .          timeout
	  ledger    claimed   pending  +1h           .          .
	  ledger    failed    pending  -2h           .          timeout
	  ledger    fails     pending  +2h           .          timeout
	  ledger    new       pending  -infinity     .          timeout
	  ledger    parked_1  parked   -1h           -1h        bug
	  ledger    parked_2  parked   -1h           -2h        bug

	discrepancies
	  object_id  kind             order_id  resolved_at  found_at
	  pi_1       amount_mismatch  ord       .            -3h
	  pi_1       status_mismatch  ord       .            -4h
	  pi_2       amount_mismatch  ord       -1h          -5h
	  pi_3       amount_mismatch  other     .            -5h

	payments
	  id       status     amount_minor  amount_refunding_minor  amount_refunded_minor  intent_id  charge_id
	  ended    succeeded  1000          0                       0                      pi_4       ch_4
	  half     succeeded  900           500                     500                    pi_1       ch_1
	  parked   succeeded  800           0                       0                      pi_2       ch_2
	  pending  succeeded  700           300                     200                    pi_3       ch_3

	refunds_owed
	  payment_id  settled_minor  since  parked_at  ended_at  attempts
	  ended       1000           -9h    .          -1h       1
	  half        100            -6h    .          .         2
	  parked      0              -5h    -1h        .         9
	  pending     0              -7h    .          .         2

	refunds
	  id     stripe_refund_id
	  ref_1  re_1
	  ref_2  re_2

	orders
	  id
	  ord

	idempotency_keys
	  key                   resource_id
	  after_orphan          ref_5
	  refund_orphan pi_9    ref_9
	  refund_orphan pi_8    ref_8
	  zero                  ref_7

	idempotency_keys
	  tenant_id  key     resource_id
	  acme       shared  ord_1
	  acme:eu    shared  ord_2

	operator_actions
	  id                              subject  created_at  outcome  result
	  act_00000000000000000000000001  ord      -3h         .        .
	  act_00000000000000000000000002  pay      -2h         done     resumed
	  act_00000000000000000000000003  ord      -4h         .        .
	  act_00000000000000000000000004  ref      -1h         .        .

	reconciliation_windows
	  name     covered_through
	  initial  -1h
	  recent   -2h
`

func TestQueriesOfOperator(t *testing.T) {
	t.Parallel()
	act := func(n string) string { return "act_" + strings.Repeat("0", 25) + n }
	begin := func(n string) any {
		return db.OperatorActionBeginParams{ID: act(n), Actor: "Bob", Kind: "refund", TenantID: ptr(tenant),
			Subject: "pay", Reason: "twice"}
	}
	checkQueries(t, operatorRows, []queryCase{
		{rule: "CountsWhatWaitsBehind", query: q.OperatorOutboxParked, with: int32(9), want: `
			row twin AggregateID=b Version=3 Type=order.created Bytes=7 CreatedAt=-9h1m ParkedAt=-3h1m
				HeldBack=1
			row AggregateID=b Version=2 Type=order.created Bytes=7 CreatedAt=-9h ParkedAt=-3h HeldBack=2
			row twin AggregateID=a Version=2 Type=order.created Bytes=2 CreatedAt=-9h1m ParkedAt=-2h1m
				HeldBack=1
			row AggregateID=a Version=1 Type=order.created Bytes=2 CreatedAt=-9h ParkedAt=-2h HeldBack=1`},
		{rule: "ReadsTheOldestFirst", query: q.OperatorOutboxOldest, with: int32(5), want: `
			row AggregateID=b Version=1 Type=order.created CreatedAt=-9h
			row twin AggregateID=b Version=2 Type=order.created CreatedAt=-9h1m
			row AggregateID=a Version=2 Type=order.created CreatedAt=-9h
			row twin AggregateID=a Version=3 Type=order.created CreatedAt=-9h1m
			row AggregateID=b Version=3 Type=order.created CreatedAt=-9h`},
		{rule: "ReadsTheOldestFirst", query: q.OperatorInboxParked, with: int32(9), want: `
			row Consumer=ledger EventID=parked_2 Type=payment_intent.succeeded LastError=bug ReceivedAt=-9h
				ParkedAt=-2h
			row Consumer=ledger EventID=parked_1 Type=payment_intent.succeeded LastError=bug ReceivedAt=-9h
				ParkedAt=-1h`},
		{rule: "ReadsAFew", query: q.OperatorInboxParked, with: int32(1), want: `
			row Consumer=ledger EventID=parked_2 Type=payment_intent.succeeded LastError=bug ReceivedAt=-9h
				ParkedAt=-2h`},
		{rule: "ReadsTheNextFirst", query: q.OperatorInboxFailing, with: int32(9), want: `
			row Consumer=ledger EventID=failed Type=payment_intent.succeeded LastError=timeout ReceivedAt=-9h
				LeasedUntil=-2h
			row Consumer=ledger EventID=fails Type=payment_intent.succeeded LastError=timeout ReceivedAt=-9h
				LeasedUntil=+2h`},
		{rule: "ReadsAFew", query: q.OperatorInboxFailing, with: int32(1), want: `
			row Consumer=ledger EventID=failed Type=payment_intent.succeeded LastError=timeout ReceivedAt=-9h
				LeasedUntil=-2h`},
		{rule: "ReadsOpenOnesInOrder", query: q.OperatorDiscrepancies, show: "ObjectID Kind",
			with: db.OperatorDiscrepanciesParams{TenantID: tenant, OrderID: "ord"}, want: `
			row ObjectID=pi_1 Kind=status_mismatch
			row ObjectID=pi_1 Kind=amount_mismatch`},
		{rule: "ReadsParkedOnesFirst", query: q.OperatorRefundsOwed, with: int32(9), show: "PaymentID", want: `
			row RefundsOwed=(twin PaymentID=pending) OwedMinor=800
			row RefundsOwed=(PaymentID=parked) OwedMinor=800
			row RefundsOwed=(twin PaymentID=ended) OwedMinor=500 UnderWay=true
			row RefundsOwed=(PaymentID=pending) OwedMinor=500 UnderWay=true
			row RefundsOwed=(twin PaymentID=parked) OwedMinor=300
			row RefundsOwed=(PaymentID=half) OwedMinor=300`},
		{rule: "ReadsAFew", query: q.OperatorRefundsOwed, with: int32(1), show: "PaymentID", want: `
			row RefundsOwed=(twin PaymentID=pending) OwedMinor=800`},
		{rule: "Counts", query: q.OperatorRefundsOwedCounts, want: `
			row Owed=6 Parked=2`},
		{rule: "SettlesWhatIsOwed", query: q.RefundOwedSettle, each: "ended half parked pending missing",
			with: func(payment string) any {
				return db.RefundOwedSettleParams{TenantID: tenant, PaymentID: payment}
			}, want: `
			ended: returns 0
			half: returns 1
			half: changes refunds_owed/half: attempts=0 ended_at=now ended_how=settled_outside settled_minor=400
			parked: returns 1
			parked: changes refunds_owed/parked: attempts=0 ended_at=now ended_how=settled_outside
				parked_at=null settled_minor=800
			pending: returns 0
			missing: returns 0`},
		{rule: "FindsTheTenant", query: q.OperatorFindObject, each: "ord half ref_1 ref_9 ref_5 ref_7 missing", any: true,
			with: func(id string) any { return id }, want: `
			ord: row acme
			ord: row acme:eu
			half: row acme
			half: row acme:eu
			ref_1: row acme
			ref_1: row acme:eu
			ref_9: row acme
			ref_9: row acme:eu
			ref_5: row acme
			ref_7: no row
			missing: no row`},
		{rule: "FindsOneTenant", query: q.OperatorFindObject, each: "our_order our_payment our_refund", any: true,
			with: func(id string) any { return id }, given: `
			orders
			  tenant_id  id
			  acme:eu    our_order

			payments
			  tenant_id  id
			  acme:eu    our_payment

			refunds
			  tenant_id  id
			  acme:eu    our_refund`, want: `
			our_order: row acme:eu
			our_payment: row acme:eu
			our_refund: row acme:eu`},
		{rule: "FindsTwoTenants", query: q.OperatorFindObject, with: "ord", any: true, given: `
			tenants
			  id     name
			  third  Third

			orders
			  tenant_id  id
			  third      ord`, want: `
			row acme
			row acme:eu`},
		{rule: "ReadsAFew", query: q.OperatorTenants, with: int32(1), want: `
			row acme`},
		{rule: "ReadsAll", query: q.OperatorTenants, with: int32(9), want: `
			row acme
			row acme:eu`},
		{rule: "FindsTheKey", query: q.OperatorOrphanRefund, each: "ref_9 ref_5 ref_7 missing", with: func(id string) any {
			return db.OperatorOrphanRefundParams{TenantID: tenant, ID: id}
		}, want: `
			ref_9: returns refund_orphan pi_9
			ref_5: no row
			ref_7: no row
			missing: no row`},
		{rule: "FindsEachTenants", query: q.OperatorFindKey,
			with: db.OperatorFindKeyParams{Key: "shared", LimitRows: 9}, want: `
			row twin Key=shared ResourceID=ord_1
			row Key=shared ResourceID=ord_2`},
		{rule: "ReadsAFew", query: q.OperatorFindKey,
			with: db.OperatorFindKeyParams{Key: "shared", LimitRows: 1}, want: `
			row twin Key=shared ResourceID=ord_1`},
		{rule: "FindsTheRefund", query: q.OperatorFindRefund, each: "re_2 re_9",
			with: func(id string) any { return id }, want: `
			re_2: row twin ID=ref_1
			re_9: no row`},
		{rule: "InsertsAnActionOnce", query: q.OperatorActionBegin, each: "1 9", with: begin, want: `
			1: returns 0
			9: returns 1
			9: inserts operator_actions/act_00000000000000000000000009: actor=Bob created_at=now kind=refund
				reason=twice subject=pay tenant_id=acme:eu`},
		{rule: "EndsAnActionOnce", query: q.OperatorActionEnd, each: "1 2 9", with: func(n string) any {
			return db.OperatorActionEndParams{ID: act(n), Outcome: "refused", Result: "late"}
		}, want: `
			1: returns 1
			1: changes operator_actions/act_00000000000000000000000001: outcome=refused result=late
			2: returns 0
			9: returns 0`},
		{rule: "ReadsAnAction", query: q.OperatorActionGet, each: "2 9",
			with: func(n string) any { return act(n) }, want: `
			2: row ID=act_00000000000000000000000002 Actor=Ada Kind=try_now Subject=pay Reason=because
				CreatedAt=-2h Outcome=done Result=resumed
			9: no row`},
		{rule: "ReadsTheNewestFirst", query: q.OperatorActionsLatest, with: int32(2), want: `
			row ID=act_00000000000000000000000004 Actor=Ada Kind=try_now Subject=ref Reason=because
				CreatedAt=-1h
			row ID=act_00000000000000000000000002 Actor=Ada Kind=try_now Subject=pay Reason=because
				CreatedAt=-2h Outcome=done Result=resumed`},
		{rule: "ReadsTheNewestFirst", query: q.OperatorActionsOf,
			with: db.OperatorActionsOfParams{Subjects: []string{"ord", "pay"}, LimitRows: 9}, want: `
			row ID=act_00000000000000000000000002 Actor=Ada Kind=try_now Subject=pay Reason=because
				CreatedAt=-2h Outcome=done Result=resumed
			row ID=act_00000000000000000000000001 Actor=Ada Kind=try_now Subject=ord Reason=because
				CreatedAt=-3h
			row ID=act_00000000000000000000000003 Actor=Ada Kind=try_now Subject=ord Reason=because
				CreatedAt=-4h`},
		{rule: "ReadsAFew", query: q.OperatorActionsOf,
			with: db.OperatorActionsOfParams{Subjects: []string{"ord", "pay"}, LimitRows: 1}, want: `
			row ID=act_00000000000000000000000002 Actor=Ada Kind=try_now Subject=pay Reason=because
				CreatedAt=-2h Outcome=done Result=resumed`},
		{rule: "ReadsTheRecentWindow", query: q.OperatorCheckedThrough, want: `
			row -2h`},
		{rule: "HasNotBeenThereYet", query: q.OperatorCheckedThrough,
			first: "UPDATE reconciliation_windows SET covered_through = NULL WHERE name = 'recent'", want: `
			no row`},
	})
}

// The keys "other" are of another order or tenant.
const operatorKeyRows = `
	orders
	  tenant_id  id       canceling_key
	  acme       ord      other_1
	  acme:eu    another  other_2
	  acme:eu    ord      cancel

	payments
	  tenant_id  id     order_id  idempotency_key  status      capturing_key  capture_before  manual_capture  intent_id
	  acme       pay    ord       other_3          authorized  other_7        +9h             true            pi_1
	  acme:eu    other  another   other_4          authorized  other_8        +9h             true            pi_2
	  acme:eu    pay    ord       pay              authorized  capture        +9h             true            pi_3
	  acme:eu    pay_2  ord       pay_2            failed      .              .               true            pi_4

	refunds
	  tenant_id  id     payment_id  idempotency_key
	  acme       ref    pay         other_5
	  acme:eu    other  other       other_6
	  acme:eu    ref    pay         ref

	idempotency_keys
	  tenant_id  key      created_at
	  acme       pay      -9h
	  acme:eu    cancel   -3h
	  acme:eu    capture  -1h
	  acme:eu    other_1  -9h
	  acme:eu    other_2  -9h
	  acme:eu    other_3  -9h
	  acme:eu    other_4  -9h
	  acme:eu    other_5  -9h
	  acme:eu    other_6  -9h
	  acme:eu    other_7  -9h
	  acme:eu    other_8  -9h
	  acme:eu    pay      -4h
	  acme:eu    pay_2    -2h
	  acme:eu    ref      -5h
`

func TestQueriesOfOperatorKeys(t *testing.T) {
	t.Parallel()
	ofOrder := db.OperatorOrderKeysParams{TenantID: tenant, OrderID: "ord", LimitRows: 9}
	checkQueries(t, operatorKeyRows, []queryCase{
		{rule: "ReadsTheKeysOfAnOrder", query: q.OperatorOrderKeys, with: ofOrder, want: `
			row ref
			row pay
			row cancel
			row pay_2
			row capture`},
		{rule: "ReadsAFew", query: q.OperatorOrderKeys,
			with: but(ofOrder, func(p *db.OperatorOrderKeysParams) { p.LimitRows = 1 }), want: `
			row ref`},
	})
}

const orphanRefundRows = `
	idempotency_keys
	  key                  finished_at  created_at
	  refund_orphan pi_1   .            -3h
	  refund_orphan pi_2   -1h          -4h
	  refund_orphan pi_3   +1h          -5h
	  refund_orphan pi_4   -2h          -5h

	stripe_call_rows
	  stripe_key                          outcome  object_id
	  acme:eu:refund_orphan pi_1:refund   unknown  .
	  acme:eu:refund_orphan pi_3:confirm  refused  .
	  acme:eu:refund_orphan pi_3:refund   done     re_3
	  acme:eu:refund_orphan pi_4:refund   done     re_4
`

func TestQueriesOfOrphanRefunds(t *testing.T) {
	t.Parallel()
	keys := []string{"refund_orphan pi_1", "refund_orphan pi_2", "refund_orphan pi_3"}
	checkQueries(t, orphanRefundRows, []queryCase{
		{rule: "ReadsTheOldestFirst", query: q.OrphanRefunds,
			with: db.OrphanRefundsParams{TenantID: tenant, Keys: keys}, want: `
			row Key=refund_orphan pi_3 ResourceID=pay_refund_orphan pi_3 CreatedAt=-5h FinishedAt=+1h
				AnswerStatus=201 Outcome=done ObjectID=re_3 JustNow=true
			row Key=refund_orphan pi_2 ResourceID=pay_refund_orphan pi_2 CreatedAt=-4h FinishedAt=-1h
				AnswerStatus=201
			row Key=refund_orphan pi_1 ResourceID=pay_refund_orphan pi_1 CreatedAt=-3h Outcome=unknown`},
	})
}

func TestQueriesOfOperatorSessions(t *testing.T) {
	t.Parallel()
	checkQueries(t, `
		operator_sessions_ended
		  nonce    until
		  ended    +1h
		  expired  -1h
	`, []queryCase{
		{rule: "EndsAndForgetsWhatHasExpired", query: q.OperatorSessionEnd,
			with: db.OperatorSessionEndParams{Nonce: "another", Until: at("+2h")}, want: `
			deletes operator_sessions_ended/expired
			inserts operator_sessions_ended/another: until=+2h`},
		{rule: "EndsOnce", query: q.OperatorSessionEnd,
			with: db.OperatorSessionEndParams{Nonce: "ended", Until: at("+2h")}, want: `
			deletes operator_sessions_ended/expired`},
		{rule: "Finds", query: q.OperatorSessionEnded, with: "ended", want: `
			returns true`},
		{rule: "FindsNone", query: q.OperatorSessionEnded, with: "another", want: `
			returns false`},
	})
}
