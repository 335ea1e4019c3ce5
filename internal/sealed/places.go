package sealed

// Place is where a value is stored. A sealed value opens in its own place only.
type Place struct {
	Table, Column string
	Owner         string // the tenant, or whose the row is if it belongs to no tenant
	ID            string // of the row, unique for its owner; empty: the owner has one row
}

// These are all the values that are sealed.

// FingerprintSecret is the key of a tenant's fingerprints.
func FingerprintSecret(tenantID string) Place {
	return Place{Table: "tenants", Column: "fingerprint_secret", Owner: tenantID}
}

// WebhookSecret is what deliveries to an endpoint are signed with. The id is that of the endpoint, and the version.
func WebhookSecret(tenantID, id string) Place { // part: webhooks
	return Place{Table: "webhook_secrets", Column: "secret", Owner: tenantID, ID: id} // part: webhooks
} // part: webhooks

// Request is what a client sent under its idempotency key.
func Request(tenantID, key string) Place {
	return Place{Table: "idempotency_keys", Column: "request", Owner: tenantID, ID: key}
}

// Answer is the body of the response that is stored under an idempotency key.
func Answer(tenantID, key string) Place {
	return Place{Table: "idempotency_keys", Column: "answer_body", Owner: tenantID, ID: key}
}

// NextAction is what the customer of a payment has to do, with the secret with which anybody could pay it.
func NextAction(tenantID, paymentID string) Place {
	return Place{Table: "payments", Column: "next_action", Owner: tenantID, ID: paymentID}
}

// Payload is an event that waits to be applied: of Stripe's, its ids.
func Payload(consumer, eventID string) Place {
	return Place{Table: "inbox_events", Column: "payload", Owner: consumer, ID: eventID}
}
