package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/stripe"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/port"
	"example.com/payonce/testkit/process"
	"example.com/payonce/testkit/world"
)

const setupURL = "https://pay.example.com/v1/webhooks/stripe"

// office is an account at the simulator, and the program that an operator runs.
type office struct {
	clinic
	w     *world.World
	mu    sync.Mutex
	posts []string // the paths that were written to
}

// setupOf returns a new account for each test of a group, which share the program.
func setupOf(t *testing.T, w *world.World, opts ...func(*stripesim.Options)) *office {
	t.Helper()
	var o stripesim.Options
	for _, f := range opts {
		f(&o)
	}
	sim, err := stripesim.New(o)
	require.NoError(t, err)
	api := httptest.NewServer(sim.Handler())
	t.Cleanup(func() {
		_ = sim.Close()
		api.Close()
	})
	b := &office{clinic: clinic{t: t, sim: sim, stripe: api.URL}, w: w}
	target, err := url.Parse(api.URL)
	require.NoError(t, err)
	next := httputil.NewSingleHostReverseProxy(target)
	next.ErrorHandler = func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			b.mu.Lock()
			b.posts = append(b.posts, r.Method+" "+r.URL.Path)
			b.mu.Unlock()
			if r.Method == http.MethodPost && r.Header.Get("Idempotency-Key") == "" {
				t.Errorf("a POST without a key: %s", r.URL)
			}
		}
		next.ServeHTTP(w, r)
	}))
	t.Cleanup(proxy.Close)
	b.env = map[string]string{"STRIPE_API_BASE": proxy.URL}
	return b
}

// wrote returns the writes so far. Their handlers may not have returned yet, though the program has its answers.
func (b *office) wrote() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.posts
}

// setup runs the command, with what it needs and nothing else.
func (b *office) setup(settings ...string) (stdout, stderr string, status int) {
	b.t.Helper()
	return b.run([]string{"-url", setupURL}, settings...)
}

func (b *office) run(args []string, settings ...string) (stdout, stderr string, status int) {
	b.t.Helper()
	settings = append([]string{"DATABASE_URL=", "STRIPE_WEBHOOK_SECRET=", "BROKER_URL=", "DATA_KEY=", "STRIPE_TIMEOUT=",
		"STRIPE_API_BASE=" + b.env["STRIPE_API_BASE"]}, settings...)
	return typed(b.w, append([]string{"setup", "stripe"}, args...), settings...)
}

var secretLine = regexp.MustCompile(`^STRIPE_WEBHOOK_SECRET=(whsec_\w+)\n$`)

// made runs the command, which must make an endpoint, and returns its secret.
func (b *office) made() string {
	b.t.Helper()
	out, errs, status := b.setup()
	require.Zero(b.t, status, errs)
	require.Regexp(b.t, secretLine, out)
	secret := secretLine.FindStringSubmatch(out)[1]
	require.NotContains(b.t, errs, secret)
	return secret
}

// unchanged runs the command, which must write nothing at Stripe.
func (b *office) unchanged() {
	b.t.Helper()
	before := len(b.wrote())
	out, errs, status := b.setup()
	require.Zero(b.t, status, errs)
	require.Empty(b.t, out)
	require.Contains(b.t, errs, "nothing changed: webhook endpoint we_")
	require.Empty(b.t, b.wrote()[before:])
}

// endpoints are those of the account at Stripe, newest first.
func (b *office) endpoints() (list []map[string]any) {
	b.t.Helper()
	for _, e := range b.atStripe("GET", "/v1/webhook_endpoints?limit=100", "")["data"].([]any) {
		list = append(list, e.(map[string]any))
	}
	return list
}

// only is the one endpoint of the account.
func (b *office) only() map[string]any {
	b.t.Helper()
	list := b.endpoints()
	require.Len(b.t, list, 1)
	return list[0]
}

func (b *office) upToDate(e map[string]any) {
	b.t.Helper()
	require.Equal(b.t, setupURL, e["url"])
	require.Equal(b.t, "enabled", e["status"])
	var types []string
	for _, name := range e["enabled_events"].([]any) {
		types = append(types, name.(string))
	}
	require.Equal(b.t, stripe.WebhookTypes, types)
}

