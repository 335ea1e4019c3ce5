package postgres_test

import (
	"testing"
	"time"

	"example.com/payonce/db"
)

func init() {
	defaults["disputes"] = func(row map[string]string) map[string]string {
		return map[string]string{"status": "needs_response", "payment_id": "pay", "order_id": "ord",
			"stripe_dispute_id": "du_" + row["id"], "charge_id": "ch", "amount_minor": "1000", "currency": "eur",
			"reason": "general", "created_at": "-9h", "updated_at": "-9h", "next_read_at": "-1h"}
	}
	defaults["dispute_movements"] = values(map[string]string{"version": "1", "kind": "withdrawal", "amount_minor": "-1000",
		"fee_minor": "1500", "net_minor": "-2500", "currency": "eur", "created_at": "-9h"})
}

// A dispute is watched until it has ended, and a won one until its money is back.
const disputeRows = `
	payments
	  id       status     order_id  amount_refunding_minor  amount_refunded_minor
	  full     succeeded  full      1000                    1000
	  half     succeeded  half      500                     500
	  inquiry  succeeded  inquiry   0                       0
	  lost     succeeded  lost      0                       0
	  pay      succeeded  ord       0                       0
	  review   succeeded  review    0                       0
	  won      succeeded  won       0                       0

	orders
	  id
	  half
	  ord
	  won

	disputes
	  id        status                  payment_id  order_id  withdrawn_minor  next_read_at  created_at  evidence_due_by  version
	  a_lost    lost                    lost        lost      1000             -1h           -9h         .                2
	  b_review  under_review            review      review    1000             -2h           -8h         +7h              1
	  c_won     won                     won         won       0                -3h           -7h         .                2
	  d_won     won                     won         won       500              -4h           -6h         .                2
	  e_needs   needs_response          pay         ord       1000             -5h           -5h         +5h              1
	  f_needs   needs_response          pay         ord       1000             +1h           -5h         +3h              1
	  g_inq     warning_needs_response  inquiry     inquiry   0                -6h           -4h         +9h              1
	  h_full    warning_needs_response  full        full      0                -7h           -3h         +1h              1
	  i_half    needs_response          full        half      0                -8h           -2h         +2h              1

	disputes
	  id      status  updated_at
	  j_long  lost    -30h
	  k_just  lost    -1h

	dispute_movements
	  id     dispute_id  created_at  version
	  txn_1  e_needs     -3h         1
	  txn_2  e_needs     -4h         1
	  txn_3  f_needs     -5h         1
`

