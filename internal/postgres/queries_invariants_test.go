package postgres_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/testkit/dbtest"
)

// checkInvariants checks the queries of invariants, each with rows of its own and without the rules of the schema. A
// row that is not in a case's want keeps the invariant, and fails one condition of the query.
func checkInvariants(t *testing.T, cases []queryCase) {
	t.Helper()
	s := newScene(t, "")
	_, err := s.conn.Exec(t.Context(), dbtest.WithoutRules)
	require.NoError(t, err)
	s.check(t, cases)
}

func TestQueriesOfInvariantsOfKeys(t *testing.T) {
	t.Parallel()
	checkInvariants(t, []queryCase{
		{rule: "FindsTwoEffects", query: q.InvariantOneEffectPerKey, any: true, given: `
			payments
			  id      idempotency_key
			  both_p  both
			  one     one
			  two_1   two
			  two_2   two

			payments
			  tenant_id  id    idempotency_key
			  acme       twin  one

			refunds
			  id      idempotency_key
			  both_r  both
			  two_3   two_r
			  two_4   two_r`, want: `
			row Subject=acme:eu 577d9c9e746925ba847ab78a13445108 Detail=one key made two_3, two_4
			row Subject=acme:eu b8a9f715dbb64fd5c56e7783c6820a61 Detail=one key made two_1, two_2`},

		{rule: "ComparesTheResponse", query: q.InvariantSuccessIsKept, with: db.InvariantSuccessIsKeptParams{}, any: true, given: `
			idempotency_keys
			  key         finished_at  operation       answer_status  resource_id  answer_body
			  authorized  -1h          create_payment  201            .            .
			  released    -1h          create_payment  201            .            .
			  lost        -1h          create_payment  201            .            .
			  canceled    -1h          create_payment  201            .            .
			  amount      -1h          create_payment  201            .            .
			  currency    -1h          create_payment  201            .            .
			  declined    -1h          create_payment  402            .            .
			  intent      -1h          create_payment  201            .            .
			  missing     -1h          create_payment  201            .            .
			  order       -1h          create_order    201            .            .
			  other       -1h          create_payment  201            pay_renamed  .
			  processing  -1h          create_payment  201            .            .
			  right       -1h          create_payment  201            .            .
			  unread      -1h          create_payment  201            .            {
			  unread_too  -1h          create_payment  201            .            {

			payments
			  id              status      amount_minor  currency  intent_id
			  pay_authorized  authorized  1000          eur       pi_authorized
			  pay_released    canceled    1000          eur       pi_released
			  pay_lost        failed      1000          eur       pi_lost
			  pay_canceled    canceled    1000          eur       pi_canceled
			  pay_amount      succeeded   999           eur       pi_amount
			  pay_currency    succeeded   1000          usd       pi_currency
			  pay_intent      succeeded   1000          eur       pi_another
			  pay_processing  processing  1000          eur       pi_processing
			  pay_renamed     succeeded   1000          eur       pi_other
			  pay_right       succeeded   1000          eur       pi_right
			  pay_unread_too  succeeded   1000          eur       pi_unread_too

			payments
			  tenant_id  id
			  acme       pay_right`,
			first: `UPDATE idempotency_keys SET answer_body = format('{"id":"pay_%1$s","amount":1000,"currency":"eur",
				"status":"%2$s","stripe":{"payment_intent":"pi_%1$s"}}', key, CASE WHEN key IN ('authorized', 'released', 'lost')
				THEN 'authorized' ELSE 'succeeded' END)::bytea WHERE answer_body = '{}'`, want: `
			row Subject=acme:eu pay_amount Detail=response says paid with 1000 eur, payment is succeeded
			row Subject=acme:eu pay_canceled Detail=response says paid with 1000 eur, payment is canceled
			row Subject=acme:eu pay_currency Detail=response says paid with 1000 eur, payment is succeeded
			row Subject=acme:eu pay_intent Detail=response says paid with 1000 eur, payment is succeeded
			row Subject=acme:eu pay_lost Detail=response says paid with 1000 eur, payment is failed
			row Subject=acme:eu pay_missing Detail=response says paid with 1000 eur, payment is missing
			row Subject=acme:eu pay_processing Detail=response says paid with 1000 eur, payment is processing
			row Subject=acme:eu pay_renamed Detail=response says paid with 1000 eur, payment is succeeded
			row Subject=acme:eu pay_unread Detail=the response cannot be read, payment is missing
			row Subject=acme:eu pay_unread_too Detail=the response cannot be read, payment is succeeded`},

		{rule: "ComparesTheStatus", query: q.InvariantResponseAgrees, with: db.InvariantResponseAgreesParams{}, any: true, given: `
			idempotency_keys
			  key                operation       answer_status  answer_body
			  another            close_account   404            {"status":"1"}
			  authorized         create_payment  201            {"status":"authorized"}
			  authorized_failed  create_payment  201            {"status":"authorized"}
			  authorized_gone    create_payment  201            {"status":"authorized"}
			  authorized_none    create_payment  201            {"status":"authorized"}
			  authorized_paid    create_payment  201            {"status":"authorized"}
			  captured           capture_payment  200           {"status":"succeeded"}
			  captured_gone      capture_payment  200           {"status":"succeeded"}
			  capture_refused    capture_payment  402           {"status":402}
			  cancel_agrees      cancel_payment  200            {"status":"canceled"}
			  cancel_late        cancel_payment  200            {"status":"canceled"}
			  cancel_refused     cancel_payment  409            {"status":409}
			  declined           create_payment  402            {"status":402}
			  declined_canceled  create_payment  402            {"status":402}
			  declined_missing   create_payment  402            {"status":402}
			  declined_paid      create_payment  402            {"status":402}
			  in_progress        create_payment  .              .
			  order_agrees       cancel_order    200            {"status":"canceled"}
			  order_open         cancel_order    200            {"status":"canceled"}
			  order_refused      cancel_order    409            {"status":409}
			  order_created      create_order    201            {"status":"open"}
			  paid               create_payment  201            {"status":"succeeded"}
			  paid_failed        create_payment  201            {"status":"succeeded"}
			  paid_later         create_payment  201            {"status":"succeeded"}
			  paid_missing       create_payment  201            {"status":"succeeded"}
			  problem            create_order    422            {"status":422}
			  problem_of_none    create_order    422            {}
			  problem_of_other   create_order    422            {"status":404}
			  redirect           create_order    301            {"status":301}
			  refund             create_refund   201            {"status":"404"}

			payments
			  id                     status
			  pay_authorized         authorized
			  pay_authorized_failed  failed
			  pay_authorized_gone    canceled
			  pay_authorized_paid    succeeded
			  pay_captured           succeeded
			  pay_captured_gone      canceled
			  pay_capture_refused    authorized
			  pay_cancel_agrees      canceled
			  pay_cancel_late        succeeded
			  pay_cancel_refused     succeeded
			  pay_declined           failed
			  pay_declined_canceled  canceled
			  pay_declined_paid      succeeded
			  pay_in_progress        processing
			  pay_paid               succeeded
			  pay_paid_later         authorized
			  pay_paid_failed        failed

			payments
			  tenant_id  id
			  acme       pay_captured
			  acme       pay_cancel_agrees
			  acme       pay_paid

			orders
			  id                 status
			  pay_order_agrees   canceled
			  pay_order_open     open
			  pay_order_refused  open

			orders
			  tenant_id  id
			  acme       pay_order_agrees`, want: `
			row Subject=acme:eu pay_authorized_failed Detail=create_payment responded 201, body says authorized,
				payment is failed
			row Subject=acme:eu pay_authorized_none Detail=create_payment responded 201, body says authorized,
				nothing exists
			row Subject=acme:eu pay_cancel_late Detail=cancel_payment responded 200, body says canceled, payment
				is succeeded
			row Subject=acme:eu pay_captured_gone Detail=capture_payment responded 200, body says succeeded,
				payment is canceled
			row Subject=acme:eu pay_declined_missing Detail=create_payment responded 402, body says 402, nothing
				exists
			row Subject=acme:eu pay_declined_paid Detail=create_payment responded 402, body says 402, payment is
				succeeded
			row Subject=acme:eu pay_order_open Detail=cancel_order responded 200, body says canceled, order is
				open
			row Subject=acme:eu pay_paid_failed Detail=create_payment responded 201, body says succeeded,
				payment is failed
			row Subject=acme:eu pay_paid_later Detail=create_payment responded 201, body says succeeded,
				payment is authorized
			row Subject=acme:eu pay_paid_missing Detail=create_payment responded 201, body says succeeded,
				nothing exists
			row Subject=acme:eu pay_problem_of_none Detail=create_order responded 422, body says , nothing
				exists
			row Subject=acme:eu pay_problem_of_other Detail=create_order responded 422, body says 404, nothing
				exists
			row Subject=acme:eu pay_refund Detail=create_refund responded 201, body says 404, nothing exists`},

		{rule: "NeedsEachPart", query: q.InvariantResponseIsComplete, with: db.InvariantResponseIsCompleteParams{}, any: true, given: `
			idempotency_keys
			  key         finished_at  answer_dropped_at  answer_version  answer_status  answer_headers   answer_body
			  accepted    -1h          .                  1               202            Content-Type: a  {}
			  bare        -1h          .                  null            null           null             null
			  complete    -1h          .                  1               201            Content-Type: a  {}
			  complete_4  -1h          .                  1               499            Content-Type: a  {}
			  dropped     -1h          -1h                .               .              .                .
			  header      -1h          .                  1               201            Location: /      {}
			  low         -1h          .                  1               199            Content-Type: a  {}
			  high        -1h          .                  1               500            Content-Type: a  {}
			  unfinished  .            .                  .               .              .                .
			  unread      -1h          .                  1               201            Content-Type: a  {
			  version     -1h          .                  2               201            Content-Type: a  {}`,
			want: `
			row Subject=acme:eu pay_accepted Detail=answer version 1, status 202
			row Subject=acme:eu pay_bare Detail=answer version , status
			row Subject=acme:eu pay_header Detail=answer version 1, status 201
			row Subject=acme:eu pay_high Detail=answer version 1, status 500
			row Subject=acme:eu pay_low Detail=answer version 1, status 199
			row Subject=acme:eu pay_unread Detail=answer version 1, status 201
			row Subject=acme:eu pay_version Detail=answer version 2, status 201`},

		{rule: "ComparesTheKey", query: q.InvariantKeyServesOneRequest, any: true, given: `
			idempotency_keys
			  key      operation        resource_id
			  key      create_payment   .
			  refund   create_refund    .
			  right    create_payment   .
			  capture  capture_payment  .
			  changed  capture_payment  pay_changed
			  returns  create_payment   rfd_1

			refunds
			  id     idempotency_key  origin
			  rfd_1  returns          api

			payments
			  id           idempotency_key  order_id
			  pay_key      other            ord
			  pay_refund   another          ord_2
			  pay_right    right            ord_3
			  pay_changed  changed          ord_4

			payments
			  tenant_id  id
			  acme       pay_right`, want: `
			row Subject=acme:eu pay_changed Detail=the key that made the payment is one of capture_payment
			row Subject=acme:eu pay_key Detail=the payment has another key than the one that made it
			row Subject=acme:eu rfd_1 Detail=the key that made the refund is one of create_payment`},

		{rule: "FindsWhatIsOverdue", query: q.InvariantNoKeyIsStuck, any: true, given: `
			idempotency_keys
			  key       next_attempt_at  leased_until  finished_at  parked_at  last_error
			  finished  -1h              -1h           -1h          .          timeout
			  leased    -1h              +1h           .            .          timeout
			  parked    -1h              -1h           .            -1h        timeout
			  stuck     -1h              -1h           .            .          timeout
			  waits     +1h              -1h           .            .          timeout`, want: `
			row Subject=acme:eu pay_stuck Detail=create_payment at started, due since -1h timeout`},

		{rule: "FindsWhatIsParked", query: q.InvariantNothingIsParked, any: true, given: `
			idempotency_keys
			  key       parked_at  finished_at  last_error
			  finished  -1h        -1h          .
			  parked    -1h        .            bug
			  running   .          .            .

			outbox_events
			  aggregate_id  version  parked_at  last_error
			  ord           1        .          .
			  ord           2        -2h        too large

			inbox_events
			  event_id  status   last_error
			  evt_1     pending  .
			  evt_2     parked   no order

			refunds_owed
			  payment_id  parked_at
			  pay_1       .
			  pay_2       -3h`, want: `
			row Subject=acme:eu ord 2 Detail=order.created not published: too large
			row Subject=acme:eu pay_2 Detail=a refund is owed and parked: declined
			row Subject=acme:eu pay_parked Detail=create_payment parked at -1h bug
			row Subject=stripe evt_2 Detail=payment_intent.succeeded not applied: no order`},

		{rule: "FindsTokensOutOfOrder", query: q.InvariantTokensOnlyGrow, any: true, given: `
			idempotency_keys
			  key       lease_token  history
			  a_shrink  2            {2 started,1 paid}
			  beyond    1            {2 started}
			  finished  3            {2 finished}
			  grows     3            {1 started,1 paid,3 finished}
			  unread    1            {x started}
			  zero      1            {0 started}`, want: `
			row Subject=acme:eu pay_a_shrink Detail=token 2, history 2 started | 1 paid
			row Subject=acme:eu pay_beyond Detail=token 1, history 2 started
			row Subject=acme:eu pay_finished Detail=token 3, history 2 finished
			row Subject=acme:eu pay_unread Detail=token 1, history x started
			row Subject=acme:eu pay_zero Detail=token 1, history 0 started`},

		{rule: "FindsALostKey", query: q.InvariantKeyIsRetained, any: true, given: `
			payments
			  id         idempotency_key  created_at
			  kept       kept             -9h
			  lost       lost             -9h
			  old        old              -99999h
			  recovered  adopted pi_1     -9h

			refunds
			  id         idempotency_key
			  automatic  refund_retry x
			  kept       kept
			  lost       lost

			idempotency_keys
			  key        finished_at  answer_dropped_at
			  dropped    -9h          -1h
			  kept       .            .
			  unclaimed  .            -1h

			idempotency_keys
			  tenant_id  key
			  acme       lost`, want: `
			row Subject=acme:eu lost Detail=its key was deleted
			row Subject=acme:eu lost Detail=its key was deleted
			row Subject=acme:eu pay_unclaimed Detail=a tombstone, but not finished`},

		{rule: "FindsWhatNothingEnds", query: q.InvariantUnfinishedHasKey, any: true, given: `
			payments
			  id           idempotency_key  status
			  continues    running          processing
			  failed       missing_1        failed
			  processing   missing_2        processing
			  waits        finished         requires_action
			  without_key  of_the_twin      processing

			refunds
			  id          idempotency_key  status
			  continues   running          pending
			  pending     missing_1        pending
			  succeeded   missing_2        succeeded

			idempotency_keys
			  key       finished_at
			  running   .
			  finished  -1h

			idempotency_keys
			  tenant_id  key
			  acme       of_the_twin`, want: `
			row Subject=acme:eu pending Detail=pending, without an unfinished key
			row Subject=acme:eu processing Detail=processing, without an unfinished key
			row Subject=acme:eu waits Detail=requires_action, without an unfinished key
			row Subject=acme:eu without_key Detail=processing, without an unfinished key`},
	})
}

