// Package ledger is a double-entry ledger that is written from events.
//
// Read this consumer first if you want to write one. An event that moved money becomes
// two entries that sum to zero, in the transaction of the event's inbox row, so it is
// booked once or not at all, even if it is delivered several times.
//
// The event is our own, read from the outbox (package subscriber), so a message that another publisher has put on the broker
// books nothing. It is booked only if its payment or refund is in the database and matches it. One that does not match,
// because rows were lost or changed, waits, and is parked in the end (set aside for an operator), so that the ledger never
// contains money of a payment that is not in the database.
//
// A balance is the sum of its entries, computed when it is read. There is no counter
// that could differ from them, and because entries never change, the balance of any
// earlier day can be computed, too. When a transaction commits, the database refuses
// entries of one event that do not balance. It also refuses to change or delete entries.
//
// Amounts are signed: a debit is positive, a credit negative. There are three accounts:
//
//	stripe   the balance at Stripe    debited by payments, credited by refunds
//	sales    the revenue              credited by payments
//	refunds  the refunded amounts     debited by refunds
//
// Stripe's fees and payouts are not in these events, so they are not in the ledger;
// their entries would come from Stripe's balance transactions.
package ledger
