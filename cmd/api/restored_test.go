package main

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/broker"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/testkit/world"
)

// TestRestored: the command begins a life once, and lists what Stripe and the broker know of the lost life.
func TestRestored(t *testing.T) {
	t.Parallel()
	b := world.NewBooks(t)
	order := b.API.Order()
	b.Exec("INSERT INTO webhook_endpoints (tenant_id, id, number, url) VALUES ($1, 'whe_back', 1, 'https://93.184.216.34/')", b.Tenant.ID) // part: webhooks
	copied := b.OnDatabase(b.CopyDatabase())

	stranger := b.API.As(b.NewTenant())
	require.Equal(t, http.StatusCreated, stranger.Pay("lost", stranger.Order(), "pm_card_visa").Status)
	url := "embedded:" + t.TempDir()
	opened, err := broker.Open(t.Context(), url, broker.Options{})
	require.NoError(t, err)
	event := func(tenant, subject, eventType string) outbox.Envelope {
		return outbox.Envelope{ID: subject + "-1", Type: eventType, Subject: subject, TenantID: tenant, Version: 1,
			Time: time.Now(), Data: json.RawMessage("{}")}
	}
	for _, err := range opened.Publish(t.Context(), []outbox.Envelope{
		event(b.Tenant.ID, order, "order.created"), event("ten_lost", "ord_lost", "order.created"),
		event(b.Tenant.ID, "chk_lost", "checkout.completed"),        // part: checkouts
		event(b.Tenant.ID, "whe_back", "webhook_endpoint.disabled"), // part: webhooks
	}) {
		require.NoError(t, err)
	}
	require.NoError(t, opened.Close())

	_, errs, status := typed(copied, []string{"restored"}, "BROKER_URL="+url)
	require.Equal(t, 1, status)
	require.Contains(t, errs, "only the owner of the tables may")
	out, errs, status := typed(copied, []string{"restored", "-json"}, "BROKER_URL="+url, "DATABASE_URL="+copied.URL)
	require.Equal(t, 1, status, out+errs)
	var report restoredReport
	require.NoError(t, json.Unmarshal([]byte(out), &report), errs)
	require.Empty(t, report.NotAsked)
	require.Equal(t, 1, report.Lost.Events["order.created"], "the order that is here is not lost")
	require.Equal(t, []string{"ten_lost"}, report.Lost.Tenants)
	require.Equal(t, []string{"chk_lost"}, report.Lost.CameBack["checkout.completed"])        // part: checkouts
	require.Equal(t, []string{"whe_back"}, report.Lost.CameBack["webhook_endpoint.disabled"]) // part: webhooks
	require.Len(t, report.UnknownTenants, 1)
	require.Equal(t, 1, report.UnknownTenants[0].Intents)
	require.NotEmpty(t, report.Keys)

	out, errs, status = typed(copied, []string{"restored"}, "BROKER_URL="+url, "DATABASE_URL="+copied.URL)
	require.Equal(t, 1, status, out+errs)
	require.Contains(t, errs, "was recorded")

	out, errs, status = typed(copied, []string{"restored", "-again"}, "BROKER_URL="+url, "DATABASE_URL="+copied.URL)
	require.Equal(t, 1, status, errs)
	for _, line := range []string{
		`life \d+ begins; what was done from \S+Z to \S+Z is lost here`,
		`lost: 1 events order\.created`,
		`  ten_\w+ \S+ .*, created \S+Z`,
		`DO: the broker has events of ten_lost, which is no tenant here: api tenant create NAME -id ten_lost`,
		`DO: Stripe has 1 PaymentIntents of ten_\w+ \(1000 usd received\), which is no tenant here: .*`,
		`DO: chk_lost: it was completed, and it is not here: .*`,    // part: checkouts
		`DO: whe_back: it was disabled, and it is enabled here: .*`, // part: webhooks
	} {
		require.Regexp(t, "(?m)^"+line+"$", out)
	}

	// The tenant of the lost life is brought back, once.
	back := []string{"tenant", "create", "lost shop", "-id", report.UnknownTenants[0].TenantID}
	_, errs, status = typed(copied, back)
	require.Zero(t, status, errs)
	_, errs, status = typed(copied, back)
	require.Equal(t, 1, status)
	require.Contains(t, errs, "there is a tenant "+report.UnknownTenants[0].TenantID)

	// Nothing is there to do.
	whole := world.New(t)
	out, errs, status = typed(whole, []string{"restored"}, "DATABASE_URL="+whole.URL, "BROKER_URL=embedded:"+t.TempDir())
	require.Zero(t, status, out+errs)
	require.Regexp(t, `(?m)^look: what the lost life did is not known from the broker: .*BROKER_URL names a broker without a stream`, out)
	out, _, status = typed(whole, []string{"restored", "-again"}, "DATABASE_URL="+whole.URL, "BROKER_URL=embedded:"+t.TempDir(), "STRIPE_API_BASE=http://127.0.0.1:9")
	require.Equal(t, 1, status)
	require.Regexp(t, `(?m)^DO: what the lost life did is not known from Stripe: .*connection refused`, out)
}
