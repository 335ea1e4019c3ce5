package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.com/payonce/internal/stripe"
	"example.com/payonce/internal/terminal"
)

var setupCommand = command{"setup stripe", "-url https://HOST" + stripe.WebhookPath,
	"make the webhook endpoint of that URL at Stripe, or bring it up to date; prints STRIPE_WEBHOOK_SECRET=…, once",
	setupStripe}

const (
	setupCall = 15 * time.Second // one attempt of a call
	// A call whose response is lost is sent again, under the same key, after pauses of one second, two and so on.
	setupAttempts = 4
	setupPause    = time.Second
	// Stripe keeps a key for a day or longer; an hour less is certainly before that.
	setupKeyLifetime = 23 * time.Hour
	// An endpoint that was made and deleted has used its key for a day, so the next one has another. So many in a day
	// are a program that runs wild.
	setupCreations = 20
	// setupMark is the metadata by which a later run sees that the secret of an endpoint may never have been printed:
	// the number of its key, or setupPrinted.
	setupMark    = "payonce_setup"
	setupPrinted = "secret_printed"
)

// setupStripe needs no database. What it prints on stdout can be appended to a file of settings; the rest is on stderr.
func setupStripe(ctx context.Context, cli cli, args []string) error {
	flags := flags("setup stripe")
	address := flags.String("url", "", "where Stripe reaches the service: https://HOST"+stripe.WebhookPath)
	given, err := parse(flags, args)
	switch {
	case len(given) > 0:
		return usageError(fmt.Sprintf("unexpected argument %q; the URL follows -url", given[0]))
	case err != nil:
		return err
	case *address == "":
		return usageError("-url is missing")
	}
	target, err := webhookURL(*address)
	if err != nil {
		return usageError(err.Error())
	}
	e := environment{getenv: cli.getenv}
	key, base := e.stripeKey(), e.baseURL("STRIPE_API_BASE")
	e.encryptedFor(key, base)
	if e.err != nil {
		return e.err
	}
	hide := patient{getenv: cli.getenv}.secrets()
	s := setup{
		stripe: stripe.New(stripe.Options{
			SecretKey: key, BaseURL: base, Timeout: setupCall, Limits: stripe.NewLimits(0, nil),
			Metrics: stripe.NewMetrics(nil), Log: slog.New(slog.DiscardHandler),
		}),
		url: target, live: live(key), stdout: cli.stdout,
		say: func(format string, args ...any) {
			_, _ = fmt.Fprintln(cli.stderr, terminal.Text(hide.Replace(fmt.Sprintf(format, args...))))
		},
	}
	if err := s.run(ctx); err != nil {
		return errors.New(hide.Replace(err.Error()))
	}
	return nil
}

// webhookURL is an address as Stripe is given it, or what is wrong with it. Two addresses that mean the same are one.
func webhookURL(raw string) (string, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Hostname() == "" || u.Opaque != "" {
		return "", fmt.Errorf("-url must be https://HOST%s, with the name by which Stripe reaches the service",
			stripe.WebhookPath)
	}
	host := u.Hostname()
	u.Scheme, u.Host = strings.ToLower(u.Scheme), strings.ToLower(u.Host)
	switch {
	case u.Scheme != "https" && (u.Scheme != "http" || !thisMachine(u.Hostname())):
		return "", errors.New("-url must begin with https://: Stripe sends nothing unencrypted; http:// is for loopback only")
	case !thisMachine(u.Hostname()) && !onTheInternet(host):
		return "", fmt.Errorf("-url names the host %q, which Stripe cannot reach: give the name by which the Internet reaches "+
			"the service", host)
	case u.User != nil:
		return "", errors.New("-url must not contain a user or a password")
	case u.RawQuery != "" || u.ForceQuery || strings.Contains(raw, "#"):
		return "", errors.New("-url must not have a query or a fragment")
	case !strings.HasSuffix(u.EscapedPath(), stripe.WebhookPath):
		return "", fmt.Errorf("-url must end in %s, where the service takes Stripe's events", stripe.WebhookPath)
	}
	if port, def := u.Port(), map[string]string{"https": "443", "http": "80"}[u.Scheme]; port == def || port == "" {
		u.Host = strings.TrimSuffix(strings.TrimSuffix(u.Host, ":"+def), ":")
	}
	return u.String(), nil
}

