// Package mutants removes the service's guards, one at a time, and expects
// a test to fail.
//
// A suite that is green says little about itself: it would be green without its
// assertions, too. So each guard has a mutant here, a small change of the source
// that switches it off, together with the test that must go red and the words
// that it must say, which name the promise that is broken. Red from anything
// else is not enough: a mutant that does not compile, or one that a test about
// something else happens to stumble over, shows nothing about the guard.
//
//	go run -C proof ./mutants -named       all of them; exit code 1 if any test does not fail as expected
//	go run -C proof ./mutants -only M2,M9  these
//	go run -C proof ./mutants -write       and write the table into docs/guarantees.md
//
// The program is never built with a mutant in it, and holds no switch for one.
// The changed files are laid over the source for one build of one test
// (go build -overlay), in a folder that is removed afterwards; the tree is not
// touched. What a mutant replaces must be in its file exactly once, so one whose
// guard has moved fails as well, and is reported as such.
//
// Guards stand behind one another: without the unique key, an order's row lock
// and two unique indexes would still stop a second payment. A mutant that is
// about one of them takes away those that hide it as well, or its test is a
// scene that this guard alone decides.
package mutants
