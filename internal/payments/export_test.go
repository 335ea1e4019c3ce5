package payments

import (
	"context"
	"testing"

	"example.com/payonce/internal/stripe"
)

// FindPagesMax is how much of Stripe's list one run reads.
const FindPagesMax = findPagesMax

// IntentForTest reads an intent as the reconciler does.
func IntentForTest(t *testing.T, g Gateway, id string) stripe.Intent {
	t.Helper()
	i, err := g.GetIntent(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// AdoptForTest is one adoption, however far the page that it was read from has aged.
func (s *Service) AdoptForTest(ctx context.Context, i stripe.Intent) (string, error) {
	return s.Repairs().AdoptPayment(ctx, i)
}

// SweepForTest has an intent canceled that was judged abandoned.
func (s *Service) SweepForTest(ctx context.Context, i stripe.Intent) (bool, error) {
	return s.Repairs().CancelAbandoned(ctx, i)
}