// onTheInternet is whether a host may be reached from everywhere: a name of several labels, or an address that is not
// one of a private network.
func onTheInternet(host string) bool {
	if ip, err := netip.ParseAddr(host); err == nil {
		return !ip.IsPrivate() && !ip.IsLinkLocalUnicast() && !ip.IsUnspecified() && !ip.IsMulticast()
	}
	return strings.Contains(strings.TrimSuffix(host, "."), ".")
}

func thisMachine(host string) bool { return loopback(net.JoinHostPort(host, "0")) }

// setup brings the endpoint of one URL up to date.
type setup struct {
	stripe *stripe.Client
	url    string
	live   bool
	stdout io.Writer
	say    func(format string, args ...any)
}

func (s setup) run(ctx context.Context) error {
	same, err := s.find(ctx)
	if err != nil {
		return err
	}
	if len(same) > 0 {
		return s.update(ctx, same)
	}
	return s.create(ctx)
}

// find lists the endpoints of the URL, newest first.
func (s setup) find(ctx context.Context) ([]stripe.WebhookEndpoint, error) {
	all, r := s.stripe.WebhookEndpoints(ctx)
	if r.Err != nil {
		return nil, failed("list the webhook endpoints", r)
	}
	return slices.DeleteFunc(all, func(e stripe.WebhookEndpoint) bool {
		u, err := webhookURL(e.URL)
		return err != nil || u != s.url
	}), nil
}

// create makes the endpoint, if no run has. Its keys follow from the URL, and so two runs at once, or a second one
// after a lost response, make one endpoint.
func (s setup) create(ctx context.Context) error {
	for n := 1; n <= setupCreations; n++ {
		made, r := s.send(ctx, n)
		switch {
		case r.KeySpent():
			// Another version of this program has used the key, or the call has failed at Stripe for good.
			same, err := s.find(ctx)
			if err != nil {
				return err
			}
			if len(same) > 0 {
				return s.update(ctx, same)
			}
			s.say("the idempotency key of creation %d is used up at Stripe; the next one is tried", n)
			continue
		case r.Lost():
			return fmt.Errorf("whether the webhook endpoint was made is unknown (%w): run the same command again; it sends "+
				"the same idempotency key, so no second endpoint is made, and prints the secret", r.Err)
		case r.Err != nil:
			return failed("make a webhook endpoint", r)
		}
		if r.Stored {
			is, r := s.stripe.WebhookEndpoint(ctx, made.ID)
			if r.Status == http.StatusNotFound || r.Err == nil && is.ID != made.ID {
				continue // It was deleted since.
			}
			if r.Err != nil {
				return failed("read webhook endpoint "+made.ID, r)
			}
		}
		s.say("made webhook endpoint %s of %s mode for %s, with %d types of events", made.ID, s.mode(), s.url,
			len(made.EnabledEvents))
		return s.show(ctx, made)
	}
	return fmt.Errorf("%d webhook endpoints of this URL were made and deleted within a day; try again tomorrow, or make "+
		"one in Stripe's dashboard", setupCreations)
}

// send sends creation n until Stripe has responded.
func (s setup) send(ctx context.Context, n int) (made stripe.WebhookEndpoint, r stripe.Reading) {
	sum := sha256.Sum256([]byte(s.mode() + " " + s.url))
	key := fmt.Sprintf("payonce:setup:%s:%d", hex.EncodeToString(sum[:16]), n)
	r = s.patiently(ctx, func() (r stripe.Reading) {
		made, r = s.stripe.CreateWebhookEndpoint(ctx, key, s.url, map[string]string{setupMark: strconv.Itoa(n)})
		return r
	})
	return made, r
}

