package http

import (
	"io"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/idempotency"
)

// TestUnsignedBodiesAreBoundedInSum: however many connections send them.
func TestUnsignedBodiesAreBoundedInSum(t *testing.T) {
	t.Parallel()
	var all atomic.Int64
	read := func(size int) (*unsignedBody, error) {
		r := httptest.NewRequest("POST", "/v1/webhooks/stripe", nil)
		r.ContentLength = -1
		body := &unsignedBody{ReadCloser: io.NopCloser(strings.NewReader(strings.Repeat("x", size))), all: &all}
		r.Body = body
		_, err := readBody(httptest.NewRecorder(), r, webhookMax)
		return body, err
	}
	var held []*unsignedBody
	for range unsignedMax / webhookMax {
		body, err := read(webhookMax)
		require.NoError(t, err)
		held = append(held, body)
	}
	over, err := read(1)
	require.ErrorIs(t, err, errTooManyBodies)
	require.Equal(t, codeUnavailable, problemOf(err).code)
	over.release()
	held[0].release()
	_, err = read(1)
	require.NoError(t, err)
}

// TestOneWaiterPollsForAKey: the others are told by it, and no tenant has more than its share.
func TestOneWaiterPollsForAKey(t *testing.T) {
	t.Parallel()
	ws, key := newWaiters(), waiterKey{"ten_1", "k", "pay", "f"}
	k := ws.enter(key)
	for range tenantWaiters - 1 {
		require.Same(t, k, ws.enter(key))
	}
	require.Nil(t, ws.enter(waiterKey{"ten_1", "another", "pay", "f"}), "the tenant has its share")
	require.NotNil(t, ws.enter(waiterKey{"ten_2", "k", "pay", "f"}), "which is no other tenant's")
	<-k.turn
	require.Empty(t, k.turn, "a second one would poll too")
	ws.finish(key, k, idempotency.Found{State: idempotency.Replay})
	<-k.done
	for range tenantWaiters {
		ws.leave(key, k)
	}
	require.NotSame(t, k, ws.enter(key), "who comes later looks the key up")
	require.Len(t, ws.tenants, 2)
}
