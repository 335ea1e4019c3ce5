package disputes_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/stripe"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
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

// other is another paid order of the same installation.
func (b bench) other() bench {
	b.t.Helper()
	b.order = b.api.Order()
	b.payment = b.api.Pay(b.order, b.order, "pm_card_visa").ID()
	b.charge = b.Text("SELECT charge_id FROM payments WHERE id = $1", b.payment)
	return b
}

// Whatever Stripe says about one of them, and for ever.
func TestDisputeThatCannotBeReadIsAViolationAndAllOthersAreCompared(t *testing.T) {
	t.Parallel()
	future, past := time.Hour, -time.Hour // since: no dispute is listed, or all are
	compare := func(t *testing.T, b bench, since time.Duration) map[string]string {
		found, err := b.api.Disputes.Compare(t.Context(), time.Now().Add(since))
		require.NoError(t, err)
		details := map[string]string{}
		for _, v := range found {
			details[v.Subject] = v.Detail
		}
		require.Len(t, details, len(found), "each is named once")
		return details
	}
	about := func(t *testing.T, details map[string]string, id string) string {
		for subject, detail := range details {
			if strings.Contains(" "+subject+" ", " "+id+" ") {
				return detail
			}
		}
		require.Fail(t, "nothing names "+id, "%v", details)
		return ""
	}
	offends := func(b bench) map[string]int {
		found := b.Audit().Offends()
		delete(found, "I6b") // Nothing publishes here, and waiting for Stripe may take minutes.
		return found
	}
	for name, refusal := range map[string]stripesim.Fault{
		"Refuses":      {Kind: stripesim.Refuse, Status: http.StatusBadRequest, Code: "account_invalid", Times: -1},
		"DoesNotReply": {Kind: stripesim.Refuse, Status: http.StatusInternalServerError, Times: -1},
	} {
		t.Run("Stripe"+name+"ForTheIntentOfOneThatIsNotRecorded", func(t *testing.T) {
			t.Parallel()
			b := paid(t)
			bad := b.other()
			good, badID := b.dispute(false), bad.dispute(false) // The later one is listed first.
			fault := refusal
			fault.Op, fault.OrderID = "intent.get", bad.order
			b.Sim.Inject(fault)
			details := compare(t, b, past)
			require.Len(t, details, 2)
			require.Equal(t, "needs_response at Stripe for 1000 usd, and missing here", about(t, details, good))
			require.Contains(t, about(t, details, badID), "not compared")
			require.Equal(t, map[string]int{"I24d": 2}, offends(b))
		})
		t.Run("Stripe"+name+"ForOneThatIsRecorded", func(t *testing.T) {
			t.Parallel()
			old, today := world.LongAgo(t, 72*time.Hour, world.LocalOptions{})
			b := bench{Books: old, t: t, api: old.API}.other()
			id := b.dispute(false)
			require.NoError(t, b.api.Disputes.Read(t.Context(), id))
			today()
			fault := refusal
			fault.Op = "dispute.get"
			b.Sim.Inject(fault)
			details := compare(t, b, past)
			require.Len(t, details, 1)
			require.Contains(t, about(t, details, id), "not compared")
			require.Contains(t, about(t, details, b.payment), "not compared")
			require.Equal(t, map[string]int{"I24d": 1}, offends(b))
		})
	}
	t.Run("StripeRefusesOnceForOneThatIsRecorded", func(t *testing.T) {
		t.Parallel()
		b := paid(t)
		ids := []string{b.dispute(false), b.other().dispute(false)}
		b.rounds()
		for _, id := range ids {
			b.evidence(id, "winning_evidence")
		}
		b.Sim.Inject(stripesim.Fault{Op: "dispute.get", Kind: stripesim.Refuse, Status: http.StatusBadRequest, Times: 1})
		details := compare(t, b, future)
		require.Len(t, details, 2)
		kinds := map[bool]int{}
		for _, detail := range details {
			kinds[strings.Contains(detail, "at Stripe won")]++
		}
		require.Equal(t, map[bool]int{true: 1, false: 1}, kinds, "%v", details)
	})
	t.Run("StripeDoesNotReplyOnce", func(t *testing.T) {
		t.Parallel()
		b := paid(t)
		b.dispute(false)
		b.rounds()
		b.Sim.Inject(stripesim.Fault{Op: "dispute.get", Kind: stripesim.Reset, Times: 1})
		require.Empty(t, compare(t, b, future), "it is read again")
	})
	t.Run("TheRowIsDamaged", func(t *testing.T) {
		t.Parallel()
		b := paid(t)
		damaged, good := b.dispute(false), b.other().dispute(false)
		b.rounds()
		b.evidence(good, "winning_evidence")
		b.Exec("UPDATE disputes SET updated_at = 'infinity' WHERE stripe_dispute_id = $1", damaged)
		for _, since := range []time.Duration{past, future} {
			details := compare(t, b, since)
			require.Len(t, details, 2)
			require.Contains(t, about(t, details, damaged), "updated_at")
			require.Contains(t, about(t, details, good), "at Stripe won")
		}
	})
}

