package tips_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/docs/skeleton/tips"
	"example.com/payonce/internal/keyhistory" // part: history
	"example.com/payonce/internal/operations"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/stripe"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/pgproxy"
	"example.com/payonce/testkit/world"
)

// A place is where a tip can be disturbed: after a commit, known by one of its
// statements, or after a response of Stripe's that nothing has recorded yet.
var places = []struct{ name, statement, fault string }{
	{name: "tip_recorded", statement: "TipInsert"},
	{name: "intent created", fault: "intent.create"},
	{name: "tip_intent_recorded", statement: "TipIntentRecord"},
	{name: "intent confirmed", fault: "intent.confirm"},
	{name: "finished", statement: "TipEnd"},
}

var cards = []struct {
	name, card string
	status     int
	charges    int
}{
	{"success", visa, http.StatusCreated, 1},
	{"declined", declining, http.StatusPaymentRequired, 0},
	{"3-D Secure", careful, http.StatusPaymentRequired, 0},
}

// part: history {

// verdicts are what the history of a key says about the cards.
var verdicts = map[string]string{
	visa: "charged once, pi_", declining: "failed (card_declined), no money taken",
	careful: "failed (authentication_required), no money taken",
}

// part: history }

// TestTipCrashMatrix: at each place the process is killed, or the response is lost; with
// each card; and either the client retries or the completer finishes.
func TestTipCrashMatrix(t *testing.T) {
	t.Parallel()
	for _, p := range places {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			proxied := &seam{}
			s, proxy := proxiedShop(t, proxied)
			heir := local(s.World, world.LocalOptions{Name: "heir"})
			for _, how := range []string{"killed", "response lost"} {
				for _, c := range cards {
					for _, way := range []string{"retry", "completer"} {
						t.Run(how+"/"+c.name+"/"+way, func(t *testing.T) {
							key := strings.ReplaceAll(how+"-"+c.name+"-"+way, " ", "-")
							before := s.atStripe(stripesim.EffectCharge)
							var cut *pgproxy.Cut
							switch {
							case how == "killed":
								proxied.armed.Store(p.name)
							case p.statement != "":
								cut = proxy.AfterCommit("name: " + p.statement + " ")
							default:
								s.Sim.Inject(stripesim.Fault{Op: p.fault, OrderID: s.order, Kind: stripesim.Drop})
							}
							s.tip(s.api, key, c.card)
							require.Equal(t, "", proxied.armed.Swap(""), "the place was reached")
							require.True(t, cut == nil || cut.HasFired(), "the commit was reached")
							if way == "completer" {
								for n := 0; n < 8 && s.RecoveryPoint(key) != "finished"; n++ {
									heir.Complete()
								}
							}
							a := s.finish(heir, key, c.card)
							require.True(t, way == "retry" || a.Replayed(), "the completer has finished it")
							require.Equal(t, c.status, a.Status, a)
							require.Equal(t, a.Identity(), s.finish(heir, key, c.card).Identity(), "one final answer")
							require.Equal(t, c.charges, s.atStripe(stripesim.EffectCharge)-before)
							require.Contains(t, s.verdict(heir, key), verdicts[c.card]) // part: history
						})
					}
				}
			}
			require.Empty(t, s.broken(heir))
		})
	}
}

func proxiedShop(t *testing.T, at *seam) (shop, *pgproxy.Proxy) {
	s := open(t, world.LocalOptions{Name: "opens"})
	proxy, err := pgproxy.Start(s.URL)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, proxy.Close()) })
	at.armed.Store("")
	s.api = local(s.World, world.LocalOptions{
		Name: "victim", Database: proxy.URL(),
		Boundary: func(operation, point string) {
			if operation == tips.Name {
				at.reach(point)
			}
		},
		Gateway: func(g payments.Gateway) payments.Gateway { return killing{g, at} },
	})
	return s, proxy
}

