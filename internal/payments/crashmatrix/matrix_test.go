package crashmatrix_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/crashmatrix"
)

// cells has each place once. Answers of Stripe's, disturbances and ways back are spread over them, each several times.
var cells = []string{
	"payment/none/response lost/undisturbed/retry",
	"payment/payment_recorded/success/killed/completer",
	"payment/intent made/success/delayed/completer",
	"payment/intent_recorded/declined/cut after/retry",
	"payment/confirm answered/error after the effect/killed/webhook",
	"payment/action_required/customer must act/cut before/webhook",
	"payment/cancel answered/authentication failed/killed/completer",
	"payment/finished/success/killed/retry",

	"refund/none/turned away/undisturbed/completer",
	"refund/refund_recorded/success/cut before/retry",
	"refund/refund answered/less is left there/killed/completer",
	"refund/finished/error stored after the effect/cut after/webhook",

	"cancel of a payment/none/too late/undisturbed/webhook",
	"cancel of a payment/cancel_begun/success/delayed/retry",
	"cancel of a payment/cancel answered/response lost/killed/completer",
	"cancel of a payment/finished/success/cut before/webhook",

	"cancel of an order/none/never arrived/undisturbed/completer",
	"cancel of an order/cancel_begun/success/cut after/retry",
	"cancel of an order/cancel answered/too late/delayed/completer",
	"cancel of an order/finished/success/killed/completer",

	"cancel of an order that adopts/none/paid without us/undisturbed/retry",
	"cancel of an order that adopts/cancel_begun/paid without us/killed/completer",
	"cancel of an order that adopts/cancel answered/paid without us/killed/retry",
	"cancel of an order that adopts/finished/paid without us/cut before/completer",

	"capture/none/error stored/undisturbed/completer",
	"capture/capture_recorded/success/killed/completer",
	"capture/capture answered/success/delayed/retry",
	"capture/cancel answered/lapsed/killed/retry",
	"capture/finished/canceled elsewhere/cut after/webhook",

	"release/none/error after the effect/undisturbed/retry",
	"release/cancel_begun/captured elsewhere/cut before/completer",
	"release/cancel answered/success/killed/webhook",
	"release/finished/success/delayed/completer",
}

func TestCrashMatrix(t *testing.T) {
	t.Parallel()
	crashmatrix.Run(t, cells...)
}

// TestEachPlaceHasACell: a place that is added to an operation is disturbed here, too, and not only by night.
func TestEachPlaceHasACell(t *testing.T) {
	t.Parallel()
	for _, place := range crashmatrix.Places() {
		require.True(t, slices.ContainsFunc(cells, func(cell string) bool { return strings.HasPrefix(cell, place+"/") }),
			"add a cell of the place %q to cells", place)
	}
}
