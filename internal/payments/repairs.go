package payments

// Repairs is what is done about payments and refunds that our rows and Stripe's objects disagree about. Each of its
// functions reads both again before it changes anything.
type Repairs struct{ *Service }

// Repairs returns the repairs of the service's payments.
func (s *Service) Repairs() Repairs { return Repairs{s} }
