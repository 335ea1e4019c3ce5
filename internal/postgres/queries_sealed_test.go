package postgres_test

import (
	"testing"
	"time"

	"example.com/payonce/db"
)

const sealedRows = `
	tenants
	  id     name
	  other  Other
	  third  Third
`

func TestQueriesOfSealing(t *testing.T) {
	t.Parallel()
	checkQueries(t, sealedRows, []queryCase{
		{rule: "CountsByKey", query: q.SecretsSealedBy, first: `
			UPDATE tenants SET fingerprint_secret = ` + sealedWith("a", 32) + ` WHERE id = 'other';
			UPDATE tenants SET fingerprint_secret = ` + sealedWith("b", 32) + ` WHERE id IN ('acme', 'acme:eu')`, want: `
			row Secrets=1
			row KeyID=61616161 Secrets=1
			row KeyID=62626262 Secrets=2`},
	})
}

// TestQueriesOfInvariantsOfSealedAnswers: what the database cannot read is judged as it was opened, and nothing else is;
// without opened responses what is plain is judged, and nothing that is sealed.
func TestQueriesOfInvariantsOfSealedAnswers(t *testing.T) {
	t.Parallel()
	const given = `
			idempotency_keys
			  key      finished_at  operation       answer_status  answer_headers   answer_version
			  failed   -1h          create_payment  201            Content-Type: a  1
			  other    -1h          create_payment  201            Content-Type: a  1
			  refund   -1h          create_refund   201            Content-Type: a  1
			  dropped  -1h          create_payment  null           null             null

			payments
			  id           status
			  pay_failed   failed
			  pay_other    failed
			  pay_dropped  failed
			`
	sealAll := `UPDATE idempotency_keys SET answer_body = ` + sealedWith("a", 2) + ` WHERE answer_body = '{}';
			UPDATE idempotency_keys SET answer_body = NULL, answer_dropped_at = now() WHERE key = 'dropped'`
	andPlain := sealAll + `; UPDATE idempotency_keys SET answer_body = 'no JSON' WHERE key = 'other'`
	tenants := []string{tenant, twin, tenant, tenant}
	keys := []string{"failed", "failed", "refund", "dropped"}
	bodies := func(body string) [][]byte { return [][]byte{[]byte(body), []byte(body), []byte(body), []byte(body)} }
	const said = `{"status":"404"}`
	checkInvariants(t, []queryCase{
		{rule: "ChecksWhatWasOpened", query: q.InvariantSuccessIsKept, given: given, first: andPlain, any: true,
			with: db.InvariantSuccessIsKeptParams{TenantIds: tenants, Keys: keys, Bodies: bodies(said)}, want: `
			row Subject=acme:eu pay_failed Detail=response says paid with  , payment is failed`},
		{rule: "LeavesWhatIsSealed", query: q.InvariantSuccessIsKept, given: given, first: sealAll,
			with: db.InvariantSuccessIsKeptParams{}, want: `no row`},
		{rule: "ChecksWhatWasOpened", query: q.InvariantResponseAgrees, given: given, first: andPlain, any: true,
			with: db.InvariantResponseAgreesParams{TenantIds: tenants, Keys: keys, Bodies: bodies(said)}, want: `
			row Subject=acme:eu pay_failed Detail=create_payment responded 201, body says 404, payment is failed
			row Subject=acme:eu pay_refund Detail=create_refund responded 201, body says 404, nothing exists`},
		{rule: "LeavesWhatIsSealed", query: q.InvariantResponseAgrees, given: given, first: sealAll,
			with: db.InvariantResponseAgreesParams{}, want: `no row`},
		{rule: "ChecksWhatWasOpened", query: q.InvariantResponseIsComplete, given: given, first: andPlain, any: true,
			with: db.InvariantResponseIsCompleteParams{TenantIds: tenants, Keys: keys, Bodies: bodies("{")}, want: `
			row Subject=acme:eu pay_failed Detail=answer version 1, status 201
			row Subject=acme:eu pay_refund Detail=answer version 1, status 201`},
		{rule: "LeavesWhatIsSealed", query: q.InvariantResponseIsComplete, given: given, first: sealAll,
			with: db.InvariantResponseIsCompleteParams{}, want: `no row`},
		{rule: "ReadsWhatIsSealed", query: q.SealedAnswers, given: given, first: sealAll + `;
				UPDATE idempotency_keys SET answer_body = '{}' WHERE key = 'other'`,
			with: db.SealedAnswersParams{LimitRows: 9}, want: `
			row Key=failed ResourceID=pay_failed AnswerBody=50 bytes
			row Key=refund ResourceID=pay_refund AnswerBody=50 bytes`},
		{rule: "ContinuesAfterAKey", query: q.SealedAnswers, given: given, first: sealAll,
			with: db.SealedAnswersParams{AfterTenant: tenant, AfterKey: "failed", LimitRows: 1}, want: `
			row Key=other ResourceID=pay_other AnswerBody=50 bytes`},
		{rule: "PassesATenant", query: q.SealedAnswers, given: given, first: sealAll,
			with: db.SealedAnswersParams{AfterTenant: tenant + "x", AfterKey: "a", LimitRows: 9}, want: `no row`},
	})
}