func TestQueriesOfDisputes(t *testing.T) {
	t.Parallel()
	now := at("1h")
	recorded := db.DisputeRecordedParams{StripeDisputeID: "du_e_needs", Status: "needs_response", AmountMinor: 1000,
		Movements: 2}
	checkQueries(t, disputeRows, []queryCase{
		{rule: "ReadsOne", query: q.DisputeOfStripeID, with: "du_new", given: `
			disputes
			  tenant_id  id  stripe_dispute_id
			  acme:eu    new  du_new`, want: `
			row ID=new`},
		{rule: "ReadsOne", query: q.DisputeGet, with: db.DisputeGetParams{TenantID: tenant, ID: "c_won"}, want: `
			row ID=c_won`},
		{rule: "LocksOne", query: q.DisputeLock, with: db.DisputeLockParams{TenantID: tenant, ID: "c_won"}, want: `
			row ID=c_won
			locks disputes/c_won`},
		{rule: "ReadsTheOldestFirst", query: q.DisputeMovements,
			with: db.DisputeMovementsParams{TenantID: tenant, DisputeID: "e_needs"}, want: `
			row ID=txn_2 DisputeID=e_needs Version=1 Kind=withdrawal AmountMinor=-1000 FeeMinor=1500
				NetMinor=-2500 Currency=eur CreatedAt=-4h
			row ID=txn_1 DisputeID=e_needs Version=1 Kind=withdrawal AmountMinor=-1000 FeeMinor=1500
				NetMinor=-2500 Currency=eur CreatedAt=-3h`},
		{rule: "InsertsOne", query: q.DisputeInsert, with: db.DisputeInsertParams{
			TenantID: tenant, ID: "new", Version: 1, Status: "needs_response", PaymentID: "pay", OrderID: "ord",
			StripeDisputeID: "du_new", ChargeID: "ch", AmountMinor: 500, Currency: "eur", Reason: "fraudulent",
			EvidenceDueBy: ptr(at("9h")), WithdrawnMinor: 500, FeeMinor: 1500, CreatedAt: at("-1h"), Again: time.Hour,
		}, want: `
			inserts disputes/new: amount_minor=500 charge_id=ch created_at=-1h currency=eur evidence_due_by=+9h
				fee_minor=1500 next_read_at=now+1h order_id=ord payment_id=pay reason=fraudulent
				status=needs_response stripe_dispute_id=du_new updated_at=now version=1 watched=true
				withdrawn_minor=500`},
		{rule: "ComparesTheVersion", query: q.DisputeChange, each: "e_needs c_won", with: func(id string) any {
			return db.DisputeChangeParams{TenantID: tenant, ID: id, SeenVersion: 1, Status: "lost", AmountMinor: 1000,
				Reason: "general", WithdrawnMinor: 1000, Again: time.Hour}
		}, want: `
			e_needs: returns 1
			e_needs: changes disputes/e_needs: evidence_due_by=null next_read_at=now+1h status=lost
				updated_at=now version=2 watched=false
			c_won: returns 0`},
		{rule: "InsertsOne", query: q.DisputeMovementInsert, with: db.DisputeMovementInsertParams{
			TenantID: tenant, ID: "txn_new", DisputeID: "e_needs", Version: 2, Kind: "reinstatement", AmountMinor: 1000,
			FeeMinor: -1500, NetMinor: 2500, Currency: "eur", CreatedAt: at("-1h"),
		}, want: `
			inserts dispute_movements/txn_new: amount_minor=1000 created_at=-1h currency=eur dispute_id=e_needs
				fee_minor=-1500 kind=reinstatement net_minor=2500 version=2`},
		{rule: "AddsToThePayment", query: q.PaymentApplyDispute,
			with: db.PaymentApplyDisputeParams{TenantID: tenant, ID: "half", AmountMinor: 300}, want: `
			changes payments/half: amount_disputed_minor=300 updated_at=now`},
		{rule: "AddsToTheOrder", query: q.OrderApplyDispute,
			with: db.OrderApplyDisputeParams{TenantID: tenant, ID: "half", AmountMinor: 300}, want: `
			changes orders/half: amount_disputed_minor=300`},
		{rule: "StandsInTheWayWhenOpenOrLost", query: q.DisputeStandsInTheWay,
			each: "pay review lost won inquiry missing theirs", given: `
			disputes
			  tenant_id  id  payment_id
			  acme       e_theirs  theirs`,
			with: func(payment string) any {
				return db.DisputeStandsInTheWayParams{TenantID: tenant, PaymentID: payment}
			}, want: `
			pay: returns true
			review: returns true
			lost: returns true
			won: returns false
			inquiry: returns false
			missing: returns false
			theirs: returns false`},
		{rule: "TakesWhatIsDue", query: q.DisputesDue,
			with: db.DisputesDueParams{Lease: time.Minute, LimitRows: 99}, any: true, want: `
			row ID=b_review StripeDisputeID=du_b_review CreatedAt=-8h
			row ID=d_won StripeDisputeID=du_d_won CreatedAt=-6h
			row ID=e_needs StripeDisputeID=du_e_needs CreatedAt=-5h
			row ID=g_inq StripeDisputeID=du_g_inq CreatedAt=-4h
			row ID=h_full StripeDisputeID=du_h_full CreatedAt=-3h
			row ID=i_half StripeDisputeID=du_i_half CreatedAt=-2h
			row twin ID=a_lost StripeDisputeID=du_i_half CreatedAt=-2h1m
			row twin ID=c_won StripeDisputeID=du_b_review CreatedAt=-8h1m
			row twin ID=e_needs StripeDisputeID=du_d_won CreatedAt=-6h1m
			row twin ID=f_needs StripeDisputeID=du_e_needs CreatedAt=-5h1m
			row twin ID=h_full StripeDisputeID=du_g_inq CreatedAt=-4h1m
			row twin ID=i_half StripeDisputeID=du_h_full CreatedAt=-3h1m
			changes disputes/b_review: next_read_at=now+1m
			changes disputes/d_won: next_read_at=now+1m
			changes disputes/e_needs: next_read_at=now+1m
			changes disputes/g_inq: next_read_at=now+1m
			changes disputes/h_full: next_read_at=now+1m
			changes disputes/i_half: next_read_at=now+1m
			changes disputes/twin/a_lost: next_read_at=now+1m
			changes disputes/twin/c_won: next_read_at=now+1m
			changes disputes/twin/e_needs: next_read_at=now+1m
			changes disputes/twin/f_needs: next_read_at=now+1m
			changes disputes/twin/h_full: next_read_at=now+1m
			changes disputes/twin/i_half: next_read_at=now+1m`},
		{rule: "TakesWhatIsDueLongest", query: q.DisputesDue,
			with: db.DisputesDueParams{Lease: time.Minute, LimitRows: 2}, any: true, want: `
			row ID=i_half StripeDisputeID=du_i_half CreatedAt=-2h
			row twin ID=a_lost StripeDisputeID=du_i_half CreatedAt=-2h1m
			changes disputes/i_half: next_read_at=now+1m
			changes disputes/twin/a_lost: next_read_at=now+1m`},
		{rule: "SkipsALockedDispute", query: q.DisputesDue, locked: "disputes/i_half",
			with: db.DisputesDueParams{Lease: time.Minute, LimitRows: 2}, any: true, want: `
			row twin ID=a_lost StripeDisputeID=du_i_half CreatedAt=-2h1m
			row twin ID=i_half StripeDisputeID=du_h_full CreatedAt=-3h1m
			changes disputes/twin/a_lost: next_read_at=now+1m
			changes disputes/twin/i_half: next_read_at=now+1m`},
		{rule: "SetsWhenItIsReadAgain", query: q.DisputeReadAgain, each: "c_won d_won", with: func(id string) any {
			return db.DisputeReadAgainParams{TenantID: tenant, ID: id, Again: time.Hour}
		}, want: `
			c_won: nothing
			d_won: changes disputes/d_won: next_read_at=now+1h`},
		{rule: "ReadsWatchedAndRecentOnes", query: q.DisputesToCompare, with: db.DisputesToCompareParams{
			EndedFor: 5 * time.Hour, AfterTenantID: tenant, AfterID: "h", LimitRows: 3,
		}, want: `
			row ID=h_full PaymentID=full StripeDisputeID=du_h_full Status=warning_needs_response Watched=true
			row ID=i_half PaymentID=full StripeDisputeID=du_i_half Status=needs_response Watched=true
			row ID=k_just PaymentID=pay StripeDisputeID=du_k_just Status=lost`},
		{rule: "BeginsWithTheFirst", query: q.DisputesToCompare,
			with: db.DisputesToCompareParams{EndedFor: 5 * time.Hour, LimitRows: 99}, want: `
			row twin ID=a_lost PaymentID=full StripeDisputeID=du_i_half Status=needs_response Watched=true
			row twin ID=c_won PaymentID=review StripeDisputeID=du_b_review Status=under_review Watched=true
			row twin ID=e_needs PaymentID=won StripeDisputeID=du_d_won Status=won Watched=true
			row twin ID=f_needs PaymentID=pay StripeDisputeID=du_e_needs Status=needs_response Watched=true
			row twin ID=g_inq PaymentID=pay StripeDisputeID=du_f_needs Status=needs_response Watched=true
			row twin ID=h_full PaymentID=inquiry StripeDisputeID=du_g_inq Status=warning_needs_response
				Watched=true
			row twin ID=i_half PaymentID=full StripeDisputeID=du_h_full Status=warning_needs_response
				Watched=true
			row twin ID=j_long PaymentID=pay StripeDisputeID=du_k_just Status=lost
			row ID=b_review PaymentID=review StripeDisputeID=du_b_review Status=under_review Watched=true
			row ID=d_won PaymentID=won StripeDisputeID=du_d_won Status=won Watched=true
			row ID=e_needs PaymentID=pay StripeDisputeID=du_e_needs Status=needs_response Watched=true
			row ID=f_needs PaymentID=pay StripeDisputeID=du_f_needs Status=needs_response Watched=true
			row ID=g_inq PaymentID=inquiry StripeDisputeID=du_g_inq Status=warning_needs_response Watched=true
			row ID=h_full PaymentID=full StripeDisputeID=du_h_full Status=warning_needs_response Watched=true
			row ID=i_half PaymentID=full StripeDisputeID=du_i_half Status=needs_response Watched=true
			row ID=k_just PaymentID=pay StripeDisputeID=du_k_just Status=lost`},
		{rule: "ReadsTheNewestFirst", query: q.DisputeList,
			with: db.DisputeListParams{TenantID: tenant, BeforeAt: at("-4h"), BeforeID: "z", LimitRows: 4}, want: `
			row ID=g_inq
			row ID=f_needs
			row ID=e_needs
			row ID=d_won`},
		{rule: "ReadsTheNewestFirst", query: q.DisputeListOfStatus, with: db.DisputeListOfStatusParams{
			TenantID: tenant, Status: "needs_response", BeforeAt: at("-3h"), BeforeID: "z", LimitRows: 9,
		}, want: `
			row ID=f_needs
			row ID=e_needs`},
		{rule: "ReadsThoseOfAnyStatus", query: q.DisputeListOfPayment,
			with: db.DisputeListOfPaymentParams{TenantID: tenant, PaymentID: "won", BeforeAt: now, LimitRows: 9}, want: `
			row ID=d_won
			row ID=c_won`},
		{rule: "ReadsThoseOfAStatus", query: q.DisputeListOfPayment, with: db.DisputeListOfPaymentParams{
			TenantID: tenant, PaymentID: "full", Status: "needs_response", BeforeAt: now, LimitRows: 9,
		}, want: `
			row ID=i_half`},
		{rule: "GoesOn", query: q.DisputeListOfPayment, with: db.DisputeListOfPaymentParams{
			TenantID: tenant, PaymentID: "pay", BeforeAt: at("-5h"), BeforeID: "f_needs", LimitRows: 9,
		}, want: `
			row ID=e_needs
			row ID=k_just
			row ID=j_long`},
		{rule: "ReadsThoseOfAnyStatus", query: q.DisputeListOfOrder,
			with: db.DisputeListOfOrderParams{TenantID: tenant, OrderID: "won", BeforeAt: now, LimitRows: 9}, want: `
			row ID=d_won
			row ID=c_won`},
		{rule: "ReadsThoseOfAStatus", query: q.DisputeListOfOrder, with: db.DisputeListOfOrderParams{
			TenantID: tenant, OrderID: "ord", Status: "lost", BeforeAt: at("-6h"), LimitRows: 9,
		}, want: `
			row ID=k_just
			row ID=j_long`},
		{rule: "GoesOn", query: q.DisputeListOfOrder, with: db.DisputeListOfOrderParams{
			TenantID: tenant, OrderID: "ord", Status: "needs_response", BeforeAt: at("-5h"), BeforeID: "f_needs",
			LimitRows: 9,
		}, want: `
			row ID=e_needs`},
		{rule: "CountsTheOpenOnes", query: q.DisputeStats, any: true, want: `
			row Status=needs_response Open=6 DueSeconds=+2h
			row Status=under_review Open=2 DueSeconds=+7h
			row Status=warning_needs_response Open=3 DueSeconds=+1h1m
			row Status=won Open=2 DueSeconds=+Inf`},
		{rule: "ComparesWhatStripeShows", query: q.DisputeRecorded, with: recorded, want: `
			returns true`},
		{rule: "CountsItsOwnMovements", query: q.DisputeRecorded,
			with: but(recorded, func(p *db.DisputeRecordedParams) { p.StripeDisputeID, p.Movements = "du_f_needs", 1 }),
			want: `
			returns true`},
		{rule: "ComparesTheID", query: q.DisputeRecorded,
			with: but(recorded, func(p *db.DisputeRecordedParams) { p.StripeDisputeID = "du_missing" }), want: `
			returns false`},
		{rule: "ComparesTheStatus", query: q.DisputeRecorded,
			with: but(recorded, func(p *db.DisputeRecordedParams) { p.Status = "lost" }), want: `
			returns false`},
		{rule: "ComparesTheAmount", query: q.DisputeRecorded,
			with: but(recorded, func(p *db.DisputeRecordedParams) { p.AmountMinor = 999 }), want: `
			returns false`},
		{rule: "ComparesTheMovements", query: q.DisputeRecorded,
			with: but(recorded, func(p *db.DisputeRecordedParams) { p.Movements = 3 }), want: `
			returns false`},
	})
}

// TestQueriesOfErasuresOfDisputes: in an open dispute the tenant names its customer as evidence.
func TestQueriesOfErasuresOfDisputes(t *testing.T) {
	t.Parallel()
	checkQueries(t, erasureRows, []queryCase{
		{rule: "WaitsForOpenDisputes", query: q.ErasureUnfinished, given: `
			disputes
			  id        order_id  status
			  dsp_bob   bob       needs_response
			  dsp_lost  a_paid    lost
			  dsp_open  a_paid    needs_response
			`, with: db.ErasureUnfinishedParams{TenantID: tenant, Ids: []string{"a_paid"}}, want: `
			row dispute dsp_open`},
	})
}
