// Package history records what clients saw and asks whether one machine, working
// on one request at a time, could have shown them that: linearizability, decided
// by porcupine.
//
// There are two models. One is of a key: whatever was repeated, killed or lost,
// its final answers are one, nothing is in progress after it, and no other
// request is served by it ([Log.CheckKeys]). The other is of a payment: whoever
// reads it, from whichever process, sees its status go forward and never back
// ([Log.CheckPayments]).
//
// A history that the checker cannot check in its time counts as a violation: an
// answer of "perhaps" is how a checker goes blind.
package history
