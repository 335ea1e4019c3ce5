package http_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestReadsWaitUntilACheckoutIsFinal(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.Equal(t, http.StatusOK, b.send("PUT", "/v1/stock/tea", `{"available":9}`).status)
	checkout := b.post("/v1/checkouts", "checkout", `{"currency":"eur","items":[{"sku":"tea","quantity":1,
		"unit_amount":1250}],"payment_method":"pm_card_authenticationRequired"}`)
	require.Equal(t, "processing", checkout.object["status"], checkout.body)
	path := "/v1/checkouts/" + checkout.id()
	began := time.Now()
	require.Equal(t, "processing", b.send("GET", path, "", "Prefer", "wait=1").object["status"])
	require.GreaterOrEqual(t, time.Since(began), time.Second)
	waits := b.waiting(path, "Prefer", "wait=10")
	time.Sleep(100 * time.Millisecond)
	require.Empty(t, waits)
	_, err := b.pool.Raw().Exec(t.Context(), `ALTER TABLE checkouts DISABLE TRIGGER USER`)
	require.NoError(t, err)
	_, err = b.pool.Raw().Exec(t.Context(), `UPDATE checkouts SET status = 'completed', version = 1`)
	require.NoError(t, err)
	a := <-waits
	require.Equal(t, "completed", a.object["status"], a.body)
	require.Len(t, a.object["steps"], 7)
	for _, none := range []string{"chk_x", "chk_00000000000000000000000000"} {
		require.Equal(t, "not-found", b.send("GET", "/v1/checkouts/"+none, "", "Prefer", "wait=10").code())
	}
}
