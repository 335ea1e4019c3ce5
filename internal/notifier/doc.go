// Package notifier tells tenants of their events: an outbound webhook to the URL
// they named, signed as Standard Webhooks describes.
//
// The consumer writes a delivery in the transaction of the event's inbox row, so
// there is one delivery per event and tenant. The notifier sends it, outside of
// any transaction, until the tenant answers 2xx, for about three days; then it
// is failed, which is visible, and can be sent again.
//
// # What the tenant may rely on
//
// At least once. An answer that is lost, or a process that dies between the
// answer and its note, means a second delivery with the same webhook-id: that is
// the event's id, the same in every attempt and on every other way the event can
// be learnt of, and what the tenant dedupes by. The timestamp and the signature
// are the attempt's. There is no order between deliveries, because one that
// fails must not hold back the rest; the event's sequence tells old from new.
//
// A tenant whose endpoint hangs holds up its own deliveries and nobody else's: a
// few connections wait for it, and the rounds go on beside them.
//
// The signature is webhook-signature: v1,base64(HMAC-SHA256(secret, webhook-id
// "." webhook-timestamp "." body)). 410 Gone disables the endpoint.
//
// # What a tenant must not be able to do
//
// The URL is a stranger's, and we are inside the network. So a connection is
// refused, when it is dialled and for the address it is dialled to, unless that
// is a public one: a check of the name beforehand could be answered with another
// address a moment later. Redirects are not followed, proxies are not asked, an
// answer's body is not read into anything. Options.AllowPrivate lifts this for
// development.
package notifier
