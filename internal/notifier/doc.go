// Package notifier sends tenants their events: outbound webhooks to the endpoints that they made (Endpoints), signed as
// Standard Webhooks describes.
//
// What is sent is what our own row in the outbox says (package subscriber), whatever the broker carries.
//
// The consumer writes the deliveries in the transaction of the event's inbox row, so there is one per event and endpoint
// that wants its type. The notifier sends it, outside of any transaction, until the endpoint responds with 2xx, for about
// three days. Then the delivery has failed; it stays visible and can be sent again.
//
// An endpoint whose attempts have all failed for three days is disabled, and so is one that responds 410. Its tenant's
// other endpoints, and the feed, have an event that says so. What is for a disabled endpoint is skipped: listed, not sent.
//
// A delivery that cannot be signed, because DATA_KEY lacks the key of the endpoint's secret, is postponed. It uses up none
// of its attempts, so it is sent when the key is back.
//
// # What the tenant can rely on
//
// Delivery is at least once. If a response is lost, or the process exits before it has
// recorded the outcome, the delivery is sent again with the same webhook-id. That is
// the event's id, which is the same in every attempt, at the broker and in GET
// /v1/events, so the tenant deduplicates by it. The timestamp and the signature are new
// in each attempt. Deliveries are not ordered, because one that fails must not delay
// the others; the event's sequence tells which of two is newer.
//
// An endpoint that does not respond delays only its own deliveries, and however many such endpoints there are, only each
// other's: one that takes longer than a second gets one connection at a time, of those that such endpoints share, until it
// responds in time again.
//
// The signature is webhook-signature: v1,base64(HMAC-SHA256(secret, webhook-id "." webhook-timestamp "." body)), and a
// second one with a blank between them for RotationGrace after the secret was rotated.
//
// # What a tenant must not be able to do
//
// The URL comes from a tenant, and this process is inside the network. A connection is
// therefore refused unless its address is public. The check is made when the connection
// is dialled, with the address that is dialled: a check of the name beforehand could be
// bypassed by a DNS server that returns another address a moment later. Redirects are
// not followed, proxies are not used, and the body of a response is not read.
// Options.AllowPrivate turns the check off for development.
package notifier
