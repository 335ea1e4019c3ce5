package postgres_test

import (
	"testing"

	"example.com/payonce/db"
)

const keyHistoryRows = `
	idempotency_keys
	  key       finished_at  leased_until  answer_dropped_at
	  finished  -1h          -2h           -1h
	  held      .            +1h           .
	  released  .            -1h           .

	stripe_call_rows
	  stripe_key                 first_sent_at
	  acme:eu:cancel ord_1:1     -5h
	  acme:eu:cancel ord_1:2     -3h
	  acme:eu:cancel ord_10:1    -9h
	  acme:eu:held:confirm       -4h
	  acme:eu:held:create        -6h
	  acme:eu:released:confirm   -9h

	payments
	  id       order_id  status      idempotency_key  intent_id  intent_number  create_sent_at  create_request_id  confirm_sent_at
	  pay_f    ord_f     processing  first            pi_f       1              -8h             req_c              -7h
	  pay_g    ord_f     failed      another          pi_g       2              -6h             req_c              -5h
	  pay_h    ord_fg    processing  other            pi_h       1              -4h             req_c              -3h

	outbox_events
	  aggregate_id  version  type             seq  created_at  published_at  position
	  ord_1         1        order.created    1    -5h         -4h           1
	  ord_2         1        order.created    3    -6h         .             .
	  pay_1         1        payment.created  7    -4h         .             .
	  pay_1         2        payment.failed   5    -4h         .             .

	inbox_events
	  consumer  event_id  object_id  type                      status   received_at
	  ledger    evt_0     pi_1       payment_intent.processing  pending  -9h
	  stripe    evt_1     pi_1       payment_intent.processing  done     -3h
	  stripe    evt_2     pi_1       payment_intent.created     done     -4h
	  stripe    evt_3     pi_2       payment_intent.created     pending  -5h
	  stripe    evt_4     pi_3       payment_intent.created     pending  -5h

	discrepancies
	  object_id  kind             order_id  resolved_at  found_at  detail
	  pi_1       amount_mismatch  ord_1     .            -3h       amount
	  pi_1       status_mismatch  ord_1     .            -4h       status
	  pi_2       amount_mismatch  ord_1     -1h          -5h       resolved
	  pi_3       amount_mismatch  ord_2     .            -5h       other
`

