// Package operator is the page for whoever is woken: what is stuck, for how long,
// and who will fix it; what nobody can fix but a person, with the evidence; and
// the few things that a person can have done about it.
//
// It is served on the admin address and is part of the binary. It asks no other
// host for anything, has no script and no build step, and is read on a phone.
//
// # The answer first
//
// The page begins with one sentence: nothing needs you, or how many things do. It
// says so only when every panel could be read. A panel that could not shows why,
// and the sentence becomes "cannot tell": on a night when half of the tables hang,
// silence must not look like health.
//
// # It does no harm
//
// It has a pool of its own of two connections with a short statement timeout, so
// that opening it a hundred times takes two connections from nobody, and works
// while the service's own pool is exhausted. Every query reads by an index and
// stops at a limit. The invariants read whole tables, so they are asked when
// somebody presses the button, one process one asking at a time.
//
// # An action is one row and one effect
//
// An action goes the way that everything goes: "try now" hurries a key along,
// "refund" records a refund that the completer makes, "give back" has it refund
// money at Stripe that no payment here has, "adopt" is the reconciler's adoption,
// "unpark" is that of the outbox, the inbox or the notifier, and "mark failed" asks
// Stripe first and then lets the own operation of the payment or refund end it. No
// status is set here. The row in operator_actions says who, what, why and what
// came of it; it and the effect are one commit, and the row's id is the form's. A
// form sent twice, by a double click, by a retry after a lost answer, by two
// processes at once, meets its row and has one effect.
//
// # Who may
//
//	no ADMIN_TOKEN  everybody who reaches the address may read; nobody may act.
//	                Only addresses are answered, no names: a page on the Internet
//	                can make a name of its own lead here, and read.
//	ADMIN_TOKEN     nothing is shown before the token was given. The session is
//	                a signed cookie that dies with the token or after a shift, and
//	                every form carries a token of its session.
//
// The name in the audit trail is the one given at the login. The token is shared,
// so the name is a statement, not a proof.
//
// # Not shown
//
// A caller's key is never written out, because callers put into it what they
// like; its hash finds it in the logs. A person who has the key finds its story.
package operator
