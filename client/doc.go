// Package client sends requests that must take effect once: payments, refunds, orders. It keeps the Idempotency-Key of
// each intent in a journal, so that a crash, a redeploy or a retry of the caller's own finds the same key again.
//
// An intent is a thing the caller wants done once, under a name of the caller's own that is the same tomorrow:
// "order 17, payment 1". Not a random one: it would be another after a restart, and its request another charge.
//
//	j, err := client.OpenFile("/var/lib/shop/intents")
//	c, err := client.New(client.Options{Base: "https://pay.example.com", Header: auth, Journal: j})
//	res, err := c.Do(ctx, client.Request{
//		Intent: "order 17, payment 1",
//		Path:   "/v1/payments",
//		Body:   []byte(`{"order_id":"ord_…","payment_method":"pm_…"}`),
//	})
//
// Do writes the request and its key to the journal before the first byte leaves, sends it until the answer is final,
// and writes that down too. An error never means "not done" unless it is one of those that say so: [ErrNotSent],
// [RefusedError]. After any other, call Do again with the same request, or [Client.Resume] when the process starts.
//
// It also speaks to other APIs that take an Idempotency-Key: see [Profile].
package client