func (b *office) path(e map[string]any) string { return "/v1/webhook_endpoints/" + e["id"].(string) }

func TestSetupStripe(t *testing.T) {
	t.Parallel()
	w := world.New(t)

	t.Run("MakesTheEndpointAndPrintsItsSecretOnce", func(t *testing.T) {
		t.Parallel()
		b := setupOf(t, w)
		secret := b.made()
		e := b.only()
		b.upToDate(e)
		require.Nil(t, e["api_version"], "the account's: only ids are read")
		b.unchanged()
		require.Equal(t, e, b.only())
		require.NotContains(t, fmt.Sprint(e), secret)
	})

	t.Run("CorrectsWhatIsDifferent", func(t *testing.T) {
		t.Parallel()
		b := setupOf(t, w)
		b.made()
		for form, says := range map[string]string{
			"disabled=true":                                "it was disabled",
			"enabled_events[]=*":                           "it was sent every type, used or not",
			"enabled_events[]=payout.paid":                 "it was not sent payment_intent.succeeded, .*, and sent payout.paid",
			"enabled_events[]=charge.refunded":             "it was not sent payment_intent.succeeded, ",
			"enabled_events[]=*&disabled=true":             "it was disabled; it was sent every type",
			exactTypes() + "&enabled_events[]=payout.paid": "it was sent payout.paid, not used here\n",
		} {
			id := b.only()["id"]
			b.atStripe("POST", b.path(b.only()), form)
			out, errs, status := b.setup()
			require.Zero(t, status, errs)
			require.Empty(t, out)
			require.Regexp(t, "^changed webhook endpoint we_.* of "+setupURL+": "+says, errs)
			require.NotContains(t, errs, "nothing changed")
			require.Equal(t, id, b.only()["id"])
			b.upToDate(b.only())
			b.unchanged()
		}
	})

	t.Run("TakesOneThatWasMadeInTheDashboard", func(t *testing.T) {
		t.Parallel()
		b := setupOf(t, w)
		b.endpoint("/v1/webhooks/stripe", "charge.refunded")
		out, errs, status := b.setup()
		require.Zero(t, status, errs)
		require.Empty(t, out)
		require.Contains(t, errs, "was not made by this command: reveal its secret in Stripe's dashboard")
		b.upToDate(b.only())
		b.unchanged()
	})

	t.Run("TakesTheOrderOfTypesAndTheFormOfTheURLForNothing", func(t *testing.T) {
		t.Parallel()
		b := setupOf(t, w)
		types := slices.Clone(stripe.WebhookTypes)
		slices.Reverse(types)
		path := b.endpoint("/v1/webhooks/stripe", types...)
		b.unchanged()
		b.atStripe("POST", path, "url=https://PAY.example.com:443/v1/webhooks/stripe")
		b.unchanged()
		out, errs, status := b.run([]string{"-url", "HTTPS://Pay.Example.com:443/v1/webhooks/stripe"})
		require.Zero(t, status, errs)
		require.Empty(t, out)
		require.Contains(t, errs, "nothing changed")
		require.Empty(t, b.wrote())
	})

	t.Run("LeavesEndpointsOfOtherURLs", func(t *testing.T) {
		t.Parallel()
		b := setupOf(t, w)
		others := []string{b.endpoint("/hooks", "*"), b.endpoint("/b/v1/webhooks/stripe", "*")}
		before := []map[string]any{b.atStripe("GET", others[0], ""), b.atStripe("GET", others[1], "")}
		b.made()
		require.Len(t, b.endpoints(), 3)
		for i, path := range others {
			require.Equal(t, before[i], b.atStripe("GET", path, ""))
		}
	})

	t.Run("FindsTheEndpointBehindPagesOfOthers", func(t *testing.T) {
		t.Parallel()
		b := setupOf(t, w)
		b.made()
		for n := range 250 {
			_, err := b.sim.AddWebhookEndpoint(stripesim.DefaultKey, fmt.Sprintf("https://other.example.com/%d", n), "whsec_x")
			require.NoError(t, err)
		}
		b.unchanged()
	})

	t.Run("ReportsDuplicatesAndCorrectsThoseThatAreEnabled", func(t *testing.T) {
		t.Parallel()
		b := setupOf(t, w)
		first, second, third := b.endpoint("/v1/webhooks/stripe", "*"),
			b.endpoint("/v1/webhooks/stripe", "*"), b.endpoint("/v1/webhooks/stripe", "*")
		b.atStripe("POST", third, "disabled=true")
		out, errs, status := b.setup()
		require.Zero(t, status, errs)
		require.Empty(t, out)
		require.Contains(t, errs, "3 webhook endpoints have this URL: ")
		for path, state := range map[string]string{first: "enabled", second: "enabled", third: "disabled"} {
			e := b.atStripe("GET", path, "")
			require.Equal(t, state, e["status"])
			require.Contains(t, errs, fmt.Sprintf("%s (%s)", e["id"], state))
		}
		b.upToDate(b.atStripe("GET", first, ""))
		b.upToDate(b.atStripe("GET", second, ""))
		b.unchanged()
		b.atStripe("POST", first, "disabled=true")
		b.atStripe("POST", second, "disabled=true")
		_, errs, _ = b.setup()
		require.Contains(t, errs, "it was disabled")
		b.upToDate(b.atStripe("GET", third, "")) // the newest
	})

	t.Run("EventsArriveAtTheService", func(t *testing.T) {
		t.Parallel()
		w := world.New(t)
		addr, err := port.Loopback(t.Context())
		require.NoError(t, err)
		at := "http://" + addr.String() + "/v1/webhooks/stripe"
		out, errs, status := typed(w, []string{"setup", "stripe", "-url", at}, "DATABASE_URL=")
		require.Zero(t, status, errs)
		p := w.Process("HTTP_ADDR="+addr.String(), strings.TrimSpace(out))
		require.Equal(t, http.StatusCreated, p.Pay("k", p.Order(), "pm_card_visa").Status)
		world.Eventually(t, 20*time.Second, "the event is taken", func() bool {
			return slices.ContainsFunc(w.Sim.Deliveries(), func(d stripesim.Delivery) bool {
				return d.URL == at && d.Type == "payment_intent.succeeded" && d.Status == http.StatusOK
			})
		})
		for _, d := range w.Sim.Deliveries() {
			require.Contains(t, stripe.WebhookTypes, d.Type, "and no other")
		}
	})
}

