// Package crashmatrix disturbs each operation that moves money at each of its places, with each answer of Stripe's, and
// brings it to its end on each way back. A cell of the matrix is one of each: operation, place, answer, disturbance and
// way back. The tests of payments run each place once. The night runs all cells, and the table in docs/guarantees.md is
// written from the same lists.
//
// A process is killed here by ending its work where it stands: nothing after that place happens, and the claim stays
// held. For the database and for Stripe that is what SIGKILL leaves. The night sends SIGKILL to the real program, too.
package crashmatrix
