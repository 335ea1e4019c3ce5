package disputes_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/disputes"
	"example.com/payonce/testkit/pgproxy"
	"example.com/payonce/testkit/world"
)

// A process dies at any statement of recording a dispute, before or after its commit.
// Another reads the dispute again, and there is one row, one movement and one event of each.
func TestDisputeIsRecordedOnceHoweverItsReaderDies(t *testing.T) {
	t.Parallel()
	for _, statement := range []string{"DisputeMovementInsert", "DisputeInsert", "PaymentApplyDispute",
		"OrderApplyDispute", "OutboxAppend", "COMMIT lost", "COMMIT unanswered"} {
		t.Run(statement, func(t *testing.T) {
			t.Parallel()
			b := paid(t)
			proxy, err := pgproxy.Start(b.URL)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, proxy.Close()) })
			victim := b.Local(world.LocalOptions{Name: "victim", Database: proxy.URL()})
			id := b.dispute(false)
			var cut *pgproxy.Cut
			switch statement {
			case "COMMIT lost":
				cut = proxy.BeforeCommit("name: DisputeInsert ")
			case "COMMIT unanswered":
				cut = proxy.AfterCommit("name: DisputeInsert ")
			default:
				cut = proxy.After("name: " + statement + " ")
			}
			require.Error(t, victim.Disputes.Read(t.Context(), id))
			require.True(t, cut.HasFired())
			b.rounds()
			require.Equal(t, "needs_response, fee 1500, disputed 1000: created", b.shown(id))
			require.Equal(t, 1, b.Count("SELECT count(*) FROM dispute_movements"))
			b.sound()
		})
	}
}

// Many processes find one dispute at once, from webhooks and from the list.
func TestDisputeIsRecordedOnceByManyReaders(t *testing.T) {
	t.Parallel()
	b := paid(t)
	won, lost := b.dispute(false), b.dispute(false)
	b.evidence(won, "winning_evidence")
	gateway := b.api.Gateway.(disputes.Gateway)
	world.Together(8, func(i int) error {
		s := disputes.New(b.api.Pool, gateway, disputes.Options{})
		return s.Read(t.Context(), []string{won, lost}[i%2])
	})
	b.rounds()
	require.Equal(t, "won, fee 1500, disputed 1000: created won", b.shown(won))
	require.Equal(t, "needs_response, fee 1500, disputed 1000: created", b.shown(lost))
	b.sound()
}
