package http

import (
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/stripe"
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

// TestUnsignedBodiesAreReadOnlyIfTheirSignatureCouldBeOfNow: and whatever was read of one that is refused is given back
// to the sum.
func TestUnsignedBodiesAreReadOnlyIfTheirSignatureCouldBeOfNow(t *testing.T) {
	t.Parallel()
	s := &Server{o: Options{WebhookSecrets: []string{"whsec_1"}}, networks: newNetworks(), admission: newAdmission(admissionLimits(1, 1))}
	send := func(signature string) (read int64) {
		body := strings.NewReader(strings.Repeat("x", 1000))
		r := httptest.NewRequest("POST", "/v1/webhooks/stripe", body)
		r.Header.Set("Stripe-Signature", signature)
		ctx, visit := visited(r.Context())
		r = r.WithContext(ctx)
		defer visit.slot.release()
		_, err := s.readSigned(httptest.NewRecorder(), r)
		require.ErrorIs(t, err, stripe.ErrBadWebhook)
		require.Zero(t, s.unsigned.Load())
		return 1000 - int64(body.Len())
	}
	const nobodys = ",v1=5257a869e7ecebeda32affa62cdca3fa51cad7e77a0e56ff536d0ce8e108d8bd"
	for _, signature := range []string{
		"", "no signature", "t=1" + nobodys, fmt.Sprint("t=", time.Now().Unix()), // without a signature
		fmt.Sprint("t=", time.Now().Add(-6*time.Minute).Unix(), nobodys),
	} {
		require.Zero(t, send(signature), signature)
	}
	require.EqualValues(t, 1000, send(fmt.Sprint("t=", time.Now().Unix(), nobodys)))
}
