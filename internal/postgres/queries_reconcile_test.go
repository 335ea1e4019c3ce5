package postgres_test

import (
	"strings"
	"testing"
	"time"

	"example.com/payonce/db"
)

// A key in progress is neither finished nor parked. The order, payment and refund of a key have its name.
const reconcileRows = `
	idempotency_keys
	  key       finished_at  parked_at  created_at
	  running   .            .          -1h
	  parked    .            -1h        -1h
	  finished  -1h          .          -1h
	  old       .            .          -9h

	orders
	  id        canceling_key
	  running   running
	  parked    parked
	  finished  finished
	  old       old
	  free      .
	  unknown   key_without_a_row

	payments
	  id        order_id  idempotency_key  status     intent_id
	  finished  order     finished         failed     .
	  old       order     old              failed     .
	  other     other     other            succeeded  pi_other
	  paid_1    free      paid_1           succeeded  pi_1
	  paid_1_f  failed    paid_1_f         failed     pi_f
	  paid_2    old       paid_2           succeeded  pi_2
	  paid_3    running   paid_3           succeeded  pi_3
	  parked    order     parked           failed     .
	  running   order     running          failed     .

	refunds
	  id        payment_id  idempotency_key  status     created_at  stripe_refund_id
	  running   finished    running          pending    -3h         .
	  parked    finished    parked           failed     -4h         re_p
	  finished  finished    finished         succeeded  -7h         re_f
	  old       running     old              succeeded  -6h         re_o
	  older     running     older            succeeded  -5h         re_older
	  early     running     early            succeeded  -19h        re_early
	  late      running     late             succeeded  -1h         re_late
	  other     other       other            succeeded  -5h         re_other

	reconciliation_windows
	  name    next_at  leased_until  lease_token  covered_through  position
	  due     -1h      -1h           7            -2h              pay_9
	  leased  -1h      +1h           7            -2h              .
	  waits   +1h      .             7            -2h              .

	discrepancies
	  object_id    kind               resolved_at  seen_at  currency  drift_minor  found_at
	  pi_open      amount_mismatch    .            -5h      eur       7            -9h
	  pi_open      status_mismatch    .            -6h      eur       -3           -9h
	  pi_resolved  amount_mismatch    -1h          -9h      eur       100          -8h
	  pi_resolved  status_mismatch    .            -4h      usd       20           -9h
	  pi_past      missing_at_stripe  -1h          -9h      chf       50           -9h

	stripe_call_rows
	  stripe_key              operation
	  acme:eu:cancel ord_1:1  cancel
	  acme:eu:cancel ord_2:1  cancel
	  acme:eu:cancel ord_2:2  cancel
	  acme:eu:cancel ord_3:1  cancel
`

