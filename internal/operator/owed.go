package operator

import (
	"context"
	"errors"
	"fmt"

	"example.com/payonce/db"
	"example.com/payonce/internal/compare"
	"example.com/payonce/internal/money"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/postgres"
)

// ofOwed is the value of target.Of for "retry now": a refund that is owed, and not a request.
const ofOwed = "refund_owed"

// owedPanel shows the automatic refunds that failed and whose money is not back yet.
type owedPanel struct {
	panel
	Counts db.OperatorRefundsOwedCountsRow
	Rows   []db.OperatorRefundsOwedRow
}

func (o *owedPanel) read(ctx context.Context, q *db.Queries) (err error) {
	if o.Counts, err = q.OperatorRefundsOwedCounts(ctx); err != nil {
		return err
	}
	o.Rows, err = q.OperatorRefundsOwed(ctx, parkedMax)
	return err
}

// Retried is how many are tried again without an operator.
func (o *owedPanel) Retried() int64 { return o.Counts.Owed - o.Counts.Parked }

// owed reads what is owed of a payment. A refusal says that nothing is.
func (s *Server) owed(ctx context.Context, t target) (db.RefundsOwed, error) {
	owed, err := s.o.Pool.RefundOwedGet(ctx, db.RefundOwedGetParams{TenantID: t.Tenant, PaymentID: t.ID})
	if errors.Is(err, postgres.ErrNoRows) || err == nil && owed.EndedAt != nil {
		return owed, refusal("no refund of the payment is owed")
	}
	return owed, err
}

// owedSum is what is owed of a payment now. A refusal says that nothing is.
func (s *Server) owedSum(ctx context.Context, t target) (string, error) {
	owed, err := s.owed(ctx, t)
	if err != nil {
		return "", err
	}
	p, err := s.o.Pool.PaymentGet(ctx, db.PaymentGetParams{TenantID: t.Tenant, ID: t.ID})
	if err != nil {
		return "", err
	}
	return money.Format(compare.PaidMinor(p)-p.AmountRefundedMinor-owed.SettledMinor, p.Currency), nil
}

// planRetryOwed has what is owed refunded now, parked or not.
func (s *Server) planRetryOwed(ctx context.Context, t target) (plan, error) {
	sum, err := s.owedSum(ctx, t)
	if err != nil {
		return plan{}, err
	}
	return plan{
		Effect: "A new refund of what is owed, " + sum + ", is recorded, and a completer makes it at Stripe.",
		Limits: "It is refused while a refund of the payment is under way. If it fails too, it is tried again after the " +
			"next pause, or parked if there is none left.",
		effect: func(ctx context.Context, q *db.Queries) (string, error) {
			r, err := s.o.Payments.Repairs().RetryOwedNow(ctx, q, t.Tenant, t.ID)
			return fmt.Sprintf("refund %s of %s is recorded; a completer makes it at Stripe",
				r.ID, money.Format(r.AmountMinor, r.Currency)), refusalIfNotOwed(err)
		},
	}, nil
}

// planSettleOutside ends what is owed without a refund at Stripe.
func (s *Server) planSettleOutside(ctx context.Context, t target) (plan, error) {
	owed, err := s.owed(ctx, t)
	if err != nil {
		return plan{}, err
	}
	sum, err := s.owedSum(ctx, t)
	if err != nil {
		return plan{}, err
	}
	return plan{
		Effect: "You have given the customer the money, " + sum + ", in another way, such as a bank transfer. The " +
			"refund is no longer owed and not tried again.",
		Limits: "No money moves, and no refund is recorded. It is refused while a refund of the payment is under way.",
		effect: func(ctx context.Context, q *db.Queries) (string, error) {
			minor, err := s.o.Payments.Repairs().SettleOwed(ctx, q, t.Tenant, t.ID)
			return money.Format(minor, owed.Currency) + " was settled outside of Stripe", refusalIfNotOwed(err)
		},
	}, nil
}

// refusalIfNotOwed is a refusal if nothing is owed any more, or a refund is under way.
func refusalIfNotOwed(err error) error {
	var no *payments.NotOwedError
	if errors.As(err, &no) {
		return refusal(no.Why)
	}
	if errors.Is(err, payments.ErrPaymentDisputed) {
		return refusal(err.Error() + "; if it is lost, the customer has the money, and it is settled outside")
	}
	return err
}
