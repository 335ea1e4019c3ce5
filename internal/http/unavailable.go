package http

import "time"

// refusalReason is why a request that the service could serve at another time was refused with 429 or 503. An alert
// depends on it: clients can cause some reasons, and must not be able to have an operator look for a fault elsewhere.
type refusalReason string

const (
	reasonDatabase      refusalReason = "database"       // the database cannot be reached, or does not respond in time
	reasonStripe        refusalReason = "stripe"         // Stripe cannot be reached
	reasonDraining      refusalReason = "draining"       // the process shuts down
	reasonNotConfigured refusalReason = "not_configured" // a setting is missing
	reasonTenantRate    refusalReason = "tenant_rate"    // the tenant's rate limit
	reasonTenantStripe  refusalReason = "tenant_stripe"  // the tenant's share of the rate of calls to Stripe
	reasonTenantQueue   refusalReason = "tenant_queue"   // a queue of the tenant is full, or too long for the request's time
	reasonTenantUnread  refusalReason = "tenant_unread"  // the tenant does not read its responses
	reasonAnonymous     refusalReason = "anonymous"      // the same, of clients without a valid API key or signature
	reasonWebhookBodies refusalReason = "webhook_bodies" // webhooks whose signature is not checked yet are too large in sum
	reasonOverloaded    refusalReason = "overloaded"     // the queues of all tenants together are full
)

var refusalReasons = []refusalReason{
	reasonDatabase, reasonStripe, reasonDraining, reasonNotConfigured, reasonTenantRate, reasonTenantStripe,
	reasonTenantQueue, reasonTenantUnread, reasonAnonymous, reasonWebhookBodies, reasonOverloaded,
}

// unavailable is a 503. Nothing was begun.
func unavailable(reason refusalReason, retryAfter time.Duration, detail string) *problem {
	return &problem{code: codeUnavailable, reason: reason, retryAfter: retryAfter, detail: detail}
}

// rateLimited is a 429. Nothing was begun.
func rateLimited(reason refusalReason, retryAfter time.Duration, detail string) *problem {
	return &problem{code: codeRateLimited, reason: reason, retryAfter: retryAfter, detail: detail}
}
