package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	httpapi "example.com/payonce/internal/http"
	"example.com/payonce/internal/sealed"
	"example.com/payonce/internal/stripe"
)

// config is every setting of the service, read once. The defaults are those of production; a
// setting without a default is required. A part reads its own settings (part.read).
type config struct {
	DatabaseURL          string
	Cell                 string      // empty: the deployment has no name
	DataKey              *sealed.Box // nil: what is stored is not encrypted
	HTTPAddr             string
	AdminAddr            string
	AdminToken           string // empty: pages are read-only, and profiles are for this machine
	DrainDelay           time.Duration
	StripeSecretKey      string
	StripeAPIBase        string   // empty: Stripe's own
	StripeWebhookSecrets []string // several while one is being rotated
	StripeTimeout        time.Duration
	StripeRPS            float64
	RateLimitRPS         float64
	BrokerURL            string
	IdempotencyLease     time.Duration
	IdempotencyRetention time.Duration
	IdempotencyReaper    bool // false: a job in the database drops responses
	ActionTimeout        time.Duration
	AutoMigrate          bool
	LogLevel             slog.Level
	LogFormat            string

	parts []partSettings // of allParts, in their order
}

// defaultBroker is BROKER_URL for a service of one process.
const defaultBroker = "embedded:payonce-data/broker"

// requestBudget is how many calls to Stripe one request may make in sequence: create an intent, confirm it, read it.
const requestBudget = 3

// within is the time that one run of an operation gets: a little less than the documented limit of a request, and so
// less than the lease, or a holder could still work when its lease has ended.
func (c config) within() time.Duration {
	return requestBudget*c.StripeTimeout - min(c.StripeTimeout/4, time.Second)
}

// readConfig reads the environment. An error names the variable and says what its value must be. It
// never contains the value, which may be a secret.
func readConfig(getenv func(string) string) (config, error) {
	e := environment{getenv: getenv}
	c := readSettings(&e)
	return c, e.err
}

// readSettings reads every setting. What is wrong with them is in e.
func readSettings(e *environment) config {
	c := config{
		DatabaseURL:          e.required("DATABASE_URL", "postgres://user:password@host:port/database"),
		Cell:                 e.cell(),
		DataKey:              e.dataKey(),
		HTTPAddr:             e.address("HTTP_ADDR", ":8080"),
		AdminAddr:            e.address("ADMIN_ADDR", "127.0.0.1:8081"),
		AdminToken:           e.token("ADMIN_TOKEN"),
		DrainDelay:           e.pause("DRAIN_DELAY", 0),
		StripeSecretKey:      e.stripeKey(),
		StripeAPIBase:        e.baseURL("STRIPE_API_BASE"),
		StripeWebhookSecrets: e.list("STRIPE_WEBHOOK_SECRET"),
		StripeTimeout:        e.stripeTimeout(),
		StripeRPS:            e.stripeRPS(),
		RateLimitRPS:         e.rate("RATE_LIMIT_RPS", 100),
		BrokerURL:            e.text("BROKER_URL", defaultBroker),
		IdempotencyLease:     e.duration("IDEMPOTENCY_LEASE", time.Minute),
		IdempotencyRetention: e.duration("IDEMPOTENCY_RETENTION", 72*time.Hour),
		IdempotencyReaper:    e.boolean("IDEMPOTENCY_REAPER", true),
		ActionTimeout:        e.duration("ACTION_TIMEOUT", time.Hour),
		AutoMigrate:          e.boolean("AUTO_MIGRATE", false),
		LogLevel:             e.logLevel(),
		LogFormat:            e.oneOf("LOG_FORMAT", "json", "text"),
	}
	e.encryptedFor(c.StripeSecretKey, c.StripeAPIBase)
	for _, p := range allParts {
		c.parts = append(c.parts, p.read(e))
	}
	if e.getenv("STRIPE_WEBHOOK_SECRET") != "" && len(c.StripeWebhookSecrets) == 0 {
		e.fail("STRIPE_WEBHOOK_SECRET", "contains no secret, only separators; unset it to reject webhooks")
	}
	for _, secret := range c.StripeWebhookSecrets {
		e.secret("STRIPE_WEBHOOK_SECRET", secret, "each secret must begin with whsec_", "whsec_")
	}
	if c.IdempotencyLease/requestBudget <= c.StripeTimeout { // divided, because a product of hours may overflow
		e.fail(
			"IDEMPOTENCY_LEASE",
			fmt.Sprintf("must exceed %d × STRIPE_TIMEOUT (%s), or a lease could end while its holder "+
				"still works", requestBudget, c.StripeTimeout),
		)
	}
	// Else the reaper could drop a response whose request is still waiting for it.
	if c.IdempotencyRetention <= c.IdempotencyLease {
		e.fail("IDEMPOTENCY_RETENTION", fmt.Sprintf("must exceed IDEMPOTENCY_LEASE (%s)", c.IdempotencyLease))
	}
	return c
}

