package postgres_test

import (
	"testing"
	"time"

	"example.com/payonce/db"
)

// The refunds are named after what keeps their payment's other refunds waiting, or does not.
const refundRows = `
	payments
	  id          order_id    status      amount_refunding_minor  amount_refunded_minor
	  full        full        succeeded   1000                    1000
	  half        half        succeeded   500                     300
	  none        none        succeeded   0                       0
	  processing  processing  processing  0                       0

	orders
	  id     version  status              payment_id  amount_refunded_minor
	  full   2        refunded            full        1000
	  half   2        partially_refunded  half        300
	  none   2        paid                none        0
	  other  2        paid                else        0

	orders
	  tenant_id  id    status              payment_id  amount_refunded_minor
	  acme       both  partially_refunded  both        300
	  acme:eu    both  partially_refunded  both        300

	payments
	  id    order_id  status     amount_refunding_minor  amount_refunded_minor  must_be_refunded
	  must  must      succeeded  500                     300                    true

	refunds
	  id         payment_id  status     stripe_refund_id  version  created_at
	  answered   answered    pending    .                 1        -9h
	  at_stripe  at_stripe   pending    re_1              1        -9h
	  canceled   ended       canceled   .                 2        -7h
	  failed     ended       failed     .                 2        -8h
	  in_flight  in_flight   pending    .                 1        -9h
	  long_ago   long_ago    pending    .                 1        -9h
	  me         itself      pending    .                 1        -9h
	  succeeded  ended       succeeded  re_2              2        -9h

	stripe_call_rows
	  stripe_key                    operation  outcome  last_sent_at
	  acme:eu:key_answered:refund   refund     unknown  -1h
	  acme:eu:key_at_stripe:refund  refund     sent     -1h
	  acme:eu:key_canceled:refund   refund     sent     -1h
	  acme:eu:key_failed:refund     refund     sent     -1h
	  acme:eu:key_in_flight:refund  refund     sent     -1h
	  acme:eu:key_long_ago:refund   refund     sent     -9h
	  acme:eu:key_me:refund         refund     sent     -1h
	  acme:eu:key_succeeded:refund  refund     sent     -1h
`