// patiently makes a call again whose response is lost.
func (s setup) patiently(ctx context.Context, call func() stripe.Reading) stripe.Reading {
	for attempt := 1; ; attempt++ {
		r := call()
		if !r.Lost() || attempt == setupAttempts || ctx.Err() != nil {
			return r
		}
		s.say("no response that says what happened (%v); the same request is sent again", r.Err)
		select {
		case <-time.After(time.Duration(attempt) * setupPause):
		case <-ctx.Done():
		}
	}
}

// show prints the secret, and then marks the endpoint, in this order: a run that is killed in between prints it again.
func (s setup) show(ctx context.Context, made stripe.WebhookEndpoint) error {
	if _, err := fmt.Fprintf(s.stdout, "STRIPE_WEBHOOK_SECRET=%s\n", made.Secret); err != nil {
		return fmt.Errorf("print the secret: %w", err)
	}
	_, r := s.change(ctx, made.ID, stripe.EndpointChange{Metadata: map[string]string{setupMark: setupPrinted}})
	if r.Err != nil {
		s.say("webhook endpoint %s could not be marked: run again, this command prints the same secret again", made.ID)
	}
	s.say("set STRIPE_WEBHOOK_SECRET and restart the service; the secret is not shown again")
	return nil
}

func (s setup) change(
	ctx context.Context, id string, c stripe.EndpointChange,
) (e stripe.WebhookEndpoint, r stripe.Reading) {
	key := "payonce:setup:" + rand.Text() // of this run: a key that follows from the change would repeat an old response
	r = s.patiently(ctx, func() (r stripe.Reading) {
		e, r = s.stripe.ChangeWebhookEndpoint(ctx, key, id, c)
		return r
	})
	return e, r
}

// update corrects the endpoints of the URL that are enabled: which of several the service has the secret of is not
// known here. If all are disabled, the newest one is enabled.
func (s setup) update(ctx context.Context, same []stripe.WebhookEndpoint) error {
	used := slices.DeleteFunc(slices.Clone(same), func(e stripe.WebhookEndpoint) bool { return !e.Enabled() })
	if len(used) == 0 {
		used = same[:1]
	}
	changed := false
	for _, e := range used {
		c, what := corrections(e)
		if what == "" {
			continue
		}
		now, r := s.change(ctx, e.ID, c)
		if r.Err != nil {
			return failed("change webhook endpoint "+e.ID, r)
		}
		if _, left := corrections(now); left != "" {
			return fmt.Errorf("webhook endpoint %s is not as requested: %s", e.ID, left)
		}
		changed = true
		s.say("changed webhook endpoint %s of %s: %s", e.ID, s.url, what)
	}
	for _, e := range used {
		if e.Metadata[setupMark] == "" {
			s.say("webhook endpoint %s was not made by this command: reveal its secret in Stripe's dashboard, Developers, "+
				"Webhooks, for STRIPE_WEBHOOK_SECRET", e.ID)
		}
		if err := s.reprint(ctx, e); err != nil {
			return err
		}
	}
	if !changed {
		s.say("nothing changed: webhook endpoint %s of %s mode for %s is enabled and is sent exactly the types that are used",
			used[0].ID, s.mode(), s.url)
	}
	if len(same) > 1 {
		var list []string
		for _, e := range same {
			list = append(list, e.ID+" ("+e.Status+")")
		}
		s.say("%d webhook endpoints have this URL: %s. Each that is enabled is sent every event, and only what is signed "+
			"with a secret of STRIPE_WEBHOOK_SECRET is accepted: keep the one whose secret is set, and delete the others in "+
			"Stripe's dashboard, Developers, Webhooks", len(same), strings.Join(list, ", "))
	}
	return nil
}

// corrections are what an endpoint needs, and their description; empty if it needs none.
func corrections(e stripe.WebhookEndpoint) (c stripe.EndpointChange, what string) {
	var parts []string
	if !e.Enabled() {
		c.Enable = true
		parts = append(parts, "it was disabled")
	}
	if wrong := wrongTypes(e.EnabledEvents); wrong != "" {
		c.Types = stripe.WebhookTypes
		parts = append(parts, "it was "+wrong)
	}
	return c, strings.Join(parts, "; ")
}