func exactTypes() string { return url.Values{"enabled_events[]": stripe.WebhookTypes}.Encode() }

// TestSetupStripeInDoubt: whatever Stripe's answer to the creation is, and whether it comes, there is one endpoint.
func TestSetupStripeInDoubt(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	const create = "webhook_endpoint.create"

	for _, kind := range []string{stripesim.Drop, stripesim.Reset, stripesim.EffectError, stripesim.InUse,
		stripesim.RateLimited, stripesim.InvalidJSON} {
		t.Run("SendsTheSameKeyAgainAfter/"+kind, func(t *testing.T) {
			t.Parallel()
			b := setupOf(t, w)
			b.sim.Inject(stripesim.Fault{Op: create, Kind: kind})
			b.made()
			b.upToDate(b.only())
			b.unchanged()
		})
	}

	t.Run("PrintsTheSecretInTheNextRunAfterEveryAnswerWasLost", func(t *testing.T) {
		t.Parallel()
		b := setupOf(t, w)
		b.sim.Inject(stripesim.Fault{Op: create, Kind: stripesim.Drop, Times: -1})
		out, errs, status := b.setup()
		require.Equal(t, 1, status)
		require.Empty(t, out)
		require.Regexp(t, `api: whether the webhook endpoint was made is unknown \(.*\): run the same command again`, errs)
		b.upToDate(b.only())
		b.sim.ClearFaults()
		b.made()
		b.upToDate(b.only())
		b.unchanged()
	})

	t.Run("PrintsTheSecretAgainIfTheEndpointCouldNotBeMarked", func(t *testing.T) {
		t.Parallel()
		b := setupOf(t, w)
		b.sim.Inject(stripesim.Fault{Op: "webhook_endpoint.update", Kind: stripesim.Refuse, Status: 400})
		secret := b.made()
		require.Equal(t, secret, b.made())
		b.only()
		b.unchanged()
	})

	t.Run("TriesTheNextKeyAfterAnErrorThatStripeRepeats", func(t *testing.T) {
		t.Parallel()
		b := setupOf(t, w)
		b.sim.Inject(stripesim.Fault{Op: create, Kind: stripesim.StoredError})
		b.made()
		b.upToDate(b.only())
		b.unchanged()
	})

	t.Run("MakesNoSecondOneAfterAnErrorThatHadAnEffect", func(t *testing.T) {
		t.Parallel()
		b := setupOf(t, w)
		b.sim.Inject(stripesim.Fault{Op: create, Kind: stripesim.EffectStoredError})
		for range 2 {
			out, errs, status := b.setup()
			require.Equal(t, 1, status)
			require.Empty(t, out)
			require.Contains(t, errs, "its secret may never have been printed")
			require.Contains(t, errs, "delete the endpoint there and run this command again")
			b.upToDate(b.only())
		}
		b.atStripe("DELETE", b.path(b.only()), "")
		b.made()
		b.upToDate(b.only())
	})

	t.Run("MakesAnotherAfterTheEndpointWasDeleted", func(t *testing.T) {
		t.Parallel()
		b := setupOf(t, w)
		secrets := map[string]bool{}
		for n := 1; n <= 3; n++ {
			secrets[b.made()] = true
			b.upToDate(b.only())
			require.Len(t, secrets, n)
			b.atStripe("DELETE", b.path(b.only()), "")
		}
	})

	t.Run("DeletesASecondOneIfStripeHasForgottenTheKey", func(t *testing.T) {
		t.Parallel()
		b := setupOf(t, w)
		b.sim.Inject(stripesim.Fault{Op: create, Kind: stripesim.Drop, Times: -1})
		_, _, status := b.setup()
		require.Equal(t, 1, status)
		b.sim.ClearFaults()
		id := b.only()["id"]
		require.Positive(t, b.sim.PruneKeys("payonce:setup:"))
		out, errs, status := b.setup()
		require.Equal(t, 1, status)
		require.Empty(t, out, "the secret of the other one")
		require.Contains(t, errs, "its secret may never have been printed")
		require.Equal(t, id, b.only()["id"])
	})

	t.Run("SendsNoKeyAgainThatStripeMayHaveForgotten", func(t *testing.T) {
		t.Parallel()
		yesterday := time.Now().Add(-setupKeyLifetime - time.Minute)
		b := setupOf(t, w, func(o *stripesim.Options) { o.Now = func() time.Time { return yesterday } })
		b.sim.Inject(stripesim.Fault{Op: create, Kind: stripesim.Drop, Times: -1})
		_, _, status := b.setup()
		require.Equal(t, 1, status)
		b.sim.ClearFaults()
		before := len(b.wrote())
		_, errs, status := b.setup()
		require.Equal(t, 1, status)
		require.Contains(t, errs, "its secret may never have been printed")
		require.Empty(t, b.wrote()[before:])
		b.upToDate(b.only())
	})

	t.Run("MakesOneAtTheSameTime", func(t *testing.T) {
		t.Parallel()
		b := setupOf(t, w)
		outs := make([]string, 4)
		var all sync.WaitGroup
		for i := range outs {
			getenv := b.w.Getenv("STRIPE_API_BASE=" + b.env["STRIPE_API_BASE"])
			all.Go(func() {
				var out, errs bytes.Buffer
				if status := run(t.Context(), []string{"setup", "stripe", "-url", setupURL}, getenv, &out, &errs); status != exitOK {
					t.Error(status, errs.String())
				}
				outs[i] = out.String()
			})
		}
		all.Wait()
		b.upToDate(b.only())
		outs = slices.DeleteFunc(outs, func(s string) bool { return s == "" })
		require.NotEmpty(t, outs)
		require.Len(t, slices.Compact(outs), 1, "the same secret")
	})
}

