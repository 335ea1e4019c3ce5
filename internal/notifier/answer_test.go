package notifier_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/flood"
)

// TestLongAnswersAreNotHeld: of an endpoint's response only the status is read.
func TestLongAnswersAreNotHeld(t *testing.T) {
	t.Parallel()
	b := setup(t)
	server := flood.Start(t, http.StatusOK)
	b.endpoint(server.URL)
	b.publish("ord_1")
	b.runOnce(1)
	status, _, _, _ := b.row()
	require.Equal(t, "delivered", status)
	require.Less(t, server.Sent(), int64(32<<20))
}