func TestQueriesOfTheReconciler(t *testing.T) {
	t.Parallel()
	of := func(names string) (tenants, ids []string) {
		for name := range strings.FieldsSeq(names) {
			tenants, ids = append(tenants, tenant), append(ids, name)
		}
		return tenants, ids
	}
	tenants, orders := of("free running parked finished old unknown missing")
	paying, paid := of("order free missing")
	record := func(object string) any {
		return db.DiscrepancyRecordParams{TenantID: tenant, Object: "payment_intent", ObjectID: object,
			Kind: "amount_mismatch", OrderID: ptr("ord"), Currency: "eur", DriftMinor: 9, Detail: "differs more"}
	}
	checkQueries(t, reconcileRows, []queryCase{
		{rule: "FindsThoseThatExist", query: q.ReconcileTenants, with: []string{tenant, "missing"}, want: `
			row acme:eu`},
		{rule: "ReadsOrdersAndTheirHolders", query: q.ReconcileOrders, any: true, with: db.ReconcileOrdersParams{
			TenantIds: tenants, OrderIds: orders, Patience: 5 * time.Hour,
		}, want: `
			row Order=(ID=finished) HolderKey=finished
			row Order=(ID=free)
			row Order=(ID=old) HolderKey=old
			row Order=(ID=parked) HolderKey=parked
			row Order=(ID=running) HolderKey=running HolderInProgress=true
			row Order=(ID=unknown) HolderKey=key_without_a_row`},
		{rule: "ReadsPaymentsInOrder", query: q.ReconcilePayments,
			with: db.ReconcilePaymentsParams{TenantIds: paying, OrderIds: paid}, want: `
			row Payment=(ID=finished) IdleSeconds=-9h
			row Payment=(ID=old) IdleSeconds=-9h InProgress=true
			row Payment=(ID=paid_1) IdleSeconds=-9h
			row Payment=(ID=parked) IdleSeconds=-9h
			row Payment=(ID=running) IdleSeconds=-9h InProgress=true`},
		{rule: "ReadsRefundsInOrder", query: q.ReconcileRefunds,
			with: db.ReconcileRefundsParams{TenantIds: paying, OrderIds: paid}, want: `
			row Refund=(ID=early)
			row Refund=(ID=finished)
			row Refund=(ID=old) InProgress=true
			row Refund=(ID=older)
			row Refund=(ID=parked)
			row Refund=(ID=running) InProgress=true
			row Refund=(ID=late)`},
		{rule: "ReadsARangeOfIDs", query: q.ReconcilePaid,
			with: db.ReconcilePaidParams{FromID: "paid_1", ToID: "paid_3", LimitRows: 9}, want: `
			row twin ID=paid_1 OrderID=other IntentID=pi_other Currency=eur
			row twin ID=paid_1_f OrderID=free IntentID=pi_1 Currency=eur
			row ID=paid_1 OrderID=free IntentID=pi_1 Currency=eur
			row ID=paid_2 OrderID=old IntentID=pi_2 Currency=eur`},
		{rule: "GoesOn", query: q.ReconcilePaid, with: db.ReconcilePaidParams{
			FromID: "a", ToID: "z", AfterTenantID: twin, AfterID: "paid_1", LimitRows: 2,
		}, want: `
			row twin ID=paid_1_f OrderID=free IntentID=pi_1 Currency=eur
			row twin ID=paid_3 OrderID=old IntentID=pi_2 Currency=eur`},
		{rule: "GoesOnWithTheNextTenant", query: q.ReconcilePaid, with: db.ReconcilePaidParams{
			FromID: "a", ToID: "z", AfterTenantID: tenant, AfterID: "other", LimitRows: 2,
		}, want: `
			row ID=paid_1 OrderID=free IntentID=pi_1 Currency=eur
			row ID=paid_2 OrderID=old IntentID=pi_2 Currency=eur`},
		{rule: "ReadsARangeOfTimes", query: q.ReconcileRefunded,
			with: db.ReconcileRefundedParams{FromAt: at("-9h"), UntilAt: at("-2h"), LimitRows: 99}, want: `
			row twin ID=old OrderID=ord StripeRefundID=re_f Currency=eur CreatedAt=-7h1m
			row twin ID=older OrderID=ord StripeRefundID=re_o Currency=eur CreatedAt=-6h1m
			row twin ID=early OrderID=ord StripeRefundID=re_older Currency=eur CreatedAt=-5h1m
			row twin ID=running OrderID=ord StripeRefundID=re_other Currency=eur CreatedAt=-5h1m
			row ID=finished OrderID=ord StripeRefundID=re_f Currency=eur CreatedAt=-7h
			row ID=old OrderID=ord StripeRefundID=re_o Currency=eur CreatedAt=-6h
			row ID=older OrderID=ord StripeRefundID=re_older Currency=eur CreatedAt=-5h
			row ID=other OrderID=ord StripeRefundID=re_other Currency=eur CreatedAt=-5h IntentID=pi_other`},
		{rule: "GoesOn", query: q.ReconcileRefunded, with: db.ReconcileRefundedParams{
			FromAt: at("-30h"), UntilAt: at("-2h"), AfterTenantID: tenant, AfterAt: at("-7h"), AfterID: "finished",
			LimitRows: 2,
		}, want: `
			row ID=old OrderID=ord StripeRefundID=re_o Currency=eur CreatedAt=-6h
			row ID=older OrderID=ord StripeRefundID=re_older Currency=eur CreatedAt=-5h`},

		{rule: "KnowsWhichWindowsAreDue", query: q.ReconcileDue,
			with: []string{"due", "leased", "waits", "new"}, want: `
			row due
			row new`},
		{rule: "ClaimsAWindowThatIsDue", query: q.ReconcileClaim, each: "due leased waits new",
			with: func(window string) any { return db.ReconcileClaimParams{Name: window, Lease: time.Minute} }, want: `
			due: row LeaseToken=8 CoveredThrough=-2h Position=pay_9 Now=now
			due: changes reconciliation_windows/due: lease_token=8 leased_until=now+1m
			leased: no row
			leased: locks reconciliation_windows/leased
			waits: no row
			waits: locks reconciliation_windows/waits
			new: row LeaseToken=1 Now=now
			new: inserts reconciliation_windows/new: lease_token=1 leased_until=now+1m next_at=-infinity`},
		{rule: "NeedsTheLease", query: q.ReconcileExtend, each: "leased/7 leased/6", with: func(of string) any {
			window, token := split(of)
			return db.ReconcileExtendParams{Name: window, LeaseToken: token, Lease: time.Minute}
		}, want: `
			leased/7: returns 1
			leased/7: changes reconciliation_windows/leased: leased_until=now+1m
			leased/6: returns 0`},
		{rule: "NeedsTheLease", query: q.ReconcileRelease, each: "leased/7 leased/6", with: func(of string) any {
			window, token := split(of)
			return db.ReconcileReleaseParams{Name: window, LeaseToken: token, Pause: time.Hour, Position: ptr("pay_1")}
		}, want: `
			leased/7: returns 1
			leased/7: changes reconciliation_windows/leased: leased_until=-infinity next_at=now+1h
				position=pay_1
			leased/6: returns 0`},
		{rule: "RecordsHowFar", query: q.ReconcileRelease, with: db.ReconcileReleaseParams{
			Name: "due", LeaseToken: 7, Through: ptr(at("-1h")),
		}, want: `
			returns 1
			changes reconciliation_windows/due: covered_through=-1h leased_until=-infinity next_at=now
				position=null`},

		{rule: "KnowsWhatIsNew", query: q.DiscrepancyRecord, each: "pi_open pi_resolved pi_new", with: record, want: `
			pi_open: returns false
			pi_open: changes discrepancies/pi_open/amount_mismatch: detail=differs more drift_minor=9
				seen_at=now
			pi_resolved: returns true
			pi_resolved: changes discrepancies/pi_resolved/amount_mismatch: detail=differs more drift_minor=9
				found_at=now resolution=null resolved_at=null seen_at=now
			pi_new: returns true
			pi_new: inserts discrepancies/pi_new/amount_mismatch: currency=eur detail=differs more drift_minor=9
				found_at=now object=payment_intent order_id=ord seen_at=now`},
		{rule: "ResolvesOthersThanOneKind", query: q.DiscrepanciesResolve, each: "pi_open pi_resolved pi_past",
			with: func(object string) any {
				return db.DiscrepanciesResolveParams{TenantID: tenant, ObjectID: object, Resolution: "agrees",
					ExceptKind: "amount_mismatch"}
			}, want: `
			pi_open: returns 1
			pi_open: changes discrepancies/pi_open/status_mismatch: resolution=agrees resolved_at=now
				seen_at=now
			pi_resolved: returns 1
			pi_resolved: changes discrepancies/pi_resolved/status_mismatch: resolution=agrees resolved_at=now
				seen_at=now
			pi_past: returns 0`},
		{rule: "ReadsTheLeastRecentlySeenFirst", query: q.DiscrepanciesOpen, with: int32(3), show: "ObjectID Kind", want: `
			row twin ObjectID=pi_resolved Kind=amount_mismatch
			row ObjectID=pi_open Kind=status_mismatch
			row twin ObjectID=pi_open Kind=status_mismatch`},
		{rule: "TouchesOpenOnes", query: q.DiscrepanciesTouch, each: "pi_open pi_resolved", with: func(object string) any {
			return db.DiscrepanciesTouchParams{TenantID: tenant, ObjectID: object}
		}, want: `
			pi_open: changes discrepancies/pi_open/amount_mismatch: seen_at=now
			pi_open: changes discrepancies/pi_open/status_mismatch: seen_at=now
			pi_resolved: changes discrepancies/pi_resolved/status_mismatch: seen_at=now`},
		{rule: "SumsPerCurrency", query: q.MoneyDrift, want: `
			row Currency=chf
			row Currency=eur DriftMinor=20 Open=4
			row Currency=usd DriftMinor=40 Open=2`},
		{rule: "ReadsTheCallsOfOneOrder", query: q.CancelCallsOfOrder, any: true,
			with: db.CancelCallsOfOrderParams{TenantID: tenant, Prefix: tenant + ":cancel ord_2:"}, want: `
			row StripeKey=acme:eu:cancel ord_2:1 ParamsSha256=sha
			row StripeKey=acme:eu:cancel ord_2:2 ParamsSha256=sha`},
	})
}

