package payments_test

import (
	"testing"

	"example.com/payonce/testkit/paycases"
)

// TestEveryCurrencyAgreesWithStripe takes each currency from its list to Stripe's answer: the smallest and the largest
// amount that can be ordered are those that Stripe charges, and between them an order is paid, captured in part and
// refunded in part, by its smallest step.
func TestEveryCurrencyAgreesWithStripe(t *testing.T) {
	t.Parallel()
	paycases.CurrenciesAgreeWithStripe(t, paycases.Currencies()...)
}