// TestSetupStripeRefuses: each wrong use is one line that says what to do, and nothing is written at Stripe.
func TestSetupStripeRefuses(t *testing.T) {
	t.Parallel()
	const none, reader = "rk_test_payonce_none", "rk_test_payonce_reader"
	b := setupOf(t, world.New(t), func(o *stripesim.Options) {
		o.Restricted = map[string][]string{none: {}, reader: {"webhook_read"}}
		o.Keys = []string{stripesim.DefaultKey, none, reader}
	})
	refused := func(says string, args []string, settings ...string) {
		t.Helper()
		out, errs, status := b.run(args, settings...)
		require.Equal(t, 1, status, errs)
		require.Empty(t, out)
		require.Regexp(t, "^api: "+says, errs)
		require.Equal(t, 1, strings.Count(errs, "\n"), errs)
	}
	wrong := func(says string, args []string, settings ...string) {
		t.Helper()
		out, errs, status := b.run(args, settings...)
		require.Equal(t, 2, status, errs)
		require.Empty(t, out)
		require.Regexp(t, "^api: setup stripe: "+says, errs)
		require.Contains(t, errs, "\n\nusage: api setup stripe -url https://HOST/v1/webhooks/stripe\n")
		require.LessOrEqual(t, strings.Count(errs, "\n"), 5, errs)
	}
	for address, says := range map[string]string{
		"https://HOST/v1/webhooks/stripe":                          `-url names the host "HOST", which Stripe cannot reach`,
		"https://shop./v1/webhooks/stripe":                         `-url names the host "shop.", which`,
		"https://10.1.2.3/v1/webhooks/stripe":                      `-url names the host "10.1.2.3", which`,
		"https://169.254.169.254:8443/v1/webhooks/stripe":          `-url names the host "169.254.169.254", which`,
		"https://[fd00::1]/v1/webhooks/stripe":                     `-url names the host "fd00::1", which`,
		"https://0.0.0.0/v1/webhooks/stripe":                       `-url names the host "0.0.0.0", which`,
		"http://pay.example.com/v1/webhooks/stripe":                "-url must begin with https://",
		"ftp://pay.example.com/v1/webhooks/stripe":                 "-url must begin with https://",
		"http://10.0.0.1/v1/webhooks/stripe":                       "-url must begin with https://",
		"http://localhost.example.com/v1/webhooks/stripe":          "-url must begin with https://",
		"pay.example.com/v1/webhooks/stripe":                       "-url must be https://HOST/v1/webhooks/stripe",
		"https:///v1/webhooks/stripe":                              "-url must be https://HOST/v1/webhooks/stripe",
		"https://pay.example .com/v1/webhooks/stripe":              "-url must be https://HOST/v1/webhooks/stripe",
		"https://pay.example.com":                                  "-url must end in /v1/webhooks/stripe",
		"https://pay.example.com/":                                 "-url must end in /v1/webhooks/stripe",
		"https://pay.example.com/webhooks":                         "-url must end in /v1/webhooks/stripe",
		"https://pay.example.com/v1/webhooks/stripe/":              "-url must end in /v1/webhooks/stripe",
		"https://pay.example.com/v1/webhooks/Stripe":               "-url must end in /v1/webhooks/stripe",
		"https://pay.example.com/v1/webhooks/stripe?a=b":           "-url must not have a query",
		"https://pay.example.com/v1/webhooks/stripe#a":             "-url must not have a query",
		"https://ada:pass@pay.example.com" + "/v1/webhooks/stripe": "-url must not contain a user",
	} {
		wrong(says, []string{"-url", address})
	}
	wrong("-url must end in", []string{"-url", "https://shop.example/hooks"}, "STRIPE_SECRET_KEY=")
	good := []string{"-url", setupURL}
	refused("STRIPE_SECRET_KEY is required", good, "STRIPE_SECRET_KEY=")
	refused("STRIPE_SECRET_KEY must begin with", good, "STRIPE_SECRET_KEY=pk_test_x")
	refused("STRIPE_API_BASE must be", good, "STRIPE_API_BASE=nowhere")
	refused("cannot list the webhook endpoints: Stripe does not respond", good, "STRIPE_API_BASE=http://127.0.0.1:9")
	refused("cannot list the webhook endpoints: Stripe refuses STRIPE_SECRET_KEY", good, "STRIPE_SECRET_KEY=sk_test_unknown")
	refused("cannot list the webhook endpoints: the key lacks the permission rak_webhook_read; give it Webhook ",
		good, "STRIPE_SECRET_KEY="+none)
	require.Empty(t, b.wrote())
	refused("cannot make a webhook endpoint: the key lacks the permission rak_webhook_write; give it Webhook ",
		good, "STRIPE_SECRET_KEY="+reader)
	b.endpoint("/v1/webhooks/stripe", "*")
	refused("cannot change webhook endpoint we_\\w+: the key lacks the permission rak_webhook_write",
		good, "STRIPE_SECRET_KEY="+reader)
	for range 15 {
		b.endpoint("/other", "*")
	}
	refused("cannot make a webhook endpoint: .*maximum of 16",
		[]string{"-url", "https://new.example.com/v1/webhooks/stripe"})

	wrong("-url is missing", nil)
	wrong("-url is missing", []string{"-url", ""})
	wrong("flag needs an argument: -url", []string{"-url"})
	wrong(`unexpected argument "`+setupURL+`"; the URL follows -url`, []string{setupURL})
	wrong(`unexpected argument "please"`, []string{"-url", setupURL, "please"})
	wrong("flag provided but not defined: -host", []string{"-host", "x"})
	require.Len(t, b.endpoints(), 16)
}