// The oldest key is among those that neither are parked nor wait for a customer or a bank.
const keyStatsRows = `
	idempotency_keys
	  key            leased_until  next_attempt_at  parked_at  finished_at  recovery_point   last_error  resource_id
	  overdue        -2h           -2h              .          .            started          .           .
	  parked         -2h           -2h              -1h        .            started          .           .
	  in_flight      +1h           -2h              .          .            started          .           .
	  just_due       -2h           -1h              .          .            started          .           .
	  just_released  -1h           -2h              .          .            started          .           .
	  finished       -2h           -2h              .          -1h          finished         .           .
	  awaits         -2h           +9h              .          .            action_required  .           .
	  must_act       -2h           +9h              .          .            action_required  must_act    .
	  awaits_failed  -2h           +9h              .          .            action_required  timeout     .
	  at_bank        -2h           +9h              .          .            started          .           at_bank
	  refunded       -2h           +9h              .          .            started          .           refunded
	  not_at_bank    -2h           +9h              .          .            started          .           not_at_bank
	  at_twins_bank  -2h           +9h              .          .            started          .           at_twins_bank

	refunds
	  id           status     stripe_refund_id
	  at_bank      pending    re_1
	  refunded     succeeded  re_2
	  not_at_bank  pending    .

	refunds
	  tenant_id  id             status   stripe_refund_id
	  acme       at_twins_bank  pending  re_9

	stripe_call_rows
	  stripe_key                     outcome  first_sent_at
	  acme:eu:overdue:confirm        sent     -3h
	  acme:eu:overdue:create         unknown  -9h
	  acme:eu:in_flight:confirm      sent     -8h
	  acme:eu:just_due:refund        unknown  -2h
	  acme:eu:just_released:confirm  done     -7h
	  acme:eu:finished:confirm       unknown  -6h
	  acme:eu:awaits:confirm         refused  -6h
`

