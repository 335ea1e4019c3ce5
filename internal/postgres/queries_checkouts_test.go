package postgres_test

import (
	"testing"
	"time"

	"example.com/payonce/db"
)

func init() {
	defaults["checkouts"] = func(row map[string]string) map[string]string {
		d := map[string]string{"idempotency_key": row["id"], "created_at": "-9h"}
		switch row["status"] {
		case "completed":
			d["version"], d["order_id"], d["payment_id"] = "1", "ord", "pay"
		case "compensated":
			d["version"], d["failure_code"] = "1", "declined"
		}
		return d
	}
	defaults["checkout_steps"] = func(row map[string]string) map[string]string {
		if s := row["status"]; s == "" || s == "pending" || s == "skipped" {
			return nil
		}
		return map[string]string{"attempts": "1", "updated_at": "-8h"}
	}
	defaults["reservations"] = values(map[string]string{"quantity": "1"})
}

// The checkouts have the name of their state, and of their key.
const checkoutRows = `
	idempotency_keys
	  key        lease_token  operation        resource_id  finished_at  created_at  next_attempt_at
	  completed  3            create_checkout  completed    -1h          -9h         -9h
	  declined   3            create_checkout  declined     .            -2h         -5h
	  doubting   3            create_checkout  doubting     .            -3h         -4h
	  fresh      3            create_checkout  fresh        .            -4h         -3h
	  paying     3            create_checkout  paying       .            -5h         -2h
	  refunding  3            create_checkout  refunding    .            -6h         -6h
	  stale      4            create_checkout  paying_2     .            -9h         -7h
	  stuck      3            create_checkout  stuck        .            -7h         -1h
	  undoing    3            create_checkout  undoing      .            -8h         -8h
	  another    3            create_payment   paying       .            -8h         -8h

	checkouts
	  id         status      order_id  payment_id  created_at
	  completed  completed   ord_c     pay_c       -9h
	  declined   processing  ord_d     pay_d       -2h
	  doubting   processing  .         .           -3h
	  fresh      processing  .         .           -4h
	  paying     processing  .         .           -5h
	  refunding  processing  ord_r     pay_r       -6h
	  stuck      processing  .         .           -7h
	  undoing    processing  .         .           -8h

	checkout_steps
	  checkout_id  step           status
	  completed    create_order   done
	  completed    reserve_stock  done
	  completed    pay            done
	  completed    notify         done
	  completed    refund         skipped
	  completed    release_stock  skipped
	  completed    cancel_order   skipped
	  declined     create_order   done
	  declined     reserve_stock  done
	  declined     pay            failed
	  declined     notify         pending
	  declined     refund         pending
	  declined     release_stock  pending
	  declined     cancel_order   pending
	  doubting     create_order   done
	  doubting     reserve_stock  done
	  doubting     pay            unknown
	  doubting     notify         pending
	  doubting     refund         pending
	  fresh        create_order   pending
	  fresh        reserve_stock  pending
	  paying       create_order   done
	  paying       reserve_stock  done
	  paying       pay            running
	  paying       notify         pending
	  paying       refund         pending
	  refunding    create_order   done
	  refunding    reserve_stock  done
	  refunding    pay            done
	  refunding    notify         failed
	  refunding    refund         pending
	  stuck        create_order   done
	  stuck        pay            skipped
	  stuck        cancel_order   failed
	  undoing      create_order   done
	  undoing      reserve_stock  compensated
	  undoing      pay            skipped
	  undoing      release_stock  done
	  undoing      cancel_order   running

	stripe_call_rows
	  stripe_key               outcome
	  acme:eu:declined:create  done
	  acme:eu:sent:create      sent
	  acme:eu:unknown:create   unknown
`

