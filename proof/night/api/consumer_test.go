package api_test

import (
	"context"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/world"
)

// A process is killed between an event's effect and its acknowledgement. The
// broker cannot know that the books are written, and delivers it again, to
// another process: its row in the inbox is there, and nothing is booked twice.
func TestConsumerKilledBeforeItsAcknowledgement(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	broker := "BROKER_URL=embedded:" + filepath.Join(t.TempDir(), "broker")
	victim := w.Process(world.ShortTimes(broker, "FAULT_AT=ledger/payment.succeeded=kill")...)
	order := victim.Order()
	victim.Pay("k", order, "pm_card_visa") // its answer may be lost with the process
	require.Equal(t, -1, victim.Wait(world.Patience), "the process was not killed")
	booked := func() int { return w.Count("SELECT count(*) FROM ledger_entries") }
	require.Equal(t, 2, booked(), "the effect was there")
	require.Equal(
		t, 1,
		w.Count(
			"SELECT count(*) FROM inbox_events WHERE consumer = 'ledger' AND type = 'payment.succeeded' AND status = "+
				"'done'",
		),
	)

	heir := w.Process(broker)
	w.Until("the broker has delivered it again", func() bool {
		return strings.Contains(
			fetch(t, heir.Admin+"/metrics"),
			`payonce_inbox_events_total{consumer="ledger",result="duplicate"}`,
		)
	})
	require.Equal(t, 2, booked(), "and it is not booked again")
	require.Equal(t, http.StatusCreated, heir.PayUntilFinal("k", order, "pm_card_visa").Status)
	w.RequireChargedOnce(order)
}

func fetch(t *testing.T, address string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	require.NoError(t, err)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return string(b)
}
