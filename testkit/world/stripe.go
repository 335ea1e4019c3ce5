package world

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"

	"github.com/stretchr/testify/require"

	"example.com/payonce/stripesim"
)

// Sent is one request that arrived at Stripe's port, whatever became of it.
type Sent struct{ Method, Path, Key string }

// recorder notes every request before the simulator sees it: what was sent, as
// opposed to what had an effect.
type recorder struct {
	next http.Handler
	mu   sync.Mutex
	sent []Sent

	noted   int // of sent, by since
	failure *stripeFailure
}

func (r *recorder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	r.sent = append(r.sent, Sent{req.Method, req.URL.Path, req.Header.Get("Idempotency-Key")})
	kind := kindOf(req.Method, req.URL.Path)
	fails, effect := r.fails(kind)
	r.mu.Unlock()
	if fails {
		if effect {
			r.discard(req)
		}
		failWith(w, kind)
		return
	}
	r.next.ServeHTTP(w, req)
}

// Posts are the requests that could change something at Stripe and whose path
// ends in the given word ("payment_intents", "confirm", "cancel", "refunds").
func (w *World) Posts(ending string) (posts []Sent) {
	w.stripe.mu.Lock()
	defer w.stripe.mu.Unlock()
	for _, s := range w.stripe.sent {
		if s.Method == http.MethodPost && strings.HasSuffix(s.Path, "/"+ending) {
			posts = append(posts, s)
		}
	}
	return posts
}

// CallStripe sends the simulator a request, as the dashboard at Stripe would, and
// returns the id of the PaymentIntent, refund or dispute in the response.
func (w *World) CallStripe(method, path string, form url.Values) (id string) {
	w.T.Helper()
	body := strings.NewReader(form.Encode())
	req, err := http.NewRequestWithContext(context.Background(), method, w.StripeURL+path, body)
	require.NoError(w.T, err)
	req.Header.Set("Authorization", "Bearer "+stripesim.DefaultKey)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	res, err := http.DefaultClient.Do(req)
	require.NoError(w.T, err)
	defer func() { _ = res.Body.Close() }()
	object, err := io.ReadAll(res.Body)
	require.NoError(w.T, err)
	require.Equal(w.T, http.StatusOK, res.StatusCode, string(object))
	return regexp.MustCompile(`"id": ?"((?:pi|re|du)_[^"]*)"`).FindStringSubmatch(string(object))[1]
}

// ConfirmInBrowser confirms an intent with a card, as Stripe's script does with the intent's client secret.
func (w *World) ConfirmInBrowser(intent, method string) {
	w.T.Helper()
	w.CallStripe(http.MethodPost, "/v1/payment_intents/"+intent+"/confirm", url.Values{"payment_method": {method}})
}

// IntentOfOrder is the newest PaymentIntent of an order's payments.
func (w *World) IntentOfOrder(order string) string {
	w.T.Helper()
	return w.Text(`SELECT intent_id FROM payments WHERE order_id = $1 ORDER BY intent_number DESC LIMIT 1`, order)
}