func TestQueriesOfAuthorizationStats(t *testing.T) {
	t.Parallel()
	const rows = `
	payments
	  id         currency  order_id  status      capture_before  failure_code           updated_at  created_at  amount_minor  manual_capture  intent_id
	  auto       usd       ord_1     canceled    .               authorization_expired  -9h         -90h        1000          false           pi_1
	  captured   eur       ord_2     succeeded   .               .                      -9h         -90h        1000          false           pi_2
	  cents      usd       ord_3     authorized  +9h             .                      -9h         -90h        700           true            pi_3
	  cents2     usd       ord_4     authorized  +8h             .                      -9h         -90h        500           true            pi_4
	  expired    eur       ord_5     canceled    .               authorization_expired  -9h         -90h        1000          true            pi_5
	  forgotten  eur       ord_6     canceled    .               authorization_expired  -26h        -90h        1000          true            pi_6
	  next       eur       ord_7     authorized  +2h             .                      -9h         -90h        1000          true            pi_7
	  old        eur       ord_8     canceled    .               authorization_expired  -9h         -990h       1000          true            pi_8
	  overdue    eur       ord_9     authorized  -2h             .                      -9h         -90h        1000          true            pi_9
	  release    usd       ord_10    canceled    .               .                      -9h         -90h        1000          true            pi_10
`
	checkQueries(t, rows, []queryCase{
		{rule: "SumsEachCurrency", query: q.AuthorizationStats, want: `
			row Currency=eur Held=4 HeldMinor=4000 NextSeconds=-2h1m Expired=2
			row Currency=usd Held=4 HeldMinor=2400 NextSeconds=+8h`},
		{rule: "ShowsACurrencyOfWhatHasExpired", query: q.AuthorizationStats,
			first: "DELETE FROM payments WHERE capture_before IS NOT NULL", want: `
			row Currency=eur Expired=2`},
	})
}

