package http

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/stripe"
)

// TestUnsignedBodiesAreBoundedInSum: however many connections send them. What is given up is the largest body of the
// network that has the most, never a small one that has just arrived.
func TestUnsignedBodiesAreBoundedInSum(t *testing.T) {
	t.Parallel()
	all := newBodies(unsignedMax, errTooManyBodies)
	attacker, stripe := netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("198.51.100.1/32")
	var givenUp []int
	read := func(network netip.Prefix, id, size int) (*pendingBody, error) {
		r := httptest.NewRequest("POST", "/v1/webhooks/stripe", nil)
		ctx, _ := visited(r.Context())
		r = r.WithContext(ctx)
		r.ContentLength = -1
		body := all.add(io.NopCloser(strings.NewReader(strings.Repeat("x", size))), network.String(),
			func() { givenUp = append(givenUp, id) })
		r.Body = body
		_, err := readBody(httptest.NewRecorder(), r, webhookMax)
		return body, err
	}
	var held []*pendingBody
	const half = webhookMax / 2
	for id := range unsignedMax / half {
		body, err := read(attacker, id, half)
		require.NoError(t, err)
		held = append(held, body)
	}
	require.EqualValues(t, unsignedMax, all.held())
	require.Empty(t, givenUp)

	small, err := read(attacker, 100, 5<<10)
	require.NoError(t, err, "a small one of the same network")
	require.Len(t, givenUp, 1)
	require.Less(t, givenUp[0], len(held), "a large one has made room")
	large, err := read(stripe, 101, webhookMax)
	require.NoError(t, err, "a larger one of another network")
	require.Len(t, givenUp, 3)
	require.Less(t, max(givenUp[1], givenUp[2]), len(held))
	out := held[givenUp[0]]
	out.ReadCloser = io.NopCloser(strings.NewReader("more of it, which must not count"))
	_, err = out.Read(make([]byte, 100))
	require.ErrorIs(t, err, errTooManyBodies)
	require.Equal(t, codeUnavailable, problemOf(err).code)

	require.True(t, all.remove(small))
	require.True(t, all.remove(large))
	for id, body := range held {
		require.Equal(t, !slices.Contains(givenUp, id), all.remove(body))
		require.False(t, all.remove(body), "once")
	}
	require.Zero(t, all.held())
	require.Empty(t, all.owners)
	require.Empty(t, all.open)
}

