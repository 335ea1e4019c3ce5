package main

import (
	"fmt"
	"net/http"
	"time"

	"example.com/payonce/stripesim"
)

const consoleCaptured = 900 // of consoleAmount

// authorizeAndCapture makes Stripe slow, so that the two captures overlap.
func authorizeAndCapture(run *actionRun) error {
	id, err := run.authorize()
	if err != nil {
		return err
	}
	slow := stripesim.Fault{
		Op: "intent.capture", OrderID: run.order, Kind: stripesim.Delay, Delay: 300 * time.Millisecond,
	}
	if err := run.stripe.injectFault(run.ctx, slow); err != nil {
		return err
	}
	run.use(capture("capture-"+randomHex(3), id, consoleCaptured))
	run.sendPayments(2, "POST /v1/payments/{id}/capture, "+money(consoleCaptured, "usd")+", twice")
	a, err := run.sendUntilFinal(run.upEndpoint(), run.pay, run.sendPayment)
	return expectResponse(a, err, http.StatusOK, "succeeded")
}

func releaseAuthorization(run *actionRun) error {
	id, err := run.authorize()
	if err != nil {
		return err
	}
	run.use(cancelPayment("release-"+randomHex(3), id))
	a, err := run.sendUntilFinal(run.upEndpoint(), run.pay, run.sendPayment)
	if err := expectResponse(a, err, http.StatusOK, "canceled"); err != nil {
		return err
	}
	run.use(payment("pay-"+randomHex(3), run.order, mastercard))
	return run.payUntilFinal(run.b)
}

// authorize creates an order and reserves its money on the card. It returns the payment's id.
func (run *actionRun) authorize() (id string, err error) {
	if err := run.createOrder(); err != nil {
		return "", err
	}
	run.use(authorization(run.pay.key, run.order, visa))
	a, err := run.sendUntilFinal(run.upEndpoint(), run.pay, run.sendPayment)
	return a.object().ID, expectResponse(a, err, http.StatusCreated, "authorized")
}

func expectResponse(a response, err error, status int, word string) error {
	if err == nil && (a.status != status || a.object().Status != word) {
		err = fmt.Errorf("the response is %s", a)
	}
	return err
}