func TestQueriesOfInvariantsOfOrders(t *testing.T) {
	t.Parallel()
	checkInvariants(t, []queryCase{
		{rule: "FindsWhatIsPaidTwice", query: q.InvariantOrderPaidOnce, any: true, given: `
			payments
			  id        order_id  intent_id   status
			  failed    once      pi_once     failed
			  once      once      pi_once     succeeded
			  shared_1  a         pi_shared   succeeded
			  shared_2  b         pi_shared   succeeded
			  twice_1   twice     pi_twice_1  succeeded
			  twice_2   twice     pi_twice_2  succeeded

			payments
			  tenant_id  id    order_id  intent_id  status
			  acme       once  once      pi_once    succeeded`, want: `
			row Subject=acme:eu pi_shared Detail=pays for shared_1, shared_2
			row Subject=acme:eu twice Detail=2 payments succeeded: twice_1, twice_2`},

		{rule: "FindsAChargeOfTwo", query: q.InvariantChargePaysOnce, any: true, given: `
			payments
			  id         charge_id  intent_id  status
			  attempt_1  ch_b       pi_b       failed
			  attempt_2  ch_b       pi_b       succeeded
			  both_1     ch_a       pi_a       succeeded
			  both_2     ch_a       pi_a       succeeded
			  charged    ch_c       pi_c       succeeded
			  failed_1   ch_d       pi_d       failed
			  failed_2   ch_d       pi_e       failed
			  other      ch_c       pi_f       failed
			  tenants    ch_g       pi_g       succeeded
			  uncharged  .          pi_h       succeeded

			payments
			  tenant_id  id       charge_id  intent_id  status
			  acme       tenants  ch_g       pi_g       succeeded`, want: `
			row Subject=acme tenants Detail=ch_g is also the charge of acme:eu tenants
			row Subject=acme:eu both_1 Detail=ch_a is also the charge of acme:eu both_2
			row Subject=acme:eu both_2 Detail=ch_a is also the charge of acme:eu both_1
			row Subject=acme:eu charged Detail=ch_c is also the charge of acme:eu other
			row Subject=acme:eu tenants Detail=ch_g is also the charge of acme tenants`},

		{rule: "FindsAnAuthorizationWithoutItsOrderOrItsEnd", query: q.InvariantAuthorizationHasOneEnd, any: true, given: `
			orders
			  id         status
			  alone      authorized
			  both       authorized
			  captured   paid
			  expired    authorized
			  held       authorized
			  left       authorized
			  open       open

			orders
			  tenant_id  id    status
			  acme       open  authorized

			payments
			  id            order_id  status      capture_before  capturing_key
			  pay_both      both      authorized  -1h             .
			  pay_captured  captured  succeeded   .               .
			  pay_expired   expired   authorized  -26h            .
			  pay_held      held      authorized  -1h             running
			  pay_left      left      authorized  -1h             done
			  pay_done      captured  canceled    -26h            .
			  pay_open      open      authorized  -1h             .

			idempotency_keys
			  key      finished_at
			  done     -1h
			  running  .

			idempotency_keys
			  tenant_id  key   finished_at
			  acme       done  .`, want: `
			row Subject=acme open Detail=order is authorized, payment  is
			row Subject=acme:eu alone Detail=order is authorized, payment  is
			row Subject=acme:eu open Detail=order is open, payment pay_open is authorized
			row Subject=acme:eu pay_expired Detail=authorized until -26h
			row Subject=acme:eu pay_left Detail=a capture or cancel works on it, and its key has ended`},

		{rule: "ComparesThePayment", query: q.InvariantOrderAgreesWithPayment, any: true, given: `
			orders
			  id             status              amount_refunded_minor  payment_id
			  amount         paid                0                      pay_amount
			  canceled       canceled            0                      .
			  currency       paid                0                      pay_currency
			  given_back     canceled            0                      .
			  half           partially_refunded  300                    pay_half
			  half_of_none   partially_refunded  0                      pay_half_of_none
			  late           canceled            0                      .
			  missing        paid                0                      pay_missing
			  not_refunded   refunded            0                      pay_not_refunded
			  open           open                0                      .
			  open_paid      open                0                      .
			  other          paid                0                      pay_another
			  owed           canceled            0                      .
			  paid           paid                0                      pay_paid
			  paid_refunded  paid                300                    pay_paid_refunded
			  refunded       refunded            1000                   pay_refunded
			  refunds        partially_refunded  300                    pay_refunds
			  settled        canceled            0                      .
			  settled_less   canceled            0                      .

			payments
			  id                 order_id       status     amount_minor  currency  amount_refunding_minor  amount_refunded_minor
			  pay_amount         amount         succeeded  900           eur       0                       0
			  pay_currency       currency       succeeded  1000          usd       0                       0
			  pay_given_back     given_back     succeeded  1000          eur       1000                    300
			  pay_half           half           succeeded  1000          eur       300                     300
			  pay_half_of_none   half_of_none   succeeded  1000          eur       0                       0
			  pay_late           late           succeeded  1000          eur       300                     300
			  pay_not_refunded   not_refunded   succeeded  1000          eur       0                       0
			  pay_open           open           failed     1000          eur       0                       0
			  pay_open_paid      open_paid      succeeded  1000          eur       0                       0
			  pay_other          other          succeeded  1000          eur       0                       0
			  pay_owed           owed           succeeded  1000          eur       300                     300
			  pay_paid           paid           succeeded  1000          eur       0                       0
			  pay_paid_refunded  paid_refunded  succeeded  1000          eur       300                     300
			  pay_refunded       refunded       succeeded  1000          eur       1000                    1000
			  pay_refunds        refunds        succeeded  1000          eur       300                     200
			  pay_settled        settled        succeeded  1000          eur       300                     300
			  pay_settled_less   settled_less   succeeded  1000          eur       300                     300

			payments
			  tenant_id  id     order_id  status
			  acme       pay_1  open      succeeded

			refunds_owed
			  payment_id        ended_at  settled_minor
			  pay_owed          .         0
			  pay_settled       -1h       700
			  pay_settled_less  -1h       600

			refunds_owed
			  tenant_id  payment_id
			  acme       pay_late`, want: `
			row Subject=acme:eu amount Detail=paid of 1000 eur, refunded 0; payment pay_amount succeeded of 900
				eur, refunded 0
			row Subject=acme:eu currency Detail=paid of 1000 eur, refunded 0; payment pay_currency succeeded of
				1000 usd, refunded 0
			row Subject=acme:eu half_of_none Detail=partially_refunded of 1000 eur, refunded 0; payment
				pay_half_of_none succeeded of 1000 eur, refunded 0
			row Subject=acme:eu late Detail=canceled of 1000 eur, refunded 0; payment pay_late succeeded of 1000
				eur, refunded 300
			row Subject=acme:eu missing Detail=paid of 1000 eur, refunded 0; payment pay_missing  of  , refunded
			row Subject=acme:eu not_refunded Detail=refunded of 1000 eur, refunded 0; payment pay_not_refunded
				succeeded of 1000 eur, refunded 0
			row Subject=acme:eu open_paid Detail=open of 1000 eur, refunded 0; payment pay_open_paid succeeded
				of 1000 eur, refunded 0
			row Subject=acme:eu other Detail=paid of 1000 eur, refunded 0; payment pay_another succeeded of 1000
				eur, refunded 0
			row Subject=acme:eu paid_refunded Detail=paid of 1000 eur, refunded 300; payment pay_paid_refunded
				succeeded of 1000 eur, refunded 300
			row Subject=acme:eu refunds Detail=partially_refunded of 1000 eur, refunded 300; payment pay_refunds
				succeeded of 1000 eur, refunded 200
			row Subject=acme:eu settled_less Detail=canceled of 1000 eur, refunded 0; payment pay_settled_less
				succeeded of 1000 eur, refunded 300`},

		{rule: "ComparesTheSums", query: q.InvariantRefundsAddUp, any: true, given: `
			payments
			  id         order_id  status     amount_refunding_minor  amount_refunded_minor
			  beyond     ord       succeeded  1100                    1100
			  currency   ord       succeeded  300                     300
			  none       ord       succeeded  0                       0
			  order      ord       succeeded  300                     300
			  refunded   ord       succeeded  300                     200
			  refunding  ord       succeeded  500                     300
			  unmade     ord       succeeded  300                     0
			  unmade_2   ord       succeeded  0                       300
			  right      ord       succeeded  600                     300

			payments
			  tenant_id  id     order_id  currency
			  acme       right  another   usd

			refunds
			  id  payment_id  order_id  status     amount_minor  currency
			  1   beyond      ord       succeeded  1100          eur
			  2   currency    ord       succeeded  300           usd
			  3   order       another   succeeded  300           eur
			  4   refunded    ord       succeeded  300           eur
			  5   refunding   ord       succeeded  300           eur
			  6   right       ord       succeeded  300           eur
			  7   right       ord       pending    300           eur
			  8   right       ord       failed     100           eur
			  9   right       ord       canceled   100           eur`, want: `
			row Subject=acme:eu beyond Detail=1000 eur, refunding 1100 (1100), refunded 1100 (1100)
			row Subject=acme:eu currency Detail=1000 eur, refunding 300 (300), refunded 300 (300)
			row Subject=acme:eu order Detail=1000 eur, refunding 300 (300), refunded 300 (300)
			row Subject=acme:eu refunded Detail=1000 eur, refunding 300 (300), refunded 200 (300)
			row Subject=acme:eu refunding Detail=1000 eur, refunding 500 (300), refunded 300 (300)
			row Subject=acme:eu unmade Detail=1000 eur, refunding 300 (0), refunded 0 (0)
			row Subject=acme:eu unmade_2 Detail=1000 eur, refunding 0 (0), refunded 300 (0)`},

		{rule: "FindsWhatIsForgotten", query: q.InvariantOwedIsNotForgotten, any: true, given: `
			payments
			  id         must_be_refunded  amount_refunding_minor  amount_refunded_minor
			  asked      false             0                       0
			  automatic  false             0                       0
			  back       true              1000                    1000
			  due        true              0                       0
			  ended      true              500                     500
			  forgotten  true              0                       0
			  last       true              0                       0
			  over       false             500                     300
			  owed       true              0                       0
			  parked     true              0                       0
			  pending    true              0                       0
			  provider   false             500                     500
			  settled    true              300                     300

			payments
			  tenant_id  id       must_be_refunded  amount_refunding_minor
			  acme       asked    true              0
			  acme       settled  false             500

			refunds
			  id           payment_id  origin     status
			  r_api        over        api        pending
			  r_asked      asked       api        failed
			  r_automatic  automatic   automatic  canceled
			  r_back       back        api        failed
			  r_ended      ended       api        failed
			  r_due        due         api        failed
			  r_forgotten  forgotten   api        failed
			  r_last       last        api        pending
			  r_owed       owed        api        failed
			  r_parked     parked      api        canceled
			  r_pending    pending     automatic  pending
			  r_provider   provider    provider   pending
			  r_settled    settled     api        failed

			refunds
			  tenant_id  id      payment_id  origin    status
			  acme       r_api   over        provider  pending
			  acme       r_last  none        api       failed

			refunds_owed
			  payment_id  last_refund_id  settled_minor  next_attempt_at  parked_at  ended_at
			  due         r_due           0              -1h              .          .
			  ended       r_ended         400            -1h              .          -1h
			  last        r_last          0              -1h              .          .
			  over        r_api           600            +1h              .          .
			  owed        r_owed          0              +1h              .          .
			  parked      r_parked        0              -1h              -1h        .
			  provider    r_provider      600            +1h              .          .
			  settled     r_settled       700            -1h              .          -1h

			refunds_owed
			  tenant_id  payment_id
			  acme       forgotten`, want: `
			row Subject=acme:eu due Detail=a refund is owed, due since -1h declined
			row Subject=acme:eu over Detail=500 of 1000 refunded and 600 settled in another way
			row Subject=acme:eu r_automatic Detail=refund of 100 eur canceled, and nobody owes it
			row Subject=acme:eu r_ended Detail=refund of 100 eur failed, and nobody owes it
			row Subject=acme:eu r_forgotten Detail=refund of 100 eur failed, and nobody owes it`},

		{rule: "ComparesTheSum", query: q.InvariantItemsSumToAmount, any: true, given: `
			orders
			  id        items
			  empty     []
			  object    {"quantity":2,"unit_amount":500}
			  other     [{"quantity":1,"unit_amount":500}]
			  quantity  [{"quantity":"2","unit_amount":500}]
			  right     [{"quantity":1,"unit_amount":400},{"quantity":2,"unit_amount":300}]
			  unit      [{"quantity":2,"unit_amount":"500"}]`, want: `
			row Subject=acme:eu empty Detail=amount 1000, items sum to nothing readable
			row Subject=acme:eu object Detail=amount 1000, items sum to nothing readable
			row Subject=acme:eu other Detail=amount 1000, items sum to 500
			row Subject=acme:eu quantity Detail=amount 1000, items sum to nothing readable
			row Subject=acme:eu unit Detail=amount 1000, items sum to nothing readable`},

		{rule: "FindsWhatTheTenantDoesNotHave", query: q.InvariantReferencesStayInTheTenant, any: true, given: `
			orders
			  tenant_id  id
			  acme       theirs
			  acme:eu    ours
			  gone       lost

			payments
			  id       order_id
			  ours     ours
			  strange  theirs

			payments
			  tenant_id  id      order_id
			  acme       theirs  theirs

			refunds
			  id       payment_id
			  ours     ours
			  strange  theirs

			stripe_call_rows
			  stripe_key            operation
			  acme:eu:ours:confirm  confirm
			  acme:theirs:confirm   confirm`, want: `
			row Subject=acme:eu confirm Detail=refers to acme:theirs:confirm, which the tenant does not have
			row Subject=acme:eu strange Detail=refers to theirs, which the tenant does not have
			row Subject=acme:eu strange Detail=refers to theirs, which the tenant does not have
			row Subject=gone lost Detail=refers to gone, which the tenant does not have`},
	})
}

