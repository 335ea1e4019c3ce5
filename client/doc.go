// Package client sends requests that must take effect once: payments, refunds, orders. It stores the Idempotency-Key of
// each intent in a journal, so that after a crash, a redeploy or a retry by the caller the same intent has the same key.
//
// An intent is something that is to happen once, under a name that the caller chooses and that is the same after a
// restart: "order 17, payment 1". A random name would be another one after a restart, and the request a second charge.
//
//	j, err := client.OpenFile("/var/lib/shop/intents")
//	c, err := client.New(client.Options{Base: "https://pay.example.com", Header: auth, Journal: j})
//	res, err := c.Do(ctx, client.Request{
//		Intent: "order 17, payment 1",
//		Path:   "/v1/payments",
//		Body:   []byte(`{"order_id":"ord_…","payment_method":"pm_…"}`),
//	})
//
// Do writes the request and its key to the journal before the first byte leaves, sends it until the response is final,
// and stores the response. It retries under the same key only: after lost connections, timeouts, 409 in flight, 429, 5xx
// and while a payment is being processed (202). An error does not mean that nothing was done, unless it is a
// [RefusedError]. After an [UnknownError] call Do again with the same request; when a process starts, call
// [Client.Resume].
//
// It also works with other APIs that take an Idempotency-Key: see [Profile].
package client
