package mutants

// Files that several mutants change.
const (
	keysTable     = "db/migrations/00002_idempotency_keys.sql"
	outboxTable   = "db/migrations/00003_outbox_events.sql"
	callsTable    = "db/migrations/00005_stripe_calls.sql"
	refundsTable  = "db/migrations/00006_refunds.sql"
	keyStatements = "db/idempotency_keys.sql.go"
	phases        = "db/payments.sql.go"
	standby       = "internal/postgres/standby.go"
	batched       = "internal/postgres/batched.go"
	calls         = "internal/calls/calls.go"
	pay           = "internal/payments/payment.go"
	findIntent    = "internal/payments/repair_find_intent.go"
	payStep       = "internal/checkout/pay.go"
	webhook       = "internal/payments/webhook.go"
)

// All are the mutants, in the order of what they break. A text with a $n in it is
// a statement as sqlc has written it.
var All = []Mutant{
	{
		ID: "M1", Guard: "the primary key of `idempotency_keys`: a key may be claimed twice", Breaks: "I1, I6",
		Edits: []Edit{
			{keysTable, "    PRIMARY KEY (tenant_id, key),\n", ""},
			{keyStatements, "ON CONFLICT (tenant_id, key) DO NOTHING\nRETURNING lease_token", "RETURNING lease_token"},
			{keyStatements, "ON CONFLICT (tenant_id, key) DO NOTHING\n`", "`"},
			{phases, "ON CONFLICT (tenant_id, key) DO NOTHING\n    RETURNING claim_token", "RETURNING claim_token"},
		},
		Test: Test{"internal/payments", "guards_test.go", "TestEachGuardHasAFailingTest/one row per key/Sound",
			"a key has one row"},
	},
	{
		ID: "M2", Guard: "the fence of T2: a holder that lost its lease may store its answer", Breaks: "I3, I9",
		Edits: []Edit{
			{phases, "    WHERE k.lease_token = asked.lease_token AND coalesce(", "    WHERE k.lease_token >= " +
				"asked.lease_token AND coalesce("},
			{phases, "k.lease_token = settled.lease_token\n", "k.lease_token >= settled.lease_token\n"},
		},
		Test: Test{"internal/payments", "guards_test.go", "TestEachGuardHasAFailingTest/the fence of T2/Sound",
			"only the holder of a claim moves it"},
	},
	{
		ID: "M3", Guard: "all attempts of a call share one Stripe key: each attempt makes up its own",
		Breaks: "I1, I8",
		Edits: []Edit{{calls, "attempt := stripe.Call{TenantID: c.TenantID, Key: call.Key}", "attempt := stripe.Call{Key: call.Key + " +
			"time.Now().String()}"}},
		Test: Test{"internal/payments", "refund_test.go", "TestStaleRefund", "a refund is made once"},
	},
	{
		ID: "M4", Guard: "a Stripe key does not contain the fencing token: each holder has its own key",
		Breaks: "I1, I13",
		Edits: []Edit{{calls, "attempt := stripe.Call{TenantID: c.TenantID, Key: call.Key}", "attempt := stripe.Call{Key: call.Key + " +
			"fmt.Sprint(c.Token)}"}},
		Test: Test{"internal/payments", "refund_test.go", "TestStaleRefund", "a refund is made once"},
	},
	{
		ID: "M5", Guard: "answer and events are one transaction: the events follow in a second one", Breaks: "I6, I2",
		Edits: []Edit{
			{phases, "payment_event, nullif(traceparent, '')\n    FROM claim\n", "payment_event, nullif(traceparent, " +
				"'')\n    FROM claim WHERE false\n"},
			{phases, "    FROM claim WHERE pays_order\n), called", "    FROM claim WHERE false\n), called"},
			{pay, "\t\"example.com/payonce/internal/ids\"\n", "\t\"example.com/payonce/internal/ids\"\n\t" +
				"\"example.com/payonce/internal/outbox\"\n"},
			{pay, "return c.Answer(), nil\n}\n\n// After is", "return c.Answer(), s.pool.InTx(ctx, func(q *db.Queries) " +
				"error { return outbox.Append(ctx, q, PaymentEvent(\"payment.\"+string(after.Status), after), " +
				"OrderEvent(\"order.paid\", order)) })\n}\n\n// After is"},
		},
		Test: Test{"internal/payments/crashmatrix", "matrix_test.go", "TestCrashMatrix/payment/finished/success/killed/retry",
			"each version of a payment has one event"},
	},
	{
		ID: "M6", Guard: "answers are stored bytes: a replay is decoded and encoded again", Breaks: "I3",
		Edits: []Edit{
			{"internal/idempotency/store.go", "\t\"crypto/hmac\"\n", "\t\"crypto/hmac\"\n\t\"encoding/json\"\n"},
			{"internal/idempotency/store.go", "row.AnswerStatus, row.AnswerHeaders, row.AnswerBody)\n",
				"row.AnswerStatus, row.AnswerHeaders, row.AnswerBody)\n\t\tvar v any\n\t\tif " +
					"json.Unmarshal(f.Answer.Body, &v) == nil {\n\t\t\tf.Answer.Body, _ = json.Marshal(v)\n\t\t}\n"},
		},
		Test: Test{"internal/payments", "pay_test.go", "TestPayment/SucceedsOnceAndReplaysItsResponse", "every final " +
			"answer of a key is the same"},
	},
	{
		ID: "M7",
		Guard: "the reaper deletes only finished keys, in Go and by `unfinished_is_never_deleted`: it deletes " +
			"whatever is old",
		Breaks: "I17, I8",
		Edits: []Edit{
			{"db/retention.sql.go", "WHERE k.answer_dropped_at < (SELECT clock_timestamp() - $1::interval) AND " +
				"k.answer_dropped_at IS NOT NULL\n", "WHERE k.leased_until < clock_timestamp() - $1::interval\n"},
			{"db/retention.sql.go", " AND k.finished_at IS NOT NULL AND k.answer_dropped_at IS NOT NULL\n`", "\n`"},
			{keysTable, "CREATE TRIGGER unfinished_is_never_deleted AFTER DELETE ON idempotency_keys FOR EACH ROW\n    " +
				"WHEN (OLD.finished_at IS NULL OR OLD.answer_dropped_at IS NULL)\n    EXECUTE FUNCTION refuse_write('only a " +
				"tombstone may be deleted');\n", ""},
		},
		Test: Test{"internal/idempotency", "reaper_test.go", "TestReaper/LeavesUnfinishedKeysAlone", "the reaper " +
			"removes only what is finished and old"},
	},
	{
		ID: "M8", Guard: "the completer finishes abandoned work: it does not", Breaks: "I5",
		Edits: []Edit{{"internal/idempotency/completer.go", "\tvar wait sync.WaitGroup\n\tfor _, row := range due " +
			"{", "\tvar wait sync.WaitGroup\n\tfor _, row := range due[:0] {"}},
		Test: Test{"internal/payments/crashmatrix", "matrix_test.go", "TestCrashMatrix/payment/payment_recorded/success/killed/" +
			"completer", "no key is stuck"},
	},
	{
		ID:     "M9",
		Guard:  "work outlives its client's connection (`context.WithoutCancel`): it ends with the connection",
		Breaks: "no invariant; only the time to a final answer",
		Edits: []Edit{
			{"internal/http/idempotency.go", "context.WithDeadline(context.WithoutCancel(ctx), until)",
				"context.WithDeadline(ctx, until)"},
			{"internal/http/observe.go", "Context: context.WithoutCancel(ctx), requestID", "Context: ctx, requestID"},
		},
		Test: Test{"internal/payments", "pay_test.go", "TestClientHangsUp", "the time to a final answer is that of " +
			"the work"},
	},
	{
		ID:     "M10",
		Guard:  "a lost COMMIT is in doubt: pgx's `SafeToRetry` is believed and the transaction is repeated",
		Breaks: "I1, I7",
		Edits: []Edit{
			{"internal/postgres/pool.go", "func NotWritten(err error) bool {\n", "func NotWritten(err error) bool " +
				"{\n\tif pgconn.SafeToRetry(err) {\n\t\treturn true\n\t}\n"},
			{"internal/postgres/pool.go", "if err = p.inTxOnce(ctx, within, reads, fn); !serializationFailure(err) {",
				"if err = p.inTxOnce(ctx, within, reads, fn); !serializationFailure(err) && !pgconn.SafeToRetry(err) {"},
		},
		Test: Test{"testkit/pgproxy", "pgproxy_test.go", "TestInTxReportsDoubt", "a doubtful transaction is not " +
			"repeated by itself"},
	},
	{
		ID:     "M11",
		Guard:  "the relay leases only the first unpublished event of an object: it takes whatever is not locked",
		Breaks: "I6",
		Edits: []Edit{{"db/outbox.sql.go", "      AND NOT EXISTS (\n          SELECT FROM outbox_events p\n          " +
			"WHERE p.tenant_id = o.tenant_id AND p.aggregate_id = o.aggregate_id\n            AND p.version < o.version " +
			"AND p.published_at IS NULL)\n", ""}},
		Test: Test{"internal/outbox", "relay_test.go", "TestRelay/LeavesFreshLeasesAlone", "the second event is " +
			"nobody's, but its head is leased"},
	},
	{
		ID: "M12",
		Guard: "versions come from the locked row, and are in the key of `outbox_events`: the version is the one " +
			"read earlier, plus one",
		Breaks: "I6",
		Edits: []Edit{
			{phases, "p.version = asked.payment_version\n", "p.version >= asked.payment_version\n"},
			{phases, "p.version = decided.payment_version\n", "p.version >= decided.payment_version\n"},
			{outboxTable, "    PRIMARY KEY (tenant_id, aggregate_id, version),\n", ""},
		},
		Test: Test{"internal/payments", "fence_test.go", "TestConcurrentEndsOfOnePayment", "each version of a payment " +
			"has one event"},
	},
	{
		ID: "M13", Guard: "an event is published, then marked: it is marked first", Breaks: "I6",
		Edits: []Edit{{"internal/outbox/relay.go", "\tunrendered := r.publish(ctx, begun, runs)\n\tn, err := r.settle(ctx, leaseID, runs)\n",
			"\tfor _, run := range runs {\n\t\tfor _, e := range run {\n\t\t\te.tried = true\n\t\t}\n\t}\n\tn, err := " +
				"r.settle(ctx, leaseID, runs)\n\tunrendered := r.publish(ctx, begun, runs)\n"}},
		Test: Test{"internal/outbox", "relay_test.go", "TestRelay/SendsEventsOfACrashedRelay", "every event is published"},
	},
	{
		ID: "M14", Guard: "the inbox row and the effect are one transaction: the effect is written by itself",
		Breaks: "I7",
		Edits: []Edit{{"internal/inbox/consumer.go", "return c.handler.Apply(ctx, q, m.event(c.name), nil)",
			"return c.handler.Apply(ctx, c.pool.Queries, m.event(c.name), nil)"}},
		Test: Test{"internal/inbox", "consumer_test.go", "TestConsumer/LeavesNeitherRowNorEffectWithoutTheOther",
			"an effect without its row"},
	},
	{
		ID: "M15", Guard: "the inbox recognises events by their id: by their aggregate's id", Breaks: "I7, I22",
		Edits: []Edit{{"internal/inbox/consumer.go", "db.InboxClaimParams{Consumer: c.name, EventID: m.ID,",
			"db.InboxClaimParams{Consumer: c.name, EventID: m.Subject,"}},
		Test: Test{"internal/inbox", "wrong_test.go", "TestEffectsUnderKills/OfTheConsumerHappenOnce",
			"events without their effect"},
	},
	{
		ID: "M16", Guard: "the broker gets its acknowledgement after the commit: before it", Breaks: "I22",
		Edits: []Edit{{"internal/broker/jetstream_consume.go", "\tstillAlive := keepAlive(msg,", "\t_ = msg." +
			"Ack()\n\tstillAlive := keepAlive(msg,"}},
		Test: Test{"internal/broker", "contract_test.go", "TestContract/Running/" +
			"DeliversAgainWithoutLimitAndWithoutOvertaking", "a message that failed has vanished"},
	},
	{
		ID:     "M17",
		Guard:  "a webhook is stored before it is answered 200: it is answered 200 even if it was not stored",
		Breaks: "I15",
		Edits: []Edit{{"internal/http/webhooks.go", "\tif err != nil {\n\t\ts.refuse(w, r, " +
			"err)\n\t\treturn\n\t}\n\tif fresh {", "\tif err != nil {\n\t\ts.o.Log.Warn(err.Error())\n\t}\n\tif fresh {"}},
		Test: Test{"internal/payments", "webhook_test.go", "TestWebhooks/AreAnsweredOnceTheyAreStored", "a webhook " +
			"that was answered 200 is stored"},
	},
	{
		ID:     "M18",
		Guard:  "state is read from Stripe's object and only moves forward: each event's snapshot is believed as it arrives",
		Breaks: "I15, I11",
		Edits: []Edit{
			{"internal/http/webhooks.go", "Payload: event.Hint(),", "Payload: body,"},
			{webhook, "\t\"errors\"\n", "\t\"encoding/json\"\n\t\"errors\"\n"},
			{webhook, "seen.refunds, err = s.gateway.RefundsOf(ctx, stripe.NoTenant, hint.ID)", `var event struct {
			Data struct {
				Object struct {
					ID       string            ` + "`json:\"id\"`" + `
					Status   db.RefundStatus   ` + "`json:\"status\"`" + `
					Amount   int64             ` + "`json:\"amount\"`" + `
					Currency string            ` + "`json:\"currency\"`" + `
					Metadata map[string]string ` + "`json:\"metadata\"`" + `
				} ` + "`json:\"object\"`" + `
			} ` + "`json:\"data\"`" + `
		}
		err = json.Unmarshal(e.Payload, &event)
		object := event.Data.Object
		seen.refunds = []stripe.Refund{{ID: object.ID, Status: object.Status, IntentID: hint.ID,
			AmountMinor: object.Amount, Currency: object.Currency,
			TenantID: object.Metadata["tenant_id"], RefundID: object.Metadata["refund_id"]}}`},
			{"internal/compare/compare.go", "\tcase from == db.RefundStatusPending && to == " +
				"db.RefundStatusSucceeded:\n", "\tcase from == db.RefundStatusFailed && to == " +
				"db.RefundStatusSucceeded:\n\t\treturn amount, amount, true\n\tcase from == db.RefundStatusPending && to == " +
				"db.RefundStatusSucceeded:\n"},
			{refundsTable, "OR (OLD.status = 'succeeded' AND NEW.status IN ('failed', 'canceled'))))",
				"OR (OLD.status = 'succeeded' AND NEW.status IN ('failed', 'canceled')) OR " +
					"(OLD.status = 'failed' AND NEW.status = 'succeeded')))"},
		},
		Test: Test{"internal/payments", "webhook_test.go", "TestWebhooks/InAnyOrderEndInTheSameState", "as Stripe has " +
			"it, in whatever order its events came"},
	},
	{
		ID: "M19", Guard: "the fingerprint covers the whole request: it leaves out the body", Breaks: "I4",
		Edits: []Edit{{"internal/http/idempotency.go", "\t_, _ = mac.Write(canonicalBody)\n", ""}},
		Test:  Test{"internal/http", "keys_test.go", "TestKey/MismatchRevealsNothing", "a key serves one request"},
	},
	{
		ID: "M20", Guard: "a key is looked up within its tenant, and the policies show no other's: across all tenants",
		Breaks: "I10",
		Edits: []Edit{
			{"db/rights.sql", "        EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', wall.name);\n", ""},
			{keyStatements, "AS standby\nFROM asked\nJOIN idempotency_keys k ON k.tenant_id = asked.tenant_id AND ",
				"AS standby\nFROM asked\nJOIN idempotency_keys k ON asked.tenant_id <> '' AND "},
		},
		Test: Test{"internal/payments", "pay_test.go", "TestOrderIsPaidOnce/OfEachTenant", "another tenant's order is " +
			"not there, and neither is the key"},
	},
	{
		ID: "M21", Guard: "an unknown step is never compensated: it is taken for a failure", Breaks: "I14, I16",
		Edits: []Edit{
			{payStep, "\treturn s.saveProgress(ctx, c, s.k)\n", "\t_ = s.failStep(ctx, c, s.k, db.SagaStepPay, " +
				"releaseDue, paymentCanceled)\n\treturn s.saveProgress(ctx, c, s.k)\n"},
		},
		Test: Test{"internal/checkout", "unknown_test.go", "TestCheckout_Unknown/IsNeverCompensated", "unknown is " +
			"never compensated"},
	},
	{
		ID: "M22", Guard: "leases expire by the database's clock: by the clock of a host that is an hour fast",
		Breaks: "I18, I9",
		Edits: []Edit{
			{keyStatements, "\t\"context\"\n", "\t\"context\"\n\t\"strings\"\n"},
			{keyStatements, "q.db.Query(ctx, KeyTakeOverDue,", "q.db.Query(ctx, strings.ReplaceAll(KeyTakeOverDue, \"< " +
				"clock_timestamp()\", \"< '\"+time.Now().Add(time.Hour).Format(time.RFC3339)+\"'\"),"},
		},
		Test: Test{"internal/payments", "fence_test.go", "TestLiveLeaseIsNotTakenOver", "a living holder was taken over"},
	},
	{
		ID: "M23", Guard: "no answer means an unknown outcome: it is taken for a refusal", Breaks: "I14, I8",
		Edits: []Edit{{"internal/stripe/classify.go", "\t\treturn Unknown // Cut short,", "\t\treturn Refused // Cut " +
			"short,"}},
		Test: Test{"internal/payments/crashmatrix", "matrix_test.go", "TestCrashMatrix/payment/none/response " +
			"lost/undisturbed/retry", "what may have happened was called a failure"},
	},
	{
		ID: "M24", Guard: "a replay needs a valid API key: a revoked one still gets it", Breaks: "I21",
		Edits: []Edit{{"db/tenants.sql.go", "WHERE a.revoked_at IS NULL AND (", "WHERE ("}},
		Test:  Test{"internal/http", "keys_test.go", "TestKey/ReplayRequiresAValidAPIKey", "the key is known to be revoked"},
	},
	{
		ID:     "M25",
		Guard:  "nothing is resent after a day, in Go and by `stripe_key_not_resent_after_24h`: it is resent",
		Breaks: "I13, I1",
		Edits: []Edit{
			{calls, "ResendWithin = 12 * time.Hour", "ResendWithin = 48 * time.Hour"},
			{calls, "const _ = uint(KeyLifetime - ResendWithin) // does not compile if we would outlive Stripe's memory\n", ""},
			{findIntent, "\t_ = uint(searchUntil - calls.ResendWithin)\n", ""},
			{callsTable, "NEW.last_sent_at > OLD.first_sent_at + interval '23 hours'", "NEW.last_sent_at > " +
				"OLD.first_sent_at + interval '23 days'"},
		},
		Test: Test{"internal/payments", "refund_test.go", "TestRefundPastKeyLifetime", "a refund is made once"},
	},
	{
		ID: "M26", Guard: "a batch that the database refuses is halved: one bad row fails its neighbours",
		Breaks: "no invariant; payments with which nothing is wrong",
		Edits:  []Edit{{batched, "(refuses(err) || tookTooLong(err) || unreadable)", "(tookTooLong(err) || unreadable)"}},
		Test: Test{"internal/postgres", "payments_in_batches_test.go", "TestRefusedPaymentsAmongHundreds",
			"a row that is refused fails no other"},
	},
	{
		ID: "M27", Guard: "each member of a batch in doubt reads its own row back: the doubt is settled for all by one",
		Breaks: "I20",
		Edits: []Edit{{"internal/idempotency/store.go", "q.KeyRead(ctx, db.KeyReadParams{TenantIds: tenants, Keys: " +
			"names})\n\t\t\tfor _, row := range rows {\n\t\t\t\tdone(row.Ordinal, row)",
			"q.KeyRead(ctx, db.KeyReadParams{TenantIds: tenants, Keys: names})\n\t\t\tfor _, row := range rows " +
				"{\n\t\t\t\tdone(row.Ordinal, rows[len(rows)-1])"}},
		Test: Test{"internal/postgres", "payments_in_batches_test.go", "TestBatchInDoubt/PaymentBegin/After",
			"each got its own true result"},
	},
	{
		ID:     "M28",
		Guard:  "a COMMIT whose wait for the standby was canceled is in doubt: it is a success, as the server says",
		Breaks: "I2, I14, after a failover",
		Edits:  []Edit{{standby, "if field == \"R\"+localCommitRoutine {\n\t\t\treturn true", "if field == \"R\"+localCommitRoutine {\n\t\t\treturn false"}},
		Test:   Test{"internal/postgres", "standby_test.go", "TestLocalCommitIsInDoubt", "a failover may lose it"},
	},
	{
		ID: "M29", Guard: "a replay waits until the standby has it: it is given at once", Breaks: "I2, I3, after a failover",
		Edits: []Edit{{"internal/idempotency/store.go", "if row.Standby { // The answer", "if false { // The answer"}},
		Test: Test{"internal/idempotency", "standby_test.go", "TestReplayWaitsForTheStandby",
			"what a failover may lose is not given"},
	},
	{
		ID: "M30", Guard: "a duplicate event is acknowledged once the standby has the first: it is at once",
		Breaks: "I15, after a failover",
		Edits:  []Edit{{"internal/inbox/intake.go", "return false, i.pool.AwaitStandby(ctx, e.Consumer)", "return false, nil"}},
		Test: Test{"internal/inbox", "standby_test.go", "TestDuplicateWaitsForTheStandby",
			"what a failover may lose is not acknowledged"},
	},
}