// TestSetupStripeAtTheSimulator: a simulator with a store still has the endpoint after a restart, one without has not.
func TestSetupStripeAtTheSimulator(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	for store, again := range map[string]string{
		filepath.Join(t.TempDir(), "journal"): "^nothing changed: webhook endpoint we_", "": "^made webhook endpoint we_",
	} {
		for _, says := range []string{"^made webhook endpoint we_", again} {
			b := setupOf(t, w, func(o *stripesim.Options) { o.Store = store })
			_, errs, status := b.run([]string{"-url", "http://127.0.0.1:8080/v1/webhooks/stripe"},
				"STRIPE_SECRET_KEY="+stripesim.DefaultKey)
			require.Zero(t, status, errs)
			require.Regexp(t, says, errs)
			require.NoError(t, b.sim.Close())
		}
	}
}

// TestSetupStripeOfLoopback: a service on this machine has an endpoint at the simulator.
func TestSetupStripeOfLoopback(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"http://127.0.0.1:8080/v1/webhooks/stripe",
		"http://localhost:8080/v1/webhooks/stripe", "http://[::1]:8080/v1/webhooks/stripe",
		"https://localhost:8443/v1/webhooks/stripe", "https://93.184.216.34/v1/webhooks/stripe",
		"https://[2606:2800::1]/v1/webhooks/stripe", "https://pay.example.com:8443/pay/v1/webhooks/stripe"} {
		got, err := webhookURL(address)
		require.NoError(t, err)
		require.Equal(t, address, got)
	}
}

// TestWebhookSecretUnset: the start warns, and names the command.
func TestWebhookSecretUnset(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	start := func(settings ...string) string {
		ctx, stop := context.WithTimeout(t.Context(), world.Patience)
		defer stop()
		log := &stopsAt{said: []byte(`"msg":"serving"`), stop: stop}
		require.Zero(t, run(ctx, []string{"serve"}, w.Getenv(settings...), io.Discard, log),
			process.LastLines(log.log.String(), 40))
		return log.log.String()
	}
	require.NotContains(t, start(), "STRIPE_WEBHOOK_SECRET")
	require.Regexp(t, `"level":"WARN","msg":"STRIPE_WEBHOOK_SECRET is unset: .*`+"`api setup stripe -url "+
		`https://HOST/v1/webhooks/stripe`+"`", start("STRIPE_WEBHOOK_SECRET="))
}
