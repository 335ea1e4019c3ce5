package money

import (
	"fmt"
	"strings"
)

// Format is an amount of minor units as people write it: 25.00 EUR.
func Format(minor int64, currency string) string {
	digits := 2
	switch {
	case strings.Contains(" bif clp djf gnf jpy kmf krw mga pyg rwf vnd vuv xaf xof xpf ", " "+currency+" "):
		digits = 0
	case currencies[currency] == 10:
		digits = 3
	}
	sign := ""
	if minor < 0 {
		sign, minor = "-", -minor
	}
	text := fmt.Sprintf("%0*d", digits+1, minor)
	if digits > 0 {
		text = text[:len(text)-digits] + "." + text[len(text)-digits:]
	}
	return sign + text + " " + strings.ToUpper(currency)
}