func TestQueriesOfCheckouts(t *testing.T) {
	t.Parallel()
	const keys = "paying completed stale missing"
	suspend := func(key, checkout string, calls ...string) db.CheckoutStepSuspendParams {
		return db.CheckoutStepSuspendParams{TenantID: tenant, Key: key, LeaseToken: 3, CheckoutID: checkout,
			StripeKeys: calls}
	}
	const done, sent, unknown = tenant + ":declined:create", tenant + ":sent:create", tenant + ":unknown:create"
	const completePaying = `
		UPDATE checkout_steps SET status = 'done', attempts = 1, updated_at = now()
		WHERE tenant_id = 'acme:eu' AND checkout_id = 'paying' AND step = 'pay';
		UPDATE checkout_steps SET status = 'done', attempts = 1, updated_at = now()
		WHERE tenant_id = 'acme:eu' AND checkout_id = 'paying' AND step = 'notify';
		UPDATE checkout_steps SET status = 'skipped'
		WHERE tenant_id = 'acme:eu' AND checkout_id = 'paying' AND step = 'refund';
		UPDATE checkouts SET order_id = 'ord', payment_id = 'pay' WHERE tenant_id = 'acme:eu' AND id = 'paying'`
	checkQueries(t, checkoutRows, []queryCase{
		{rule: "InsertsTheSteps", query: q.CheckoutInsert, with: db.CheckoutInsertParams{
			TenantID: tenant, ID: "new", IdempotencyKey: "key", CreatedAt: at("-1h"),
			Steps: []string{"create_order", "authorize", "cancel_order"},
		}, want: `
			inserts checkout_steps/new/create_order: status=pending
			inserts checkout_steps/new/authorize: status=pending
			inserts checkout_steps/new/cancel_order: status=pending
			inserts checkouts/new: created_at=-1h idempotency_key=key status=processing`},
		{rule: "ReadsTheStepsInOrder", query: q.CheckoutGet,
			with: db.CheckoutGetParams{TenantID: tenant, ID: "declined"}, want: `
			row Checkout=(ID=declined Status=processing IdempotencyKey=declined OrderID=ord_d PaymentID=pay_d
				CreatedAt=-2h) CheckoutStep=(CheckoutID=declined Step=create_order Status=done Attempts=1
				UpdatedAt=-8h)
			row Checkout=(ID=declined Status=processing IdempotencyKey=declined OrderID=ord_d PaymentID=pay_d
				CreatedAt=-2h) CheckoutStep=(CheckoutID=declined Step=reserve_stock Status=done Attempts=1
				UpdatedAt=-8h)
			row Checkout=(ID=declined Status=processing IdempotencyKey=declined OrderID=ord_d PaymentID=pay_d
				CreatedAt=-2h) CheckoutStep=(CheckoutID=declined Step=pay Status=failed Attempts=1 UpdatedAt=-8h)
			row Checkout=(ID=declined Status=processing IdempotencyKey=declined OrderID=ord_d PaymentID=pay_d
				CreatedAt=-2h) CheckoutStep=(CheckoutID=declined Step=notify Status=pending)
			row Checkout=(ID=declined Status=processing IdempotencyKey=declined OrderID=ord_d PaymentID=pay_d
				CreatedAt=-2h) CheckoutStep=(CheckoutID=declined Step=refund Status=pending)
			row Checkout=(ID=declined Status=processing IdempotencyKey=declined OrderID=ord_d PaymentID=pay_d
				CreatedAt=-2h) CheckoutStep=(CheckoutID=declined Step=release_stock Status=pending)
			row Checkout=(ID=declined Status=processing IdempotencyKey=declined OrderID=ord_d PaymentID=pay_d
				CreatedAt=-2h) CheckoutStep=(CheckoutID=declined Step=cancel_order Status=pending)`},
		{rule: "ReadsNoneOfAnotherTenant", query: q.CheckoutGet,
			with: db.CheckoutGetParams{TenantID: "another", ID: "declined"}, want: `
			no row`},
		{rule: "ReadsTheNewestFirst", query: q.CheckoutList, each: "paying completed", with: func(before string) any {
			return db.CheckoutListParams{TenantID: tenant, Before: before, LimitRows: 1}
		}, want: `
			paying: row Checkout=(ID=fresh Status=processing IdempotencyKey=fresh CreatedAt=-4h) Steps=[{"Step":
				"create_order", "Status": "pending", "Attempts": 0, "UpdatedAt": null}, {"Step": "reserve_stock",
				"Status": "pending", "Attempts": 0, "UpdatedAt": null}]
			completed: no row`},
		{rule: "ReadsThoseOfAStatus", query: q.CheckoutListOfStatus, each: "processing compensated",
			with: func(status string) any {
				return db.CheckoutListOfStatusParams{
					TenantID: tenant, Status: db.CheckoutStatus(status), Before: "paying", LimitRows: 1,
				}
			}, want: `
			processing: row Checkout=(ID=fresh Status=processing IdempotencyKey=fresh CreatedAt=-4h) Steps=[{"Step":
				"create_order", "Status": "pending", "Attempts": 0, "UpdatedAt": null}, {"Step": "reserve_stock",
				"Status": "pending", "Attempts": 0, "UpdatedAt": null}]
			compensated: no row`},
		{rule: "ReadsEachOfItsTenant", query: q.CheckoutStatusesRead, with: db.CheckoutStatusesReadParams{
			TenantIds: []string{tenant, tenant, "ten_other", tenant}, Ids: []string{"completed", "missing", "paying", "paying"},
		}, any: true, want: `
			row Ordinal=1 Status=completed
			row Ordinal=4 Status=processing`},
		{rule: "ReadsOne", query: q.KeyHistoryCheckout,
			with: db.KeyHistoryCheckoutParams{TenantID: tenant, ID: "declined"}, want: `
			row ID=declined Status=processing IdempotencyKey=declined OrderID=ord_d PaymentID=pay_d
				CreatedAt=-2h`},
		{rule: "EndsAStep", query: q.CheckoutStepAdvance, with: db.CheckoutStepAdvanceParams{
			TenantID: tenant, CheckoutID: "paying", Step: "pay", Status: "done",
		}, want: `
			returns 1
			changes checkout_steps/paying/pay: status=done updated_at=now
			locks checkouts/paying`},
		{rule: "BeginsAStep", query: q.CheckoutStepAdvance, with: db.CheckoutStepAdvanceParams{
			TenantID: tenant, CheckoutID: "fresh", Step: "create_order", Status: "running",
		}, want: `
			returns 1
			changes checkout_steps/fresh/create_order: attempts=1 status=running updated_at=now
			locks checkouts/fresh`},
		{rule: "BeginsACompensationAgain", query: q.CheckoutStepAdvance, with: db.CheckoutStepAdvanceParams{
			TenantID: tenant, CheckoutID: "stuck", Step: "cancel_order", Status: "running",
		}, want: `
			returns 1
			changes checkout_steps/stuck/cancel_order: attempts=2 status=running updated_at=now
			locks checkouts/stuck`},
		{rule: "LeavesAStatusAlone", query: q.CheckoutStepAdvance, with: db.CheckoutStepAdvanceParams{
			TenantID: tenant, CheckoutID: "paying", Step: "pay", Status: "running",
		}, want: `
			returns 0`},
		{rule: "LeavesASkippedStepAlone", query: q.CheckoutStepAdvance, with: db.CheckoutStepAdvanceParams{
			TenantID: tenant, CheckoutID: "undoing", Step: "pay", Status: "running",
		}, want: `
			returns 0`},
		{rule: "SkipsWhatIsNotToBeCompensated", query: q.CheckoutStepsSkip, each: "declined refunding",
			with: func(checkout string) any {
				return db.CheckoutStepsSkipParams{TenantID: tenant, CheckoutID: checkout}
			}, want: `
			declined: changes checkout_steps/declined/notify: status=skipped
			declined: changes checkout_steps/declined/refund: status=skipped
			declined: locks checkouts/declined
			refunding: nothing`},
		{rule: "SkipsAllCompensations", query: q.CheckoutStepsSkip,
			with: db.CheckoutStepsSkipParams{TenantID: tenant, CheckoutID: "refunding", Completed: true}, want: `
			changes checkout_steps/refunding/refund: status=skipped
			locks checkouts/refunding`},
		{rule: "IsFenced", query: q.CheckoutStepsResume, each: keys, with: func(key string) any {
			return db.CheckoutStepsResumeParams{TenantID: tenant, Key: key, LeaseToken: 3, CheckoutID: "paying"}
		}, want: `
			paying: returns 1
			paying: changes checkout_steps/paying/pay: attempts=2 updated_at=now
			paying: locks idempotency_keys/paying
			completed: returns 0
			stale: returns 0
			missing: returns 0`},
		{rule: "CountsAStepInProgress", query: q.CheckoutStepsResume, each: "declined doubting", with: func(of string) any {
			return db.CheckoutStepsResumeParams{TenantID: tenant, Key: of, LeaseToken: 3, CheckoutID: of}
		}, want: `
			declined: returns 0
			declined: locks idempotency_keys/declined
			doubting: returns 1
			doubting: changes checkout_steps/doubting/pay: attempts=2 updated_at=now
			doubting: locks idempotency_keys/doubting`},
		{rule: "IsFenced", query: q.CheckoutStepSuspend, each: keys,
			with: func(key string) any { return suspend(key, "paying", sent) }, want: `
			paying: returns 1
			paying: changes checkout_steps/paying/pay: status=unknown updated_at=now
			paying: locks checkouts/paying
			paying: locks idempotency_keys/paying
			completed: returns 0
			stale: returns 0
			missing: returns 0`},
		{rule: "IsUnknown", query: q.CheckoutStepSuspend, with: suspend("paying", "paying", done, unknown), want: `
			returns 1
			changes checkout_steps/paying/pay: status=unknown updated_at=now
			locks checkouts/paying
			locks idempotency_keys/paying`},
		{rule: "IsUnknownOfAFirstConfirm", query: q.CheckoutStepSuspend, with: suspend("paying", "paying", done),
			first: confirmed("acme:eu/paying"), want: `
			returns 1
			changes checkout_steps/paying/pay: status=unknown updated_at=now
			locks checkouts/paying
			locks idempotency_keys/paying`},
		{rule: "IsStillRunningBesideOthers", query: q.CheckoutStepSuspend, with: suspend("paying", "paying", done),
			first: confirmed("acme/paying", "acme:eu/doubting"), want: `
			returns 0
			locks idempotency_keys/paying`},
		{rule: "IsStillRunning", query: q.CheckoutStepSuspend, with: suspend("paying", "paying", done), want: `
			returns 0
			locks idempotency_keys/paying`},
		{rule: "IsKnownAgain", query: q.CheckoutStepSuspend, with: suspend("doubting", "doubting", done), want: `
			returns 1
			changes checkout_steps/doubting/pay: status=running updated_at=now
			locks checkouts/doubting
			locks idempotency_keys/doubting`},
		{rule: "IsStillUnknown", query: q.CheckoutStepSuspend, with: suspend("doubting", "doubting", sent), want: `
			returns 0
			locks idempotency_keys/doubting`},
		{rule: "SetsIt", query: q.CheckoutSetOrder,
			with: db.CheckoutSetOrderParams{TenantID: tenant, ID: "paying", OrderID: ptr("ord")}, want: `
			changes checkouts/paying: order_id=ord`},
		{rule: "SetsIt", query: q.CheckoutSetPayment,
			with: db.CheckoutSetPaymentParams{TenantID: tenant, ID: "paying", PaymentID: ptr("pay")}, want: `
			changes checkouts/paying: payment_id=pay`},
		{rule: "SetsIt", query: q.CheckoutSetFailure, with: db.CheckoutSetFailureParams{
			TenantID: tenant, ID: "paying", Code: ptr("card_declined"), DeclineCode: ptr("fraudulent"), Message: ptr("no"),
			Declined: true,
		}, want: `
			changes checkouts/paying: declined=true failure_code=card_declined failure_decline_code=fraudulent
				failure_message=no`},
		{rule: "EndsOne", query: q.CheckoutEnd, first: completePaying,
			with: db.CheckoutEndParams{TenantID: tenant, ID: "paying", Status: "completed"}, want: `
			changes checkouts/paying: status=completed version=1`},
		{rule: "CountsByState", query: q.CheckoutStats, any: true, with: "create_checkout", want: `
			row State=forward Checkouts=5 OldestSeconds=-7h1m
			row State=stuck Checkouts=2 OldestSeconds=-7h
			row State=undoing Checkouts=5 OldestSeconds=-8h1m
			row State=unknown Checkouts=2 OldestSeconds=-3h1m`},
	})
}

