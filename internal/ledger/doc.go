// Package ledger keeps the books: double entry, from events.
//
// It is the consumer to read first if you are about to write one. An event that
// moved money becomes two entries that sum to zero, in the transaction of the
// event's inbox row: booked once or not at all, however often it is delivered.
//
// An event is booked when the payment or refund that it tells of is in the same
// database and is what the event says. That is always so, but for one case: the
// database was restored from an older copy and the broker still delivers what
// came after. Then the event waits for the reconciler to adopt the money, and is
// parked if that cannot be done, so that the books never say more than the rows.
//
// Nothing is incremented. A balance is the sum of its entries, computed when it
// is asked for, so it cannot drift from them; and entries are never changed, so
// what it was last month can be computed as well. The database refuses entries
// of one event that do not balance, when the transaction commits, and refuses to
// change or delete one ever.
//
// Amounts are signed: a debit is positive, a credit negative. Three accounts:
//
//	stripe   what Stripe holds for us       debited by payments, credited by refunds
//	sales    what we have earned            credited by payments
//	refunds  what we have given back        debited by refunds
//
// Stripe's fees and payouts are not ours to know from these events; their
// entries would come from balance transactions.
package ledger
