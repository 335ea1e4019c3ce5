package postgres_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"example.com/payonce/db"
)

// An order can be paid if it is open, not being canceled, not a checkout's, has not retired the PaymentIntent, and no
// payment occupies it. Each of the others fails one of these.
const orderRows = `
	orders
	  id           version  status    canceling_key  checkout_id  intents_retired  payment_id
	  by_checkout  1        open      .              chk          0                .
	  canceled     2        canceled  .              .            0                .
	  canceling    1        open      cancel_1       .            0                .
	  confirming   1        open      .              .            0                .
	  open         1        open      .              .            0                .
	  paid         2        paid      .              .            0                succeeded
	  retired      1        open      .              .            2                .
	  several      1        open      .              .            0                .
	  taken        1        open      .              .            0                .
	  touched      2        open      .              .            0                .

`

// The payments have their order's name, or that of their state. Those of order several share it.
const paymentRows = orderRows + `
	payments
	  id          order_id    status           version  intent_number  intent_id  intent_closed  intent_spent
	  changed     changed     processing       2        1              .          .              .
	  confirming  confirming  processing       1        1              pi_c       .              .
	  failed      open        failed           2        1              pi_open    .              .
	  moved       moved       processing       1        2              .          .              .
	  several_0   several     failed           2        1              pi_s0      .              .
	  several_1   several     failed           2        1              pi_s1      true           false
	  several_2   several     failed           2        2              pi_s2      true           true
	  several_3   several     failed           2        2              .          false          false
	  several_4   several     canceled         2        2              pi_s2      false          false
	  succeeded   paid        succeeded        2        1              pi_paid    false          .
	  taken       taken       processing       1        1              .          .              .
	  waits       waits       requires_action  1        1              .          .              .

	payments
	  tenant_id  id         order_id  status           intent_number  intent_id
	  acme       a_twins    open      requires_action  9              pi_twins
	  acme       a_twins_2  several   processing       9              pi_s2
	  acme:eu    a_early    other     failed           1              pi_early
	  acme:eu    b_first    other     failed           1              pi_first
	  acme:eu    a_later    other     failed           2              pi_later
	  acme:eu    other_s2   other     failed           1              pi_s2
	  acme:eu    own        several   failed           2              pi_own

	idempotency_keys
	  key       lease_token  resource_id  finished_at
	  finished  3            .            -1h
	  held      3            .            .
	  stale     4            .            .
	  another   3            .            .

	stripe_call_rows
	  stripe_key               operation
	  acme:eu:another:confirm  confirm
	  acme:eu:created:create   create
	  acme:eu:held:confirm     confirm
	  acme:eu:open:create      create
`