func TestQueriesOfInvariantsOfEvents(t *testing.T) {
	t.Parallel()
	checkInvariants(t, []queryCase{
		// The tenant has all its events, its twin those since -5h, and a third tenant none.
		{rule: "CountsTheEvents", query: q.InvariantVersionsHaveEvents, any: true, given: `
			event_feeds
			  tenant_id  last_position  removed_through
			  acme       9              5
			  acme:eu    9              0
			  empty      9              9

			orders
			  tenant_id  id       version  created_at
			  acme       cut      2        -9h
			  acme       new      1        -5h
			  acme       old      1        -7h
			  acme:eu    ahead    1        -9h
			  acme:eu    behind   2        -9h
			  acme:eu    cut      2        -9h
			  acme:eu    gap      3        -9h
			  acme:eu    missing  1        -9h
			  acme:eu    right    2        -9h
			  empty      old      1        -9h

			payments
			  id           version
			  pay_missing  1
			  pay_right    1

			refunds
			  id           version
			  ref_missing  1
			  ref_right    1

			outbox_events
			  tenant_id  aggregate_id  version  created_at
			  acme       cut           2        -5h
			  acme:eu    ahead         1        -9h
			  acme:eu    ahead         2        -9h
			  acme:eu    behind        1        -9h
			  acme:eu    cut           2        -9h
			  acme:eu    gap           1        -9h
			  acme:eu    gap           3        -9h
			  acme:eu    of_nothing    1        -9h
			  acme:eu    pay_right     1        -9h
			  acme:eu    ref_right     1        -9h
			  acme:eu    right         1        -9h
			  acme:eu    right         2        -9h`, want: `
			row Subject=acme new Detail=version 1, 0 events from  to
			row Subject=acme:eu ahead Detail=version 1, 2 events from 1 to 2
			row Subject=acme:eu behind Detail=version 2, 1 events from 1 to 1
			row Subject=acme:eu cut Detail=version 2, 1 events from 2 to 2
			row Subject=acme:eu gap Detail=version 3, 2 events from 1 to 3
			row Subject=acme:eu missing Detail=version 1, 0 events from  to
			row Subject=acme:eu of_nothing Detail=version , 1 events from 1 to 1
			row Subject=acme:eu pay_missing Detail=version 1, 0 events from  to
			row Subject=acme:eu ref_missing Detail=version 1, 0 events from  to`},

		{rule: "ComparesTheStatus", query: q.InvariantLastEventAgrees, any: true, given: `
			orders
			  id         version  status
			  authorized  2       authorized
			  canceled   2        canceled
			  full       4        refunded
			  half       3        partially_refunded
			  o_differs  2        canceled
			  open       1        open
			  paid       2        paid

			orders
			  tenant_id  id    version  status
			  acme       paid  2        canceled

			payments
			  id          version  status
			  failed      2        failed
			  p_differs   2        succeeded
			  processing  1        processing

			refunds
			  id           version  status
			  r_canceled   3        canceled
			  r_differs    2        succeeded
			  r_failed     2        failed
			  r_pending    1        pending
			  r_succeeded  2        succeeded

			outbox_events
			  aggregate_id  version  type
			  authorized    1        order.created
			  authorized    2        order.authorized
			  canceled      1        order.created
			  canceled      2        order.canceled
			  failed        2        payment.failed
			  full          4        order.paid
			  half          3        order.paid
			  o_differs     2        order.paid
			  open          1        order.created
			  p_differs     2        payment.failed
			  paid          1        order.created
			  paid          2        order.paid
			  processing    1        payment.created
			  r_canceled    3        refund.failed
			  r_differs     2        refund.failed
			  r_failed      2        refund.failed
			  r_pending     1        refund.created
			  r_succeeded   2        refund.succeeded`, want: `
			row Subject=acme:eu o_differs Detail=is canceled, and its last event is order.paid
			row Subject=acme:eu p_differs Detail=is succeeded, and its last event is payment.failed
			row Subject=acme:eu r_differs Detail=is succeeded, and its last event is refund.failed`},

		{rule: "FindsWhatIsLate", query: q.InvariantEventsArePublished, any: true, given: `
			outbox_events
			  aggregate_id  version  created_at  published_at  parked_at  last_error
			  late          1        -1h         .             .          no broker
			  parked        1        -1h         .             -1h        .
			  published     1        -1h         -1h           .          .
			  recent        1        +1h         .             .          .`, want: `
			row Subject=acme:eu late 1 Detail=order.created of -1h no broker`},

		{rule: "FindsWhatIsLate", query: q.InvariantReceivedIsApplied, any: true, given: `
			inbox_events
			  consumer  event_id    status   subject  version  leased_until  received_at  last_error
			  ledger    after-2     pending  after    2        -1h           -1h          .
			  ledger    after-3     parked   after    3        -1h           -1h          .
			  ledger    apart-2     pending  apart    2        -1h           -1h          .
			  ledger    blocked-1   parked   blocked  1        -1h           -1h          .
			  ledger    blocked-2   pending  blocked  2        -1h           -1h          .
			  ledger    done-1      done     done     1        -1h           -1h          .
			  ledger    done-2      pending  done     2        -1h           -1h          .
			  ledger    late        pending  .        .        -1h           -1h          no order
			  ledger    leased      pending  .        .        +1h           -1h          .
			  ledger    recent      pending  .        .        -1h           +1h          .
			  other     apart-1     parked   apart    1        -1h           -1h          .
			  stripe    evt_1       pending  .        .        -1h           -1h          .`, want: `
			row Subject=ledger after-2 Detail=payment_intent.succeeded received -1h, 0 attempts
			row Subject=ledger apart-2 Detail=payment_intent.succeeded received -1h, 0 attempts
			row Subject=ledger done-2 Detail=payment_intent.succeeded received -1h, 0 attempts
			row Subject=ledger late Detail=payment_intent.succeeded received -1h, 0 attempts no order`},

		{rule: "FindsWhatIsLate", query: q.InvariantWebhookIsApplied, any: true, given: `
			inbox_events
			  consumer  event_id  status   leased_until  received_at  last_error
			  ledger    other     pending  -1h           -1h          .
			  stripe    done      done     -1h           -1h          .
			  stripe    late      pending  -1h           -1h          no payment
			  stripe    leased    pending  +1h           -1h          .
			  stripe    recent    pending  -1h           +1h          .`, want: `
			row Subject=stripe late Detail=payment_intent.succeeded received -1h, 0 attempts no payment`},

		{rule: "FindsWhatIsNotAllowed", query: q.InvariantTransitionsAreLegal, any: true, given: `
			outbox_events
			  aggregate_id  version  type
			  after_end     1        order.created
			  after_end     2        order.canceled
			  after_end     3        order.paid
			  canceled      1        order.created
			  canceled      2        order.canceled
			  cut           7        payment.unknown
			  first         1        order.paid
			  ord           1        order.created
			  ord           2        order.paid
			  pay_1         1        payment.created
			  pay_1         2        payment.requires_action
			  pay_1         3        payment.succeeded
			  pay_2         1        payment.created
			  pay_2         2        payment.requires_action
			  pay_2         3        payment.failed
			  pay_3         1        payment.created
			  pay_3         2        payment.requires_action
			  pay_3         3        payment.canceled
			  pay_4         1        payment.created
			  pay_4         2        payment.succeeded
			  pay_5         1        payment.created
			  pay_5         2        payment.failed
			  pay_6         1        payment.created
			  pay_6         2        payment.canceled
			  ref_1         1        refund.created
			  ref_1         2        refund.succeeded
			  ref_1         3        refund.failed
			  ref_2         1        refund.created
			  ref_2         2        refund.failed
			  second        2        order.created

			outbox_events
			  tenant_id  aggregate_id  version  type
			  acme       ord           3        order.canceled`, want: `
			row Subject=acme:eu after_end Detail=order.paid as version 3 after order.canceled
			row Subject=acme:eu first Detail=order.paid as version 1 after nothing
			row Subject=acme:eu second Detail=order.created as version 2 after nothing`},
	})
}