// seam ends the work of a server at a place, once: nothing after it happens, and the
// claim stays held. For the database and for Stripe that is what SIGKILL leaves.
type seam struct{ armed atomic.Value }

func (s *seam) reach(place string) {
	if s.armed.CompareAndSwap(place, "") {
		panic(http.ErrAbortHandler)
	}
}

type killing struct {
	payments.Gateway
	at *seam
}

func (g killing) CreateIntent(ctx context.Context, c stripe.Call, i stripe.NewIntent) stripe.Outcome {
	defer g.at.reach("intent created")
	return g.Gateway.CreateIntent(ctx, c, i)
}

func (g killing) ConfirmIntent(ctx context.Context, c stripe.Call, id, method string) stripe.Outcome {
	defer g.at.reach("intent confirmed")
	return g.Gateway.ConfirmIntent(ctx, c, id, method)
}

// Each guard of a tip is missed: without it, broken names the promise. Keep these when
// you change the operation; they show that its tests can fail.
func TestEachGuardOfATipIsMissed(t *testing.T) {
	t.Parallel()
	var attempts atomic.Int64
	// part: history {
	blind := tips.Operation()
	blind.Registered = payments.Registered{}
	blind.History = func(context.Context, *db.Queries, string, string) (keyhistory.Made, error) {
		return keyhistory.Made{}, nil
	}
	// part: history }
	for _, guard := range []struct {
		name    string
		without world.LocalOptions
		alter   string
		says    string
	}{
		{
			name: "all attempts of a call share one Stripe key", says: "a tip has one intent",
			without: world.LocalOptions{Gateway: func(g payments.Gateway) payments.Gateway {
				return altered{g, func(c *stripe.Call, _ *stripe.NewIntent) {
					c.Key += fmt.Sprint("-", attempts.Add(1))
				}}
			}},
		},
		{
			name: "an intent names its operation", says: "the reconciler agrees",
			without: world.LocalOptions{Gateway: func(g payments.Gateway) payments.Gateway {
				return altered{g, func(_ *stripe.Call, i *stripe.NewIntent) { i.Operation = "" }}
			}},
		},
		// part: history {
		{
			name: "the charges are registered", says: "the history of a key says what happened",
			without: world.LocalOptions{Own: operations.List{blind}},
		},
		// part: history }
		{
			name: "a key has one tip, in the database as well", says: "a key has one tip",
			alter: `ALTER TABLE tips DROP CONSTRAINT one_tip_per_key`,
		},
	} {
		t.Run(guard.name, func(t *testing.T) {
			t.Parallel()
			s := open(t, guard.without)
			s.Sim.Inject(stripesim.Fault{Op: "intent.create", OrderID: s.order, Kind: stripesim.Drop})
			require.Equal(t, http.StatusAccepted, s.tip(s.api, "tip", visa).Status)
			require.Equal(t, http.StatusCreated, s.finish(s.api, "tip", visa).Status)
			if guard.alter != "" {
				const again = `INSERT INTO tips
						(tenant_id, id, order_id, idempotency_key, amount_minor, currency, payment_method)
					SELECT tenant_id, 'tip_2', order_id, idempotency_key, amount_minor, currency, payment_method
					FROM tips`
				_, err := s.DB.Raw().Exec(t.Context(), again)
				require.ErrorContains(t, err, "one_tip_per_key")
				s.Exec(guard.alter)
				s.Exec(again)
			}
			require.Contains(t, strings.Join(s.broken(s.api), "\n"), guard.says)
		})
	}
}

// altered changes what a tip sends to Stripe; what a payment sends is left as it is.
type altered struct {
	payments.Gateway
	alter func(*stripe.Call, *stripe.NewIntent)
}

func (g altered) CreateIntent(ctx context.Context, c stripe.Call, i stripe.NewIntent) stripe.Outcome {
	if i.Operation == tips.Name {
		g.alter(&c, &i)
	}
	return g.Gateway.CreateIntent(ctx, c, i)
}
