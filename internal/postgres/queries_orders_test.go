package postgres_test

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"example.com/payonce/db"
)

func TestQueriesOfOrders(t *testing.T) {
	t.Parallel()
	const some = "canceled canceling open paid missing"
	// Order taken is authorized, under each tenant that has it.
	const authorizedOrder = `ALTER TABLE orders DISABLE TRIGGER USER; UPDATE orders SET status = 'authorized' WHERE id = 'taken'`
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
		{rule: "NeedsAnOrderThatIsNeitherPaidNorCanceled", query: q.OrderPay, each: "open taken", first: authorizedOrder,
			with: func(order string) any {
				return db.OrderPayParams{TenantID: tenant, ID: order, PaymentID: ptr("pay"), CapturedMinor: ptr(int64(400))}
			}, want: `
			open: row ID=open
			open: changes orders/open: captured_minor=400 payment_id=pay status=paid version=2
			taken: row ID=taken
			taken: changes orders/taken: captured_minor=400 payment_id=pay status=paid version=2`},
		{rule: "CancelsAnAuthorizedOrder", query: q.OrderCancel, first: authorizedOrder,
			with: db.OrderCancelParams{TenantID: tenant, ID: "taken"}, want: `
			row ID=taken
			changes orders/taken: status=canceled version=2`},
		{rule: "BeginsTheCancelOfAnAuthorizedOrder", query: q.OrderCancelBegin, first: authorizedOrder,
			with: db.OrderCancelBeginParams{TenantID: tenant, ID: "taken", CancelingKey: ptr("cancel_2")}, want: `
			returns 1
			changes orders/taken: canceling_key=cancel_2`},
		{rule: "NeedsAnOpenOrder", query: q.OrderAuthorize, each: some + " taken", first: authorizedOrder,
			with: func(order string) any { return db.OrderAuthorizeParams{TenantID: tenant, ID: order} }, want: `
			canceled: no row
			canceling: row ID=canceling
			canceling: changes orders/canceling: status=authorized version=2
			open: row ID=open
			open: changes orders/open: status=authorized version=2
			paid: no row
			missing: no row
			taken: no row`},
		{rule: "NeedsAnAuthorizedOrder", query: q.OrderReopen, each: some + " taken", first: authorizedOrder,
			with: func(order string) any { return db.OrderReopenParams{TenantID: tenant, ID: order} }, want: `
			canceled: no row
			canceling: no row
			open: no row
			paid: no row
			missing: no row
			taken: row ID=taken
			taken: changes orders/taken: status=open version=2`},
		{rule: "NeverRetiresFewer", query: q.OrderRetireIntents, each: "open retired missing", with: func(order string) any {
			return db.OrderRetireIntentsParams{TenantID: tenant, ID: order, IntentNumber: 1}
		}, want: `
			open: changes orders/open: intents_retired=1
			retired: changes orders/retired
			missing: nothing`},
	})
}

const tenantRows = `
	tenants
	  id        name      disabled_at
	  disabled  Disabled  -1h

	api_keys
	  key_hash                          hint  revoked_at  expires_at  last_used_at  read_only  created_at
	  used_used_used_used_used_used_us  abcd  .           .           .             false      -9h
	  revoked_revoked_revoked_revoked_  abcd  -1h         .           .             false      -8h
	  another_another_another_another_  efgh  .           .           -2h           true       -7h
	  expired_expired_expired_expired_  ijkl  .           -1h         .             false      -6h
	  valid_valid_valid_valid_valid_va  mnop  .           +1h         +1h           false      -5h

	api_keys
	  tenant_id  key_hash                          hint
	  acme       theirs_theirs_theirs_theirs_thei  abcd
	  disabled   disabled_disabled_disabled_disab  qrst
`

