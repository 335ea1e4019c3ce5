package chaos

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	httpapi "example.com/payonce/internal/http"
	"example.com/payonce/proof/internal/chaos/history"
	"example.com/payonce/stripesim"
)

// A 409 that does not know whether the request was started says nothing of the key: another request may have it later.
func TestInDoubtIsNoProofOfAClaim(t *testing.T) {
	t.Parallel()
	c := &client{traffic: &traffic{looked: map[string]int{}}}
	says := func(detail string) history.Outcome {
		return c.classify(request{}, answer{status: http.StatusConflict, retryAfter: true,
			object: object{Code: "idempotency-key-in-flight", Retryable: true, Detail: detail}})
	}
	require.Equal(t, history.InProgress, says("The first request with this key is still in progress."))
	require.Equal(t, history.Unknown, says(httpapi.InDoubt))
}

// A 503 to the first request with a key is only true if the key does not exist before another request comes.
func TestTheRefusals(t *testing.T) {
	t.Parallel()
	began := time.Now()
	at := func(d time.Duration) int64 { return d.Nanoseconds() }
	op := func(o history.Outcome, call, ret time.Duration) history.Operation {
		return history.Operation{Tenant: 1, Key: "k", Outcome: o, Call: at(call), Return: at(ret)}
	}
	since := func(d time.Duration) map[ack]time.Time { return map[ack]time.Time{{1, "k"}: began.Add(d)} }
	away := op(history.Away, 10*time.Millisecond, 50*time.Millisecond)
	retry := op(history.Final, time.Second, 2*time.Second)
	nothing := map[ack]time.Time{}
	for name, c := range map[string]struct {
		ops            []history.Operation
		here, atStripe map[ack]time.Time
		looked, found  int
	}{
		"NothingExists":    {[]history.Operation{away}, nothing, nothing, 1, 0},
		"ExistsHere":       {[]history.Operation{away}, since(20 * time.Millisecond), nothing, 1, 1},
		"ExistsAfterwards": {[]history.Operation{away}, since(time.Minute), nothing, 1, 1},
		"ExistsAtStripe":   {[]history.Operation{away}, nothing, since(40 * time.Millisecond), 1, 1},
		"BegunByTheRetry": {[]history.Operation{retry, away}, since(1010 * time.Millisecond),
			since(1100 * time.Millisecond), 1, 0},
		"BegunBeforeTheRetry": {[]history.Operation{retry, away}, since(900 * time.Millisecond), nothing, 1, 1},
		"RefusedIsTheRetry": {[]history.Operation{op(history.Unknown, 0, time.Hour), away},
			since(20 * time.Millisecond), nothing, 0, 0},
		"OfAnotherTenantIsNot": {[]history.Operation{away}, map[ack]time.Time{{0, "k"}: began}, nothing, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			looked, found := begunAfterAll(c.ops, began, c.here, c.atStripe)
			require.Equal(t, c.looked, looked)
			require.Len(t, found, c.found)
		})
	}

	tenants := map[string]int{"ten_a": 0, "ten_b": 1}
	effect := func(key string, d time.Duration) stripesim.Effect {
		return stripesim.Effect{Key: key, At: began.Add(d)}
	}
	require.Equal(t, map[ack]time.Time{{1, "a:b"}: began.Add(time.Second), {0, "a:b"}: began},
		firstEffects([]stripesim.Effect{
			effect("ten_b:a:b:refund", time.Minute), effect("ten_b:a:b:confirm", time.Second), effect("ten_a:a:b:confirm", 0),
			effect("", 0), effect("ten_c:a:b:confirm", 0),
		}, tenants))
}