const stockRows = `
	stock
	  sku    available  reserved
	  anvil  5          3
	  bell   1          0
	  clock  0          2

	reservations
	  checkout_id  sku    quantity  status    expires_at
	  held         anvil  2         held      +1h
	  held         bell   1         consumed  +1h
	  held         clock  2         held      -1h
	  other        anvil  1         held      +1h
	  pinned       anvil  1         held      .
	  released     anvil  1         released  +1h
`

func TestQueriesOfStock(t *testing.T) {
	t.Parallel()
	checkQueries(t, stockRows, []queryCase{
		{rule: "SetsWhatIsAvailable", query: q.StockSet, each: "anvil new", with: func(sku string) any {
			return db.StockSetParams{TenantID: tenant, Sku: sku, Available: 7}
		}, want: `
			anvil: row Sku=anvil Available=7 Reserved=3
			anvil: changes stock/anvil: available=7
			new: row Sku=new Available=7
			new: inserts stock/new: available=7`},
		{rule: "ReadsOne", query: q.StockGet, with: db.StockGetParams{TenantID: tenant, Sku: "bell"}, want: `
			row Sku=bell Available=1`},
		{rule: "LocksInOrder", query: q.StockLock,
			with: db.StockLockParams{TenantID: tenant, Skus: []string{"clock", "missing", "anvil"}}, want: `
			row Sku=anvil Available=5 Reserved=3
			row Sku=clock Reserved=2
			locks stock/anvil
			locks stock/clock`},
		{rule: "NeedsEnough", query: q.StockReserve, with: db.StockReserveParams{
			TenantID: tenant, Skus: []string{"anvil", "bell"}, Quantities: []int64{1, 2},
		}, want: `
			returns 1
			changes stock/anvil: available=4 reserved=4`},
		{rule: "InsertsThem", query: q.ReservationsInsert, with: db.ReservationsInsertParams{
			TenantID: tenant, CheckoutID: "new", Skus: []string{"anvil", "bell"}, Quantities: []int64{5, 1}, Hold: time.Hour,
		}, want: `
			inserts reservations/new/anvil: expires_at=now+1h quantity=5 status=held
			inserts reservations/new/bell: expires_at=now+1h quantity=1 status=held`},
		{rule: "HoldsWhatIsHeld", query: q.LifeHoldReservations, any: true, with: 26 * time.Hour,
			first: "DELETE FROM reservations WHERE tenant_id = 'acme'", want: `
			returns 3
			changes reservations/held/anvil: expires_at=now+26h
			changes reservations/held/clock: expires_at=now+26h
			changes reservations/other/anvil: expires_at=now+26h`},
		{rule: "FindsCheckoutsThatAreLost", query: q.LifeCheckoutsMissing, with: []string{"chk_lost"}, want: `
			row chk_lost`},
		{rule: "KeepsWhatHasNotExpired", query: q.ReservationsPin, each: "held pinned released", with: func(of string) any {
			return db.ReservationsPinParams{TenantID: tenant, CheckoutID: of}
		}, want: `
			held: returns 1
			held: changes reservations/held/anvil: expires_at=null
			pinned: returns 0
			released: returns 0`},
		{rule: "KeepsWhatMayHaveExpired", query: q.ReservationsHold, each: "held pinned released", with: func(of string) any {
			return db.ReservationsHoldParams{TenantID: tenant, CheckoutID: of, Hold: time.Hour}
		}, want: `
			held: returns 2
			held: changes reservations/held/anvil: expires_at=now+1h
			held: changes reservations/held/clock: expires_at=now+1h
			pinned: returns 0
			released: returns 0`},
		{rule: "Sells", query: q.ReservationsEnd,
			with: db.ReservationsEndParams{TenantID: tenant, CheckoutID: "held", Status: "consumed"}, want: `
			returns 2
			changes reservations/held/anvil: status=consumed
			changes reservations/held/clock: status=consumed
			changes stock/anvil: reserved=1
			changes stock/clock: reserved=0`},
		{rule: "Releases", query: q.ReservationsEnd,
			with: db.ReservationsEndParams{TenantID: tenant, CheckoutID: "held", Status: "released"}, want: `
			returns 2
			changes reservations/held/anvil: status=released
			changes reservations/held/clock: status=released
			changes stock/anvil: available=7 reserved=1
			changes stock/clock: available=2 reserved=0`},
	})
}

