// Command museum runs the wrong ways to charge a customer once, and measures
// what each costs.
//
//	go run -C proof ./museum                 the table, in the terminal
//	go run -C proof ./museum -only fence     the exhibits whose names say so
//
// Every exhibit is a small shop, in one file, that follows a pattern as it is
// taught: in articles that many people read, or by folklore. All of them are
// visited in the same way. A scenario is what customers do and what breaks; it is
// run against the wrong shop, then against payonce, the real one. The damage is counted
// from outside of both: from the provider's log of what it really charged, the broker's
// log, and the responses that the customers got.
//
// # How to read an exhibit
//
// Its comment says who teaches the pattern and why it looks right, then why it
// fails. A shop does not handle errors where the pattern does not: an error is
// a panic, and a panic is a 500, as in any framework. There are no pauses, traps
// or switches in a shop. Whatever goes wrong goes wrong outside of it, at the
// provider or the broker, which lose responses, respond late, and kill the process
// that called them: the goroutine ends at that line, and what it had open in the
// database is rolled back. The one exception is meanwhile, the moment between a
// producer's write and its COMMIT.
//
// # What makes it repeatable
//
// No scenario depends on timing. Two requests that must overlap meet at the provider;
// one that must come late is held there until the others are done; hours pass
// by making every instant in the database older. So each exhibit shows its
// damage in every run, and a run fails when one does not, or when payonce shows
// any.
package main
