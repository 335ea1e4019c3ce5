// Package restore types the commands of the handbook's restore (docs/operations.md, Restore drill), in their order, with a
// real backup, on a system in which the lost life has done everything that Stripe, a receiver of webhooks and a reader of
// the feed can know of.
//
//	go test -C proof ./restore
package restore