// A reservation is overdue if its payment has not begun and no process holds its key. The others fail one condition
// and expired earlier. The other tenant has checkouts of the same names and no reservations.
const overdueRows = `
	idempotency_keys
	  tenant_id  key          leased_until  finished_at  request
	  acme       held         -1h           .            r_t
	  acme       paying       -1h           .            r_t
	  acme:eu    expired_1    -1h           .            r_1
	  acme:eu    expired_2    -1h           .            r_2
	  acme:eu    finished     -1h           -1h          r_f
	  acme:eu    held         +1h           .            r_h
	  acme:eu    not_expired  -1h           .            r_n
	  acme:eu    paying       -1h           .            r_p
	  acme:eu    sold         -1h           .            r_s

	checkouts
	  tenant_id  id
	  acme       held
	  acme       paying
	  acme:eu    expired_1
	  acme:eu    expired_2
	  acme:eu    finished
	  acme:eu    held
	  acme:eu    not_expired
	  acme:eu    paying
	  acme:eu    sold

	checkout_steps
	  tenant_id  checkout_id  step    status
	  acme       held         pay     pending
	  acme       paying       pay     pending
	  acme:eu    expired_1    pay     pending
	  acme:eu    expired_1    notify  skipped
	  acme:eu    expired_2    pay     pending
	  acme:eu    finished     pay     pending
	  acme:eu    held         pay     pending
	  acme:eu    not_expired  pay     pending
	  acme:eu    paying       pay     running
	  acme:eu    paying       notify  pending
	  acme:eu    sold         pay     pending

	reservations
	  tenant_id  checkout_id  sku    status    expires_at
	  acme:eu    expired_1    anvil  held      -5h
	  acme:eu    expired_1    bell   held      -5h
	  acme:eu    expired_2    anvil  held      -4h
	  acme:eu    finished     anvil  held      -9h
	  acme:eu    held         anvil  held      -8h
	  acme:eu    not_expired  anvil  held      +1h
	  acme:eu    paying       anvil  held      -7h
	  acme:eu    sold         anvil  consumed  -6h
`

