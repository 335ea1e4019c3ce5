// Package webhooks proves that tenants can verify what they are sent: deliveries of a real process are given to the
// libraries of the Standard Webhooks project, in Go and JavaScript, and to the code of docs/receive-webhooks.md in each of
// its languages. The driver of a language reads requests and says of each whether the page's function accepts it.
package webhooks
