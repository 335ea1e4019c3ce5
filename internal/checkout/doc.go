// Package checkout is the saga: create the order, reserve the stock, pay, notify; or, with
// capture: manual, create the order, authorize, reserve the stock, capture, notify. It
// pays with the functions of internal/payments, which does not know it; leaving this
// package out leaves the payment as it is.
//
//	checkout.go     the saga on one screen, its rows and its answers
//	steps.go        the steps, in order
//	pay.go          the payment as a step: the payments.Ending of a checkout
//	capture.go      money that is reserved first: its capture, and its release
//	compensate.go   the compensations, in reverse order
//	expire.go       reservations that expire before the payment, or its capture, began
//	stock.go        stock and reservations
//	history.go      what the history of a checkout's key says
//	service.go      the Service; metrics.go its metrics
package checkout
