package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"

	payonceclient "example.com/payonce/client"
)

// buyer is the right side of the exhibits about clients: payonce's own client, with its journal in a file.
type buyer struct {
	api  *client
	path string // of the journal

	mu      sync.Mutex
	journal *payonceclient.File
	client  *payonceclient.Client
}

// restart is a new process on the journal of the old one.
func (b *buyer) restart() {
	b.mu.Lock()
	defer b.mu.Unlock()
	must(b.journal.Close())
	b.start()
}

func (b *buyer) start() {
	var err error
	b.journal, err = payonceclient.OpenFile(b.path)
	must(err)
	b.client, err = payonceclient.New(payonceclient.Options{
		Base: "http://payonce", Journal: b.journal, HTTP: b, Timeout: patience,
		Header: http.Header{"Authorization": {"Bearer " + b.api.keys["alice"]}},
	})
	must(err)
}

// buy has an order paid.
func (b *buyer) buy(ctx context.Context, r request) answer {
	b.mu.Lock()
	if b.client == nil {
		b.start()
	}
	c := b.client
	b.mu.Unlock()
	res, err := c.Do(ctx, payonceclient.Request{
		Intent: r.Order + ", payment 1", Path: "/v1/payments", Body: []byte(paymentOf(r)),
	})
	var refused *payonceclient.RefusedError
	switch {
	case errors.As(err, &refused):
		res = refused.Response
	case err != nil:
		return answer{} // unknown
	}
	return answer{res.Status, res.Body}
}

// RoundTrip calls the API in this process, so that a kill at the provider kills the client as well.
func (b *buyer) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	in := r.Clone(r.Context())
	in.RequestURI, in.RemoteAddr = r.URL.RequestURI(), "192.0.2.1:1234"
	b.api.handler.ServeHTTP(w, in)
	return w.Result(), nil
}

func newBuyer(s *side, api *client) *buyer {
	return &buyer{api: api, path: filepath.Join(s.dir, "journal")}
}

func paymentOf(r request) string {
	return fmt.Sprintf(`{"order_id":%q,"payment_method":"pm_card_visa"}`, r.Order)
}