// readStripeConfig reads the settings of a command that only reads from Stripe.
func readStripeConfig(getenv func(string) string) (stripe.Options, error) {
	e := environment{getenv: getenv}
	o := stripe.Options{
		SecretKey: e.stripeKey(), BaseURL: e.baseURL("STRIPE_API_BASE"), Timeout: e.stripeTimeout(),
	}
	o.Limits = stripe.NewLimits(e.stripeRPS(), nil)
	e.encryptedFor(o.SecretKey, o.BaseURL)
	return o, e.err
}

// dataKey reads the keys that the stored values are sealed with. Commands read it, too.
func (e *environment) dataKey() *sealed.Box {
	box, err := sealed.New(e.text("DATA_KEY", ""))
	if err != nil {
		e.fail("DATA_KEY", err.Error())
	}
	return box
}

// cell is the name of the deployment among several (docs/cells.md). Commands read it, too.
func (e *environment) cell() string {
	name := e.text("CELL", "")
	if name != "" {
		if err := httpapi.CheckCell(name); err != nil {
			e.fail("CELL", err.Error())
		}
	}
	return name
}

func (e *environment) stripeKey() string {
	key := e.required("STRIPE_SECRET_KEY", "sk_test_… or sk_live_…, or a restricted key, rk_test_… or rk_live_…")
	if key != "" {
		e.secret("STRIPE_SECRET_KEY", key, "must begin with sk_test_, sk_live_, rk_test_ or rk_live_",
			"sk_test_", "sk_live_", "rk_test_", "rk_live_")
	}
	return key
}

// encryptedFor refuses to send a live key unencrypted.
func (e *environment) encryptedFor(key, base string) {
	if live(key) && strings.HasPrefix(strings.ToLower(base), "http:") {
		e.fail("STRIPE_API_BASE", "must begin with https: for a live key, which would be sent unencrypted")
	}
}

// tokenMin is a length that cannot be guessed at one attempt a millisecond.
const tokenMin = 24

func (e *environment) token(name string) string {
	v := e.getenv(name)
	if v != "" && len(v) < tokenMin {
		e.fail(name, fmt.Sprintf("must have at least %d characters; generate it with openssl rand -hex 24", tokenMin))
	}
	if v != strings.TrimSpace(v) { // most likely the line break of a file, which a login form would remove
		e.fail(name, "must not begin or end with white space")
	}
	return v
}

// secret rejects a value without one of the prefixes; one that is only a prefix, whose signatures any attacker could
// make; and text that cannot be sent in a header.
func (e *environment) secret(name, value, wrong string, prefixes ...string) {
	for _, prefix := range prefixes {
		rest, ok := strings.CutPrefix(value, prefix)
		if !ok {
			continue
		}
		if rest == "" || strings.ContainsFunc(rest, func(r rune) bool { return r <= ' ' || r > '~' }) {
			e.fail(name, "must have visible ASCII characters after "+prefix)
		}
		return
	}
	e.fail(name, wrong)
}

func (e *environment) stripeTimeout() time.Duration {
	return e.duration("STRIPE_TIMEOUT", 15*time.Second)
}

// stripeRPS defaults to Stripe's own limit for one endpoint.
func (e *environment) stripeRPS() float64 { return e.rate("STRIPE_RPS", 25) }

// environment reads variables and keeps the first error. An empty variable counts as unset, because Compose sets
// variables that its own environment does not have to the empty string.
type environment struct {
	getenv func(string) string
	err    error
	wrong  []string // of each variable the first error; each begins with the variable's name
}

// fail keeps the first error for a start that it stops: the next ones are often its consequences.
func (e *environment) fail(name, wrong string) {
	text := name + " " + wrong
	if e.err == nil {
		e.err = errors.New(text)
	}
	if !e.isWrong(name) {
		e.wrong = append(e.wrong, text)
	}
}

func (e *environment) isWrong(name string) bool {
	return slices.ContainsFunc(e.wrong, func(w string) bool { return strings.HasPrefix(w, name+" ") })
}

func (e *environment) text(name, otherwise string) string {
	if v := e.getenv(name); v != "" {
		return v
	}
	return otherwise
}

func (e *environment) required(name, form string) string {
	v := e.getenv(name)
	if v == "" {
		e.fail(name, "is required: "+form)
	}
	return v
}

// list ignores empty entries: a trailing comma is common while a secret is rotated.
func (e *environment) list(name string) (list []string) {
	for part := range strings.SplitSeq(e.getenv(name), ",") {
		if part = strings.TrimSpace(part); part != "" {
			list = append(list, part)
		}
	}
	return list
}

// duration rejects zero: none of the settings means "never" with it, and a loop would run without a pause.
func (e *environment) duration(name string, otherwise time.Duration) time.Duration {
	v := e.getenv(name)
	if v == "" {
		return otherwise
	}
	d, err := time.ParseDuration(v)
	if err != nil || d <= 0 {
		e.fail(name, "must be a duration above zero, such as 15s or 72h")
		return otherwise
	}
	return d
}