func TestQueriesOfPayments(t *testing.T) {
	t.Parallel()
	begin := func(orders ...string) (p db.PaymentBeginParams) {
		for i, order := range orders {
			id := strings.Repeat("'", i) // pay, pay', pay'': one for each order
			p.Keys, p.TenantIds = append(p.Keys, "new"+id), append(p.TenantIds, tenant)
			p.OrderIds, p.Operations = append(p.OrderIds, order), append(p.Operations, "create_payment")
			p.Fingerprints = append(p.Fingerprints, make([]byte, 32))
			p.FingerprintVersions = append(p.FingerprintVersions, 1)
			p.RequestIds, p.PaymentIds = append(p.RequestIds, "req"), append(p.PaymentIds, "pay"+id)
			p.RecoveryPoints = append(p.RecoveryPoints, "recorded")
			claim := somebody
			claim[0] += byte(i)
			p.ClaimTokens, p.Leases = append(p.ClaimTokens, claim), append(p.Leases, time.Minute)
			p.IntentNumbers, p.IntentIds = append(p.IntentNumbers, 2), append(p.IntentIds, "")
			p.PaymentMethods, p.CreatedAt = append(p.PaymentMethods, "pm"), append(p.CreatedAt, at("-1h"))
			p.ManualCaptures = append(p.ManualCaptures, false)
			p.EventData, p.Traceparents = append(p.EventData, []byte("e")), append(p.Traceparents, "")
		}
		return p
	}
	record := func(key string) db.PaymentIntentRecordParams {
		return db.PaymentIntentRecordParams{
			TenantIds: []string{tenant}, PaymentIds: []string{"taken"}, Keys: []string{key}, LeaseTokens: []int64{3},
			IntentIds: []string{"pi_new"}, RecoveryPoints: []string{"intent_recorded"},
			StripeRequestIds: []string{"req_s"}, CreateKeys: []string{tenant + ":open:create"},
		}
	}
	finish := func(key string) db.PaymentFinishParams {
		return db.PaymentFinishParams{
			TenantIds: []string{tenant}, PaymentIds: []string{"confirming"}, OrderIds: []string{"open"},
			Keys: []string{key}, LeaseTokens: []int64{3}, Statuses: []string{"succeeded"}, IntentsClosed: []bool{true},
			ChargeIds: []string{"ch"}, FailureCodes: []string{""}, FailureDeclineCodes: []string{""},
			FailureMessages: []string{""}, PaysOrders: []bool{true}, OrderVersions: []int64{1},
			PaymentVersions: []int64{1}, AnswerVersions: []int16{1}, AnswerStatuses: []int16{201},
			AnswerHeaders: [][]byte{[]byte("h")}, AnswerBodies: [][]byte{[]byte("b")},
			PaymentEvents: [][]byte{[]byte("p")}, OrderEvents: [][]byte{[]byte("o")}, Traceparents: []string{""},
			StripeOutcomes: []string{"done"}, HttpStatuses: []int16{200}, ErrorCodes: []string{""},
			ObjectIds: []string{"pi"}, StripeRequestIds: []string{"req_s"},
			StripeKeys: []string{tenant + ":held:confirm"}, StripeOperations: []string{"confirm"},
			StripeResourceIds: []string{"confirming"}, ParamsSha256s: [][]byte{[]byte("sha")},
		}
	}
	stale := finish("stale") // its lease was lost
	stale.PaymentIds[0], stale.OrderIds[0] = "taken", "several"
	moved := finish("another") // its order has moved
	moved.PaymentIds[0], moved.OrderIds[0] = "waits", "touched"
	settle := func(payment string) db.PaymentSettleParams {
		return db.PaymentSettleParams{TenantID: tenant, ID: payment, SeenVersion: 1, Status: "failed", IntentClosed: true,
			FailureCode: ptr("card_declined"), FailureDeclineCode: ptr("fraudulent"), FailureMessage: ptr("no")}
	}
	// The two calls of confirming were sent; so were those of another payment, and of one with its id under another tenant.
	sentBefore := "ALTER TABLE payments DISABLE TRIGGER USER; UPDATE payments SET intent_id = 'pi_c', create_sent_at = '" +
		at("-8h").Format(time.RFC3339) + "', confirm_sent_at = '" + at("-7h").Format(time.RFC3339) +
		"' WHERE id IN ('changed', 'confirming'); UPDATE payments SET create_sent_at = '" +
		at("-2h").Format(time.RFC3339) + "', confirm_sent_at = '" + at("-1h").Format(time.RFC3339) +
		"' WHERE tenant_id = 'acme:eu' AND id = 'confirming'"
	// Rows of the same names under another tenant that differ in nothing else.
	const twins = `ALTER TABLE payments DISABLE TRIGGER USER; ALTER TABLE idempotency_keys DISABLE TRIGGER USER;
		UPDATE payments SET version = 1, status = 'processing', failure_code = NULL
		WHERE tenant_id = 'acme' AND id IN ('confirming', 'taken');
		UPDATE idempotency_keys SET lease_token = 3, finished_at = NULL, recovery_point = 'started', answer_version = NULL,
			answer_status = NULL, answer_headers = NULL, answer_body = NULL WHERE tenant_id = 'acme' AND key = 'held'`
	const firstHolder = `ALTER TABLE idempotency_keys DISABLE TRIGGER USER; UPDATE idempotency_keys SET lease_token = 1
		WHERE key = 'held'`
	// One payment is authorized, and a capture of it is at work; so are they under another tenant.
	const authorizes = `ALTER TABLE payments DISABLE TRIGGER USER; UPDATE payments SET manual_capture = true,
		intent_id = 'pi_c', status = 'authorized', capture_before = '2026-01-01', failure_code = NULL WHERE id = 'confirming'`
	const held = authorizes + `; UPDATE payments SET capturing_key = 'held', capturing_minor = 400 WHERE id = 'confirming'`
	// What another process changes while a statement waits for its row: all of the statement is refused.
	const heldByAnother = "UPDATE idempotency_keys SET lease_token = 4, claim_token = gen_random_uuid() " +
		"WHERE tenant_id = 'acme:eu' AND key = 'held'"
	const finishedByAnother = "UPDATE idempotency_keys SET recovery_point = 'finished', finished_at = now(), " +
		"answer_version = 1, answer_status = 201, answer_headers = '', answer_body = '{}' " +
		"WHERE tenant_id = 'acme:eu' AND key = 'held'"
	for rule, meanwhile := range map[string]string{
		"IsRefusedIfTheLeaseIsLostMeanwhile":   heldByAnother,
		"IsRefusedIfItsKeyIsFinishedMeanwhile": finishedByAnother,
		"IsRefusedIfItsPaymentMovesMeanwhile": "UPDATE payments SET version = 2 " +
			"WHERE tenant_id = 'acme:eu' AND id = 'confirming'",
	} {
		checkQueries(t, paymentRows, []queryCase{{rule: rule, query: q.PaymentFinish, with: finish("held"),
			meanwhile: meanwhile, want: `
			error 40001`}})
	}
	checkQueries(t, paymentRows, []queryCase{{rule: "IsRefusedIfItsPaymentEndsMeanwhile", query: q.PaymentIntentRecord,
		with: record("held"), meanwhile: "UPDATE payments SET status = 'canceled' WHERE tenant_id = 'acme:eu' AND id = 'taken'",
		want: `
			error 40001`}})
	const eachPayment = "changed confirming moved taken waits failed"
	checkQueries(t, paymentRows, []queryCase{
		{rule: "NeedsAnOrderThatCanBePaid", query: q.PaymentBegin,
			each: "open by_checkout canceled canceling retired paid taken missing",
			with: func(order string) any { return begin(order) }, want: `
			open: row Ordinal=1 AmountMinor=1000 Currency=eur OrderVersion=1
			open: inserts idempotency_keys/new: attempts=1 claim_token=somebody created_at=now fingerprint=32
				bytes fingerprint_version=1 lease_token=1 leased_until=now+1m next_attempt_at=now+1m
				operation=create_payment recovery_point=recorded request_id=req resource_id=pay
			open: inserts outbox_events/pay/1: created_at=now data=e next_attempt_at=-infinity type=payment.created
			open: inserts payments/pay: amount_minor=1000 create_sent_at=now created_at=-1h currency=eur
				idempotency_key=new intent_number=2 order_id=open payment_method=pm status=processing updated_at=now
				version=1
			open: locks orders/open
			by_checkout: no row
			canceled: no row
			canceling: no row
			retired: no row
			paid: no row
			taken: no row
			missing: no row`},
		{rule: "DoesEachByItself", query: q.PaymentBegin, with: begin("taken", "open", "missing", "touched"),
			want: `
			row Ordinal=2 AmountMinor=1000 Currency=eur OrderVersion=1
			row Ordinal=4 AmountMinor=1000 Currency=eur OrderVersion=2
			inserts idempotency_keys/new': attempts=1 claim_token=01000000-0000-4000-8000-00000000000b
				created_at=now fingerprint=32 bytes fingerprint_version=1 lease_token=1 leased_until=now+1m
				next_attempt_at=now+1m operation=create_payment recovery_point=recorded request_id=req
				resource_id=pay'
			inserts idempotency_keys/new''': attempts=1 claim_token=03000000-0000-4000-8000-00000000000b
				created_at=now fingerprint=32 bytes fingerprint_version=1 lease_token=1 leased_until=now+1m
				next_attempt_at=now+1m operation=create_payment recovery_point=recorded request_id=req
				resource_id=pay'''
			inserts outbox_events/pay'/1: created_at=now data=e next_attempt_at=-infinity type=payment.created
			inserts outbox_events/pay'''/1: created_at=now data=e next_attempt_at=-infinity type=payment.created
			inserts payments/pay': amount_minor=1000 create_sent_at=now created_at=-1h currency=eur
				idempotency_key=new' intent_number=2 order_id=open payment_method=pm status=processing
				updated_at=now version=1
			inserts payments/pay''': amount_minor=1000 create_sent_at=now created_at=-1h currency=eur
				idempotency_key=new''' intent_number=2 order_id=touched payment_method=pm status=processing
				updated_at=now version=1
			locks orders/open
			locks orders/touched`},
		{rule: "PassesALockedOrderBy", query: q.PaymentBegin, with: begin("open"), locked: "orders/open", want: `
			no row`},
		{rule: "ClaimsAKeyOnce", query: q.PaymentBegin,
			with: but(begin("open"), func(p *db.PaymentBeginParams) { p.Keys[0] = "held" }), want: `
			no row
			locks orders/open`},
		{rule: "RecordsAConfirmIfThereIsAnIntent", query: q.PaymentBegin,
			with: but(begin("open"), func(p *db.PaymentBeginParams) { p.IntentIds[0] = "pi_old" }), want: `
			row Ordinal=1 AmountMinor=1000 Currency=eur OrderVersion=1
			inserts idempotency_keys/new: attempts=1 claim_token=somebody created_at=now fingerprint=32 bytes
				fingerprint_version=1 lease_token=1 leased_until=now+1m next_attempt_at=now+1m
				operation=create_payment recovery_point=recorded request_id=req resource_id=pay
			inserts outbox_events/pay/1: created_at=now data=e next_attempt_at=-infinity type=payment.created
			inserts payments/pay: amount_minor=1000 confirm_sent_at=now created_at=-1h currency=eur
				idempotency_key=new intent_id=pi_old intent_number=2 later_intent_id=pi_old order_id=open
				payment_method=pm status=processing updated_at=now version=1
			locks orders/open`},
		{rule: "RecordsHowItIsCaptured", query: q.PaymentBegin,
			with: but(begin("open"), func(p *db.PaymentBeginParams) { p.ManualCaptures[0] = true }), want: `
			row Ordinal=1 AmountMinor=1000 Currency=eur OrderVersion=1
			inserts idempotency_keys/new: attempts=1 claim_token=somebody created_at=now fingerprint=32 bytes
				fingerprint_version=1 lease_token=1 leased_until=now+1m next_attempt_at=now+1m
				operation=create_payment recovery_point=recorded request_id=req resource_id=pay
			inserts outbox_events/pay/1: created_at=now data=e next_attempt_at=-infinity type=payment.created
			inserts payments/pay: amount_minor=1000 create_sent_at=now created_at=-1h currency=eur
				idempotency_key=new intent_number=2 manual_capture=true order_id=open payment_method=pm
				status=processing updated_at=now version=1
			locks orders/open`},
		{rule: "IsFenced", query: q.PaymentIntentRecord, each: "held finished stale missing",
			with: func(key string) any { return record(key) }, want: `
			held: row 1
			held: changes idempotency_keys/held: history={3 intent_recorded now} recovery_point=intent_recorded
			held: changes payments/taken: confirm_sent_at=now intent_id=pi_new updated_at=now
			held: changes stripe_call_rows/acme:eu:open:create: http_status=200 object_id=pi_new outcome=done
				request_ids={req_s}
			finished: no row
			stale: no row
			missing: no row`},
		{rule: "DoesEachByItself", query: q.PaymentIntentRecord,
			with: joined(record("stale"), joined(record("finished"), record("held"))), want: `
			row 3
			changes idempotency_keys/held: history={3 intent_recorded now} recovery_point=intent_recorded
			changes payments/taken: confirm_sent_at=now intent_id=pi_new updated_at=now
			changes stripe_call_rows/acme:eu:open:create: http_status=200 object_id=pi_new outcome=done
				request_ids={req_s}`},
		{rule: "MayBeRepeated", query: q.PaymentIntentRecord, with: record("held"), first: `UPDATE payments
			SET intent_id = 'pi_new', create_sent_at = '2026-01-01', create_request_id = 'req_s',
				confirm_sent_at = '2026-01-02' WHERE tenant_id = 'acme:eu' AND id = 'taken'`, want: `
			row 1
			changes idempotency_keys/held: history={3 intent_recorded now} recovery_point=intent_recorded
			changes payments/taken: updated_at=now
			changes stripe_call_rows/acme:eu:open:create: http_status=200 object_id=pi_new outcome=done
				request_ids={req_s}`},
		{rule: "LeavesTwinsAlone", query: q.PaymentIntentRecord, with: record("held"), first: twins, want: `
			row 1
			changes idempotency_keys/held: history={3 intent_recorded now} recovery_point=intent_recorded
			changes payments/taken: confirm_sent_at=now intent_id=pi_new updated_at=now
			changes stripe_call_rows/acme:eu:open:create: http_status=200 object_id=pi_new outcome=done
				request_ids={req_s}`},
		{rule: "WritesNoHistoryOfTheFirstHolder", query: q.PaymentIntentRecord, first: firstHolder,
			with: but(record("held"), func(p *db.PaymentIntentRecordParams) { p.LeaseTokens[0] = 1 }), want: `
			row 1
			changes idempotency_keys/held: recovery_point=intent_recorded
			changes payments/taken: confirm_sent_at=now intent_id=pi_new updated_at=now
			changes stripe_call_rows/acme:eu:open:create: http_status=200 object_id=pi_new outcome=done
				request_ids={req_s}`},
		{rule: "RecordsWhatHasCreatedTheIntent", query: q.PaymentIntentRecord, with: record("held"), first: `UPDATE payments
			SET create_sent_at = '2026-01-01' WHERE tenant_id = 'acme:eu' AND id = 'taken'`, want: `
			row 1
			changes idempotency_keys/held: history={3 intent_recorded now} recovery_point=intent_recorded
			changes payments/taken: confirm_sent_at=now create_request_id=req_s intent_id=pi_new updated_at=now
			changes stripe_call_rows/acme:eu:open:create: http_status=200 object_id=pi_new outcome=done
				request_ids={req_s}`},
		{rule: "LeavesAPaymentThatHasEndedAlone", query: q.PaymentIntentRecord,
			with: but(record("held"), func(p *db.PaymentIntentRecordParams) { p.PaymentIds[0] = "failed" }), want: `
			no row`},

		{rule: "IsFenced", query: q.PaymentFinish, each: "held finished stale missing",
			with: func(key string) any { return finish(key) }, want: `
			held: row 1
			held: changes idempotency_keys/held: answer_body=b answer_headers=h answer_status=201
				answer_version=1 finished_at=now history={3 finished now} recovery_point=finished
			held: changes orders/open: payment_id=confirming status=paid version=2
			held: changes payments/confirming: charge_id=ch intent_closed=true status=succeeded updated_at=now
				version=2
			held: changes stripe_call_rows/acme:eu:held:confirm: http_status=200 object_id=pi outcome=done
				request_ids={req_s}
			held: inserts outbox_events/confirming/2: created_at=now data=p next_attempt_at=-infinity
				type=payment.succeeded
			held: inserts outbox_events/open/2: created_at=now data=o next_attempt_at=-infinity type=order.paid
			finished: no row
			stale: no row
			missing: no row`},
		{rule: "DoesEachByItself", query: q.PaymentFinish,
			with: joined(joined(stale, moved), finish("held")), want: `
			row 3
			changes idempotency_keys/held: answer_body=b answer_headers=h answer_status=201 answer_version=1
				finished_at=now history={3 finished now} recovery_point=finished
			changes orders/open: payment_id=confirming status=paid version=2
			changes payments/confirming: charge_id=ch intent_closed=true status=succeeded updated_at=now
				version=2
			changes stripe_call_rows/acme:eu:held:confirm: http_status=200 object_id=pi outcome=done
				request_ids={req_s}
			inserts outbox_events/confirming/2: created_at=now data=p next_attempt_at=-infinity
				type=payment.succeeded
			inserts outbox_events/open/2: created_at=now data=o next_attempt_at=-infinity type=order.paid`},
		{rule: "LeavesTwinsAlone", query: q.PaymentFinish, with: finish("held"), first: twins, want: `
			row 1
			changes idempotency_keys/held: answer_body=b answer_headers=h answer_status=201 answer_version=1
				finished_at=now history={3 finished now} recovery_point=finished
			changes orders/open: payment_id=confirming status=paid version=2
			changes payments/confirming: charge_id=ch intent_closed=true status=succeeded updated_at=now
				version=2
			changes stripe_call_rows/acme:eu:held:confirm: http_status=200 object_id=pi outcome=done
				request_ids={req_s}
			inserts outbox_events/confirming/2: created_at=now data=p next_attempt_at=-infinity
				type=payment.succeeded
			inserts outbox_events/open/2: created_at=now data=o next_attempt_at=-infinity type=order.paid`},
		{rule: "WritesNoHistoryOfTheFirstHolder", query: q.PaymentFinish, first: firstHolder,
			with: but(finish("held"), func(p *db.PaymentFinishParams) { p.LeaseTokens[0] = 1 }), want: `
			row 1
			changes idempotency_keys/held: answer_body=b answer_headers=h answer_status=201 answer_version=1
				finished_at=now recovery_point=finished
			changes orders/open: payment_id=confirming status=paid version=2
			changes payments/confirming: charge_id=ch intent_closed=true status=succeeded updated_at=now
				version=2
			changes stripe_call_rows/acme:eu:held:confirm: http_status=200 object_id=pi outcome=done
				request_ids={req_s}
			inserts outbox_events/confirming/2: created_at=now data=p next_attempt_at=-infinity
				type=payment.succeeded
			inserts outbox_events/open/2: created_at=now data=o next_attempt_at=-infinity type=order.paid`},
		{rule: "RecordsAConfirmAlone", query: q.PaymentFinish, first: sentBefore,
			with: but(finish("held"), func(p *db.PaymentFinishParams) { p.StripeOperations[0] = "create_intent" }), want: `
			row 1
			changes idempotency_keys/held: answer_body=b answer_headers=h answer_status=201 answer_version=1
				finished_at=now history={3 finished now} recovery_point=finished
			changes orders/open: payment_id=confirming status=paid version=2
			changes payments/confirming: charge_id=ch intent_closed=true status=succeeded updated_at=now
				version=2
			changes stripe_call_rows/acme:eu:held:confirm: http_status=200 object_id=pi outcome=done
				request_ids={req_s}
			inserts outbox_events/confirming/2: created_at=now data=p next_attempt_at=-infinity
				type=payment.succeeded
			inserts outbox_events/open/2: created_at=now data=o next_attempt_at=-infinity type=order.paid`},
		{rule: "RecordsTheRefusalOfARow", query: q.PaymentFinish, first: sentBefore,
			with: but(finish("held"), func(p *db.PaymentFinishParams) {
				p.PaysOrders[0], p.Statuses[0], p.FailureCodes[0], p.ChargeIds[0] = false, "failed", "card_declined", ""
				p.StripeOutcomes[0], p.HttpStatuses[0] = "refused", 402
			}), want: `
			row 1
			changes idempotency_keys/held: answer_body=b answer_headers=h answer_status=201 answer_version=1
				finished_at=now history={3 finished now} recovery_point=finished
			changes payments/confirming: ended_id=confirming failure_code=card_declined intent_closed=true
				status=failed updated_at=now version=2
			changes stripe_call_rows/acme:eu:held:confirm: http_status=402 object_id=pi outcome=refused
				request_ids={req_s}
			inserts outbox_events/confirming/2: created_at=now data=p next_attempt_at=-infinity
				type=payment.failed`},
		{rule: "RecordsAFirstConfirm", query: q.PaymentFinish, first: sentBefore, with: but(finish("held"),
			func(p *db.PaymentFinishParams) { p.StripeKeys[0] = tenant + ":new:confirm" }), want: `
			row 1
			changes idempotency_keys/held: answer_body=b answer_headers=h answer_status=201 answer_version=1
				finished_at=now history={3 finished now} recovery_point=finished
			changes orders/open: payment_id=confirming status=paid version=2
			changes payments/confirming: charge_id=ch confirm_request_id=req_s intent_closed=true
				status=succeeded updated_at=now version=2
			inserts outbox_events/confirming/2: created_at=now data=p next_attempt_at=-infinity
				type=payment.succeeded
			inserts outbox_events/open/2: created_at=now data=o next_attempt_at=-infinity type=order.paid`},
		{rule: "RecordsAFirstConfirmThatWasRefused", query: q.PaymentFinish, first: sentBefore,
			with: but(finish("held"), func(p *db.PaymentFinishParams) {
				p.PaysOrders[0], p.Statuses[0], p.FailureCodes[0], p.ChargeIds[0] = false, "failed", "card_declined", ""
				p.StripeOutcomes[0], p.HttpStatuses[0], p.StripeKeys[0] = "refused", 402, tenant+":new:confirm"
			}), want: `
			row 1
			changes idempotency_keys/held: answer_body=b answer_headers=h answer_status=201 answer_version=1
				finished_at=now history={3 finished now} recovery_point=finished
			changes payments/confirming: ended_id=confirming failure_code=card_declined intent_closed=true
				status=failed updated_at=now version=2
			inserts outbox_events/confirming/2: created_at=now data=p next_attempt_at=-infinity
				type=payment.failed
			inserts stripe_call_rows/acme:eu:new:confirm: attempts=1 first_sent_at=-1h http_status=402
				last_sent_at=-1h object_id=pi operation=confirm outcome=refused params_sha256=sha
				request_ids={req_s} resource_id=confirming`},
		{rule: "RecordsAFirstCreationThatWasRefused", query: q.PaymentFinish, first: sentBefore,
			with: but(finish("held"), func(p *db.PaymentFinishParams) {
				p.PaysOrders[0], p.Statuses[0], p.FailureCodes[0], p.ChargeIds[0] = false, "failed", "declined", ""
				p.StripeOutcomes[0], p.HttpStatuses[0], p.StripeKeys[0] = "refused", 400, tenant+":new:create"
				p.StripeOperations[0], p.StripeResourceIds[0], p.StripeRequestIds[0] = "create_intent", "open", ""
			}), want: `
			row 1
			changes idempotency_keys/held: answer_body=b answer_headers=h answer_status=201 answer_version=1
				finished_at=now history={3 finished now} recovery_point=finished
			changes payments/confirming: ended_id=confirming failure_code=declined intent_closed=true
				status=failed updated_at=now version=2
			inserts outbox_events/confirming/2: created_at=now data=p next_attempt_at=-infinity
				type=payment.failed
			inserts stripe_call_rows/acme:eu:new:create: attempts=1 first_sent_at=-2h http_status=400
				last_sent_at=-2h object_id=pi operation=create_intent outcome=refused params_sha256=sha
				resource_id=open`},
		{rule: "LeavesTheOrderOfADeclinedPayment", query: q.PaymentFinish,
			with: but(finish("held"), func(p *db.PaymentFinishParams) {
				p.PaysOrders[0], p.Statuses[0], p.FailureCodes[0], p.ChargeIds[0] = false, "failed", "card_declined", ""
				p.AnswerStatuses[0], p.StripeOutcomes[0], p.HttpStatuses[0], p.StripeRequestIds[0] = 402, "refused", 402, ""
			}), want: `
			row 1
			changes idempotency_keys/held: answer_body=b answer_headers=h answer_status=402 answer_version=1
				finished_at=now history={3 finished now} recovery_point=finished
			changes payments/confirming: ended_id=confirming failure_code=card_declined intent_closed=true
				status=failed updated_at=now version=2
			changes stripe_call_rows/acme:eu:held:confirm: http_status=402 object_id=pi outcome=refused
			inserts outbox_events/confirming/2: created_at=now data=p next_attempt_at=-infinity
				type=payment.failed`},
		{rule: "NeedsNoOrderThatIsOpenToDecline", query: q.PaymentFinish,
			with: but(finish("held"), func(p *db.PaymentFinishParams) {
				p.PaysOrders[0], p.OrderIds[0], p.OrderVersions[0] = false, "canceled", 9
				p.Statuses[0], p.FailureCodes[0] = "failed", "declined"
			}), want: `
			row 1
			changes idempotency_keys/held: answer_body=b answer_headers=h answer_status=201 answer_version=1
				finished_at=now history={3 finished now} recovery_point=finished
			changes payments/confirming: charge_id=ch ended_id=confirming failure_code=declined
				intent_closed=true status=failed updated_at=now version=2
			changes stripe_call_rows/acme:eu:held:confirm: http_status=200 object_id=pi outcome=done
				request_ids={req_s}
			inserts outbox_events/confirming/2: created_at=now data=p next_attempt_at=-infinity
				type=payment.failed`},
		{rule: "NeedsTheOrderAsItWasRead", query: q.PaymentFinish, each: "touched canceled missing",
			with: func(order string) any {
				return but(finish("held"), func(p *db.PaymentFinishParams) { p.OrderIds[0] = order })
			}, want: `
			touched: no row
			canceled: no row
			missing: no row`},
		{rule: "NeedsTheOrderToBeOpen", query: q.PaymentFinish,
			with: but(finish("held"), func(p *db.PaymentFinishParams) { p.OrderIds[0], p.OrderVersions[0] = "canceled", 2 }),
			want: `
			no row`},
		{rule: "NeedsThePaymentAsItWasRead", query: q.PaymentFinish,
			with: but(finish("held"), func(p *db.PaymentFinishParams) { p.PaymentIds[0] = "changed" }), want: `
			no row`},

		{rule: "ReadsOne", query: q.PaymentGet, with: db.PaymentGetParams{TenantID: tenant, ID: "moved"}, want: `
			row ID=moved`},
		{rule: "ReadsOne", query: q.PaymentWithOrder,
			with: db.PaymentWithOrderParams{TenantID: tenant, ID: "several_3"}, want: `
			row Payment=(ID=several_3) Order=(ID=several) StatusSeconds=-9h`},
		{rule: "ReadsEachOfItsTenant", query: q.PaymentsRead, with: db.PaymentsReadParams{
			TenantIds: []string{tenant, tenant, "ten_other", tenant}, Ids: []string{"moved", "missing", "moved", "several_3"},
		}, want: `
			row Ordinal=1 Payment=(ID=moved)
			row Ordinal=4 Payment=(ID=several_3)`},
		{rule: "LocksOne", query: q.PaymentLock, with: db.PaymentLockParams{TenantID: tenant, ID: "moved"}, want: `
			row ID=moved
			locks payments/moved`},
		{rule: "ReadsOne", query: q.PaymentByKey,
			with: db.PaymentByKeyParams{TenantID: tenant, IdempotencyKey: "key_moved"}, want: `
			row ID=moved`},
		{rule: "ReadsTheNewestFirst", query: q.PaymentList,
			with: db.PaymentListParams{TenantID: tenant, Before: "several_4", LimitRows: 3}, want: `
			row ID=several_3
			row ID=several_2
			row ID=several_1`},
		{rule: "ReadsTheNewestFirst", query: q.PaymentListOfOrder, with: db.PaymentListOfOrderParams{
			TenantID: tenant, OrderID: "several", Before: "several_4", LimitRows: 9,
		}, want: `
			row ID=several_3
			row ID=several_2
			row ID=several_1
			row ID=several_0
			row ID=own`},
		{rule: "ReadsTheOneThatOccupiesTheOrder", query: q.PaymentLive, each: "paid taken waits several",
			with: func(order string) any { return db.PaymentLiveParams{TenantID: tenant, OrderID: order} }, want: `
			paid: row ID=succeeded
			taken: row ID=taken
			waits: row ID=waits
			several: no row`},
		{rule: "ReadsTheLatestIntent", query: q.OrderToPay, each: "open paid several taken touched missing",
			with: func(order string) any { return db.OrderToPayParams{TenantIds: []string{tenant}, Ids: []string{order}} }, want: `
			open: row Ordinal=1 Order=(ID=open) IntentNumber=1 IntentID=pi_open
			paid: row Ordinal=1 Order=(ID=paid) IntentNumber=1 IntentID=pi_paid LiveStatus=succeeded
			several: row Ordinal=1 Order=(ID=several) IntentNumber=2 IntentID=pi_s2 IntentClosed=true
			taken: row Ordinal=1 Order=(ID=taken) IntentNumber=1 LiveStatus=processing
			touched: row Ordinal=1 Order=(ID=touched) IntentClosed=true
			missing: no row`},
		{rule: "InsertsOne", query: q.PaymentInsert, with: db.PaymentInsertParams{
			TenantID: tenant, ID: "new", OrderID: "touched", IdempotencyKey: "key", AmountMinor: 1000, Currency: "eur",
			PaymentMethod: "pm", IntentNumber: 1, CreatedAt: at("-1h"),
		}, want: `
			returns false
			inserts payments/new: amount_minor=1000 create_sent_at=now created_at=-1h currency=eur
				idempotency_key=key intent_number=1 order_id=touched payment_method=pm status=processing
				updated_at=now version=1`},
		{rule: "MovesOnUnlessAnIntentIsKnown", query: q.PaymentNextIntent, each: eachPayment,
			with: func(payment string) any {
				return db.PaymentNextIntentParams{TenantID: tenant, ID: payment, IntentNumber: 1}
			}, want: `
			changed: returns 1
			changed: changes payments/changed: intent_number=2 updated_at=now
			confirming: returns 0
			moved: returns 0
			taken: returns 1
			taken: changes payments/taken: intent_number=2 updated_at=now
			waits: returns 0
			failed: returns 0`},
		{rule: "ComparesTheVersion", query: q.PaymentSettle, each: "changed confirming",
			with: func(payment string) any { return settle(payment) }, want: `
			changed: no row
			confirming: row ID=confirming
			confirming: changes payments/confirming: ended_id=confirming failure_code=card_declined
				failure_decline_code=fraudulent failure_message=no intent_closed=true status=failed updated_at=now
				version=2`},
		{rule: "EndsWhatWorkedOnTheAuthorization", query: q.PaymentSettle, first: held,
			with: db.PaymentSettleParams{TenantID: tenant, ID: "confirming", SeenVersion: 1, Status: "succeeded",
				CapturedMinor: ptr(int64(400))}, want: `
			row ID=confirming
			changes payments/confirming: capture_before=null captured_minor=400 capturing_key=null capturing_minor=null
				confirmable=false status=succeeded updated_at=now version=2`},
		{rule: "NeedsAnAuthorization", query: q.PaymentCaptureBegin, first: authorizes, each: "confirming taken missing",
			with: func(payment string) any {
				return db.PaymentCaptureBeginParams{TenantID: tenant, ID: payment, CapturingKey: ptr("c"), CapturingMinor: ptr(int64(400))}
			}, want: `
			confirming: returns 1
			confirming: changes payments/confirming: capturing_key=c capturing_minor=400
			taken: returns 0
			missing: returns 0`},
		{rule: "NeedsAnAuthorizationThatNothingWorksOn", query: q.PaymentCaptureBegin, first: held,
			with: db.PaymentCaptureBeginParams{TenantID: tenant, ID: "confirming", CapturingKey: ptr("held")}, want: `
			returns 0`},
		{rule: "EndsItsOwnCaptureOnly", query: q.PaymentCaptureAbort, first: held, each: "held other",
			with: func(key string) any {
				return db.PaymentCaptureAbortParams{TenantID: tenant, ID: "confirming", CapturingKey: ptr(key)}
			}, want: `
			held: returns 1
			held: changes payments/confirming: capturing_key=null capturing_minor=null
			other: returns 0`},
		{rule: "EndsTheCaptureOfOnePayment", query: q.PaymentCaptureAbort, first: held,
			with: db.PaymentCaptureAbortParams{TenantID: tenant, ID: "waits", CapturingKey: ptr("held")}, want: `
			returns 0`},
		{rule: "ClosesOneIntent", query: q.PaymentIntentClose,
			with: db.PaymentIntentCloseParams{TenantID: tenant, OrderID: "several", IntentNumber: 2}, want: `
			changes payments/own: confirmable=false intent_closed=true
			changes payments/several_3: intent_closed=true
			changes payments/several_4: confirmable=false intent_closed=true`},
		{rule: "ClosesTheIntentOfPaymentsThatEnded", query: q.PaymentIntentEnded, each: "several paid open confirming",
			with: func(order string) any {
				intents := map[string]string{"several": "pi_s2", "paid": "pi_paid", "open": "pi_open", "confirming": "pi_c"}
				return db.PaymentIntentEndedParams{TenantID: tenant, OrderID: order, IntentID: ptr(intents[order])}
			}, want: `
			several: returns 2
			several: changes payments/several_2: confirmable=false intent_spent=false
			several: changes payments/several_4: confirmable=false intent_closed=true
			paid: returns 0
			open: returns 1
			open: changes payments/failed: confirmable=false intent_closed=true
			confirming: returns 0`},
		{rule: "LeavesAClosedIntentAlone", query: q.PaymentIntentEnded,
			with: db.PaymentIntentEndedParams{TenantID: tenant, OrderID: "several", IntentID: ptr("pi_s1")}, want: `
			returns 0`},
		{rule: "MarksTheIntent", query: q.PaymentIntentSpent, each: "pi_s1 pi_s2", with: func(intent string) any {
			return db.PaymentIntentSpentParams{TenantID: tenant, OrderID: "several", IntentID: ptr(intent)}
		}, want: `
			pi_s1: changes payments/several_1: confirmable=true intent_spent=true
			pi_s2: changes payments/several_4: intent_spent=true`},
		{rule: "ReadsTheOpenIntentsBefore", query: q.PaymentIntentsOpenBefore, each: "1 2 3 10", with: func(n string) any {
			number, _ := strconv.ParseInt(n, 10, 32)
			return db.PaymentIntentsOpenBeforeParams{TenantID: tenant, OrderID: "several", IntentNumber: int32(number)}
		}, want: `
			1: no row
			2: row IntentNumber=1 IntentID=pi_s0
			3: row IntentNumber=1 IntentID=pi_s0
			3: row IntentNumber=2 IntentID=pi_own
			10: row IntentNumber=1 IntentID=pi_s0
			10: row IntentNumber=2 IntentID=pi_own`},
		{rule: "ReadsTheOpenIntentsOfOneOrder", query: q.PaymentIntentsOpenBefore,
			each: "open confirming changed taken missing", with: func(order string) any {
				return db.PaymentIntentsOpenBeforeParams{TenantID: tenant, OrderID: order, IntentNumber: 9}
			}, want: `
			open: row IntentNumber=1 IntentID=pi_open
			confirming: row IntentNumber=1 IntentID=pi_c
			changed: no row
			taken: no row
			missing: no row`},
		{rule: "ReadsNoSpentIntent", query: q.PaymentIntentsOpenBefore,
			first: `UPDATE payments SET intent_spent = true WHERE intent_id = 'pi_s0'`,
			with:  db.PaymentIntentsOpenBeforeParams{TenantID: tenant, OrderID: "several", IntentNumber: 2}, want: `
			no row`},
		{rule: "ReadsTheIntentsBefore", query: q.PaymentIntentsBefore, each: "1 2 3 10", with: func(n string) any {
			number, _ := strconv.ParseInt(n, 10, 32)
			return db.PaymentIntentsBeforeParams{TenantID: tenant, OrderID: "several", IntentNumber: int32(number)}
		}, want: `
			1: no row
			2: row pi_s0
			2: row pi_s1
			3: row pi_own
			3: row pi_s0
			3: row pi_s1
			3: row pi_s2
			3: row pi_s2
			10: row pi_own
			10: row pi_s0
			10: row pi_s1
			10: row pi_s2
			10: row pi_s2`},
		{rule: "ReadsTheLiveOneOrTheLast", query: q.PaymentOfIntent, each: "pi_s1 pi_s2 pi_open",
			with: func(intent string) any {
				return db.PaymentOfIntentParams{TenantID: tenant, OrderID: "several", IntentID: ptr(intent)}
			}, want: `
			pi_s1: row ID=several_1
			pi_s2: row ID=several_4
			pi_open: no row`},
		{rule: "ReadsTheLiveOneOrTheLastOfEach", query: q.PaymentsOfIntents, with: db.PaymentsOfIntentsParams{
			TenantIds: []string{tenant, tenant, "lost", tenant, tenant}, OrderIds: []string{"several", "several", "several",
				"open", "several"}, IntentIds: []string{"pi_s2", "pi_open", "pi_s1", "pi_s1", "pi_s1"}}, want: `
			row N=1 Status=canceled Ended=true
			row N=5 Status=failed Ended=true`},
		{rule: "ReadsThePaymentOfAnotherOrder", query: q.PaymentOfIntentElsewhere,
			each: "pi_first pi_early pi_later pi_own pi_s1",
			with: func(intent string) any {
				return db.PaymentOfIntentElsewhereParams{TenantID: tenant, OrderID: "several", IntentID: ptr(intent),
					FromID: "b", UntilID: "z"}
			}, want: `
			pi_first: row OrderID=other ID=b_first
			pi_early: no row
			pi_later: row OrderID=other ID=a_later
			pi_own: no row
			pi_s1: row twin OrderID=several ID=several_2`},
		{rule: "IsThatOfTheNewestPayment", query: q.PaymentIntentNewest, want: `
			row pi_paid`},
		{rule: "Exists", query: q.TenantServedHere, each: "acme:eu lost", with: func(id string) any { return id }, want: `
			acme:eu: returns true
			lost: returns false`},
		{rule: "ReturnsTheOldestFirst", query: q.TenantList, first: `
			UPDATE tenants SET created_at = '` + at("-3h").Format(time.RFC3339) + `' WHERE id = 'acme:eu';
			UPDATE tenants SET created_at = '` + at("-2h").Format(time.RFC3339) + `', disabled_at = now() WHERE id = 'acme'`,
			want: `
			row ID=acme:eu Name=Tenant CreatedAt=-3h
			row ID=acme Name=Twin Disabled=true CreatedAt=-2h`},
	})
}

