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
// # What survives what
//
// The process is killed before Begin returns: nothing was sent. After it: the record is on the disk, and Resume sends the
// request again under its key. The response is lost, on the way or with the process: the same. The end of the journal is
// lost, with records of requests that were sent: keys are derived from the journal's id and the intent's name, so the
// next call for the intent has the same key; but Resume does not know of it. The first line of a journal is lost: it is
// refused, because with another id the same intents would have other keys.
//
// Nothing is decided by a clock, except that a key which the server may have deleted is not sent again
// ([Profile.KeyLifetime]).
//
// # What is not promised
//
// Two names are two intents, whatever their requests say. An API that executes a key twice is found out by what it
// responds ([BrokenPromiseError]), if it marks replays or its objects have ids, and cannot be undone by a client.
//
// It also works with other APIs that take an Idempotency-Key: see [Profile].
package client
