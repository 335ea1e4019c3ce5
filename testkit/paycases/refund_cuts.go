package paycases

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/pgproxy"
	"example.com/payonce/testkit/world"
)

// A Cut breaks a connection at the commit of a statement: before the server has it, or, where it is committed, before the
// client has the response.
type Cut struct {
	Name, Statement string
	Committed       bool
}

// OwedCuts are the commits of a refund that is owed.
func OwedCuts() (cuts []Cut) {
	for name, statement := range map[string]string{
		"WhenItHasFailed": "RefundOwe", "WhenItIsTriedAgain": "RefundOwedAttempt",
		"WhenItsCallIsRecorded": "StripeCallRecordAttempt", "WhenTheMoneyIsBack": "RefundOwedEnd",
	} {
		cuts = append(cuts, Cut{name + "/Before", statement, false}, Cut{name + "/After", statement, true})
	}
	return cuts
}

// OwedSurvivesACut: another process ends what a cut has left open, and the money goes back once.
func OwedSurvivesACut(t *testing.T, c Cut) {
	t.Helper()
	o := NewLate(t, visa)
	proxy, err := pgproxy.Start(o.URL)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, proxy.Close()) })
	options := world.LocalOptions{Name: "victim"}
	options.Database = proxy.URL()
	victim := o.Local(options)
	o.Sim.Inject(stripesim.Fault{
		Op: "refund.create", Kind: stripesim.Refuse, Status: http.StatusBadRequest, Code: "refund_unsupported", Times: 1,
	})
	arm := proxy.BeforeCommit
	if c.Committed {
		arm = proxy.AfterCommit
	}
	cut := arm("name: " + c.Statement + " ")
	for range 3 { // It may fail at any of them.
		_, _ = victim.Completer.RunOnce(t.Context())
		o.Exec(`UPDATE refunds_owed SET next_attempt_at = clock_timestamp()`)
		_, _ = victim.Payments.Repairs().RetryOwed(t.Context())
	}
	require.True(t, cut.HasFired(), "nothing was cut, so nothing was shown")
	for range 3 {
		CompleteOnce(o.World, o.API)
		o.Exec(`UPDATE refunds_owed SET next_attempt_at = clock_timestamp()`)
		o.Reconcile()
		CompleteOnce(o.World, o.API)
	}
	require.Equal(t, "automatic succeeded 1000, automatic failed 1000",
		o.Text(`SELECT string_agg(concat_ws(' ', origin, status, amount_minor), ', ' ORDER BY status, origin, amount_minor) FROM refunds`))
	require.Equal(t, 1, o.EffectsOf(stripesim.EffectRefund))
	require.Equal(t, "1 refunded", o.Owed())
	o.DeliverWebhooks()
	o.RequireClean()
}
