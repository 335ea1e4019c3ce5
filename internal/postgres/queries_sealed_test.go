package postgres_test

import (
	"testing"

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
	tenants := []string{tenant, twin, tenant, tenant}
	keys := []string{"failed", "failed", "refund", "dropped"}
	bodies := func(body string) [][]byte { return [][]byte{[]byte(body), []byte(body), []byte(body), []byte(body)} }
	const said = `{"status":"404"}`
	checkInvariants(t, []queryCase{
		{rule: "JudgesWhatWasOpened", query: q.InvariantSuccessIsKept, given: given, first: sealAll, any: true,
			with: db.InvariantSuccessIsKeptParams{TenantIds: tenants, Keys: keys, Bodies: bodies(said)}, want: `
			row Subject=acme:eu pay_failed Detail=response says paid with  , payment is failed`},
		{rule: "LeavesWhatIsSealed", query: q.InvariantSuccessIsKept, given: given, first: sealAll,
			with: db.InvariantSuccessIsKeptParams{}, want: `no row`},
		{rule: "JudgesWhatWasOpened", query: q.InvariantResponseAgrees, given: given, first: sealAll, any: true,
			with: db.InvariantResponseAgreesParams{TenantIds: tenants, Keys: keys, Bodies: bodies(said)}, want: `
			row Subject=acme:eu pay_failed Detail=create_payment responded 201, body says 404, payment is failed
			row Subject=acme:eu pay_refund Detail=create_refund responded 201, body says 404, nothing exists`},
		{rule: "LeavesWhatIsSealed", query: q.InvariantResponseAgrees, given: given, first: sealAll,
			with: db.InvariantResponseAgreesParams{}, want: `no row`},
		{rule: "JudgesWhatWasOpened", query: q.InvariantResponseIsComplete, given: given, first: sealAll, any: true,
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
