package payments

import (
	"context"

	"example.com/payonce/db"
	"example.com/payonce/internal/calls"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/postgres"
)

// The statements of a payment are over arrays (db/queries/payments.sql): here each row of Go becomes an element of each
// array. Two rows of one order never share a batch, and rows are locked in the order of their orders.

// statements are those that run in batches. Each field is named after its query in db/queries: the four of a payment in
// payments.sql, and the reads of one object (reads.go) in reads.sql.
type statements struct {
	OrderToPay          *postgres.Batched[orderKey, db.OrderToPayRow]
	PaymentBegin        *postgres.Batched[beginRow, db.PaymentBeginRow]
	PaymentIntentRecord *postgres.Batched[recordRow, struct{}]
	PaymentFinish       *postgres.Batched[finishRow, struct{}]

	OrdersRead   *postgres.Batched[objectKey, db.Order]
	PaymentsRead *postgres.Batched[objectKey, db.Payment]
	RefundsRead  *postgres.Batched[objectKey, db.Refund]
}

func newStatements(pool *postgres.Pool) statements {
	return statements{
		OrderToPay: postgres.NewBatched(pool, postgres.Statement[orderKey, db.OrderToPayRow]{
			Run:    runOrderToPay,
			Tenant: func(r *orderKey) string { return r.TenantID },
		}),
		PaymentBegin: postgres.NewBatched(pool, postgres.Statement[beginRow, db.PaymentBeginRow]{
			Run:    runPaymentBegin,
			Tenant: func(r *beginRow) string { return r.Request.TenantID },
			Locks:  func(r *beginRow) string { return r.Request.TenantID + r.Payment.OrderID },
			Size:   func(r *beginRow) int { return len(r.Event) },
			Lock: func(ctx context.Context, q *db.Queries, r beginRow) error {
				_, err := q.OrderLock(ctx, db.OrderLockParams{TenantID: r.Request.TenantID, ID: r.Payment.OrderID})
				return err
			},
			Waits: func(r *beginRow) bool { return r.Waits },
		}),
		PaymentIntentRecord: postgres.NewBatched(pool, postgres.Statement[recordRow, struct{}]{
			Run:    runPaymentIntentRecord,
			Tenant: func(r *recordRow) string { return r.Claim.TenantID },
			Locks:  func(r *recordRow) string { return r.Claim.TenantID + r.OrderID },
		}),
		PaymentFinish: postgres.NewBatched(pool, postgres.Statement[finishRow, struct{}]{
			Run:    runPaymentFinish,
			Tenant: func(r *finishRow) string { return r.Claim.TenantID },
			Locks:  func(r *finishRow) string { return r.Claim.TenantID + r.Before.OrderID },
			Size:   func(r *finishRow) int { return len(r.Answer.Body) + len(r.PaymentEvent) + len(r.OrderEvent) },
		}),
		OrdersRead:   newRead(pool, runOrdersRead),
		PaymentsRead: newRead(pool, runPaymentsRead),
		RefundsRead:  newRead(pool, runRefundsRead),
	}
}

// orderKey names an order.
type orderKey struct{ TenantID, ID string }

func runOrderToPay(ctx context.Context, q *db.Queries, rows []orderKey, done func(int32, db.OrderToPayRow)) error {
	var p db.OrderToPayParams
	for i := range rows {
		p.TenantIds = append(p.TenantIds, rows[i].TenantID)
		p.Ids = append(p.Ids, rows[i].ID)
	}
	found, err := q.OrderToPay(ctx, p)
	for _, row := range found {
		done(row.Ordinal, row)
	}
	return err
}

// beginRow is a payment in T1.
type beginRow struct {
	Request     idempotency.Request
	Claim       idempotency.New
	Payment     db.Payment
	Event       []byte // payment.created
	Traceparent *string
	Waits       bool // for another transaction that has locked the order
}

func runPaymentBegin(ctx context.Context, q *db.Queries, rows []beginRow, done func(int32, db.PaymentBeginRow)) error {
	var p db.PaymentBeginParams
	for i := range rows {
		r := &rows[i]
		p.Keys = append(p.Keys, r.Request.Key)
		p.TenantIds = append(p.TenantIds, r.Request.TenantID)
		p.OrderIds = append(p.OrderIds, r.Payment.OrderID)
		p.Operations = append(p.Operations, r.Request.Operation)
		p.Fingerprints = append(p.Fingerprints, r.Request.Fingerprint)
		p.FingerprintVersions = append(p.FingerprintVersions, idempotency.FingerprintVersion)
		p.RequestIds = append(p.RequestIds, r.Request.RequestID)
		p.RecoveryPoints = append(p.RecoveryPoints, r.Claim.Point)
		p.ClaimTokens = append(p.ClaimTokens, r.Claim.ClaimToken)
		p.Leases = append(p.Leases, r.Claim.Lease)
		p.PaymentIds = append(p.PaymentIds, r.Payment.ID)
		p.PaymentMethods = append(p.PaymentMethods, r.Payment.PaymentMethod)
		p.IntentNumbers = append(p.IntentNumbers, r.Payment.IntentNumber)
		p.IntentIds = append(p.IntentIds, orEmpty(r.Payment.IntentID))
		p.ManualCaptures = append(p.ManualCaptures, r.Payment.ManualCapture)
		p.CreatedAt = append(p.CreatedAt, r.Payment.CreatedAt)
		p.EventData = append(p.EventData, r.Event)
		p.Traceparents = append(p.Traceparents, orEmpty(r.Traceparent))
	}
	begun, err := q.PaymentBegin(ctx, p)
	for _, row := range begun {
		done(row.Ordinal, row)
	}
	return err
}

