package shop

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/world"
)

// RequireSurvivesSIGKILL kills the real program with SIGKILL at a recovery point of a checkout of ten teas at most.
// Another process, which nobody asks, must finish it with the course.
func RequireSurvivesSIGKILL(t testing.TB, point, body, course string) {
	t.Helper()
	w := world.New(t)
	s := Shop{Local: w.Local(world.LocalOptions{}), World: w}
	s.Stock("tea", 10)
	victim := w.Process(fmt.Sprintf("FAULT_AT=create_checkout/%s=kill", point))
	victim.Post("/v1/checkouts", "k", body)
	require.Equal(t, -1, victim.Wait(world.Patience))
	require.Equal(t, point, w.RecoveryPoint("k"))

	w.ExpireLeases()
	heir := w.Process()
	w.Until("another process has finished it", func() bool { return w.RecoveryPoint("k") == "finished" })
	a := heir.Post("/v1/checkouts", "k", body)
	require.True(t, a.Replayed(), a)
	require.Equal(t, course, SagaOf(t, a).Course(), a)
	s.RequireWhole()
}