// wrongTypes says how the types that an endpoint is sent differ from those that are used; empty if they do not.
func wrongTypes(enabled []string) string {
	if slices.Contains(enabled, "*") {
		return "sent every type, used or not"
	}
	var parts []string
	if missing := without(stripe.WebhookTypes, enabled); len(missing) > 0 {
		parts = append(parts, "not sent "+strings.Join(missing, ", "))
	}
	if unused := without(enabled, stripe.WebhookTypes); len(unused) > 0 {
		parts = append(parts, "sent "+strings.Join(unused, ", ")+", not used here")
	}
	return strings.Join(parts, ", and ")
}

func without(all, some []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return slices.Contains(some, s) })
}

// reprint prints the secret of an endpoint that a run has made without receiving the response: under the same key
// Stripe repeats it.
func (s setup) reprint(ctx context.Context, e stripe.WebhookEndpoint) error {
	n, err := strconv.Atoi(e.Metadata[setupMark])
	if err != nil || n < 1 {
		return nil // It was printed, or this program has not made it.
	}
	if time.Since(time.Unix(e.Created, 0)) < setupKeyLifetime {
		s.say("whether the secret of webhook endpoint %s was printed is unknown: the request that made it is sent again, "+
			"under the same key", e.ID)
		made, r := s.send(ctx, n)
		switch {
		case r.Err == nil && made.ID == e.ID:
			return s.show(ctx, made)
		case r.Err == nil: // Stripe has forgotten the key, and has made another.
			if r := s.stripe.DeleteWebhookEndpoint(ctx, made.ID); r.Err != nil {
				return failed("delete the second webhook endpoint "+made.ID, r)
			}
		case r.Lost():
			return fmt.Errorf("the secret of webhook endpoint %s is not known yet (%w): run the same command again", e.ID, r.Err)
		case !r.KeySpent():
			return failed("read the secret of webhook endpoint "+e.ID, r)
		}
	}
	return fmt.Errorf("webhook endpoint %s is up to date, and its secret may never have been printed: the response with "+
		"it was lost, and Stripe does not repeat it any more; reveal it in Stripe's dashboard, Developers, Webhooks, or delete "+
		"the endpoint there and run this command again", e.ID)
}

func (s setup) mode() string {
	if s.live {
		return "live"
	}
	return "test"
}

// failed explains a response that says no.
func failed(what string, r stripe.Reading) error {
	switch {
	case r.Refused():
		return fmt.Errorf("cannot %s: Stripe refuses STRIPE_SECRET_KEY: %w", what, r.Err)
	case r.Forbidden():
		return fmt.Errorf("cannot %s: the key lacks the permission %s; give it Webhook Endpoints: write in Stripe's "+
			"dashboard, Developers, API keys, or run this command with another key: the service does not need it",
			what, cmp.Or(r.Lacks, "rak_webhook_write"))
	case r.Status == 0:
		return fmt.Errorf("cannot %s: Stripe does not respond: %w", what, r.Err)
	}
	return fmt.Errorf("cannot %s: %w", what, r.Err)
}

// setupAdvice is the command that makes or corrects the endpoint of a URL, or where else that is done.
func setupAdvice(target string) string {
	u, err := webhookURL(target)
	if err != nil || !pasted.MatchString(u) {
		return "correct it in Stripe's dashboard, Developers, Webhooks"
	}
	return "run `api setup stripe -url " + u + "`"
}

// pasted is a URL that a shell takes as it is.
var pasted = regexp.MustCompile(`^[A-Za-z0-9.:/_%~\[\]-]+$`)

// unsetWebhookSecret is for a service without STRIPE_WEBHOOK_SECRET.
const unsetWebhookSecret = "STRIPE_WEBHOOK_SECRET is unset: webhooks from Stripe get 503, and what happens there is " +
	"noticed by polling, minutes later; `api setup stripe -url https://HOST" + stripe.WebhookPath + "` makes the " +
	"endpoint and prints its secret"
