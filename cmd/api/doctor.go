package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"example.com/payonce/internal/money"
	"example.com/payonce/internal/sealed"
	"example.com/payonce/internal/terminal"
)

// doctorWithin bounds each group of checks. The groups run side by side, so it is also how long doctor takes at most.
const doctorWithin = 6 * time.Second

// Exit codes of doctor. Zero: nothing is bad.
const (
	doctorBad         exitStatus = 1
	doctorCouldNotRun exitStatus = 2
)

// verdict of a check. A warning is something to know, or to fix by day; bad is something that stops payments, loses
// what was acknowledged, or makes a secret public.
type verdict string

const (
	healthy verdict = "ok"
	warning verdict = "warn"
	bad     verdict = "bad"
)

// doctorReport is what doctor prints as JSON. Scripts read it, so its members are fixed.
type doctorReport struct {
	OK     bool          `json:"ok"` // nothing is bad
	Checks []doctorCheck `json:"checks"`
}

type doctorCheck struct {
	ID     string  `json:"id"`
	Status verdict `json:"status"`
	Detail string  `json:"detail"` // what was found and, unless all is well, what to do
}

// diagnosis collects the checks of one group.
type diagnosis struct{ checks []doctorCheck }

func (d *diagnosis) say(v verdict, id, format string, args ...any) {
	text := fmt.Errorf(format, args...).Error() // the driver reports each address on its own line
	d.checks = append(d.checks, doctorCheck{id, v, strings.Join(strings.Fields(text), " ")})
}

// notAsked reports the checks that could not be made, so that none is missing without a word.
func (d *diagnosis) notAsked(why string, ids ...string) {
	for _, id := range ids {
		d.say(warning, id, "not checked: %s", why)
	}
}

// doctor asks everything that a night depends on. It changes nothing, here or elsewhere.
func doctor(ctx context.Context, cli cli, args []string) error {
	flags := flags("doctor")
	asJSON := flags.Bool("json", false, "print JSON")
	if _, err := parse(flags, args); err != nil {
		return err
	}
	if cli.getenv("DATABASE_URL") == "" {
		_, _ = fmt.Fprintf(cli.stderr, "api: doctor: %s\n", errNoDatabaseURL)
		return doctorCouldNotRun
	}
	report := examine(ctx, patient{getenv: cli.getenv})
	var err error
	if *asJSON {
		err = printJSON(cli.stdout, report)
	} else {
		err = report.print(cli.stdout)
	}
	switch {
	case err != nil:
		_, _ = fmt.Fprintf(cli.stderr, "api: doctor: %s\n", oneLine(err))
		return doctorCouldNotRun
	case !report.OK:
		return doctorBad
	}
	return nil
}

// patient is what is examined: the environment of a service.
type patient struct {
	getenv func(string) string
	skew   time.Duration // added to our clock; for tests
}

// examine runs the groups of checks side by side. None waits for another, and none stops another.
func examine(ctx context.Context, p patient) doctorReport {
	groups := []func(context.Context, *diagnosis){p.settings, p.database, p.stripe, p.together, p.broker}
	found := make([]diagnosis, len(groups))
	var all sync.WaitGroup
	for i, group := range groups {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, doctorWithin)
			defer cancel()
			group(ctx, &found[i])
		})
	}
	all.Wait()
	report, secrets := doctorReport{OK: true, Checks: []doctorCheck{}}, p.secrets()
	for _, d := range found {
		for _, c := range d.checks {
			report.OK = report.OK && c.Status != bad
			c.Detail = secrets.Replace(c.Detail)
			report.Checks = append(report.Checks, c)
		}
	}
	return report
}

