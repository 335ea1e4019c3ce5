package broker

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/outbox"
)

// TestExamineEachBroker: a broker without a stream, and one that has published, for every kind.
func TestExamineEachBroker(t *testing.T) {
	t.Parallel()
	for _, a := range adapters {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			at := a.place(t)
			before, err := Examine(t.Context(), at.url())
			require.NoError(t, err)
			require.NotEmpty(t, before.Reached)
			require.NoError(t, open(t, at.url()).Publish(t.Context(), []outbox.Envelope{envelope("ord_1", 1)})[0])
			st, err := Examine(t.Context(), at.url())
			require.NoError(t, err, "beside the service")
			require.NotEmpty(t, st.Reached)
			require.Empty(t, st.Loses)
			require.Empty(t, st.Differs)
			require.False(t, st.Missing)
		})
	}
}

// TestExamineABrokerThatIsAway: it is bounded by the context.
func TestExamineABrokerThatIsAway(t *testing.T) {
	t.Parallel()
	for _, a := range adapters {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			at := a.place(t)
			at.stop()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			_, err := Examine(ctx, at.url())
			require.Error(t, err)
		})
	}
}
