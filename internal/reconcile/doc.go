// Package reconcile compares Stripe's objects with our rows, one by one, all the time.
//
//	walk.go         Stripe's lists, page by page, beside our own rows of the same period
//	confirmable.go  the intents that can still be paid, one by one, whatever their age
//	reconciler.go   acts on what package compare finds: expedites the operation that will
//	                find out, adopts money that is provably ours, applies a refund's new
//	                status, cancels abandoned intents, and records the rest as a
//	                discrepancy for an operator
//	audit.go        the same comparison without acting
//	metrics.go      what an operator must see
package reconcile
