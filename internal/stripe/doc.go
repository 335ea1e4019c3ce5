// Package stripe is the only door to Stripe, and the only production code that
// imports stripe-go. It makes one attempt of one call, with one deadline and no retry
// behind its caller's back, and says whether the call took effect (Effect).
//
//	types.go      what we need to know of Stripe's objects, and the outcome of an attempt
//	client.go     the calls
//	transport.go  what really happened on the wire
//	classify.go   a response to a POST: done, refused, not executed, or unknown
//	limits.go     Stripe's rate limits, what is begun within them, one change of an object at a time, the breaker
//	queue.go      turns within a rate limit, by tenant
//	webhook.go    signatures and events
//
// It decides nothing about payments: who calls it has recorded the attempt before it
// is sent, and knows what each outcome leads to.
package stripe
