package http

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestNetworks(t *testing.T) {
	t.Parallel()

	t.Run("AreTheSmallestThatAClientHas", func(t *testing.T) {
		t.Parallel()
		n := newNetworks()
		require.Equal(t, "192.0.2.1/32", n.of("192.0.2.1:1234").String())
		require.Equal(t, "192.0.2.1/32", n.of("[::ffff:192.0.2.1]:1234").String())
		require.Equal(t, "2001:db8::/64", n.of("[2001:db8::1]:1").String())
		require.Equal(t, "2001:db8::/64", n.of("[2001:db8::2%eth0]:2").String(), "a client has all of them")
		require.Equal(t, "2001:db8:0:1::/64", n.of("[2001:db8:0:1::1]:1").String())
		require.Equal(t, n.of(""), n.of("@"))
	})

	t.Run("OfOneClientAreFew", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) { // all in one period
			n := newNetworks()
			clients := func(in48, in64 uint64) int {
				distinct := map[netip.Prefix]bool{}
				for i := range in48 {
					for j := range in64 {
						distinct[n.of(address(0x2001_0db8<<32|i<<16|j))] = true
					}
				}
				return len(distinct)
			}
			require.Equal(t, 9, clients(1, 1<<16), "of a /48: eight, and the rest")
			require.Equal(t, 73, clients(1<<8, 1<<8), "of a /32: nine in each of eight, and the rest")
			require.Equal(t, "2001:db9::/64", n.of("[2001:db9::1]:1").String(), "others do not notice")
			require.Equal(t, "192.0.2.1/32", n.of("192.0.2.1:1").String())
			require.Equal(t, "2001:db8::/64", n.of("[2001:db8::1]:1").String())

			for i := range 20 {
				n.of(fmt.Sprintf("198.51.100.%d:1", i))
			}
			require.Equal(t, "198.51.100.7/32", n.of("198.51.100.7:1").String())
			require.Equal(t, "198.51.100.0/24", n.of("198.51.100.8:1").String())
		})
	})

	t.Run("AreBoundedHoweverManyThereAre", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			n, a := newNetworks(), newLoaded(t, classLimits{alone: 1})
			for range 4 {
				for i := range uint64(1 << 18) {
					s, _, err := a.enqueue(clientID{network: n.of(address(i << 32))}, classRefusal, false)
					require.NoError(t, err)
					s.release()
				}
				require.LessOrEqual(t, len(n.known), networksMax+2)
				require.LessOrEqual(t, len(a.clients), 3*networksMax, "those of this period and of two before it")
				time.Sleep(activeFor)
			}
			require.Equal(t, "2001:db8::/64", n.of("[2001:db8::1]:1").String(), "in the next period all are new")
		})
	})
}

// address is one in the /64 that begins with the bits.
func address(bits uint64) string {
	var a [16]byte
	binary.BigEndian.PutUint64(a[:], bits)
	return netip.AddrPortFrom(netip.AddrFrom16(a), 1).String()
}

// TestManyNetworksAreOneClient: in the queues of requests, and in that of API keys.
func TestManyNetworksAreOneClient(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, nil)
	s.o.Within = time.Hour         // so that no request is given up for its time while the machine stands still
	s.auth.lookups.busy = keyLanes // so that no key is looked up
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for i := range uint64(1000) {
		r := httptest.NewRequest("GET", "/v1/orders", nil)
		r.RemoteAddr = address(0x2001_0db8_0000_0000 | i)
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		require.Equal(t, http.StatusUnauthorized, w.Code, "%d %s", i, w.Body)

		r.Header.Set("Authorization", fmt.Sprint("Bearer payonce_a_", i))
		_, err := s.auth.authenticate(r.WithContext(gone))
		require.Error(t, err)
	}
	few := 3 * (networksWithinMax + 1) // A period may end meanwhile, and another.
	require.LessOrEqual(t, len(s.admission.clients), few)
	lookups := s.auth.lookups
	require.LessOrEqual(t, len(lookups.turns), few)
	require.Equal(t, keyQueueMax, lookups.waiting)

	r := httptest.NewRequest("GET", "/v1/orders", nil) // from another network
	r.Header.Set("Authorization", "Bearer payonce_a_valid")
	_, err := s.auth.authenticate(r.WithContext(gone))
	require.ErrorIs(t, err, context.Canceled, "it waits")
	require.Contains(t, lookups.pending, keyDigest(sha256.Sum256([]byte("payonce_a_valid"))))
}
