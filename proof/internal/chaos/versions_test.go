package chaos

import (
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRequestsOfAPhase: a 503 that says when to come back is no failure, unless there are many; everything else is.
func TestRequestsOfAPhase(t *testing.T) {
	t.Parallel()
	away := answer{status: http.StatusServiceUnavailable, retryAfter: true, object: object{Code: "unavailable", Retryable: true}}
	silent, internal := away, answer{status: http.StatusInternalServerError, retryAfter: true, object: object{Code: "internal", Retryable: true}}
	silent.retryAfter = false
	phase := func(requests, putOff int, others ...answer) Phase {
		traffic := &traffic{strict: true}
		for range requests - putOff - len(others) {
			traffic.served("GET /v1/orders", answer{status: http.StatusOK}, nil)
		}
		for range putOff {
			traffic.served("POST /v1/refunds", away, nil)
		}
		for _, a := range others {
			traffic.served("POST /v1/refunds", a, nil)
		}
		p := Phase{Name: "half of each"}
		p.Requests, p.Failed, p.PutOff = traffic.counted()
		return p
	}
	require.Empty(t, phase(50, 1).violations(), "one is put off on a busy machine")
	require.Empty(t, phase(400, 4).violations())
	require.Len(t, phase(400, 5).violations(), 6, "the sum and each of them")
	require.Len(t, phase(50, 2).violations(), 3)
	require.Len(t, phase(50, 0, silent, internal).violations(), 2, "neither says when to come back to something that was not begun")

	cut := &traffic{strict: true}
	cut.served("GET /v1/orders", answer{}, errors.New("connection refused"))
	_, failed, putOff := cut.counted()
	require.Len(t, failed, 1)
	require.Empty(t, putOff)

	killed := &traffic{}
	killed.served("GET /v1/orders", internal, nil)
	_, failed, _ = killed.counted()
	require.Empty(t, failed, "while processes are killed requests may fail")
}