func TestQueriesOfOverdueReservations(t *testing.T) {
	t.Parallel()
	checkQueries(t, overdueRows, []queryCase{
		{rule: "FindsTheOneThatExpiredFirst", query: q.ReservationOverdue, with: []string{}, want: `
			row ID=expired_1 IdempotencyKey=expired_1 Request=r_1 CreatedAt=-9h
			locks idempotency_keys/expired_1`},
		{rule: "SkipsCheckouts", query: q.ReservationOverdue, with: []string{"expired_1"}, want: `
			row ID=expired_2 IdempotencyKey=expired_2 Request=r_2 CreatedAt=-9h
			locks idempotency_keys/expired_2`},
		{rule: "FindsNoOther", query: q.ReservationOverdue, with: []string{"expired_1", "expired_2"}, want: `
			no row`},
		{rule: "SkipsAKeyThatIsLocked", query: q.ReservationOverdue, locked: "idempotency_keys/expired_1",
			with: []string{}, want: `
			row ID=expired_2 IdempotencyKey=expired_2 Request=r_2 CreatedAt=-9h
			locks idempotency_keys/expired_2`},
		{rule: "CountsCheckouts", query: q.ReservationsStuck, with: time.Hour, want: `
			returns 4`},
		{rule: "LeavesTimeToTheExpirer", query: q.ReservationsStuck, with: 270 * time.Minute, want: `
			returns 3`},
	})
}

