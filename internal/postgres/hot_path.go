package postgres

import "example.com/payonce/db"

// HotPath is the SQL that one payment of a fresh order sends, in order: the look-up of its key, and the three phases. The
// benchmark gives the same statements to pgbench, which shows the limit of the server alone;
// a test counts that no others are sent.
func HotPath() []string {
	return []string{db.KeyLookup, db.PaymentBegin, db.PaymentIntentRecord, db.PaymentFinish}
}

// WebhookIntake is the SQL that stores a webhook, for the same comparison.
func WebhookIntake() string { return db.InboxReceive }
