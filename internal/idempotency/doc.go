// Package idempotency runs each operation once in effect, however often it is requested and wherever its process
// crashes.
//
// A key belongs to a tenant and identifies one request. The first request with it claims it with one INSERT, which is
// the lock, because a row that does not exist cannot be locked. The claim is a lease, so that another process can
// continue after a crash of the holder. It has a fencing token, so that a holder cannot write after its lease was taken
// over: every write of a holder contains the token, and a write that changes zero rows means that another holder has
// taken over, and this result is discarded. The lease decides who should work, the token decides who may write. Both
// depend on the database's clock only; the clocks of the processes decide nothing.
//
// An Operation advances in phases. A phase is one transaction that ends at a recovery point; between phases, with no
// transaction open, it may call other systems. Run takes a claim from its last recovery point to its final response. A
// request and the Completer call the same Run, so the completer can finish whatever a request can start.
//
//	absent ──claim──► held ──phases──► held ──Finish──► finished ──retention──► tombstone
//	                    │  ▲
//	   lease expires,   │  │ take over: token + 1
//	   or is given back ▼  │
//	                   waiting (next_attempt_at: when the completer takes it)
//
// Failures:
//
//   - the client disconnects: nothing changes. The work does not depend on the request's context.
//   - the holder crashes: its lease expires, and the next retry or the completer resumes.
//   - the holder is paused and continues late: its writes change no row.
//   - PostgreSQL fails during a COMMIT: the outcome is read back, never guessed. The holder recognises its own claim by
//     the claim token that it generated before.
//   - a completer crashes: another one continues. Any number may run.
//
// A final response (Answer) is bytes: status, allowed headers and body are stored in the same commit as the record of
// the effect, and never rebuilt. A response that is not final (work in progress, outcome unknown) is made from the
// present state and never stored. After the retention the response is dropped and the row stays as a tombstone, so that
// a late retry is told that its work was done and will not be repeated.
//
// Not promised here: that an effect outside of PostgreSQL happens once. For that the operation needs an effect that it
// can repeat under one key, or look up; package payments shows both.
package idempotency
