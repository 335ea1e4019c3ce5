package payments_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/money"
	"example.com/payonce/testkit/paycases"
)

// TestEveryCurrencyAgreesWithStripe takes a currency of each rule from its list to Stripe's answer. The night takes all.
func TestEveryCurrencyAgreesWithStripe(t *testing.T) {
	t.Parallel()
	paycases.CurrenciesAgreeWithStripe(t, "jpy", "isk", "kwd", "usd")
}

// TestCurrenciesAreListedTwice: a code that is missing in one of the two lists is found.
func TestCurrenciesAreListedTwice(t *testing.T) {
	t.Parallel()
	var known []string
	for n := range 26 * 26 * 26 {
		code := string([]byte{'a' + byte(n/676), 'a' + byte(n/26%26), 'a' + byte(n%26)})
		if money.Known(code) {
			known = append(known, code)
		}
	}
	require.ElementsMatch(t, paycases.Currencies(), known)
}
