package paycases

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	stripego "github.com/stripe/stripe-go/v76"

	"example.com/payonce/internal/money"
	"example.com/payonce/testkit/world"
)

// currencyRules are the currencies that Stripe charges in, by the rule for their smallest unit
// (https://docs.stripe.com/currencies). The list is written down here a second time: a code that is missing in one of the
// two places is found.
var currencyRules = []struct {
	name  string
	codes string
	step  int64 // every amount is a multiple of it, in minor units
}{
	{"zero-decimal", "bif clp djf gnf jpy kmf krw mga pyg rwf vnd vuv xaf xof xpf", 1},
	{"zero-decimal, sent with two", "isk ugx", 100},
	{"three-decimal, the last of which is 0", "bhd jod kwd omr tnd", 10},
	{"two-decimal", `aed afn all amd ang aoa ars aud awg azn bam bbd bdt bgn bmd bnd bob brl bsd bwp byn bzd cad cdf chf
		cny cop crc cve czk dkk dop dzd egp etb eur fjd fkp gbp gel gip gmd gtq gyd hkd hnl htg huf idr ils inr jmd kes
		kgs khr kyd kzt lak lbp lkr lrd lsl mad mdl mkd mmk mnt mop mur mvr mwk mxn myr mzn nad ngn nio nok npr nzd pab
		pen pgk php pkr pln qar ron rsd rub sar sbd scr sek sgd shp sle sos srd std szl thb tjs top try ttd twd tzs uah
		usd uyu uzs wst xcd xcg yer zar zmw`, 1},
}

// smallestCharges are Stripe's, where it has one (https://docs.stripe.com/currencies#minimum-and-maximum-charge-amounts).
var smallestCharges = map[string]int64{
	"usd": 50, "aud": 50, "brl": 50, "cad": 50, "chf": 50, "eur": 50, "inr": 50, "nzd": 50, "sgd": 50, "gbp": 30,
	"aed": 200, "myr": 200, "pln": 200, "ron": 200, "dkk": 250, "nok": 300, "sek": 300, "hkd": 400, "czk": 1500,
	"mxn": 1000, "thb": 1000, "jpy": 50, "krw": 50, "huf": 17500,
}

const largestCharge = 99_999_999

// largestCharges are those of the currencies of which more can be charged (the same page).
var largestCharges = map[string]int64{"idr": 999_999_999_999}

// Currencies are the codes of all of them.
func Currencies() (codes []string) {
	for _, rule := range currencyRules {
		codes = append(codes, strings.Fields(rule.codes)...)
	}
	return codes
}

// CurrenciesAgreeWithStripe takes each currency from its list to Stripe's answer: the smallest and the largest amount that
// can be ordered are those that Stripe charges, and between them an order is paid, captured in part and refunded in part,
// by its smallest step.
func CurrenciesAgreeWithStripe(t *testing.T, codes ...string) {
	t.Helper()
	w := world.New(t)
	api := w.Local(world.LocalOptions{})
	atStripe := w.DashboardAtStripe()
	// charges reports whether Stripe would charge the amount.
	charges := func(currency string, amount int64) bool {
		intent, err := atStripe.PaymentIntents.New(&stripego.PaymentIntentParams{
			Amount: stripego.Int64(amount), Currency: stripego.String(currency),
			PaymentMethodTypes: stripego.StringSlice([]string{"card"}),
		})
		return err == nil && intent.Amount == amount
	}
	orders := func(currency string, amount int64) bool {
		a := api.Post("/v1/orders", fmt.Sprintf("%s-%d", currency, amount), fmt.Sprintf(
			`{"currency":%q,"items":[{"sku":"tea","quantity":1,"unit_amount":%d}]}`, currency, amount))
		require.Contains(t, []int{http.StatusCreated, http.StatusBadRequest}, a.Status, a)
		return a.Status == http.StatusCreated
	}
	for _, rule := range currencyRules {
		for _, currency := range strings.Fields(rule.codes) {
			if !slices.Contains(codes, currency) {
				continue
			}
			t.Run(rule.name+"/"+currency, func(t *testing.T) {
				require.True(t, money.Known(currency))
				least := max(smallestCharges[currency], rule.step)
				most := cmp.Or(largestCharges[currency], largestCharge)
				largest := most / rule.step * rule.step
				for amount, is := range map[int64]bool{
					least: true, largest: true, largest + rule.step: false,
					least - 1: least-1 >= max(smallestCharges[currency], 1) && rule.step == 1,
					least + 1: rule.step == 1, largest - 1: rule.step == 1,
				} {
					if amount < 1 {
						continue
					}
					require.Equal(t, is, charges(currency, amount), "Stripe: %d", amount)
					require.Equal(t, is && amount <= most, orders(currency, amount), "here: %d", amount)
				}

				order := api.Post("/v1/orders", "order-"+currency, fmt.Sprintf(
					`{"currency":%q,"items":[{"sku":"tea","quantity":1,"unit_amount":%d}]}`, currency, largest)).ID()
				payment := api.Authorize("authorize-"+currency, order, visa).ID()
				part := largest - rule.step
				if rule.step > 1 {
					require.Equal(t, "invalid-request", api.Capture("off-"+currency, payment, part+1).Code())
				}
				captured := api.Capture("capture-"+currency, payment, part)
				require.Equal(t, http.StatusOK, captured.Status, captured)
				require.InDelta(t, part, captured.Get("amount_captured"), 0)
				refund := func(key string, amount int64) (status int, code string) {
					a := api.Post("/v1/payments/"+payment+"/refunds", key+currency, fmt.Sprintf(`{"amount":%d}`, amount))
					return a.Status, a.Code()
				}
				if rule.step > 1 {
					_, code := refund("off-", 1)
					require.Equal(t, "invalid-request", code)
				}
				_, code := refund("more-", part+rule.step)
				require.Equal(t, "refund-exceeds-payment", code)
				status, _ := refund("step-", rule.step)
				require.Equal(t, http.StatusCreated, status)
				rest := api.Post("/v1/payments/"+payment+"/refunds", "rest-"+currency, "")
				require.Equal(t, http.StatusCreated, rest.Status, rest)
				require.InDelta(t, part-rule.step, rest.Get("amount"), 0)
				require.Equal(t, "refunded", api.Get("/v1/orders/"+order).Get("status"))
			})
		}
	}
	require.False(t, orders("xxx", 1000))
	require.False(t, charges("xxx", 1000))
}