// pause is a duration that may be zero.
func (e *environment) pause(name string, otherwise time.Duration) time.Duration {
	v := e.getenv(name)
	if v == "" {
		return otherwise
	}
	d, err := time.ParseDuration(v)
	if err != nil || d < 0 {
		e.fail(name, "must be a duration, such as 5s, or 0s for none")
		return otherwise
	}
	return d
}

// rate rejects NaN, which compares false with every limit and so would mean "no requests at all".
func (e *environment) rate(name string, otherwise float64) float64 {
	v := e.getenv(name)
	if v == "" {
		return otherwise
	}
	n, err := strconv.ParseFloat(v, 64)
	if err != nil || !(n >= 0 && n <= 1e6) {
		e.fail(name, "must be a number a second, or 0 for no limit")
		return otherwise
	}
	return n
}

// boolean reads what strconv does: 1, t, true, and no "yes" or "on", which YAML users expect to work. So those fail.
func (e *environment) boolean(name string, otherwise bool) bool {
	v := e.getenv(name)
	if v == "" {
		return otherwise
	}
	b, err := strconv.ParseBool(v)
	if err != nil {
		e.fail(name, "must be true or false")
	}
	return b
}

func (e *environment) oneOf(name string, words ...string) string {
	v := e.text(name, words[0])
	for _, w := range words {
		if v == w {
			return v
		}
	}
	e.fail(name, "must be "+strings.Join(words, " or "))
	return words[0]
}

// address requires a port, because Go would listen on a random one without.
func (e *environment) address(name, otherwise string) string {
	v := e.text(name, otherwise)
	if _, port, err := net.SplitHostPort(v); err != nil || port == "" {
		e.fail(name, "must be host:port or :port")
	}
	return v
}

// baseURL rejects a query and a fragment: paths are appended to the URL, so both would end up in the middle of it.
func (e *environment) baseURL(name string) string {
	v := e.getenv(name)
	if v == "" {
		return ""
	}
	u, err := url.Parse(v)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" ||
		u.RawQuery != "" || u.Fragment != "" {
		e.fail(name, "must be an http or https URL, without a query")
	}
	return strings.TrimRight(v, "/") // a path is appended, and begins with a slash
}

// logLevel is one of slog's four words, in any case. slog also reads sums such as info+3, which are rejected here: a
// typing error must not change the level silently.
func (e *environment) logLevel() (level slog.Level) {
	v := e.text("LOG_LEVEL", "info")
	if level.UnmarshalText([]byte(v)) != nil || strings.ContainsAny(v, "+-") {
		e.fail("LOG_LEVEL", "must be debug, info, warn or error")
	}
	return level
}

// errNoDatabaseURL is for commands that read no other setting.
var errNoDatabaseURL = errors.New("DATABASE_URL is required: postgres://user:password@host:port/database")

// LogValue is the settings as they are printed at the start, without secrets. Durations are text, because a JSON log
// would print them as nanoseconds.
func (c config) LogValue() slog.Value {
	base := c.StripeAPIBase
	if base == "" {
		base = "Stripe"
	}
	mode := "test"
	if live(c.StripeSecretKey) {
		mode = "live"
	}
	attrs := []slog.Attr{
		slog.String("http", c.HTTPAddr), slog.String("admin", c.AdminAddr),
		slog.Any("data_keys", c.DataKey.KeyIDs()),
		slog.Bool("admin_token", c.AdminToken != ""), slog.String("drain_delay", c.DrainDelay.String()),
		slog.String("stripe", withoutUser(base)), slog.String("stripe_mode", mode),
		slog.Int("webhook_secrets", len(c.StripeWebhookSecrets)),
		slog.String("stripe_timeout", c.StripeTimeout.String()), slog.Float64("stripe_rps", c.StripeRPS),
		slog.Float64("rate_limit_rps", c.RateLimitRPS), slog.String("broker", withoutUser(c.BrokerURL)),
		slog.String("lease", c.IdempotencyLease.String()),
		slog.String("retention", c.IdempotencyRetention.String()), slog.Bool("reaper", c.IdempotencyReaper),
		slog.String("action_timeout", c.ActionTimeout.String()), slog.Bool("auto_migrate", c.AutoMigrate),
	}
	if c.Cell != "" {
		attrs = append(attrs, slog.String("cell", c.Cell))
	}
	for _, p := range c.parts {
		if p, ok := p.(partLog); ok {
			attrs = append(attrs, p.logAttrs()...)
		}
	}
	return slog.GroupValue(attrs...)
}

// withoutUser removes the user and password of a URL.
func withoutUser(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "…"
	}
	if u.User != nil {
		u.User = url.User("…")
	}
	return u.String()
}