func TestQueriesOfRefunds(t *testing.T) {
	t.Parallel()
	checkQueries(t, refundRows, []queryCase{
		{rule: "InsertsOne", query: q.RefundInsert, with: db.RefundInsertParams{
			TenantID: tenant, ID: "new", Origin: "api", PaymentID: "none", OrderID: "none", IdempotencyKey: "key",
			StripeKey: tenant + ":key:refund", AmountMinor: 100, Currency: "eur", Reason: ptr("duplicate"),
			CreatedAt: at("-1h"),
		}, want: `
			inserts refunds/new: amount_minor=100 created_at=-1h currency=eur idempotency_key=key order_id=none
				origin=api payment_id=none reason=duplicate status=pending stripe_key=acme:eu:key:refund
				updated_at=now version=1`},
		{rule: "ReadsOne", query: q.RefundGet, with: db.RefundGetParams{TenantID: tenant, ID: "failed"}, want: `
			row ID=failed`},
		{rule: "ReadsEachOfItsTenant", query: q.RefundsRead, with: db.RefundsReadParams{
			TenantIds: []string{tenant, tenant, "ten_other", tenant}, Ids: []string{"failed", "missing", "failed", "succeeded"},
		}, want: `
			row Ordinal=1 Refund=(ID=failed)
			row Ordinal=4 Refund=(ID=succeeded)`},
		{rule: "LocksOne", query: q.RefundLock, with: db.RefundLockParams{TenantID: tenant, ID: "failed"}, want: `
			row ID=failed
			locks refunds/failed`},
		{rule: "ReadsTheOldestFirst", query: q.RefundsOfPayment,
			with: db.RefundsOfPaymentParams{TenantID: tenant, PaymentID: "ended"}, want: `
			row ID=succeeded
			row ID=failed
			row ID=canceled`},
		{rule: "FindsStripesID", query: q.RefundExistsForStripe, each: "re_1 re_9 re_twin", with: func(id string) any {
			return db.RefundExistsForStripeParams{TenantID: tenant, StripeRefundID: ptr(id)}
		}, given: `
			refunds
			  tenant_id  id  stripe_refund_id
			  acme       re_twin  re_twin`, want: `
			re_1: returns true
			re_9: returns false
			re_twin: returns false`},
		{rule: "IsSentAndNotAnswered", query: q.RefundOtherInFlight,
			each: "in_flight answered at_stripe ended itself long_ago",
			with: func(payment string) any {
				return db.RefundOtherInFlightParams{TenantID: tenant, PaymentID: payment, ID: "me", AttemptFor: 5 * time.Hour}
			}, want: `
			in_flight: returns true
			answered: returns false
			at_stripe: returns false
			ended: returns false
			itself: returns false
			long_ago: returns false`},
		{rule: "ComparesTheVersion", query: q.RefundSettle, each: "in_flight at_stripe succeeded",
			with: func(refund string) any {
				return db.RefundSettleParams{TenantID: tenant, ID: refund, SeenVersion: 1, Status: "succeeded",
					StripeRefundID: ptr("re_new")}
			}, want: `
			in_flight: row ID=in_flight
			in_flight: changes refunds/in_flight: status=succeeded stripe_refund_id=re_new updated_at=now
				version=2
			at_stripe: row ID=at_stripe
			at_stripe: changes refunds/at_stripe: status=succeeded updated_at=now version=2
			succeeded: no row`},
		{rule: "RecordsTheIDOnce", query: q.RefundSetStripeID, each: "in_flight at_stripe", with: func(refund string) any {
			return db.RefundSetStripeIDParams{TenantID: tenant, ID: refund, StripeRefundID: ptr("re_new")}
		}, want: `
			in_flight: changes refunds/in_flight: stripe_refund_id=re_new updated_at=now
			at_stripe: nothing`},
		{rule: "TakesWhatIsLeft", query: q.PaymentReserveRefund, each: "full half none processing",
			with: func(payment string) any {
				return db.PaymentReserveRefundParams{TenantID: tenant, ID: payment, AmountMinor: 600, MustBeRefunded: true}
			}, want: `
			full: returns 0
			half: returns 0
			none: returns 1
			none: changes payments/none: amount_refunding_minor=600 must_be_refunded=true updated_at=now
			processing: returns 0`},
		{rule: "ReturnsAnAmount", query: q.PaymentReserveRefund, each: "half none must", with: func(payment string) any {
			return db.PaymentReserveRefundParams{TenantID: tenant, ID: payment, AmountMinor: -200, RefundedMinor: -100}
		}, want: `
			half: returns 1
			half: changes payments/half: amount_refunded_minor=200 amount_refunding_minor=300 updated_at=now
			none: returns 0
			must: returns 1
			must: changes payments/must: amount_refunded_minor=200 amount_refunding_minor=300 updated_at=now`},
		{rule: "SetsTheStatusThatFollows", query: q.OrderApplyRefund, each: "full half none other both",
			with: func(order string) any {
				return db.OrderApplyRefundParams{TenantID: tenant, ID: order, PaymentID: ptr(order), AmountMinor: -300}
			}, first: "UPDATE orders SET amount_refunded_minor = 300 WHERE id = 'none'", want: `
			full: changes orders/full: amount_refunded_minor=700 status=partially_refunded
			half: changes orders/half: amount_refunded_minor=0 status=paid
			none: changes orders/none: amount_refunded_minor=0
			other: nothing
			both: changes orders/both: amount_refunded_minor=0 status=paid`},
		{rule: "RefundsTheRest", query: q.OrderApplyRefund,
			with: db.OrderApplyRefundParams{TenantID: tenant, ID: "half", PaymentID: ptr("half"), AmountMinor: 700}, want: `
			changes orders/half: amount_refunded_minor=1000 status=refunded`},
		{rule: "RefundsTheOrderThatThePaymentPaid", query: q.OrderApplyRefund,
			with: db.OrderApplyRefundParams{TenantID: tenant, ID: "half", PaymentID: ptr("none"), AmountMinor: 700}, want: ``},
	})
}

