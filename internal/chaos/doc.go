// Package chaos breaks a running system and counts the charges.
//
// A run has three phases. Traffic: clients behave as clients do (they retry,
// send duplicates at once, give up, reuse a key for another body) against real
// API processes, while real faults hit every few hundred milliseconds. Quiet:
// traffic stops, faults are removed, and everything that was begun must be
// finished without a client, within the times that are promised. Judgement: the
// invariants, by query; our books against the simulated Stripe's effect log,
// which the service never sees; and the recorded history of all answers against
// a model of one key (history.go).
//
// A run that injected too little proves nothing, so it fails: minimums.
//
// The schedule comes from the seed. The interleaving does not, as it never does
// with real processes; a seed makes a bug likely to come back, not certain.
package chaos
