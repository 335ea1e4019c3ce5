package stripesim

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// currencies Stripe charges in, in the order its error message lists them.
var currencies = strings.Fields(`usd aed afn all amd ang aoa ars aud awg azn bam bbd bdt bgn bhd bif bmd bnd bob brl bsd
	bwp byn bzd cad cdf chf clp cny cop crc cve czk djf dkk dop dzd egp etb eur fjd fkp gbp gel gip gmd gnf gtq gyd hkd
	hnl hrk htg huf idr ils inr isk jmd jod jpy kes kgs khr kmf krw kwd kyd kzt lak lbp lkr lrd lsl mad mdl mga mkd mmk
	mnt mop mur mvr mwk mxn myr mzn nad ngn nio nok npr nzd omr pab pen pgk php pkr pln pyg qar ron rsd rub rwf sar sbd
	scr sek sgd shp sle sos srd std szl thb tjs tnd top try ttd twd tzs uah ugx uyu uzs vnd vuv wst xaf xcd xcg xof
	xpf yer zar zmw usdc btn ghs eek lvl svc vef ltl sll mro`)

// zeroDecimal currencies have no minor unit. ISK and UGX have none either, but
// Stripe wants them with two decimals that are always 00.
var (
	zeroDecimal  = strings.Fields("bif clp djf gnf jpy kmf krw mga pyg rwf vnd vuv xaf xof xpf")
	wholeHundred = []string{"isk", "ugx"}
	threeDecimal = strings.Fields("bhd jod kwd omr tnd")
)

// minimum charges per currency, in minor units. Stripe's rule is about the
// settlement currency; we settle in the currency of the charge.
var minimum = map[string]int64{
	"usd": 50, "aud": 50, "brl": 50, "cad": 50, "chf": 50, "eur": 50, "inr": 50, "nzd": 50, "sgd": 50, "gbp": 30,
	"aed": 200, "myr": 200, "pln": 200, "ron": 200, "dkk": 250, "nok": 300, "sek": 300, "hkd": 400, "czk": 1500,
	"mxn": 1000, "thb": 1000, "jpy": 50, "krw": 50, "huf": 17500,
}

// maximum is eight digits, the limit the API reference of 2023-10-16 gives, and maximums are those of the currencies of
// which https://docs.stripe.com/currencies says that more can be charged.
const maximum = 99_999_999

var maximums = map[string]int64{"idr": 999_999_999_999}

var symbols = map[string]string{
	"usd": "$",
	"eur": "€",
	"gbp": "£",
	"jpy": "¥",
	"aud": "$",
	"cad": "$",
	"nzd": "$",
	"sgd": "$",
	"hkd": "$",
}

func checkCurrency(currency string) *apiError {
	if slices.Contains(currencies, currency) {
		return nil
	}
	return invalid(
		"", "currency", "Invalid currency: %s. Stripe currently supports these currencies: %s", currency,
		strings.Join(currencies, ", "),
	)
}

// checkAmount applies Stripe's rules for what may be charged at all.
func checkAmount(amount int64, currency string) *apiError {
	switch {
	case amount < 0:
		return invalid("parameter_invalid_integer", "amount", "Invalid positive integer")
	case amount == 0:
		return invalid("parameter_invalid_integer", "amount", "This value must be greater than or equal to 1.")
	case amount > cmp.Or(maximums[currency], maximum):
		return invalid("amount_too_large", "amount", "Amount must be no more than %s",
			money(cmp.Or(maximums[currency], maximum), currency))
	case amount < minimum[currency]:
		return invalid(
			"amount_too_small", "amount", "Amount must be at least %s %s",
			money(minimum[currency], currency),
			currency,
		)
	case slices.Contains(wholeHundred, currency) && amount%100 != 0:
		return invalid(
			"invalid_charge_amount", "amount", "Invalid amount: %s amounts must be a multiple of 100", currency,
		)
	case slices.Contains(threeDecimal, currency) && amount%10 != 0:
		return invalid(
			"invalid_charge_amount", "amount", "Invalid amount: the last digit of a %s amount must be 0", currency,
		)
	}
	return nil
}

// money writes an amount the way Stripe's messages do: $12.50.
func money(amount int64, currency string) string {
	symbol, known := symbols[currency]
	var s string
	switch {
	case slices.Contains(zeroDecimal, currency):
		s = grouped(amount)
	case slices.Contains(threeDecimal, currency):
		s = fmt.Sprintf("%s.%03d", grouped(amount/1000), amount%1000)
	default:
		s = fmt.Sprintf("%s.%02d", grouped(amount/100), amount%100)
	}
	if !known {
		return s + " " + strings.ToUpper(currency)
	}
	return symbol + s
}

func grouped(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