// The checkout that made an order holds it while it is processing.
const checkoutOrderRows = `
	idempotency_keys
	  key       finished_at
	  ended     .
	  paying    .
	  finished  -1h

	checkouts
	  id        status
	  ended     compensated
	  finished  processing
	  paying    processing

	orders
	  id        checkout_id  canceling_key
	  canceled  paying       finished
	  ended     ended        .
	  finished  finished     .
	  free      .            .
	  paying    paying       .
`

func TestQueriesOfTheOrdersOfCheckouts(t *testing.T) {
	t.Parallel()
	stats := db.KeyStatsParams{Grace: time.Hour, AwaitsCustomer: "action_required", CustomerMustAct: "must_act"}
	checkQueries(t, checkoutOrderRows, []queryCase{
		{rule: "ReadsTheCheckoutsKey", query: q.ReconcileOrders, any: true, with: db.ReconcileOrdersParams{
			TenantIds: []string{tenant, tenant, tenant, tenant, tenant},
			OrderIds:  []string{"canceled", "ended", "finished", "free", "paying"}, Patience: 12 * time.Hour,
		}, want: `
			row Order=(ID=canceled CheckoutID=paying) HolderKey=finished HolderInProgress=true
				CheckoutInProgress=true
			row Order=(ID=ended CheckoutID=ended) HolderInProgress=true
			row Order=(ID=finished CheckoutID=finished) HolderKey=finished CheckoutInProgress=true
			row Order=(ID=free)
			row Order=(ID=paying CheckoutID=paying) HolderKey=paying HolderInProgress=true
				CheckoutInProgress=true`},
		{rule: "LeavesOutARefundThatHasBegun", query: q.KeyStats, each: "refund_begun started",
			with: func(string) any { return stats },
			first: "UPDATE idempotency_keys SET recovery_point = '$name', created_at = '" +
				at("-99h").Format(time.RFC3339) + "' WHERE key = 'paying'", want: `
			refund_begun: row Unfinished=4 Overdue=4 OldestSeconds=-9h1m
			started: row Unfinished=4 Overdue=4 OldestSeconds=-99h`},
	})
}
