package payments

import (
	"example.com/payonce/db"
	"example.com/payonce/internal/stripe"
)

// Repairs is what the reconciler and an operator do about payments and refunds that our rows and Stripe's
// objects disagree about. Each of its functions reads both again before it changes anything.
type Repairs struct{ *Service }

// Repairs returns the repairs of the service's payments.
func (s *Service) Repairs() Repairs { return Repairs{s} }

// IntentView is a PaymentIntent as Stripe shows it, compared with our rows of its order.
type IntentView struct {
	Intent stripe.Intent
	// Ours: its metadata names a tenant of this installation.
	Ours bool
	// Adoptable: money that is provably ours and has no row.
	Adoptable bool
	// Agrees: Stripe and our rows of its order show no difference.
	Agrees bool
	// Unregistered: made by an operation that this service does not know.
	Unregistered bool
	// Left is how much an operator may refund although it belongs to no payment here;
	// if 0, WhyNot says why.
	Left   int64
	WhyNot string
	// Refunds are the earlier refunds of that kind.
	Refunds []db.OrphanRefundsRow
	// Detail is the result of the comparison, for an operator.
	Detail string

	adoptAs string
}