func TestQueriesOfKeyHistory(t *testing.T) {
	t.Parallel()
	calls := func(change func(p *db.KeyHistoryCallsParams)) db.KeyHistoryCallsParams {
		return but(db.KeyHistoryCallsParams{TenantID: tenant}, change)
	}
	checkQueries(t, keyHistoryRows, []queryCase{
		{rule: "ReadsAKey", query: q.KeyHistoryKey, each: "finished held released missing", with: func(key string) any {
			return db.KeyHistoryKeyParams{TenantID: tenant, Key: key}
		}, show: "FinishedAt AnswerDroppedAt", want: `
			finished: row Key=finished FinishedAt=-1h AnswerDroppedAt=-1h
			held: row Key=held Held=true
			released: row Key=released
			missing: no row`},
		{rule: "ReadsTheCallsOfItsKeys", query: q.KeyHistoryCalls, with: calls(func(p *db.KeyHistoryCallsParams) {
			p.OwnKeys = []string{"acme:eu:held:confirm", "acme:eu:held:create"}
		}), show: "StripeKey", want: `
			row Operation=confirm StripeKey=acme:eu:held:create Attempts=1 Outcome=sent FirstSentAt=-6h
				LastSentAt=-9h
			row Operation=confirm StripeKey=acme:eu:held:confirm Attempts=1 Outcome=sent FirstSentAt=-4h
				LastSentAt=-9h`},
		{rule: "ReadsFirstAttemptsOfItsPayment", query: q.KeyHistoryCalls, with: calls(func(p *db.KeyHistoryCallsParams) {
			p.Key, p.OwnKeys, p.OrderID = "first", []string{"acme:eu:first:confirm", "acme:eu:first:refund"}, "ord_f"
			p.OrderPrefix = "acme:eu:ord_f:"
		}), show: "StripeKey", want: `
			row Operation=create_intent StripeKey=acme:eu:ord_f:intent:1 Attempts=1 Outcome=done HttpStatus=200
				ObjectID=pi_f RequestIds=[req_c] FirstSentAt=-8h LastSentAt=-8h
			row Operation=confirm StripeKey=acme:eu:first:confirm Attempts=1 Outcome=sent FirstSentAt=-7h
				LastSentAt=-7h
			row Operation=create_intent StripeKey=acme:eu:ord_f:intent:2 Attempts=1 Outcome=done HttpStatus=200
				ObjectID=pi_g RequestIds=[req_c] FirstSentAt=-6h LastSentAt=-6h`},
		{rule: "ReadsOnlyItsOwnConfirm", query: q.KeyHistoryCalls, with: calls(func(p *db.KeyHistoryCallsParams) {
			p.Key, p.OwnKeys = "first", []string{"acme:eu:another:confirm", "acme:eu:first:refund"}
		}), show: "StripeKey", want: `
			no row`},
		{rule: "ReadsOnlyTheCreationsOfItsPrefix", query: q.KeyHistoryCalls, with: calls(func(p *db.KeyHistoryCallsParams) {
			p.OrderID, p.OrderPrefix = "ord_f", "acme:eu:ord_f:intent:2"
		}), show: "StripeKey", want: `
			row Operation=create_intent StripeKey=acme:eu:ord_f:intent:2 Attempts=1 Outcome=done HttpStatus=200
				ObjectID=pi_g RequestIds=[req_c] FirstSentAt=-6h LastSentAt=-6h`},
		{rule: "ReadsNoCallsOfTwins", query: q.KeyHistoryCalls, with: calls(func(p *db.KeyHistoryCallsParams) {
			p.Key, p.OwnKeys, p.OrderID = "first", []string{"acme:eu:first:confirm"}, "ord_f"
			p.OrderPrefix = "acme:eu:ord_f:intent:1"
		}), first: `ALTER TABLE payments DISABLE TRIGGER USER; UPDATE payments SET idempotency_key = 'eu:first', intent_id = 'pi',
				confirm_sent_at = now() WHERE tenant_id = 'acme' AND id = 'pay_f';
			ALTER TABLE stripe_call_rows DROP CONSTRAINT stripe_key_names_the_tenant;
			INSERT INTO stripe_call_rows (tenant_id, stripe_key, operation, resource_id, params_sha256)
			VALUES ('acme', 'acme:eu:ord_f:intent:1', 'create_intent', 'ord_f', '')`, show: "StripeKey", want: `
			row Operation=create_intent StripeKey=acme:eu:ord_f:intent:1 Attempts=1 Outcome=done HttpStatus=200
				ObjectID=pi_f RequestIds=[req_c] FirstSentAt=-8h LastSentAt=-8h
			row Operation=confirm StripeKey=acme:eu:first:confirm Attempts=1 Outcome=sent FirstSentAt=-7h
				LastSentAt=-7h`},
		{rule: "ReadsTheConfirmBesideThatOfATwin", query: q.KeyHistoryCalls, with: calls(func(p *db.KeyHistoryCallsParams) {
			p.Key, p.OwnKeys = "first", []string{"acme:eu:first:confirm"}
		}), first: `INSERT INTO stripe_call_rows (tenant_id, stripe_key, operation, resource_id, params_sha256)
			VALUES ('acme', 'acme:eu:first:confirm', 'confirm', 'pay_f', '')`, show: "StripeKey", want: `
			row Operation=confirm StripeKey=acme:eu:first:confirm Attempts=1 Outcome=sent FirstSentAt=-7h
				LastSentAt=-7h`},
		{rule: "ReadsARowInPlaceOfWhatThePaymentSays", query: q.KeyHistoryCalls, with: calls(func(p *db.KeyHistoryCallsParams) {
			p.Key, p.OwnKeys, p.OrderID = "first", []string{"acme:eu:first:confirm"}, "ord_f"
			p.OrderPrefix = "acme:eu:ord_f:intent:1"
		}), first: `INSERT INTO stripe_call_rows (tenant_id, stripe_key, operation, resource_id, params_sha256,
				attempts, first_sent_at)
			VALUES ('acme:eu', 'acme:eu:ord_f:intent:1', 'create_intent', 'ord_f', '', 7, now() - interval '8 hours'),
				('acme:eu', 'acme:eu:first:confirm', 'confirm', 'pay_f', '', 7, now() - interval '7 hours')`,
			show: "StripeKey", want: `
			row Operation=create_intent StripeKey=acme:eu:ord_f:intent:1 Attempts=7 Outcome=sent FirstSentAt=now-8h
				LastSentAt=now
			row Operation=confirm StripeKey=acme:eu:first:confirm Attempts=7 Outcome=sent FirstSentAt=now-7h LastSentAt=now`},
		{rule: "ReadsNoCreationThatWasNotSent", query: q.KeyHistoryCalls, with: calls(func(p *db.KeyHistoryCallsParams) {
			p.OrderID, p.OrderPrefix = "o_n", "acme:eu:o_n:"
		}), first: confirmed("acme:eu/n"), show: "StripeKey", want: `
			no row`},
		{rule: "ReadsTheCallsOfItsOrder", query: q.KeyHistoryCalls, with: calls(func(p *db.KeyHistoryCallsParams) {
			p.OwnKeys, p.OrderPrefix = []string{"acme:eu:held:confirm"}, "acme:eu:cancel ord_1:"
		}), show: "StripeKey", want: `
			row Operation=confirm StripeKey=acme:eu:cancel ord_1:1 Attempts=1 Outcome=sent FirstSentAt=-5h
				LastSentAt=-9h
			row Operation=confirm StripeKey=acme:eu:held:confirm Attempts=1 Outcome=sent FirstSentAt=-4h
				LastSentAt=-9h
			row Operation=confirm StripeKey=acme:eu:cancel ord_1:2 Attempts=1 Outcome=sent FirstSentAt=-3h
				LastSentAt=-9h`},
		{rule: "ReadsTheOldestFirst", query: q.KeyHistoryEvents,
			with: db.KeyHistoryEventsParams{TenantID: tenant, AggregateIds: []string{"ord_1", "pay_1"}}, want: `
			row AggregateID=ord_1 Version=1 Type=order.created CreatedAt=-5h PublishedAt=-4h
			row AggregateID=pay_1 Version=2 Type=payment.failed CreatedAt=-4h
			row AggregateID=pay_1 Version=1 Type=payment.created CreatedAt=-4h`},
		{rule: "ReadsTheOldestFirst", query: q.KeyHistoryWebhooks,
			with: db.KeyHistoryWebhooksParams{Consumer: "stripe", ObjectIds: []string{"pi_1", "pi_2"}}, want: `
			row EventID=evt_3 Type=payment_intent.created ReceivedAt=-5h
			row EventID=evt_2 Type=payment_intent.created ReceivedAt=-4h DoneAt=-8h
			row EventID=evt_1 Type=payment_intent.processing ReceivedAt=-3h DoneAt=-8h`},
		{rule: "ReadsOpenOnesInOrder", query: q.KeyHistoryDiscrepancies,
			with: db.KeyHistoryDiscrepanciesParams{TenantID: tenant, OrderID: "ord_1"}, want: `
			row status
			row amount`},
	})
}