// A payment that ended without success is watched while its intent can be confirmed. All but the first are a pair: the
// first is watched, or the second hides it.
const confirmableRows = `
	payments
	  id         order_id  status           intent_id  intent_closed  created_at
	  a_before   before    processing       pi_before  .              -5h
	  before     before    failed           pi_before  .              -5h
	  closed     closed    failed           pi_closed  true           -5h
	  ended_1    ended     failed           pi_ended   .              -5h
	  ended_2    ended     canceled         pi_ended   true           -5h
	  intent_1   intent    failed           pi_i1      .              -5h
	  intent_2   intent    processing       pi_i2      .              -5h
	  last_1     last      failed           pi_last    .              -5h
	  last_2     last      failed           pi_last    .              -5h
	  late       late      failed           pi_late    .              -1h
	  old        old       failed           pi_old     .              -9h
	  order_1    order     failed           pi_order   .              -5h
	  order_2    other     processing       pi_order   .              -5h
	  paying_1   paying    failed           pi_p       .              -5h
	  paying_2   paying    processing       pi_p       .              -5h
	  single     single    failed           pi_single  .              -5h
	  waiting_1  waiting   failed           pi_w       .              -5h
	  waiting_2  waiting   requires_action  pi_w       .              -5h

	payments
	  tenant_id  id      order_id  status      intent_id
	  acme       z_twin  single    processing  pi_single
`

