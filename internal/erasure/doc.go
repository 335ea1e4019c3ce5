// Package erasure blanks what a tenant's customer is called, everywhere it stands, at the customer's request.
//
// The customer is who the tenant names in customer_reference. Of each order with that reference the reference and the
// metadata become blank, in the order and in everything that repeats them: events, deliveries to the tenant, and the
// stored requests and answers of all that was made for the order. Amounts, ids, keys and the history of the money stay:
// they are the books. docs/operations.md lists every column, and what this program cannot reach.
//
// # What is promised
//
// The database makes an erasure whole: one function (erase_customer) blanks an order with all that belongs to it and
// records that, in one transaction, and the service's role has no right to do any of it alone. What was blanked stays
// so: a trigger on each table lets these columns change in no other way.
//
// Nothing is written again afterwards. A process may have read the order before and be about to store an answer, or a
// delivery, with what it read. So an order is erased only while nothing of it is unfinished: no key, no event that is
// not published or not read by the notifier, no received event that has its payload. Until then the program refuses and
// says what it waits for. It also refuses while the customer's name is still needed: a refund is owed, a dispute is
// open, a charge is not explained.
//
// It may be interrupted and run again, and what was erased is not changed by that. Orders are erased in batches, each
// in one transaction with its keys, so an order that still has its reference has all that belongs to it.
//
// What is not promised: an order that is made during the run, or later, is not erased. Run it again.
package erasure
