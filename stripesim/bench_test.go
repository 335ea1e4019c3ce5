package stripesim

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkPayment creates and confirms one intent per turn, straight through
// the handler: what the simulator itself costs whoever measures against it.
func BenchmarkPayment(b *testing.B) {
	for _, name := range []string{"memory", "journal"} {
		b.Run(name, func(b *testing.B) {
			var opts Options
			if name == "journal" {
				opts.Store = filepath.Join(b.TempDir(), name)
			}
			sim, err := New(opts)
			require.NoError(b, err)
			h := sim.Handler()
			post := func(path, key, form string) *httptest.ResponseRecorder {
				req := httptest.NewRequest(http.MethodPost, path, strings.NewReader(form))
				req.Header.Set("Authorization", "Bearer "+DefaultKey)
				req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
				req.Header.Set("Idempotency-Key", key)
				w := httptest.NewRecorder()
				h.ServeHTTP(w, req)
				return w
			}
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					key := sim.newRequestID()
					w := post("/v1/payment_intents", key, card1000+"&metadata[order_id]="+key)
					id := w.Body.String()[7:34]
					if w = post("/v1/payment_intents/"+id+"/confirm", key+"c",
						"payment_method=pm_card_visa"); w.Code != 200 {
						b.Error(w.Code, w.Body)
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "payments/s")
			require.Equal(b, b.N, sim.ChargeCount(""))
			require.NoError(b, sim.Close())
		})
	}
}

// BenchmarkReplay answers one confirm again and again from its key.
func BenchmarkReplay(b *testing.B) {
	sim, err := New(Options{})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, sim.Close()) })
	h := sim.Handler()
	post := func() int {
		req := httptest.NewRequest(http.MethodPost, "/v1/payment_intents", strings.NewReader(card1000))
		req.Header.Set("Authorization", "Bearer "+DefaultKey)
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Idempotency-Key", "k")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req)
		return w.Code
	}
	b.ReportAllocs()
	for b.Loop() {
		if code := post(); code != 200 {
			b.Fatal(fmt.Sprint(code))
		}
	}
}