func TestQueriesOfTenants(t *testing.T) {
	t.Parallel()
	hash := map[string][]byte{
		"used": []byte("used_used_used_used_used_used_us"), "revoked": []byte("revoked_revoked_revoked_revoked_"),
		"theirs": []byte("theirs_theirs_theirs_theirs_thei"), "unknown": bytes.Repeat([]byte("x"), 32),
		"another": []byte("another_another_another_another_"), "expired": []byte("expired_expired_expired_expired_"),
		"valid": []byte("valid_valid_valid_valid_valid_va"), "disabled": []byte("disabled_disabled_disabled_disab"),
	}
	checkQueries(t, tenantRows, []queryCase{
		{rule: "InsertsOne", query: q.TenantCreate, with: db.TenantCreateParams{
			ID: "new", Name: "New", FingerprintSecret: bytes.Repeat([]byte("s"), 32),
		}, want: `
			inserts tenants/new: created_at=now fingerprint_secret=32 bytes name=New`},
		{rule: "DisablesOnce", query: q.TenantDisable, each: tenant + " disabled missing",
			with: func(id string) any { return id }, want: `
			acme:eu: returns 1
			acme:eu: changes tenants/tenant: disabled_at=now
			disabled: returns 0
			missing: returns 0`},
		{rule: "EnablesOnce", query: q.TenantEnable, each: tenant + " disabled missing",
			with: func(id string) any { return id }, want: `
			acme:eu: returns 0
			disabled: returns 1
			disabled: changes tenants/disabled: disabled_at=null
			missing: returns 0`},
		{rule: "InsertsOne", query: q.APIKeyCreate,
			with: db.APIKeyCreateParams{TenantID: tenant, KeyHash: hash["unknown"], Hint: "wxyz"}, want: `
			inserts api_keys/\x7878787878787878787878787878787878787878787878787878787878787878: created_at=now
				hint=wxyz name=
			locks tenants/tenant`},
		{rule: "ExpiresInTheTimeGiven", query: q.APIKeyCreate, with: db.APIKeyCreateParams{
			TenantID: tenant, KeyHash: hash["unknown"], Hint: "wxyz", Name: "reports", ReadOnly: true, ExpiresIn: 24 * time.Hour,
		}, want: `
			inserts api_keys/\x7878787878787878787878787878787878787878787878787878787878787878: created_at=now
				expires_at=now+24h hint=wxyz name=reports read_only=true
			locks tenants/tenant`},
		{rule: "ListsTheTenants", query: q.TenantList, want: `
			row ID=acme Name=Twin CreatedAt=now
			row ID=acme:eu Name=Tenant CreatedAt=now
			row ID=disabled Name=Disabled Disabled=true CreatedAt=now`},
		{rule: "ListsThoseOfTheTenant", query: q.APIKeyList, with: tenant, want: `
			row Hint=abcd CreatedAt=-9h
			row Hint=abcd CreatedAt=-8h RevokedAt=-1h
			row Hint=efgh ReadOnly=true CreatedAt=-7h LastUsedAt=-2h
			row Hint=ijkl CreatedAt=-6h ExpiresAt=-1h
			row Hint=mnop CreatedAt=-5h ExpiresAt=+1h LastUsedAt=+1h`},
		{rule: "RevokesActiveKeysWithThatHint", query: q.APIKeyRevoke,
			with: db.APIKeyRevokeParams{TenantID: tenant, Hint: "abcd"}, want: `
			returns 1
			changes api_keys/\x757365645f757365645f757365645f757365645f757365645f757365645f7573: revoked_at=now`},
		{rule: "NeedsAValidKeyOfAnEnabledTenant", query: q.APIKeyAuthenticate,
			each: "used revoked theirs unknown expired valid another",
			with: func(key string) any {
				return db.APIKeyAuthenticateParams{TenantIds: []string{tenant}, KeyHashes: [][]byte{hash[key]}}
			}, want: `
			used: row Ordinal=1 ID=acme:eu FingerprintSecret=32 bytes
			revoked: no row
			theirs: no row
			unknown: no row
			expired: no row
			valid: row Ordinal=1 ID=acme:eu FingerprintSecret=32 bytes UseNoted=true
			another: row Ordinal=1 ID=acme:eu FingerprintSecret=32 bytes ReadOnly=true`},
		{rule: "NeedsAnEnabledTenant", query: q.APIKeyAuthenticate, with: db.APIKeyAuthenticateParams{
			TenantIds: []string{"disabled", "acme"}, KeyHashes: [][]byte{hash["disabled"], hash["theirs"]},
		}, want: `
			row Ordinal=2 ID=acme FingerprintSecret=32 bytes`},
		{rule: "NotesOnceAnHour", query: q.APIKeyNoteUse, each: "theirs valid", with: func(key string) any {
			return db.APIKeyNoteUseParams{TenantID: tenant, KeyHash: hash[key]}
		}, want: `
			theirs: returns 0
			valid: returns 0`},
	})
}
