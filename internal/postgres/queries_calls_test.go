package postgres_test

import (
	"strings"
	"testing"
	"time"

	"example.com/payonce/db"
)

const callRows = `
	idempotency_keys
	  key       lease_token  finished_at
	  finished  3            -1h
	  held      3            .
	  stale     4            .
	  another   3            .

	stripe_call_rows
	  stripe_key               outcome  first_sent_at  in_doubt  error_cached  object_id
	  acme:eu:done:confirm     done     -9h            .         .             pi
	  acme:eu:doubt:confirm    refused  -9h            true      true          pi
	  acme:eu:old:create       sent     -30h           .         .             .
	  acme:eu:sent:confirm     sent     -9h            .         .             pi
	  acme:eu:unknown:confirm  unknown  -9h            .         .             .

	payments
	  id     order_id  status      intent_id  create_sent_at  create_request_id  confirm_sent_at  confirm_request_id
	  begun  o_begun   processing  .          -9h             .                  .                .
	  first  o_first   processing  pi_first   -9h             req_c              -8h              .
	  late   o_late    processing  pi_late    -31h            req_c              -30h             .
	  paid   o_paid    succeeded   pi_paid    -9h             req_c              -8h              req_p

	intent_searches
	  stripe_key            second_pass  after_id  found  pages  ended_at
	  acme:eu:old:create    true         pi_9      {pi}   7      -1h
	  acme:eu:sent:confirm  .            .         .      .      .
`

