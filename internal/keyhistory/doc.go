// Package keyhistory says what happened under an idempotency key: its state, the
// recovery points it reached, the calls that were made, the events and webhooks, and
// one sentence about the money. It is for the person who is asked whether a customer
// was charged twice; the API shows it to the tenant, the operator's page to the
// operator. It only reads. The stored answer is not in it.
package keyhistory
