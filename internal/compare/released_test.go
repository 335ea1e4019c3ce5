package compare_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/compare"
)

func TestIsReleased(t *testing.T) {
	t.Parallel()
	released := db.Payment{ManualCapture: true, Status: db.PaymentStatusCanceled, ChargeID: new("ch_1")}
	require.True(t, compare.IsReleased(released))

	never := released
	never.ChargeID = nil
	require.False(t, compare.IsReleased(never), "it was canceled before it was authorized")
	held := released
	held.Status = db.PaymentStatusAuthorized
	require.False(t, compare.IsReleased(held))
	taken := released
	taken.Status = db.PaymentStatusSucceeded
	require.False(t, compare.IsReleased(taken))
	atOnce := released
	atOnce.ManualCapture = false
	require.False(t, compare.IsReleased(atOnce), "it was never only reserved")
}
