package postgres_test

import "testing"

func TestQueriesOfCells(t *testing.T) {
	t.Parallel()
	const nobody, named = "DELETE FROM tenants;", "INSERT INTO cell (name) VALUES ('eu1');"
	checkQueries(t, "", []queryCase{
		{rule: "IsEmptyWithoutARow", query: q.CellName, want: `
			returns`},
		{rule: "ReadsTheName", query: q.CellName, first: named, want: `
			returns eu1`},
		{rule: "NamesANewDatabase", query: q.CellSet, with: "eu2", first: nobody, want: `
			returns 1
			inserts cell/t: created_at=now name=eu2`},
		{rule: "LeavesAName", query: q.CellSet, with: "eu2", first: nobody + named, want: `
			returns 0`},
		{rule: "NamesNoDatabaseWithTenants", query: q.CellSet, with: "eu2", want: `
			returns 0`},
	})
}

// TestQueriesOfTenantsThatMoved: what Stripe has of them is another cell's.
func TestQueriesOfTenantsThatMoved(t *testing.T) {
	t.Parallel()
	const moved = "UPDATE tenants SET disabled_at = now(), moved_to = 'eu2' WHERE id = 'acme'"
	checkQueries(t, "", []queryCase{
		{rule: "AreNotServedHere", query: q.TenantServedHere, each: "acme:eu acme", first: moved,
			with: func(id string) any { return id }, want: `
			acme:eu: returns true
			acme: returns false`},
		{rule: "AreNotServedHere", query: q.ReconcileTenants, first: moved, with: []string{tenant, twin}, want: `
			row acme:eu`},
		{rule: "AreThoseThatAreAsked", query: q.ReconcileTenants, with: []string{twin, "missing"}, want: `
			row acme`},
	})
}
