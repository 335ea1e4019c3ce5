package postgres_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"example.com/payonce/db"
)

func TestQueriesOfOrders(t *testing.T) {
	t.Parallel()
	const some = "canceled canceling open paid missing"
	const both = `
	orders
	  tenant_id  id    canceling_key
	  acme       both  cancel_1
	  acme:eu    both  cancel_1
	`
	checkQueries(t, orderRows+both, []queryCase{
		{rule: "InsertsOne", query: q.OrderInsert, with: db.OrderInsertParams{
			TenantID: tenant, ID: "new", Currency: "eur", AmountMinor: 1000, Items: json.RawMessage(`[]`),
			CustomerReference: ptr("c"), Metadata: json.RawMessage(`{"a":"b"}`), CheckoutID: ptr("chk"), CreatedAt: at("-1h"),
		}, want: `
			inserts orders/new: amount_minor=1000 checkout_id=chk created_at=-1h currency=eur
				customer_reference=c metadata={"a":"b"} status=open version=1`},
		{rule: "ReadsOne", query: q.OrderGet, with: db.OrderGetParams{TenantID: tenant, ID: "open"}, want: `
			row ID=open`},
		{rule: "ReadsEachOfItsTenant", query: q.OrdersRead, with: db.OrdersReadParams{
			TenantIds: []string{tenant, tenant, "ten_other", tenant}, Ids: []string{"paid", "missing", "open", "open"},
		}, any: true, want: `
			row Ordinal=1 Order=(ID=paid)
			row Ordinal=4 Order=(ID=open)`},
		{rule: "LocksOne", query: q.OrderLock, with: db.OrderLockParams{TenantID: tenant, ID: "open"}, want: `
			row ID=open
			locks orders/open`},
		{rule: "ReadsTheNewestFirst", query: q.OrderList,
			with: db.OrderListParams{TenantID: tenant, Before: "paid", LimitRows: 2}, want: `
			row ID=open
			row ID=confirming`},
		{rule: "NeedsAnOpenOrder", query: q.OrderCancelBegin, each: some, with: func(order string) any {
			return db.OrderCancelBeginParams{TenantID: tenant, ID: order, CancelingKey: ptr("cancel_2")}
		}, want: `
			canceled: returns 0
			canceling: returns 1
			canceling: changes orders/canceling: canceling_key=cancel_2
			open: returns 1
			open: changes orders/open: canceling_key=cancel_2
			paid: returns 0
			missing: returns 0`},
		{rule: "EndsOnlyItsOwnCancel", query: q.OrderCancelAbort, each: "cancel_1 cancel_2", with: func(key string) any {
			return db.OrderCancelAbortParams{TenantID: tenant, ID: "canceling", CancelingKey: ptr(key)}
		}, want: `
			cancel_1: changes orders/canceling: canceling_key=null
			cancel_2: nothing`},
		{rule: "EndsTheCancelOfOneOrder", query: q.OrderCancelAbort,
			with: db.OrderCancelAbortParams{TenantID: tenant, ID: "open", CancelingKey: ptr("cancel_1")}, want: ``},
		{rule: "EndsTheCancelOfOneTenant", query: q.OrderCancelAbort,
			with: db.OrderCancelAbortParams{TenantID: tenant, ID: "both", CancelingKey: ptr("cancel_1")}, want: `
			changes orders/both: canceling_key=null`},
		{rule: "NeedsAnOpenOrder", query: q.OrderCancel, each: some,
			with: func(order string) any { return db.OrderCancelParams{TenantID: tenant, ID: order} }, want: `
			canceled: no row
			canceling: row ID=canceling
			canceling: changes orders/canceling: status=canceled version=2
			open: row ID=open
			open: changes orders/open: status=canceled version=2
			paid: no row
			missing: no row`},
		{rule: "NeedsAnOpenOrder", query: q.OrderPay, each: some, with: func(order string) any {
			return db.OrderPayParams{TenantID: tenant, ID: order, PaymentID: ptr("pay")}
		}, want: `
			canceled: no row
			canceling: row ID=canceling
			canceling: changes orders/canceling: payment_id=pay status=paid version=2
			open: row ID=open
			open: changes orders/open: payment_id=pay status=paid version=2
			paid: no row
			missing: no row`},
		{rule: "NeverRetiresFewer", query: q.OrderRetireIntents, each: "open retired missing", with: func(order string) any {
			return db.OrderRetireIntentsParams{TenantID: tenant, ID: order, IntentNumber: 1}
		}, want: `
			open: changes orders/open: intents_retired=1
			retired: changes orders/retired
			missing: nothing`},
	})
}

const tenantRows = `
	api_keys
	  key_hash                          hint  revoked_at
	  used_used_used_used_used_used_us  abcd  .
	  revoked_revoked_revoked_revoked_  abcd  -1h
	  another_another_another_another_  efgh  .

	api_keys
	  tenant_id  key_hash                          hint
	  acme       theirs_theirs_theirs_theirs_thei  abcd
`

func TestQueriesOfTenants(t *testing.T) {
	t.Parallel()
	hash := map[string][]byte{
		"used": []byte("used_used_used_used_used_used_us"), "revoked": []byte("revoked_revoked_revoked_revoked_"),
		"theirs": []byte("theirs_theirs_theirs_theirs_thei"), "unknown": bytes.Repeat([]byte("x"), 32),
	}
	checkQueries(t, tenantRows, []queryCase{
		{rule: "InsertsOne", query: q.TenantCreate, with: db.TenantCreateParams{
			ID: "new", Name: "New", FingerprintSecret: bytes.Repeat([]byte("s"), 32),
		}, want: `
			inserts tenants/new: created_at=now fingerprint_secret=32 bytes name=New`},
		{rule: "InsertsOne", query: q.APIKeyCreate,
			with: db.APIKeyCreateParams{TenantID: tenant, KeyHash: hash["unknown"], Hint: "wxyz"}, want: `
			inserts api_keys/\x7878787878787878787878787878787878787878787878787878787878787878: created_at=now
				hint=wxyz
			locks tenants/tenant`},
		{rule: "RevokesActiveKeysWithThatHint", query: q.APIKeyRevoke,
			with: db.APIKeyRevokeParams{TenantID: tenant, Hint: "abcd"}, want: `
			returns 1
			changes api_keys/\x757365645f757365645f757365645f757365645f757365645f757365645f7573: revoked_at=now`},
		{rule: "NeedsAnActiveKeyOfTheTenant", query: q.APIKeyAuthenticate, each: "used revoked theirs unknown",
			with: func(key string) any { return db.APIKeyAuthenticateParams{TenantID: tenant, KeyHash: hash[key]} }, want: `
			used: row ID=acme:eu FingerprintSecret=32 bytes
			revoked: no row
			theirs: no row
			unknown: no row`},
	})
}