func TestQueriesOfConfirmablePayments(t *testing.T) {
	t.Parallel()
	from, until := at("-8h"), at("-2h")
	checkQueries(t, confirmableRows, []queryCase{
		{rule: "ReadsTheLastOfEachIntent", query: q.PaymentsConfirmable,
			with: db.PaymentsConfirmableParams{FromAt: from, UntilAt: until, LimitRows: 99}, want: `
			row ID=before OrderID=before IntentID=pi_before Currency=eur
			row twin ID=closed OrderID=before IntentID=pi_before Currency=eur
			row ID=ended_1 OrderID=ended IntentID=pi_ended Currency=eur
			row twin ID=ended_2 OrderID=ended IntentID=pi_ended Currency=eur
			row ID=intent_1 OrderID=intent IntentID=pi_i1 Currency=eur
			row twin ID=intent_2 OrderID=intent IntentID=pi_i1 Currency=eur
			row ID=last_2 OrderID=last IntentID=pi_last Currency=eur
			row twin ID=late OrderID=last IntentID=pi_last Currency=eur
			row ID=order_1 OrderID=order IntentID=pi_order Currency=eur
			row twin ID=order_2 OrderID=order IntentID=pi_order Currency=eur
			row ID=single OrderID=single IntentID=pi_single Currency=eur
			row twin ID=waiting_2 OrderID=waiting IntentID=pi_w Currency=eur`},
		{rule: "ReadsInTheOrderOfIDs", query: q.PaymentsConfirmable,
			with: db.PaymentsConfirmableParams{FromAt: from, UntilAt: until, AfterID: "c", LimitRows: 3}, want: `
			row twin ID=closed OrderID=before IntentID=pi_before Currency=eur
			row ID=ended_1 OrderID=ended IntentID=pi_ended Currency=eur
			row twin ID=ended_2 OrderID=ended IntentID=pi_ended Currency=eur`},
	})
}