// While Stripe is away nothing is known about a dispute, so that it is no violation. What was found before is reported.
func TestAuditOfDisputesFailsWhileStripeIsAway(t *testing.T) {
	t.Parallel()
	named := func(found []postgres.Violation) (subjects string) {
		for _, v := range found {
			subjects += v.Subject + " "
		}
		return subjects
	}
	t.Run("AndReportsWhatItHasFound", func(t *testing.T) {
		t.Parallel()
		b := paid(t)
		bad := b.other()
		good, badID := b.dispute(false), bad.dispute(false)
		for _, f := range []stripesim.Fault{
			{Op: "intent.get", OrderID: bad.order},
			{Op: "dispute.list", Skip: 1}, // Stripe is away from then on.
		} {
			f.Kind, f.Status, f.Times = stripesim.Refuse, http.StatusBadGateway, -1
			b.Sim.Inject(f)
		}
		found, err := b.api.Disputes.Compare(t.Context(), time.Now().Add(-time.Hour))
		require.ErrorIs(t, err, stripe.ErrAway)
		require.ErrorContains(t, err, badID)
		require.Len(t, found, 1)
		require.Contains(t, named(found), good)
	})
	t.Run("AfterSomeInARow", func(t *testing.T) {
		t.Parallel()
		b := paid(t)
		b.dispute(false)
		b.rounds()
		b.Exec(`INSERT INTO disputes (tenant_id, id, status, payment_id, order_id, stripe_dispute_id, charge_id,
			amount_minor, currency, reason, created_at) SELECT tenant_id, 'dsp_' || n, status, payment_id, order_id,
			'du_' || n, charge_id, 0, currency, reason, created_at FROM disputes, generate_series(1, 12) n`)
		b.Sim.Inject(stripesim.Fault{Op: "dispute.get", Kind: stripesim.Refuse, Status: http.StatusBadGateway, Times: -1})
		found, err := b.api.Disputes.Compare(t.Context(), time.Now().Add(time.Hour))
		require.ErrorIs(t, err, stripe.ErrAway)
		require.Empty(t, found)
	})
}

