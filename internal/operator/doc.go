// Package operator is the page for the person on call: which requests and events are
// stuck, since when, and whether the service resolves them or needs an operator; the
// evidence for each; and the few actions an operator can take.
//
// It is served on the admin address and is part of the binary. It loads nothing from
// other hosts, has no script and no build step, and works on a phone.
//
// # The summary comes first
//
// The page starts with one sentence: no action is needed, or how many items need an
// operator. It says that no action is needed only if every panel could be read. A
// panel that could not be read shows the error, and the sentence becomes "Status
// unknown": a database that is half unavailable must not look healthy.
//
// # The page does not add load
//
// It has its own pool of two connections with a short statement timeout. Opening it a
// hundred times uses two connections, and it works while the pool of the service is
// exhausted. Every query uses an index and has a limit. The invariants read whole
// tables, so they run only on request, and one check at a time in each process.
//
// # An action is one row and one effect
//
// An action uses the same code as the service itself: "retry now" makes a key due,
// "refund" records a refund that the completer makes, "refund at Stripe" has the
// completer refund a charge that matches no payment, "adopt" is what the reconciler
// does, "unpark" releases a parked event of the outbox, the inbox or the notifier, and
// "mark failed" reads the state at Stripe and then lets the operation of the payment
// or refund end it. A refund that is owed is tried again at once, or ends because the
// operator has settled it outside of Stripe. No other action sets a status directly. The row in operator_actions
// records who, what, why and the outcome; it is written in the same commit as the
// effect, and its id is part of the form. A form that is submitted twice, by a double
// click, by a retry after a lost response or to two processes at once, finds its row
// and has one effect.
//
// # Access
//
//	no ADMIN_TOKEN  anyone who reaches the address can read; actions are disabled.
//	                Requests to a host name are rejected and only IP addresses and
//	                localhost accepted, because any site on the Internet can point its
//	                own host name here and then read the page (DNS rebinding).
//	ADMIN_TOKEN     nothing is shown before sign-in with the token. The session is a
//	                signed cookie, valid for 12 hours, until the operator signs out or
//	                the token changes, and every form carries a CSRF token of its
//	                session. Wrong tokens are limited per address (package admin).
//
// Signing out ends the session in every process: its row in operator_sessions_ended
// outlives its cookie. If that table cannot be read, no session is accepted, because it
// may have ended.
//
// The name in the audit trail is the one entered at sign-in. The token is shared, so
// the name is a statement and not a proof.
//
// # Not shown
//
// A caller's idempotency key is never shown, because callers may put personal data
// into it. The page shows its hash, which is also in the logs. An operator who has the
// key can search for it and gets its history. A link, /operator/find?q=…, takes ids only,
// so that no key is shared in an address.
//
// # Terms
//
// Parked means set aside for an operator (dead-lettered): no process retries it until
// it is unparked or retried here. A discrepancy is an object that differs between
// Stripe and this database and that the reconciler could not repair.
package operator
