package postgres_test

import (
	"testing"

	"example.com/payonce/db"
)

func init() {
	defaults["ledger_entries"] = values(map[string]string{"line": "1", "account": "stripe", "currency": "eur",
		"resource_id": "pay", "booked_at": "-9h"})
}

const ledgerRows = `
	ledger_entries
	  event_id  line  account  amount_minor  currency  resource_id
	  pay-2     1     stripe   1000          eur       pay
	  pay-2     2     sales    -1000         eur       pay
	  ref-2     1     stripe   -300          eur       ref
	  ref-2     2     refunds  300           eur       ref
	  ref-3     1     stripe   300           eur       ref
	  ref-3     2     refunds  -200          eur       ref
	  ref-3     3     refunds  -100          usd       ref

	payments
	  id         order_id  status     amount_minor  currency  intent_id
	  adopted    order     succeeded  1000          eur       pi
	  failed     order     failed     1000          eur       pi
	  succeeded  paid      succeeded  1000          eur       pi_s

	refunds
	  id         status     amount_minor  currency  version
	  canceled   canceled   300           eur       3
	  failed     failed     300           eur       3
	  pending    pending    300           eur       3
	  succeeded  succeeded  300           eur       2
`

func TestQueriesOfTheLedger(t *testing.T) {
	t.Parallel()
	paid := db.LedgerBasisOfPaymentParams{TenantID: tenant, ResourceID: "succeeded", AmountMinor: 1000, Currency: "eur",
		OrderID: "paid", IntentID: "pi_s"}
	lost := but(paid, func(p *db.LedgerBasisOfPaymentParams) { p.ResourceID, p.OrderID, p.IntentID = "lost", "order", "pi" })
	refunded := func(refund string) db.LedgerBasisOfRefundParams {
		return db.LedgerBasisOfRefundParams{TenantID: tenant, ResourceID: refund, AmountMinor: 300, Currency: "eur",
			Version: 2}
	}
	const refunds = "canceled failed pending succeeded missing"
	checkQueries(t, ledgerRows, []queryCase{
		{rule: "InsertsOneEntryPerAccount", query: q.LedgerBook, with: db.LedgerBookParams{
			TenantID: tenant, EventID: "pay-3", Currency: "eur", ResourceID: "pay", Accounts: []string{"stripe", "sales"},
			AmountsMinor: []int64{500, -500},
		}, want: `
			inserts ledger_entries/pay-3/1: account=stripe amount_minor=500 booked_at=now currency=eur
				resource_id=pay
			inserts ledger_entries/pay-3/2: account=sales amount_minor=-500 booked_at=now currency=eur
				resource_id=pay`},
		{rule: "SumsPerAccount", query: q.LedgerOfResource,
			with: db.LedgerOfResourceParams{TenantID: tenant, ResourceID: "ref"}, want: `
			row Account=refunds Currency=eur AmountMinor=100
			row Account=refunds Currency=usd AmountMinor=-100
			row Account=stripe Currency=eur`},
		{rule: "SumsPerAccount", query: q.LedgerBalances, with: tenant, want: `
			row Account=refunds Currency=eur AmountMinor=100
			row Account=refunds Currency=usd AmountMinor=-100
			row Account=sales Currency=eur AmountMinor=-1000
			row Account=stripe Currency=eur AmountMinor=1000`},

		{rule: "ComparesThePayment", query: q.LedgerBasisOfPayment, each: "succeeded failed missing",
			with: func(payment string) any {
				return but(paid, func(p *db.LedgerBasisOfPaymentParams) { p.ResourceID, p.OrderID = payment, "none" })
			}, want: `
			succeeded: row Matches=true
			failed: row
			missing: row`},
		{rule: "ComparesTheAmount", query: q.LedgerBasisOfPayment,
			with: but(paid, func(p *db.LedgerBasisOfPaymentParams) { p.AmountMinor = 999 }), want: `
			row`},
		{rule: "ComparesTheCurrency", query: q.LedgerBasisOfPayment,
			with: but(paid, func(p *db.LedgerBasisOfPaymentParams) { p.Currency = "usd" }), want: `
			row`},
		{rule: "IsAdopted", query: q.LedgerBasisOfPayment, with: lost, given: `
			payments
			  tenant_id  id
			  acme       lost`, want: `
			row Adopted=true`},
		{rule: "IsAdoptedByTheSameOrder", query: q.LedgerBasisOfPayment,
			with: but(lost, func(p *db.LedgerBasisOfPaymentParams) { p.OrderID = "paid" }), want: `
			row`},
		{rule: "IsAdoptedWithTheSameIntent", query: q.LedgerBasisOfPayment,
			with: but(lost, func(p *db.LedgerBasisOfPaymentParams) { p.IntentID = "pi_s" }), want: `
			row`},
		{rule: "IsAdoptedWithTheSameAmount", query: q.LedgerBasisOfPayment,
			with: but(lost, func(p *db.LedgerBasisOfPaymentParams) { p.AmountMinor = 999 }), want: `
			row`},
		{rule: "IsAdoptedWithTheSameCurrency", query: q.LedgerBasisOfPayment,
			with: but(lost, func(p *db.LedgerBasisOfPaymentParams) { p.Currency = "usd" }), want: `
			row`},
		{rule: "IsAdoptedOnceItsOwnRowIsLost", query: q.LedgerBasisOfPayment,
			with: but(lost, func(p *db.LedgerBasisOfPaymentParams) { p.ResourceID = "failed" }), want: `
			row`},
		{rule: "IsAdoptedByAPaymentThatSucceeded", query: q.LedgerBasisOfPayment, with: lost,
			first: "DELETE FROM payments WHERE id = 'adopted' AND tenant_id = 'acme:eu'", want: `
			row`},
		{rule: "IsAdoptedByAPaymentOfTheTenant", query: q.LedgerBasisOfPayment, with: lost,
			first: "DELETE FROM payments WHERE tenant_id = 'acme:eu'", want: `
			row`},

		{rule: "HasSucceeded", query: q.LedgerBasisOfRefund, each: refunds,
			with: func(refund string) any { return refunded(refund) }, want: `
			canceled: returns true
			failed: returns true
			pending: returns false
			succeeded: returns true
			missing: returns false`},
		{rule: "FailedLater", query: q.LedgerBasisOfRefund, each: refunds, with: func(refund string) any {
			return but(refunded(refund), func(p *db.LedgerBasisOfRefundParams) { p.Version = 3 })
		}, want: `
			canceled: returns false
			failed: returns false
			pending: returns false
			succeeded: returns true
			missing: returns false`},
		{rule: "HasFailed", query: q.LedgerBasisOfRefund, each: refunds, with: func(refund string) any {
			return but(refunded(refund), func(p *db.LedgerBasisOfRefundParams) { p.Failed = true })
		}, want: `
			canceled: returns true
			failed: returns true
			pending: returns false
			succeeded: returns false
			missing: returns false`},
		{rule: "ComparesTheAmount", query: q.LedgerBasisOfRefund,
			with: but(refunded("succeeded"), func(p *db.LedgerBasisOfRefundParams) { p.AmountMinor = 299 }), want: `
			returns false`},
		{rule: "ComparesTheCurrency", query: q.LedgerBasisOfRefund,
			with: but(refunded("succeeded"), func(p *db.LedgerBasisOfRefundParams) { p.Currency = "usd" }), want: `
			returns false`},
	})
}
