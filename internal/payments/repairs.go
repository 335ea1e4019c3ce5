package payments

// Repairs is what the reconciler and an operator do about payments and refunds that our
// rows and Stripe's objects disagree about. Each of its functions reads both again
// before it changes anything.
type Repairs struct{ *Service }

// Repairs returns the repairs of the service's payments.
func (s *Service) Repairs() Repairs { return Repairs{s} }
