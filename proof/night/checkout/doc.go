// Package checkout enumerates what can go wrong in a checkout: a kill after each
// recovery point of each way that a checkout can take (TestCheckout_SurvivesAKillAtEachRecoveryPoint,
// TestCheckout_SurvivesSIGKILL), each statement and each request to Stripe failed once (the tests
// whose names end in SwallowNoError), a lost answer of each kind to each request, an
// authorization that others end at each recovery point, and random orders of everything that happens to checkouts (TestCheckout_EveryPathEndsWhole).
//
// internal/checkout has the short form of each: one way, one scene, one answer.
//
//	go test -C proof ./night/checkout                                       all, half a minute
//	go test -C proof ./night/checkout -run 'RecoveryPoint/Refunded'         some
package checkout
