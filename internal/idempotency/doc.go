// Package idempotency runs each operation once in effect, however often it is
// requested and wherever the process that runs it dies.
//
// A key belongs to a tenant and names one intent. The first request with it
// claims it: one INSERT, which is the lock, because a row that does not exist
// cannot be locked. The claim is a lease, so that the key outlives its holder,
// and carries a fencing token, so that the holder does not outlive its lease:
// every write of a holder names the token, and if it changes zero rows another holder
// has taken over and this result is discarded. The
// lease says who should work, the token says who may write. Both are judged by
// the database's clock; the clocks of the processes decide nothing.
//
// An Operation advances in phases. A phase is one transaction that ends at a
// recovery point; between phases, with no transaction open, it may call others.
// Run takes a claim from its last recovery point to its answer, and the HTTP
// edge and the Completer call the same Run: whatever a request can start, the
// completer can finish.
//
//	absent ──claim──► held ──phases──► held ──Finish──► finished ──retention──► tombstone
//	                    │  ▲
//	   lease runs out,  │  │ take over: token + 1
//	   or is given back ▼  │
//	                   waiting (next_attempt_at says when the completer looks)
//
// What happens when each dies:
//
//   - the client: nothing. The work does not depend on the request's context.
//   - the holder: its lease runs out and the next retry or completer resumes.
//   - the holder stalls and wakes up late: its writes change no row.
//   - PostgreSQL during a COMMIT: the outcome is read back, never guessed. The
//     holder recognises its own claim by the claim token it made beforehand.
//   - the completer: another one goes on. Any number may run.
//
// An answer is bytes: status, allowed headers and body are stored in the same
// commit as the effect's record and never rebuilt. What is not final (work in
// progress, outcome unknown) is answered from the present state and never
// stored. After the retention the answer is dropped and the row stays as a
// tombstone, so that a late retry learns that its work was done and will not be
// done again.
//
// Not promised here: that an effect outside of PostgreSQL happens once. For that the
// operation needs an effect that it can repeat under one key, or look up; package
// payments shows both.
package idempotency