// TestOneWaiterPollsForAKey: the others are told by it, and no tenant has more than its share.
func TestOneWaiterPollsForAKey(t *testing.T) {
	t.Parallel()
	ws, key := newWaiters[idempotency.Found](tenantWaiters, keyPauseMax), waiterKey{"ten_1", "k", "pay", "f"}
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

// TestThoseThatHaveWaitedLookTogether, and the others do not.
func TestThoseThatHaveWaitedLookTogether(t *testing.T) {
	t.Parallel()
	looks := map[time.Time]bool{}
	now := time.Now()
	for i := range 49 {
		at := now.Truncate(lookTogether).Add(time.Duration(i) * time.Millisecond)
		pause := untilLook(at, objectPauseMax)
		require.Greater(t, pause, objectPauseMax)
		require.LessOrEqual(t, pause, objectPauseMax+lookTogether)
		looks[at.Add(pause)] = true
	}
	require.Len(t, looks, 1)
	for range 100 {
		pause := untilLook(now, keyPauseMax)
		require.GreaterOrEqual(t, pause, keyPauseMax)
		require.LessOrEqual(t, pause, keyPauseMax*5/4)
		looks[now.Add(pause)] = true
	}
	require.Greater(t, len(looks), 50)
}

// TestUnsignedBodiesAreReadOnlyIfTheirSignatureCouldBeOfNow: and whatever was read of one that is refused is given back
// to the sum.
func TestUnsignedBodiesAreReadOnlyIfTheirSignatureCouldBeOfNow(t *testing.T) {
	t.Parallel()
	s := &Server{o: Options{WebhookSecrets: []string{"whsec_1"}}, networks: newNetworks(),
		unsigned: newBodies(unsignedMax, errTooManyBodies), admission: newAdmission(admissionLimits(1, 1))}
	send := func(signature string) (read int64) {
		body := strings.NewReader(strings.Repeat("x", 1000))
		r := httptest.NewRequest("POST", "/v1/webhooks/stripe", body)
		r.Header.Set("Stripe-Signature", signature)
		ctx, visit := visited(r.Context())
		r = r.WithContext(ctx)
		defer visit.slot.release()
		_, err := s.readSigned(httptest.NewRecorder(), r)
		require.ErrorIs(t, err, stripe.ErrBadWebhook)
		require.Zero(t, s.unsigned.held())
		return 1000 - int64(body.Len())
	}
	const nobodys = ",v1=5257a869e7ecebeda32affa62cdca3fa51cad7e77a0e56ff536d0ce8e108d8bd"
	for _, signature := range []string{
		"", "no signature", "t=1" + nobodys, fmt.Sprint("t=", time.Now().Unix()), // without a signature
		fmt.Sprint("t=", time.Now().Add(-6*time.Minute).Unix(), nobodys),
		fmt.Sprint("t=", time.Now().Add(6*time.Minute).Unix(), nobodys), "t=4070908800" + nobodys,
		"t=9223372036854775807" + nobodys,
	} {
		require.Zero(t, send(signature), signature)
	}
	require.EqualValues(t, 1000, send(fmt.Sprint("t=", time.Now().Unix(), nobodys)))
}

// deadlined is a response on a connection whose reads end when their deadline is set to the past.
type deadlined struct {
	*httptest.ResponseRecorder
	body *io.PipeReader
}

func (w deadlined) SetReadDeadline(at time.Time) error {
	if !at.After(time.Now()) {
		return w.body.CloseWithError(os.ErrDeadlineExceeded)
	}
	return nil
}

// TestUnsignedBodyThatIsGivenUpIsNotHeld: its request ends at once, whether the rest of the body is awaited or a slot.
func TestUnsignedBodyThatIsGivenUpIsNotHeld(t *testing.T) {
	t.Parallel()
	for name, whole := range map[string]bool{"Arriving": false, "Queued": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTestServer(t, nil)
			s.o.Within = time.Hour // so that the slot is not given up for its time
			s.o.Clients.Unsigned = 100 * time.Millisecond
			body, client := io.Pipe()
			r := httptest.NewRequest("POST", "/v1/webhooks/stripe", body)
			r.Header.Set("Stripe-Signature", signatureOfNow())
			ctx, _ := visited(r.Context())
			r = r.WithContext(ctx)
			q := &s.admission.client(clientID{network: s.networks.of(r.RemoteAddr)}).queues[classWebhook]
			q.inUse = 1000
			refused := make(chan error, 1)
			go func() {
				_, err := s.readSigned(deadlined{httptest.NewRecorder(), body}, r)
				refused <- err
			}()
			_, err := client.Write(make([]byte, 100))
			require.NoError(t, err)
			if whole {
				require.NoError(t, client.Close())
				require.Eventually(t, func() bool {
					s.admission.mu.Lock()
					defer s.admission.mu.Unlock()
					return len(q.waiting) == 1
				}, 10*time.Second, time.Millisecond)
			}
			require.Eventually(t, func() bool { return s.unsigned.held() == 100 }, 10*time.Second, time.Millisecond)

			s.unsigned.mu.Lock()
			s.unsigned.bytes += unsignedMax - 100
			s.unsigned.mu.Unlock()
			another := s.unsigned.add(http.NoBody, netip.Prefix{}.String(), func() {})
			require.True(t, s.unsigned.grow(another, 1))
			select {
			case err := <-refused:
				require.Equal(t, codeUnavailable, problemOf(err).code)
			case <-time.After(time.Minute):
				t.Fatal("it is held")
			}
			require.Same(t, body, r.Body)
		})
	}
}

// TestHalfSentBodiesOfATenant: a tenant whose connections send bodies and not their ends gives the largest body up, and
// another tenant's request gets through.
func TestHalfSentBodiesOfATenant(t *testing.T) {
	t.Parallel()
	s := &Server{received: newBodies(100<<10, errTooManyOfTenant)}
	read := func(tenantID string, sends io.Reader) ([]byte, error) {
		r := httptest.NewRequest("POST", "/v1/orders", nil)
		ctx, visit := visited(r.Context())
		visit.tenant.id = tenantID
		r = r.WithContext(ctx)
		r.ContentLength, r.Body = -1, io.NopCloser(sends)
		return s.readTenantBody(httptest.NewRecorder(), r)
	}
	const flood = 20
	ends := make(chan error, flood)
	var open []*io.PipeWriter
	for range flood {
		hangs, sends := io.Pipe()
		open = append(open, sends)
		go func() { _, err := read("ten_flood", hangs); ends <- err }()
		_, err := sends.Write(make([]byte, 10<<10))
		require.NoError(t, err)
		counted := min(int64(len(open))*10<<10, 100<<10)
		require.Eventually(t, func() bool { return s.received.held() == counted }, 10*time.Second, time.Millisecond)
	}
	body, err := read("ten_other", strings.NewReader(strings.Repeat("x", 5000)))
	require.NoError(t, err)
	require.Len(t, body, 5000)
	for _, sends := range open {
		_, _ = sends.Write(make([]byte, 1))
		require.NoError(t, sends.Close())
	}
	refused := 0
	for range flood {
		if err := <-ends; err != nil {
			require.ErrorIs(t, err, errTooManyOfTenant)
			refused++
		}
	}
	require.GreaterOrEqual(t, refused, flood/2)
	require.Zero(t, s.received.held())
}