func TestQueriesOfKeyStats(t *testing.T) {
	t.Parallel()
	with := db.KeyStatsParams{Grace: 90 * time.Minute, AwaitsCustomer: "action_required", CustomerMustAct: "must_act"}
	checkQueries(t, keyStatsRows, []queryCase{
		{rule: "Counts", query: q.KeyStats, with: with, want: `
			row Unfinished=24 Parked=2 InFlight=2 Overdue=2 OldestSeconds=-9h1m Unknown=2 UnknownSeconds=-3h`},
		{rule: "KnowsFirstConfirms", query: q.KeyStats, with: with,
			first: confirmed("acme:eu/must_act", "acme/parked", "acme:eu/missing"), want: `
			row Unfinished=24 Parked=2 InFlight=2 Overdue=2 OldestSeconds=-9h1m Unknown=4 UnknownSeconds=-99h`},
		{rule: "KnowsCaptures", query: q.KeyStats, with: with, given: `
			stripe_call_rows
			  tenant_id  stripe_key                operation  outcome  first_sent_at
			  acme:eu    acme:eu:must_act:capture  capture    unknown  -5h
			  acme:eu    acme:eu:finished:capture  capture    unknown  -8h`, want: `
			row Unfinished=24 Parked=2 InFlight=2 Overdue=2 OldestSeconds=-9h1m Unknown=3 UnknownSeconds=-5h
				UnknownCaptures=1 UnknownCapturesSeconds=-5h`},
		{rule: "LeavesOutFirstConfirmsThatAreHeld", query: q.KeyStats, with: with,
			first: confirmed("acme:eu/must_act") + `; ALTER TABLE idempotency_keys DISABLE TRIGGER USER;
				UPDATE idempotency_keys SET leased_until = clock_timestamp() + interval '1 hour'
				WHERE tenant_id = 'acme:eu' AND key = 'must_act'`, want: `
			row Unfinished=24 Parked=2 InFlight=3 Overdue=2 OldestSeconds=-9h1m Unknown=2 UnknownSeconds=-3h`},
		{rule: "LeavesOutWhatMayTakeDays", query: q.KeyStats,
			each: "overdue parked finished awaits must_act awaits_failed at_bank refunded not_at_bank at_twins_bank",
			with: func(string) any { return with },
			first: "ALTER TABLE idempotency_keys DISABLE TRIGGER USER; UPDATE idempotency_keys SET created_at = '" +
				at("-99h").Format(time.RFC3339) + "' WHERE key = '$name' AND tenant_id = '" + tenant + "'", want: `
			overdue: row Unfinished=24 Parked=2 InFlight=2 Overdue=2 OldestSeconds=-99h Unknown=2
				UnknownSeconds=-3h
			parked: row Unfinished=24 Parked=2 InFlight=2 Overdue=2 OldestSeconds=-9h1m Unknown=2
				UnknownSeconds=-3h
			finished: row Unfinished=24 Parked=2 InFlight=2 Overdue=2 OldestSeconds=-9h1m Unknown=2
				UnknownSeconds=-3h
			awaits: row Unfinished=24 Parked=2 InFlight=2 Overdue=2 OldestSeconds=-9h1m Unknown=2
				UnknownSeconds=-3h
			must_act: row Unfinished=24 Parked=2 InFlight=2 Overdue=2 OldestSeconds=-9h1m Unknown=2
				UnknownSeconds=-3h
			awaits_failed: row Unfinished=24 Parked=2 InFlight=2 Overdue=2 OldestSeconds=-99h Unknown=2
				UnknownSeconds=-3h
			at_bank: row Unfinished=24 Parked=2 InFlight=2 Overdue=2 OldestSeconds=-9h1m Unknown=2
				UnknownSeconds=-3h
			refunded: row Unfinished=24 Parked=2 InFlight=2 Overdue=2 OldestSeconds=-99h Unknown=2
				UnknownSeconds=-3h
			not_at_bank: row Unfinished=24 Parked=2 InFlight=2 Overdue=2 OldestSeconds=-99h Unknown=2
				UnknownSeconds=-3h
			at_twins_bank: row Unfinished=24 Parked=2 InFlight=2 Overdue=2 OldestSeconds=-99h Unknown=2
				UnknownSeconds=-3h`},
	})
}