// What is owed has the name of its payment.
const owedRows = `
	payments
	  id         status     amount_refunding_minor  amount_refunded_minor  must_be_refunded  order_id
	  ended      succeeded  1000                    1000                   true              e
	  new        succeeded  0                       0                      true              n
	  not_must   succeeded  0                       0                      false             nm
	  owed       succeeded  400                     400                    true              o
	  parked     succeeded  1000                    1000                   true              p
	  pending    succeeded  400                     400                    true              pe
	  reopened   succeeded  400                     400                    true              r
	  settled    succeeded  400                     400                    true              s
	  settling   succeeded  400                     400                    true              st
	  used_up    succeeded  0                       0                      true              u
	  used_up_2  succeeded  0                       0                      true              u2
	  waits      succeeded  0                       0                      true              w

	payments
	  tenant_id  id    status     amount_refunding_minor  amount_refunded_minor  order_id
	  acme       both  succeeded  1000                    1000                   b
	  acme       less  succeeded  1000                    1000                   l
	  acme:eu    both  succeeded  1000                    1000                   b
	  acme:eu    less  succeeded  500                     500                    l

	refunds_owed
	  tenant_id  payment_id  next_attempt_at
	  acme       both        +1h
	  acme:eu    both        +1h
	  acme:eu    less        +1h

	refunds_owed
	  payment_id  attempts  settled_minor  next_attempt_at  parked_at  ended_at  last_refund_id  currency
	  ended       1         0              -5h              .          -2h       r_failed        eur
	  owed        1         0              -3h              .          .         r_failed        eur
	  parked      3         0              -4h              -1h        .         r_failed        eur
	  pending     1         0              -6h              .          .         r_pending       eur
	  reopened    1         0              -5h              .          -2h       r_failed        usd
	  settled     1         600            -5h              .          -2h       r_failed        usd
	  settling    1         600            -2h              .          .         r_failed        chf
	  used_up     3         0              -1h              .          .         r_failed        chf
	  used_up_2   3         0              -1h              .          -2h       r_failed        chf
	  waits       1         0              +1h              .          .         r_failed        chf

	refunds
	  id         payment_id  status   origin
	  r_pending  owed        pending  automatic
	  r_auto     owed        failed   automatic
	  r_failed   owed        failed   api
	  r_other    other       failed   automatic
`

