package postgres_test

import "testing"

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