func TestQueriesOfCalls(t *testing.T) {
	t.Parallel()
	attempt := func(key, call string) any {
		return db.StripeCallRecordAttemptParams{
			TenantID: tenant, Key: key, LeaseToken: 3, StripeKey: tenant + ":" + call, Operation: "confirm",
			ResourceID: "pay", ParamsSha256: []byte("sha"), ResendWithin: 23 * time.Hour,
		}
	}
	outcome := func(key, call string) db.StripeCallRecordAttemptOutcomeParams {
		return db.StripeCallRecordAttemptOutcomeParams{
			TenantID: tenant, Key: key, LeaseToken: 3, StripeKey: tenant + ":" + call, Operation: "confirm",
			ResourceID: "pay", Outcome: "refused",
			HttpStatus: ptr[int16](402), ErrorCode: ptr("card_declined"), StripeRequestID: "req_s",
		}
	}
	// The first attempts of payments, by what they are called here: begun:create, paid:confirm.
	ofPayment := func(call string) (key, operation, resource string) {
		payment, operation, _ := strings.Cut(call, ":")
		if operation == "create" {
			return tenant + ":o_" + payment + ":intent:1", "create_intent", "o_" + payment
		}
		return tenant + ":key_" + payment + ":confirm", "confirm", payment
	}
	const (
		keys          = "held finished stale missing"
		firstAttempts = "begun:create paid:create first:confirm paid:confirm begun:confirm"
	)
	checkQueries(t, callRows, []queryCase{
		{rule: "ReadsOne", query: q.StripeCallGet,
			with: db.StripeCallGetParams{TenantID: tenant, StripeKey: tenant + ":doubt:confirm", Operation: "confirm",
				ResourceID: "pay"}, show: "StripeKey", want: `
			row StripeKey=acme:eu:doubt:confirm AgeSeconds=-9h`},
		{rule: "ReadsThatOfAPayment", query: q.StripeCallGet, each: firstAttempts, with: func(call string) any {
			key, operation, resource := ofPayment(call)
			return db.StripeCallGetParams{TenantID: tenant, StripeKey: key, Operation: operation, ResourceID: resource}
		}, show: "StripeKey Outcome RequestIds ObjectID HttpStatus", want: `
			begun:create: row StripeKey=acme:eu:o_begun:intent:1 Outcome=sent AgeSeconds=-9h
			paid:create: row StripeKey=acme:eu:o_paid:intent:1 Outcome=done HttpStatus=200 ObjectID=pi_paid
				RequestIds=[req_c] AgeSeconds=-9h
			first:confirm: row StripeKey=acme:eu:key_first:confirm Outcome=sent AgeSeconds=-8h
			paid:confirm: row StripeKey=acme:eu:key_paid:confirm Outcome=done HttpStatus=200 ObjectID=pi_paid
				RequestIds=[req_p] AgeSeconds=-8h
			begun:confirm: no row`},
		{rule: "ContinuesThatOfAPayment", query: q.StripeCallRecordAttempt, each: firstAttempts + " late:confirm",
			with: func(call string) any {
				key, operation, resource := ofPayment(call)
				return db.StripeCallRecordAttemptParams{
					TenantID: tenant, Key: "held", LeaseToken: 3, StripeKey: key, Operation: operation,
					ResourceID: resource, ParamsSha256: []byte("sha"), ResendWithin: 23 * time.Hour,
				}
			}, want: `
			begun:create: row Attempts=2 InDoubt=true
			begun:create: inserts stripe_call_rows/acme:eu:o_begun:intent:1: attempts=2 first_sent_at=-9h
				in_doubt=true last_sent_at=now operation=create_intent outcome=sent params_sha256=sha
				resource_id=o_begun
			begun:create: locks idempotency_keys/held
			paid:create: row Attempts=2
			paid:create: inserts stripe_call_rows/acme:eu:o_paid:intent:1: attempts=2 first_sent_at=-9h
				http_status=200 last_sent_at=now object_id=pi_paid operation=create_intent outcome=sent
				params_sha256=sha request_ids={req_c} resource_id=o_paid
			paid:create: locks idempotency_keys/held
			first:confirm: row Attempts=2 InDoubt=true
			first:confirm: inserts stripe_call_rows/acme:eu:key_first:confirm: attempts=2 first_sent_at=-8h
				in_doubt=true last_sent_at=now operation=confirm outcome=sent params_sha256=sha resource_id=first
			first:confirm: locks idempotency_keys/held
			paid:confirm: row Attempts=2
			paid:confirm: inserts stripe_call_rows/acme:eu:key_paid:confirm: attempts=2 first_sent_at=-8h
				http_status=200 last_sent_at=now object_id=pi_paid operation=confirm outcome=sent params_sha256=sha
				request_ids={req_p} resource_id=paid
			paid:confirm: locks idempotency_keys/held
			begun:confirm: row Attempts=1
			begun:confirm: inserts stripe_call_rows/acme:eu:key_begun:confirm: attempts=1 first_sent_at=now
				last_sent_at=now operation=confirm outcome=sent params_sha256=sha resource_id=begun
			begun:confirm: locks idempotency_keys/held
			late:confirm: row Attempts=1 PastResendCutoff=true
			late:confirm: inserts stripe_call_rows/acme:eu:key_late:confirm: attempts=1 first_sent_at=-30h
				last_sent_at=-30h operation=confirm outcome=sent params_sha256=sha resource_id=late
			late:confirm: locks idempotency_keys/held`},
		{rule: "NeedsNoRequestID", query: q.StripeCallRecordAttemptOutcome, with: but(outcome("held", ""),
			func(p *db.StripeCallRecordAttemptOutcomeParams) {
				p.StripeKey, p.Operation, p.ResourceID = ofPayment("paid:confirm")
				p.StripeRequestID = ""
			}), want: `
			returns 1
			inserts stripe_call_rows/acme:eu:key_paid:confirm: attempts=1 error_code=card_declined
				first_sent_at=-8h http_status=402 last_sent_at=-8h object_id=pi_paid operation=confirm
				outcome=refused params_sha256=32 bytes request_ids={req_p} resource_id=paid
			locks idempotency_keys/held`},
		{rule: "NeedsNoRequestIDForThatOfAPayment", query: q.StripeCallRecordOutcome, with: db.StripeCallRecordOutcomeParams{
			TenantID: tenant, StripeKey: tenant + ":key_paid:confirm", Operation: "confirm", ResourceID: "paid",
			Outcome: "refused",
		}, want: `
			inserts stripe_call_rows/acme:eu:key_paid:confirm: attempts=1 first_sent_at=-8h last_sent_at=-8h
				object_id=pi_paid operation=confirm outcome=refused params_sha256=32 bytes request_ids={req_p}
				resource_id=paid`},
		{rule: "MakesARowOfThatOfAPayment", query: q.StripeCallRecordAttemptOutcome, each: firstAttempts,
			with: func(call string) any {
				key, operation, resource := ofPayment(call)
				p := outcome("held", "")
				p.StripeKey, p.Operation, p.ResourceID, p.InDoubt, p.Outcome = key, operation, resource, true, "unknown"
				return p
			}, want: `
			begun:create: returns 1
			begun:create: inserts stripe_call_rows/acme:eu:o_begun:intent:1: attempts=1 error_code=card_declined
				first_sent_at=-9h http_status=402 in_doubt=true last_sent_at=-9h operation=create_intent
				outcome=unknown params_sha256=32 bytes request_ids={req_s} resource_id=o_begun
			begun:create: locks idempotency_keys/held
			paid:create: returns 1
			paid:create: inserts stripe_call_rows/acme:eu:o_paid:intent:1: attempts=1 error_code=card_declined
				first_sent_at=-9h http_status=402 in_doubt=true last_sent_at=-9h object_id=pi_paid
				operation=create_intent outcome=unknown params_sha256=32 bytes request_ids={req_c, req_s}
				resource_id=o_paid
			paid:create: locks idempotency_keys/held
			first:confirm: returns 1
			first:confirm: inserts stripe_call_rows/acme:eu:key_first:confirm: attempts=1
				error_code=card_declined first_sent_at=-8h http_status=402 in_doubt=true last_sent_at=-8h
				operation=confirm outcome=unknown params_sha256=32 bytes request_ids={req_s} resource_id=first
			first:confirm: locks idempotency_keys/held
			paid:confirm: returns 1
			paid:confirm: inserts stripe_call_rows/acme:eu:key_paid:confirm: attempts=1 error_code=card_declined
				first_sent_at=-8h http_status=402 in_doubt=true last_sent_at=-8h object_id=pi_paid operation=confirm
				outcome=unknown params_sha256=32 bytes request_ids={req_p, req_s} resource_id=paid
			paid:confirm: locks idempotency_keys/held
			begun:confirm: returns 0
			begun:confirm: locks idempotency_keys/held`},
		{rule: "MakesARowOfThatOfAPayment", query: q.StripeCallRecordOutcome, each: firstAttempts,
			with: func(call string) any {
				key, operation, resource := ofPayment(call)
				return db.StripeCallRecordOutcomeParams{
					TenantID: tenant, StripeKey: key, Operation: operation, ResourceID: resource, Outcome: "refused",
					HttpStatus: ptr[int16](402), ErrorCode: ptr("card_declined"), StripeRequestID: "req_s",
				}
			}, want: `
			begun:create: inserts stripe_call_rows/acme:eu:o_begun:intent:1: attempts=1 error_code=card_declined
				first_sent_at=-9h http_status=402 last_sent_at=-9h operation=create_intent outcome=refused
				params_sha256=32 bytes request_ids={req_s} resource_id=o_begun
			paid:create: inserts stripe_call_rows/acme:eu:o_paid:intent:1: attempts=1 error_code=card_declined
				first_sent_at=-9h http_status=402 last_sent_at=-9h object_id=pi_paid operation=create_intent
				outcome=refused params_sha256=32 bytes request_ids={req_c, req_s} resource_id=o_paid
			first:confirm: inserts stripe_call_rows/acme:eu:key_first:confirm: attempts=1
				error_code=card_declined first_sent_at=-8h http_status=402 last_sent_at=-8h operation=confirm
				outcome=refused params_sha256=32 bytes request_ids={req_s} resource_id=first
			paid:confirm: inserts stripe_call_rows/acme:eu:key_paid:confirm: attempts=1 error_code=card_declined
				first_sent_at=-8h http_status=402 last_sent_at=-8h object_id=pi_paid operation=confirm
				outcome=refused params_sha256=32 bytes request_ids={req_p, req_s} resource_id=paid
			begun:confirm: nothing`},
		{rule: "InsertsOne", query: q.StripeCallInsert, with: db.StripeCallInsertParams{
			TenantID: tenant, StripeKey: tenant + ":new:confirm", Operation: "confirm", ResourceID: "pay",
			ParamsSha256: []byte("sha"),
		}, want: `
			inserts stripe_call_rows/acme:eu:new:confirm: attempts=1 first_sent_at=now last_sent_at=now
				operation=confirm outcome=sent params_sha256=sha resource_id=pay`},

		{rule: "IsFenced", query: q.StripeCallRecordAttempt, each: keys,
			with: func(key string) any { return attempt(key, "new:confirm") }, want: `
			held: row Attempts=1
			held: inserts stripe_call_rows/acme:eu:new:confirm: attempts=1 first_sent_at=now last_sent_at=now
				operation=confirm outcome=sent params_sha256=sha resource_id=pay
			held: locks idempotency_keys/held
			finished: no row
			stale: no row
			missing: no row`},
		{rule: "KnowsOfEarlierAttempts", query: q.StripeCallRecordAttempt,
			each: "done:confirm doubt:confirm sent:confirm unknown:confirm old:create",
			with: func(call string) any { return attempt("held", call) }, want: `
			done:confirm: row Attempts=2
			done:confirm: changes stripe_call_rows/acme:eu:done:confirm: attempts=2 last_sent_at=now
				outcome=sent
			done:confirm: locks idempotency_keys/held
			doubt:confirm: row Attempts=2 InDoubt=true
			doubt:confirm: changes stripe_call_rows/acme:eu:doubt:confirm: attempts=2 last_sent_at=now
				outcome=sent
			doubt:confirm: locks idempotency_keys/held
			sent:confirm: row Attempts=2 InDoubt=true
			sent:confirm: changes stripe_call_rows/acme:eu:sent:confirm: attempts=2 in_doubt=true
				last_sent_at=now
			sent:confirm: locks idempotency_keys/held
			unknown:confirm: row Attempts=2 InDoubt=true
			unknown:confirm: changes stripe_call_rows/acme:eu:unknown:confirm: attempts=2 in_doubt=true
				last_sent_at=now outcome=sent
			unknown:confirm: locks idempotency_keys/held
			old:create: row InDoubt=true PastResendCutoff=true
			old:create: locks idempotency_keys/held
			old:create: locks stripe_call_rows/acme:eu:old:create`},

		{rule: "IsFenced", query: q.StripeCallRecordAttemptOutcome, each: keys,
			with: func(key string) any { return outcome(key, "sent:confirm") }, want: `
			held: returns 1
			held: changes stripe_call_rows/acme:eu:sent:confirm: error_code=card_declined http_status=402
				outcome=refused request_ids={req_s}
			held: locks idempotency_keys/held
			finished: returns 0
			stale: returns 0
			missing: returns 0`},
		{rule: "KeepsADoubt", query: q.StripeCallRecordAttemptOutcome,
			with: but(outcome("held", "doubt:confirm"), func(p *db.StripeCallRecordAttemptOutcomeParams) {
				p.StripeRequestID, p.ObjectID = "", ptr("pi_other")
			}), want: `
			returns 1
			changes stripe_call_rows/acme:eu:doubt:confirm: error_code=card_declined http_status=402
				object_id=pi_other
			locks idempotency_keys/held`},
		{rule: "RecordsADoubt", query: q.StripeCallRecordAttemptOutcome,
			with: but(outcome("held", "sent:confirm"), func(p *db.StripeCallRecordAttemptOutcomeParams) {
				p.Outcome, p.InDoubt, p.ErrorCached = "unknown", true, true
			}), want: `
			returns 1
			changes stripe_call_rows/acme:eu:sent:confirm: error_cached=true error_code=card_declined
				http_status=402 in_doubt=true outcome=unknown request_ids={req_s}
			locks idempotency_keys/held`},

		{rule: "RecordsTheEnd", query: q.StripeCallRecordOutcome, with: db.StripeCallRecordOutcomeParams{
			TenantID: tenant, StripeKey: tenant + ":doubt:confirm", Operation: "confirm", ResourceID: "pay",
			Outcome: "done", HttpStatus: ptr[int16](200),
			StripeRequestID: "req_s",
		}, want: `
			changes stripe_call_rows/acme:eu:doubt:confirm: http_status=200 in_doubt=false outcome=done
				request_ids={req_s}`},
		{rule: "NeedsNoRequestID", query: q.StripeCallRecordOutcome, with: db.StripeCallRecordOutcomeParams{
			TenantID: tenant, StripeKey: tenant + ":sent:confirm", Operation: "confirm", ResourceID: "pay",
			Outcome: "not_executed", ObjectID: ptr("pi_other"),
		}, want: `
			changes stripe_call_rows/acme:eu:sent:confirm: object_id=pi_other outcome=not_executed`},

		{rule: "ReadsOne", query: q.IntentSearchGet,
			with: db.IntentSearchGetParams{TenantID: tenant, StripeKey: tenant + ":sent:confirm"}, want: `
			row StripeKey=acme:eu:sent:confirm FromAt=-9h UntilAt=-8h`},
		{rule: "IsFenced", query: q.IntentSearchBegin, each: keys, with: func(key string) any {
			return db.IntentSearchBeginParams{TenantID: tenant, Key: key, LeaseToken: 3,
				StripeKey: tenant + ":done:confirm", FromAt: at("-2h"), UntilAt: at("-1h")}
		}, want: `
			held: row StripeKey=acme:eu:done:confirm FromAt=-2h UntilAt=-1h
			held: inserts intent_searches/acme:eu:done:confirm: from_at=-2h until_at=-1h
			held: locks idempotency_keys/held
			held: locks stripe_call_rows/acme:eu:done:confirm
			finished: no row
			stale: no row
			missing: no row`},
		{rule: "BeginsAgain", query: q.IntentSearchBegin, with: db.IntentSearchBeginParams{
			TenantID: tenant, Key: "held", LeaseToken: 3, StripeKey: tenant + ":old:create", FromAt: at("-2h"),
			UntilAt: at("-1h"),
		}, want: `
			row StripeKey=acme:eu:old:create FromAt=-2h UntilAt=-1h Pages=7
			changes intent_searches/acme:eu:old:create: after_id=null ended_at=null found={} from_at=-2h
				second_pass=false until_at=-1h
			locks idempotency_keys/held`},
		{rule: "IsFenced", query: q.IntentSearchRead, each: keys, with: func(key string) any {
			return db.IntentSearchReadParams{TenantID: tenant, Key: key, LeaseToken: 3,
				StripeKey: tenant + ":sent:confirm", Found: []string{"pi_2"}, FromAt: at("-2h"), UntilAt: at("-1h"),
				AfterID: ptr("pi_1")}
		}, want: `
			held: row StripeKey=acme:eu:sent:confirm FromAt=-2h UntilAt=-1h AfterID=pi_1 Found=[pi_2] Pages=1
			held: changes intent_searches/acme:eu:sent:confirm: after_id=pi_1 found={pi_2} from_at=-2h pages=1
				until_at=-1h
			held: locks idempotency_keys/held
			finished: no row
			stale: no row
			missing: no row`},
		{rule: "Ends", query: q.IntentSearchRead, with: db.IntentSearchReadParams{
			TenantID: tenant, Key: "held", LeaseToken: 3, StripeKey: tenant + ":old:create", Found: []string{},
			SecondPass: true, FromAt: at("-9h"), UntilAt: at("-8h"), Ended: true,
		}, want: `
			row StripeKey=acme:eu:old:create SecondPass=true FromAt=-9h UntilAt=-8h Found=[pi] Pages=8
				EndedAt=now
			changes intent_searches/acme:eu:old:create: after_id=null ended_at=now pages=8
			locks idempotency_keys/held`},
	})
}