// secrets removes the secrets of the environment: Stripe, a proxy or a driver may quote what it was sent.
func (p patient) secrets() *strings.Replacer {
	var replace []string
	hide := func(secret string) {
		if secret != "" {
			replace = append(replace, secret, "…")
		}
	}
	for _, name := range []string{"STRIPE_SECRET_KEY", "STRIPE_WEBHOOK_SECRET", "ADMIN_TOKEN", "DATA_KEY"} {
		for part := range strings.SplitSeq(p.getenv(name), ",") {
			if part = strings.TrimSpace(part); part != sealed.NoKey { // which is no secret, but a word of the report
				hide(part)
			}
		}
	}
	for _, name := range []string{"DATABASE_URL", "BROKER_URL", "STRIPE_API_BASE"} {
		if u, err := url.Parse(p.getenv(name)); err == nil && u.User != nil {
			// A well-known password may also be the name of a role, which the report must show.
			if password, _ := u.User.Password(); password != u.User.Username() {
				hide(password)
				hide(url.QueryEscape(password))
			}
		}
	}
	return strings.NewReplacer(replace...)
}

func (r doctorReport) print(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	count := map[verdict]int{}
	for _, c := range r.Checks {
		count[c.Status]++
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\n", c.Status, c.ID, terminal.Text(c.Detail))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%d checks: %d ok, %d warn, %d bad\n",
		len(r.Checks), count[healthy], count[warning], count[bad])
	return err
}

// settings reports every variable that would stop the service, not only the first, and what is allowed but unwise.
func (p patient) settings(_ context.Context, d *diagnosis) {
	e := environment{getenv: p.getenv}
	c := readSettings(&e)
	for _, wrong := range e.wrong {
		name, what, _ := strings.Cut(wrong, " ")
		d.say(bad, "settings."+name, "%s %s; the service does not start", name, what)
	}
	if len(e.wrong) == 0 {
		d.say(healthy, "settings", "every variable can be used")
	}
	switch {
	case p.getenv("STRIPE_WEBHOOK_SECRET") == "":
		d.say(warning, "settings.webhook_secret", unsetWebhookSecret)
	case !e.isWrong("STRIPE_WEBHOOK_SECRET"): // which has been said
		d.say(healthy, "settings.webhook_secret", "%d set", len(c.StripeWebhookSecrets))
	}
	if c.AdminToken == "" && !loopback(c.AdminAddr) {
		d.say(warning, "settings.admin", "ADMIN_ADDR %s is not a loopback address, and ADMIN_TOKEN is unset: every client that can "+
			"connect reads its pages; set ADMIN_TOKEN, or listen on 127.0.0.1", c.AdminAddr)
	} else {
		d.say(healthy, "settings.admin", "what it shows is protected: a token, or this machine only")
	}
	d.say(healthy, "currencies", "the list of %s; Stripe may have added currencies since", money.ListChangedOn)
}

func loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// A clock that is off by clockWarn is worth a look. Off by clockBad, the 300 seconds within which a webhook's signature
// is accepted are nearly used up.
const (
	clockWarn = 5 * time.Second
	clockBad  = 2 * time.Minute
)

// clock compares another clock, which was read between asked and answered, with ours.
func (p patient) clock(d *diagnosis, id, whose string, theirs, asked, answered time.Time, resolution time.Duration) {
	ours := asked.Add(answered.Sub(asked) / 2).Add(p.skew)
	off := ours.Sub(theirs.Add(resolution / 2))
	// Less than the time that the answer took, or than a tick of their clock, cannot be told from nothing.
	unsure := answered.Sub(asked)/2 + resolution/2
	sure := max(off.Abs()-unsure, 0)
	direction := "ahead of"
	if off < 0 {
		direction = "behind"
	}
	switch {
	case sure > clockBad:
		d.say(bad, id, "our clock is %s %s %s: webhooks' signatures and the age of keys are judged by it; synchronise it "+
			"(NTP)", off.Abs().Round(time.Second), direction, whose)
	case sure > clockWarn:
		d.say(warning, id, "our clock is %s %s %s; synchronise it (NTP)", off.Abs().Round(time.Second), direction, whose)
	default:
		d.say(healthy, id, "ours and %s agree within %s", whose, (sure + unsure).Round(time.Millisecond))
	}
}