// Every webhook of the change is lost, and the dispute is older than what the loop and the audit list.
func TestAuditComparesDisputesThatHaveEndedLately(t *testing.T) {
	t.Parallel()
	setup := func(t *testing.T) (b bench, ids []string, compare func() string) {
		old, today := world.LongAgo(t, 40*24*time.Hour, world.LocalOptions{})
		b = bench{Books: old, t: t, api: old.API}
		ids = []string{b.other().dispute(false), b.other().dispute(false)}
		for _, id := range ids {
			require.NoError(t, b.api.Disputes.Read(t.Context(), id))
		}
		b.Exec("UPDATE disputes SET status = 'lost', version = version + 1")
		today()
		for _, id := range ids { // The bank has decided otherwise since.
			b.evidence(id, "winning_evidence")
		}
		b.rounds()
		require.Equal(t, 2, b.Count("SELECT count(*) FROM disputes WHERE status = 'lost'"), "the loop has not read them")
		return b, ids, func() (all string) {
			found, err := b.api.Disputes.Compare(t.Context(), time.Now().Add(-48*time.Hour))
			require.NoError(t, err)
			for _, v := range found {
				all += v.Subject + ": " + v.Detail + "\n"
			}
			return all
		}
	}
	const moved = `[^\n]*: here lost, 1000 usd, movements map\[usd:-2500\]; ` +
		`at Stripe won, 1000 usd, movements map\[usd:-1500\]\n`
	t.Run("InStripesList", func(t *testing.T) {
		t.Parallel()
		b, ids, compare := setup(t)
		b.Sim.Inject(stripesim.Fault{Op: "dispute.get", Kind: stripesim.Refuse, Times: -1})
		found := compare()
		for _, id := range ids {
			require.Regexp(t, " "+id+" "+moved, found)
		}
		require.Equal(t, 2, strings.Count(found, "\n"), found)
	})
	t.Run("OneByOneIfTheListDoesNotShowThem", func(t *testing.T) {
		t.Parallel()
		b, ids, compare := setup(t)
		b.Exec(`INSERT INTO disputes (tenant_id, id, status, payment_id, order_id, stripe_dispute_id, charge_id,
			amount_minor, currency, reason, created_at) SELECT tenant_id, 'dsp_none', status, payment_id, order_id,
			'du_none', charge_id, 0, currency, reason, created_at FROM disputes WHERE stripe_dispute_id = $1`, ids[0])
		found := compare()
		require.Regexp(t, " du_none [^\n]*: lost here, and does not exist at Stripe\n", found)
		require.Equal(t, 3, strings.Count(found, "\n"), found)
	})
	t.Run("ForNinetyDays", func(t *testing.T) {
		t.Parallel()
		b, ids, compare := setup(t)
		b.Exec("UPDATE disputes SET updated_at = now() - interval '91 days' WHERE stripe_dispute_id = $1", ids[0])
		b.Exec("UPDATE disputes SET updated_at = now() - interval '89 days' WHERE stripe_dispute_id = $1", ids[1])
		found := compare()
		require.Regexp(t, " "+ids[1]+" "+moved, found)
		require.NotContains(t, found, ids[0])
	})
}

// TestDisputeOfATenantThatMoved: it is the other cell's, also one that was recorded before. Neither the loop nor a
// webhook changes it here, and the audit does not compare it.
func TestDisputeOfATenantThatMoved(t *testing.T) {
	t.Parallel()
	b := paid(t)
	mailbox := b.Mailbox()
	recorded, unseen := b.other().dispute(false), b.other().dispute(false)
	require.NoError(t, b.api.Disputes.Read(t.Context(), recorded))
	rows := func() string {
		return b.Text(`SELECT concat_ws(' ', count(*), sum(version), (SELECT count(*) FROM dispute_movements),
			(SELECT count(*) FROM outbox_events)) FROM disputes`)
	}
	b.Exec(`UPDATE tenants SET disabled_at = now(), moved_to = 'eu2' WHERE id = $1`, b.Tenant.ID)
	before := rows()
	b.evidence(recorded, "winning_evidence")
	for _, id := range []string{recorded, unseen} {
		require.NoError(t, b.api.Disputes.Read(t.Context(), id))
	}
	for _, hook := range mailbox.Take() {
		require.Equal(t, http.StatusOK, b.api.Receive(hook).Status)
		b.api.Process()
	}
	b.rounds()
	require.Equal(t, before, rows())
	found, err := b.api.Disputes.Compare(t.Context(), time.Now().Add(-time.Hour))
	require.NoError(t, err)
	require.Empty(t, found)

	b.Exec(`UPDATE tenants SET disabled_at = NULL, moved_to = NULL WHERE id = $1`, b.Tenant.ID) // It has come back.
	found, err = b.api.Disputes.Compare(t.Context(), time.Now().Add(-time.Hour))
	require.NoError(t, err)
	require.Len(t, found, 2)
}
