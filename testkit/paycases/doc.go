// Package paycases has the cases of payments that are enumerated: what others do at Stripe, the order in which things
// happen, who comes first, and currencies. The tests of internal/payments run one of each rule. The night runs all.
package paycases

const (
	visa    = "pm_card_visa"
	careful = "pm_card_threeDSecure2Required"
)