// recordRow is a payment in T1b.
type recordRow struct {
	Claim           *idempotency.Claim
	Point           string
	PaymentID       string
	OrderID         string
	IntentID        string
	StripeRequestID string
	Create          calls.Call
}

func runPaymentIntentRecord(ctx context.Context, q *db.Queries, rows []recordRow, done func(int32, struct{})) error {
	var p db.PaymentIntentRecordParams
	for i := range rows {
		r := &rows[i]
		p.Keys = append(p.Keys, r.Claim.Key)
		p.TenantIds = append(p.TenantIds, r.Claim.TenantID)
		p.LeaseTokens = append(p.LeaseTokens, r.Claim.Token)
		p.RecoveryPoints = append(p.RecoveryPoints, r.Point)
		p.PaymentIds = append(p.PaymentIds, r.PaymentID)
		p.IntentIds = append(p.IntentIds, r.IntentID)
		p.CreateKeys = append(p.CreateKeys, r.Create.Key)
		p.StripeRequestIds = append(p.StripeRequestIds, r.StripeRequestID)
	}
	ordinals, err := q.PaymentIntentRecord(ctx, p)
	return returned(ordinals, err, done)
}

// finishRow is a payment in T2.
type finishRow struct {
	Claim         *idempotency.Claim
	Before, After db.Payment
	OrderVersion  int64
	Settlement    Settlement
	Answer        idempotency.Encoded
	PaymentEvent  []byte
	OrderEvent    []byte // order.paid, of a payment that succeeded
	Traceparent   *string
}

func runPaymentFinish(ctx context.Context, q *db.Queries, rows []finishRow, done func(int32, struct{})) error {
	var p db.PaymentFinishParams
	for i := range rows {
		r := &rows[i]
		out := r.Settlement.Outcome
		p.Keys = append(p.Keys, r.Claim.Key)
		p.TenantIds = append(p.TenantIds, r.Claim.TenantID)
		p.LeaseTokens = append(p.LeaseTokens, r.Claim.Token)
		p.PaymentIds = append(p.PaymentIds, r.After.ID)
		p.PaymentVersions = append(p.PaymentVersions, r.Before.Version)
		p.OrderIds = append(p.OrderIds, r.Before.OrderID)
		p.OrderVersions = append(p.OrderVersions, r.OrderVersion)
		p.PaysOrders = append(p.PaysOrders, r.After.Status == db.PaymentStatusSucceeded)
		p.Statuses = append(p.Statuses, string(r.After.Status))
		p.IntentsClosed = append(p.IntentsClosed, r.After.IntentClosed)
		p.ChargeIds = append(p.ChargeIds, orEmpty(r.After.ChargeID))
		p.FailureCodes = append(p.FailureCodes, orEmpty(r.After.FailureCode))
		p.FailureDeclineCodes = append(p.FailureDeclineCodes, orEmpty(r.After.FailureDeclineCode))
		p.FailureMessages = append(p.FailureMessages, orEmpty(r.After.FailureMessage))
		p.AnswerVersions = append(p.AnswerVersions, r.Answer.Version)
		p.AnswerStatuses = append(p.AnswerStatuses, r.Answer.Status)
		p.AnswerHeaders = append(p.AnswerHeaders, r.Answer.Headers)
		p.AnswerBodies = append(p.AnswerBodies, r.Answer.Body)
		p.PaymentEvents = append(p.PaymentEvents, r.PaymentEvent)
		p.OrderEvents = append(p.OrderEvents, r.OrderEvent)
		p.Traceparents = append(p.Traceparents, orEmpty(r.Traceparent))
		call := r.Settlement.Call
		p.StripeKeys = append(p.StripeKeys, call.Key)
		p.StripeOperations = append(p.StripeOperations, string(call.Operation))
		p.StripeResourceIds = append(p.StripeResourceIds, call.ResourceID)
		p.ParamsSha256s = append(p.ParamsSha256s, call.Params)
		p.StripeOutcomes = append(p.StripeOutcomes, string(calls.Stored(out)))
		p.HttpStatuses = append(p.HttpStatuses, int16(out.HTTPStatus)) //nolint:gosec // an HTTP status fits
		p.ErrorCodes = append(p.ErrorCodes, out.ErrorCode)
		p.ObjectIds = append(p.ObjectIds, out.Intent.ID)
		p.StripeRequestIds = append(p.StripeRequestIds, out.RequestID)
	}
	ordinals, err := q.PaymentFinish(ctx, p)
	return returned(ordinals, err, done)
}

func returned(ordinals []int32, err error, done func(int32, struct{})) error {
	for _, ordinal := range ordinals {
		done(ordinal, struct{}{})
	}
	return err
}

func orEmpty(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