func TestQueriesOfRefundsOwed(t *testing.T) {
	t.Parallel()
	pauses := []int64{3600, 7200, 10800}
	checkQueries(t, owedRows, []queryCase{
		{rule: "OwesAFailedRefund", query: q.RefundOwe, each: "new owed parked reopened ended settled used_up",
			with: func(payment string) any {
				return db.RefundOweParams{TenantID: tenant, PaymentID: payment, OrderID: "ord", Currency: "eur",
					LastRefundID: "ref", LastError: "failed again", PauseSeconds: pauses}
			}, want: `
			new: inserts refunds_owed/new: currency=eur last_error=failed again last_refund_id=ref
				next_attempt_at=now+1h order_id=ord since=now
			owed: changes refunds_owed/owed: last_error=failed again next_attempt_at=now+2h
			parked: changes refunds_owed/parked: last_error=failed again next_attempt_at=now parked_at=now
			reopened: changes refunds_owed/reopened: ended_at=null ended_how=null last_error=failed again
				next_attempt_at=now+2h since=now
			ended: locks refunds_owed/ended
			settled: locks refunds_owed/settled
			used_up: changes refunds_owed/used_up: last_error=failed again next_attempt_at=now parked_at=now`},
		{rule: "OwesWhatMustBeRefunded", query: q.RefundOweAgain,
			each: "new not_must missing owed reopened ended settled used_up_2",
			with: func(payment string) any {
				return db.RefundOweAgainParams{TenantID: tenant, PaymentID: payment, LastRefundID: "ref",
					LastError: "failed again", PauseSeconds: pauses}
			}, want: `
			new: inserts refunds_owed/new: currency=eur last_error=failed again last_refund_id=ref
				next_attempt_at=now order_id=n since=now
			not_must: nothing
			missing: nothing
			owed: locks refunds_owed/owed
			reopened: changes refunds_owed/reopened: ended_at=null ended_how=null last_error=failed again
				next_attempt_at=now since=now
			ended: locks refunds_owed/ended
			settled: locks refunds_owed/settled
			used_up_2: changes refunds_owed/used_up_2: ended_at=null ended_how=null last_error=failed again
				next_attempt_at=now parked_at=now since=now`},
		{rule: "EndsWhatWasRefunded", query: q.RefundOwedEnd, each: "ended owed parked settling new both less",
			with: func(payment string) any { return db.RefundOwedEndParams{TenantID: tenant, PaymentID: payment} }, want: `
			ended: nothing
			owed: nothing
			parked: changes refunds_owed/parked: ended_at=now ended_how=refunded parked_at=null
			settling: changes refunds_owed/settling: ended_at=now ended_how=refunded
			new: nothing
			both: changes refunds_owed/both: ended_at=now ended_how=refunded
			less: nothing`},
		{rule: "CountsTheAttempt", query: q.RefundOwedAttempt, each: "ended owed parked", with: func(payment string) any {
			return db.RefundOwedAttemptParams{TenantID: tenant, PaymentID: payment, LastRefundID: "ref"}
		}, want: `
			ended: nothing
			owed: changes refunds_owed/owed: attempts=2 last_refund_id=ref
			parked: changes refunds_owed/parked: attempts=4 last_refund_id=ref parked_at=null`},
		{rule: "TriesLater", query: q.RefundOwedPostpone, each: "ended owed", with: func(payment string) any {
			return db.RefundOwedPostponeParams{TenantID: tenant, PaymentID: payment, Pause: time.Hour}
		}, want: `
			ended: nothing
			owed: changes refunds_owed/owed: next_attempt_at=now+1h`},
		{rule: "ReadsOne", query: q.RefundOwedGet, with: db.RefundOwedGetParams{TenantID: tenant, PaymentID: "owed"},
			show: "PaymentID", want: `
			row PaymentID=owed`},
		{rule: "ReadsWhatIsDueLongestFirst", query: q.RefundsOwedDue, with: int32(99), want: `
			row twin PaymentID=reopened OrderID=ord
			row twin PaymentID=parked OrderID=ord
			row PaymentID=owed OrderID=ord
			row twin PaymentID=used_up OrderID=ord
			row PaymentID=settling OrderID=ord
			row twin PaymentID=used_up_2 OrderID=ord
			row PaymentID=used_up OrderID=ord`},
		{rule: "StopsAtTheLimit", query: q.RefundsOwedDue, with: int32(2), want: `
			row twin PaymentID=reopened OrderID=ord
			row twin PaymentID=parked OrderID=ord`},
		{rule: "SumsPerCurrency", query: q.RefundsOwedStats, want: `
			row Currency=chf Owed=6 OwedMinor=4000
			row Currency=eur Owed=9 OwedMinor=2900
			row Currency=usd`},
		{rule: "CountsAutomaticOnes", query: q.RefundsAutomaticCount,
			with: db.RefundsAutomaticCountParams{TenantID: tenant, PaymentID: "owed"}, want: `
			returns 2`},
	})
}
