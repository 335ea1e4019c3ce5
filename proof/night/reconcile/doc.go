// Package reconcile enumerates the errors of the reconciler, of the audit and of their
// measurements: each statement and each request to Stripe fails once in each thing that a round does (the tests whose
// names end in SwallowsNoError), and a refund that a restored database has lost is found by its client and by the
// reconciler, whatever its amount and its age (TestRestoredRefund). Lost authorizations are found however Stripe releases
// money (TestRestoreOfAuthorizations).
//
// internal/reconcile has the short form of each.
//
//	go test -C proof ./night/reconcile                                             all
//	go test -C proof ./night/reconcile -run 'TestRoundSwallowsNoError/Adoption'    some
package reconcile