func TestQueriesOfInvariantsOfCalls(t *testing.T) {
	t.Parallel()
	checkInvariants(t, []queryCase{
		{rule: "NeedsTheCall", query: q.InvariantCallBeforeEffect, any: true, given: `
			payments
			  id         idempotency_key  status
			  called     called           succeeded
			  failed     uncalled         failed
			  recovered  adopted pi_1     succeeded
			  twins      twins            succeeded

			refunds
			  id           idempotency_key  status     stripe_key
			  r_called     called           succeeded  acme:eu:called:confirm
			  r_failed     uncalled         failed     acme:eu:uncalled:refund
			  r_recovered  adopted re_1     succeeded  acme:eu:adopted:refund
			  r_twins      twins            succeeded  acme:eu:twins:refund

			stripe_call_rows
			  tenant_id  stripe_key
			  acme       acme:eu:twins:confirm
			  acme       acme:eu:twins:refund
			  acme:eu    acme:eu:called:confirm`, want: `
			row Subject=acme:eu r_twins Detail=no call is recorded for re_r_twins
			row Subject=acme:eu twins Detail=no call is recorded for pi_twins`},

		{rule: "FindsWhatIsSentAgain", query: q.InvariantNothingIsResentLate, any: true, given: `
			stripe_call_rows
			  stripe_key          operation  resource_id  first_sent_at  last_sent_at
			  acme:eu:a:confirm   confirm    a            -23h           -0h
			  acme:eu:a:refund    refund     a            -9h            -9h
			  acme:eu:b:confirm   confirm    b            -24h           -0h
			  acme:eu:c1:cancel   cancel     c            -9h            -9h
			  acme:eu:c2:cancel   cancel     c            -9h            -9h
			  acme:eu:d1:confirm  confirm    d            -9h            -9h
			  acme:eu:d2:confirm  confirm    d            -9h            -9h
			  acme:eu:e1:refund   refund     e            -9h            -9h
			  acme:eu:e2:refund   refund     e            -9h            -9h

			stripe_call_rows
			  tenant_id  stripe_key      operation  resource_id
			  acme       acme:a:confirm  confirm    a`, want: `
			row Subject=acme:eu 98c795dd9a3834999abf35e912ca3c0b Detail=confirm of b first sent -24h, last start
			row Subject=acme:eu d Detail=2 keys for one confirm
			row Subject=acme:eu e Detail=2 keys for one refund`},
		{rule: "FindsASecondFirstAttempt", query: q.InvariantNothingIsResentLate, any: true, given: `
			payments
			  id     order_id  status      intent_number  failure_code   create_sent_at
			  a      o_a       failed      1              card_declined  -9h
			  again  o_a       processing  1              .              -8h
			  b      o_b       failed      1              card_declined  -9h
			  next   o_b       processing  2              .              -8h`,
			want: `
			row Subject=acme:eu d991e7a52f5811d11b1c89cd55587e35 Detail=2 first attempts of one create_intent`},

		{rule: "FindsAFailureTooEarly", query: q.InvariantNoFailureWhileUnknown, any: true, given: `
			idempotency_keys
			  key      answer_status
			  created  409
			  done     409
			  ended    201
			  refund   409
			  sent     400
			  twins    409
			  unknown  409

			payments
			  id        idempotency_key  status     intent_closed
			  canceled  p_sent           canceled   false
			  closed    p_closed         failed     true
			  failed    p_unknown        failed     false
			  paid      p_paid           succeeded  false
			  refused   p_refused        failed     false
			  twins     p_twins          failed     false

			stripe_call_rows
			  tenant_id  stripe_key                 outcome
			  acme       acme:eu:p_twins:confirm    unknown
			  acme       acme:eu:twins:confirm      unknown
			  acme:eu    acme:eu:created:create     unknown
			  acme:eu    acme:eu:done:confirm       done
			  acme:eu    acme:eu:ended:confirm      unknown
			  acme:eu    acme:eu:p_closed:confirm   unknown
			  acme:eu    acme:eu:p_paid:confirm     unknown
			  acme:eu    acme:eu:p_refused:confirm  refused
			  acme:eu    acme:eu:p_sent:confirm     sent
			  acme:eu    acme:eu:p_unknown:confirm  unknown
			  acme:eu    acme:eu:refund:refund      unknown
			  acme:eu    acme:eu:sent:confirm       sent
			  acme:eu    acme:eu:unknown:confirm    unknown`, want: `
			row Subject=acme:eu canceled Detail=canceled while its confirm is sent
			row Subject=acme:eu failed Detail=failed while its confirm is unknown
			row Subject=acme:eu pay_refund Detail=responded 409 while confirm is unknown
			row Subject=acme:eu pay_sent Detail=responded 400 while confirm is sent
			row Subject=acme:eu pay_unknown Detail=responded 409 while confirm is unknown`},

		{rule: "NeedsAClosedIntent", query: q.InvariantSecretEndsWithItsPayment, any: true, given: `
			payments
			  id         status     intent_closed  intent_id
			  canceled   canceled   false          pi_1
			  closed     failed     true           pi_2
			  failed     failed     false          pi_3
			  kept       failed     false          pi_4
			  paid       succeeded  false          pi_5
			  twins      failed     false          pi_6
			  unmade     failed     false          .

			outbox_events
			  aggregate_id  version  type
			  canceled      2        payment.requires_action
			  closed        2        payment.requires_action
			  failed        2        payment.requires_action
			  kept          2        payment.failed
			  paid          2        payment.requires_action
			  unmade        2        payment.requires_action

			outbox_events
			  tenant_id  aggregate_id  version  type
			  acme       twins         2        payment.requires_action`, want: `
			row Subject=acme:eu canceled Detail=canceled while pi_1 can be paid
			row Subject=acme:eu failed Detail=failed while pi_3 can be paid`},
	})
}
