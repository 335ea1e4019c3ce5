// Package money holds the rules for amounts: currencies, their steps, and the smallest and
// largest charges. Amounts are integers in minor units everywhere else.
package money

import (
	"fmt"
)

// amountMax is our own ceiling: eight digits, what Stripe takes from every
// payment method (https://docs.stripe.com/currencies#minimum-and-maximum-charge-amounts).
const amountMax = 99_999_999

// maximums are those of currencies of which the same page says that more can be charged.
var maximums = map[string]int64{"idr": MaxOfAll}

// MaxOfAll is the largest amount in any currency: twelve digits.
const MaxOfAll = 999_999_999_999

// Max is the largest charge in a currency, in minor units.
func Max(currency string) int64 {
	if most := maximums[currency]; most > 0 {
		return most
	}
	return amountMax
}

// ListChangedOn is the day on which the currencies below, their steps or their largest charges were last brought up to date.
// Stripe adds currencies without a new API version, so the list ages; `api doctor` shows the day.
const ListChangedOn = "2026-11-29"

// currencies are the codes Stripe charges in, as groups by the rule for their
// smallest unit. An ISO 4217 table would be wrong by a factor of 100 for ISK and
// UGX (https://docs.stripe.com/currencies#special-cases).
var currencies = func() map[string]int64 {
	m := map[string]int64{}
	for step, codes := range map[int64]string{
		1: "aed afn all amd ang aoa ars aud awg azn bam bbd bdt bgn bif bmd bnd bob brl bsd bwp byn bzd " +
			"cad cdf chf clp cny cop crc cve czk djf dkk dop dzd egp etb eur fjd fkp gbp gel gip gmd gnf " +
			"gtq gyd hkd hnl htg huf idr ils inr jmd jpy kes kgs khr kmf krw kyd kzt lak lbp lkr lrd lsl " +
			"mad mdl mga mkd mmk mnt mop mur mvr mwk mxn myr mzn nad ngn nio nok npr nzd pab pen pgk php " +
			"pkr pln pyg qar ron rsd rub rwf sar sbd scr sek sgd shp sle sos srd std szl thb tjs top try " +
			"ttd twd tzs uah usd uyu uzs vnd vuv wst xaf xcd xcg xof xpf yer zar zmw",
		10:  "bhd jod kwd omr tnd", // three decimals, of which the last must be 0
		100: "isk ugx",             // no decimals, and yet sent with two
	} {
		for len(codes) >= 3 {
			m[codes[:3]] = step
			codes = codes[min(4, len(codes)):]
		}
	}
	return m
}()

// minimums are Stripe's smallest charges where the currency is also the one it
// settles in. In other currencies only Stripe can tell, after conversion.
var minimums = map[string]int64{
	"usd": 50, "aud": 50, "brl": 50, "cad": 50, "chf": 50, "eur": 50, "inr": 50, "nzd": 50, "sgd": 50, "gbp": 30,
	"aed": 200, "myr": 200, "pln": 200, "ron": 200, "dkk": 250, "nok": 300, "sek": 300, "hkd": 400, "czk": 1500,
	"mxn": 1000, "thb": 1000, "jpy": 50, "krw": 50, "huf": 17500,
}

// Known reports whether Stripe charges in the currency, given as a
// lower-case ISO 4217 code.
func Known(currency string) bool { return currencies[currency] != 0 }

// Check says in one sentence why Stripe would refuse to charge the amount,
// in minor units; nil if it would not.
func Check(minor int64, currency string) error {
	switch step, least := currencies[currency], minimums[currency]; {
	case step == 0:
		return fmt.Errorf("%q is not a currency that can be charged", currency)
	case minor > Max(currency):
		return fmt.Errorf("the total is %d, the largest charge in %s is %d", minor, currency, Max(currency))
	case minor < max(least, 1):
		return fmt.Errorf("the total is %d, the smallest charge in %s is %d", minor, currency, max(least, 1))
	case minor%step != 0:
		return fmt.Errorf("the total is %d, amounts in %s are multiples of %d", minor, currency, step)
	}
	return nil
}

// CheckStep says in one sentence why a part of a charge in the currency cannot be of the amount; nil if it can.
func CheckStep(minor int64, currency string) error {
	if minor > Max(currency) {
		return fmt.Errorf("the amount is %d, the largest charge in %s is %d", minor, currency, Max(currency))
	}
	if step := currencies[currency]; step > 1 && minor%step != 0 {
		return fmt.Errorf("the amount is %d, amounts in %s are multiples of %d", minor, currency, step)
	}
	return nil
}
