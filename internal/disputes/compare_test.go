package disputes_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAuditReadsAllOpenDisputes(t *testing.T) {
	t.Parallel()
	b := paid(t)
	id := b.dispute(false)
	b.rounds()
	b.Exec(`INSERT INTO disputes (tenant_id, id, status, payment_id, order_id, stripe_dispute_id, charge_id, amount_minor,
		currency, reason, created_at, next_read_at) SELECT tenant_id, 'dsp_' || n, status, payment_id, order_id, 'du_' || n,
		charge_id, 0, currency, reason, created_at, next_read_at - interval '1 hour'
		FROM disputes, generate_series(1, 520) n`)
	b.evidence(id, "winning_evidence") // the one that differs at Stripe was read last
	found, err := b.api.Disputes.Compare(t.Context(), time.Now().Add(time.Hour))
	require.NoError(t, err)
	subjects := map[string]bool{}
	for _, v := range found {
		subjects[v.Subject] = true
	}
	require.Len(t, subjects, 521)
	require.Contains(t, subjects, b.Text(`SELECT concat_ws(' ', tenant_id, stripe_dispute_id, id, payment_id)
		FROM disputes WHERE stripe_dispute_id = $1`, id))
}