// TestQueriesOfTheResealer: what is sealed with the key 'aaaa' is left alone.
func TestQueriesOfTheResealer(t *testing.T) {
	t.Parallel()
	const given = `
	idempotency_keys
	  key       finished_at  request  answer_dropped_at
	  begun     .            r        .
	  begun_2   .            r        .
	  dropped   -4h          .        -1h
	  finished  -3h          r        .
	  later     -2h          .        .
	  recent    -1h          r        .

	inbox_events
	  event_id  consumer  status   payload
	  done      stripe    done     .
	  parked    stripe    parked   p
	  waits     another   pending  p
	  waits     stripe    pending  p
`
	by := []byte("aaaa")
	seal := `UPDATE idempotency_keys SET request = ` + sealedWith("a", 1) + ` WHERE key IN ('begun_2', 'finished');
		UPDATE inbox_events SET payload = ` + sealedWith("a", 1) + ` WHERE event_id = 'parked';
		UPDATE tenants SET fingerprint_secret = ` + sealedWith("a", 32) + ` WHERE id = 'acme'`
	unguarded := "ALTER TABLE idempotency_keys DISABLE TRIGGER USER;" + seal + ";"
	after := db.AnswersAfterParams{KeyID: by, AfterAt: at("-9h"), Behind: 90 * time.Minute, LimitRows: 9}
	one := db.KeyResealParams{
		TenantID: tenant, Key: "finished", WasRequest: []byte("r"), WasAnswer: []byte("{}"),
		SealedRequest: []byte("s"), SealedAnswer: []byte("[]"),
	}
	free := "ALTER TABLE idempotency_keys DISABLE TRIGGER USER; ALTER TABLE tenants DISABLE TRIGGER USER"
	checkQueries(t, given, []queryCase{
		{rule: "FindsWhatIsSealedOtherwise", query: q.SealedOtherwise, first: unguarded,
			with: db.SealedOtherwiseParams{KeyID: by, LimitRows: 9}, want: `
			row Place=idempotency_keys Owner=acme ID=dropped Stored=r
			row Place=idempotency_keys Owner=acme:eu ID=begun Stored=r
			row Place=inbox_events Owner=another ID=waits Stored=p
			row Place=inbox_events Owner=stripe ID=waits Stored=p
			row Place=tenants Owner=acme:eu Stored=32 bytes`},
		{rule: "ContinuesAfterAValue", query: q.SealedOtherwise, first: unguarded,
			with: db.SealedOtherwiseParams{
				KeyID: by, AfterPlace: "idempotency_keys", AfterOwner: tenant, AfterID: "begun", LimitRows: 2,
			}, want: `
			row Place=inbox_events Owner=another ID=waits Stored=p
			row Place=inbox_events Owner=stripe ID=waits Stored=p`},
		{rule: "SaysWhatWasMadeSealed", query: q.SealedOtherwise, first: unguarded +
			"INSERT INTO data_keys (id, plain_until) VALUES ('aaaa', now() - interval '541 minutes' + interval '30 seconds')",
			with: db.SealedOtherwiseParams{KeyID: by, LimitRows: 2}, want: `
			row Place=idempotency_keys Owner=acme ID=dropped Stored=r
			row Place=idempotency_keys Owner=acme:eu ID=begun Stored=r MadeSealed=true`},
		{rule: "ChangesWhatWasRead", query: q.TenantReseal, first: free, each: "ssssssssssssssssssssssssssssssss other",
			with: func(was string) any {
				return db.TenantResealParams{ID: tenant, Was: []byte(was), Sealed: []byte("12345678901234567890123456789012")}
			}, want: `
			ssssssssssssssssssssssssssssssss: returns 1
			ssssssssssssssssssssssssssssssss: changes tenants/tenant: fingerprint_secret=32 bytes
			other: returns 0`},
		{rule: "ChangesWhatWasRead", query: q.EventReseal, each: "p other", with: func(was string) any {
			return db.EventResealParams{Consumer: "stripe", EventID: "waits", Was: []byte(was), Sealed: []byte("s")}
		}, want: `
			p: returns 1
			p: changes inbox_events/stripe/waits: payload=s
			other: returns 0`},
		{rule: "ChangesWhatWasRead", query: q.RequestReseal, first: free, each: "begun dropped finished", with: func(key string) any {
			return db.RequestResealParams{TenantID: tenant, Key: key, Was: []byte("r"), Sealed: []byte("s")}
		}, want: `
			begun: returns 1
			begun: changes idempotency_keys/begun: request=s
			dropped: returns 0
			finished: returns 0`},
		{rule: "NeedsTheRequestThatWasRead", query: q.RequestReseal, with: db.RequestResealParams{
			TenantID: tenant, Key: "begun", Was: []byte("other"), Sealed: []byte("s"),
		}, want: `returns 0`},
		{rule: "ReadsTheOldestFirst", query: q.AnswersAfter, with: after, want: `
			row twin Key=later CreatedAt=-9h1m FinishedAt=-3h1m Request=r AnswerBody={}
			row Key=finished CreatedAt=-9h FinishedAt=-3h Request=r AnswerBody={}
			row twin Key=recent CreatedAt=-9h1m FinishedAt=-2h1m AnswerBody={}
			row Key=later CreatedAt=-9h FinishedAt=-2h AnswerBody={}`},
		{rule: "ContinuesAfterAKey", query: q.AnswersAfter, with: but(after, func(p *db.AnswersAfterParams) {
			p.AfterAt, p.AfterTenant, p.AfterKey, p.LimitRows = at("-3h"), tenant, "finished", 1
		}), want: `
			row twin Key=recent CreatedAt=-9h1m FinishedAt=-2h1m AnswerBody={}`},
		{rule: "SealsBoth", query: q.KeyReseal, first: free, with: one, want: `
			returns 1
			changes idempotency_keys/finished: answer_body=[] request=s`},
		{rule: "LeavesWhatIsNull", query: q.KeyReseal, first: free, with: but(one, func(p *db.KeyResealParams) {
			p.WasRequest, p.SealedRequest = nil, nil
		}), want: `
			returns 1
			changes idempotency_keys/finished: answer_body=[]`},
		{rule: "LeavesAnotherTenants", query: q.KeyReseal, first: free, with: db.KeyResealParams{
			TenantID: tenant, Key: "later", WasAnswer: []byte("{}"), SealedAnswer: []byte("[]"),
		}, want: `
			returns 1
			changes idempotency_keys/later: answer_body=[]`},
		{rule: "NeedsTheAnswerThatWasRead", query: q.KeyReseal, first: free, with: but(one, func(p *db.KeyResealParams) {
			p.WasAnswer = []byte("other")
		}), want: `returns 0`},
		{rule: "NeedsTheRequestThatWasRead", query: q.KeyReseal, first: free, with: but(one, func(p *db.KeyResealParams) {
			p.WasRequest = []byte("other")
		}), want: `returns 0`},
	})
}

// TestQueriesOfDataKeys: the first key has a day in which plain values are written, the next ones have that of the first.
func TestQueriesOfDataKeys(t *testing.T) {
	t.Parallel()
	const two = `INSERT INTO data_keys (id, introduced_at, plain_until) VALUES ('aaaa', now() - interval '3 hours', now() - interval '2 hours'),
		('bbbb', now() - interval '1 hour', now() - interval '2 hours');`
	checkQueries(t, "", []queryCase{
		{rule: "BeginsWithADay", query: q.DataKeyIntroduce, with: []byte("aaaa"), want: `
			inserts data_keys/\x61616161: introduced_at=now plain_until=now+24h`},
		{rule: "NeedsNoDayInANewDatabase", query: q.DataKeyIntroduce, with: []byte("aaaa"), first: "DELETE FROM tenants", want: `
			inserts data_keys/\x61616161: introduced_at=now plain_until=now`},
		{rule: "GivesAnotherKeyNoDay", query: q.DataKeyIntroduce, with: []byte("cccc"), first: two, want: `
			inserts data_keys/\x63636363: introduced_at=now plain_until=now-2h`},
		{rule: "MakesAKeyTheNewestAgain", query: q.DataKeyIntroduce, with: []byte("aaaa"), first: two, want: `
			changes data_keys/\x61616161: introduced_at=now`},
		{rule: "ReadsThePlainOnes", query: q.DataKeysRest, first: two, want: `
			changes data_keys/\x61616161: plain_until=infinity
			changes data_keys/\x62626262: plain_until=infinity`},
		{rule: "BeginsAgainWithADay", query: q.DataKeysResume, first: two + "UPDATE data_keys SET plain_until = 'infinity'", want: `
			changes data_keys/\x61616161: plain_until=now+24h
			changes data_keys/\x62626262: plain_until=now+24h`},
		{rule: "ChangesNothingWhileAllIsSealed", query: q.DataKeysResume, first: two, want: ``},
		{rule: "HasTheNewestFirst", query: q.DataKeys, first: two, want: `
			row bbbb
			row aaaa`},
		{rule: "ReadsThoseOfBefore", query: q.PlainIsRead, first: two, each: "-119m -121m",
			with: func(made string) any { return at(made) }, want: `
			-119m: returns false
			-121m: returns true`},
		{rule: "ReadsAllWithoutAKey", query: q.PlainIsRead, with: at("-1h"), want: `returns true`},
		{rule: "IsAnHour", query: q.RetentionFloor, want: `returns 3600`},
	})
}
