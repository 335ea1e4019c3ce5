package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"example.com/payonce/internal/payments"
)

// config is every setting of the service, read once. Its defaults run the
// service as it is meant to be run; what has no default is required.
type config struct {
	DatabaseURL          string
	HTTPAddr             string
	AdminAddr            string
	AdminToken           string // lets people into the operator's page, and lets them act; empty: it is read-only
	StripeSecretKey      string
	StripeAPIBase        string   // empty: Stripe's own
	StripeWebhookSecrets []string // several while one is being rolled
	StripeTimeout        time.Duration
	StripeRPS            float64
	RateLimitRPS         float64
	BrokerURL            string
	IdempotencyLease     time.Duration
	IdempotencyRetention time.Duration
	ActionTimeout        time.Duration
	NotifyPrivate        bool // deliver tenants' webhooks to private addresses too: for development
	AutoMigrate          bool
	GroupCommit          bool // payments of several requests share commits
	LogLevel             slog.Level
	LogFormat            string
	OTLPEndpoint         string // a collector of OpenTelemetry's; empty: no tracing
	TracesEndpoint       string // for traces alone, with its path; wins over the former
	TracesDisabled       bool
}

// requestBudget is how many attempts at Stripe one request may take: the
// creation of an intent, its confirm, and a look.
const requestBudget = 3

// within is the time one run of an operation gets: a little less than what a
// client is promised, and so less than the lease.
func (c config) within() time.Duration {
	return requestBudget*c.StripeTimeout - min(c.StripeTimeout/4, time.Second)
}

// readConfig reads the environment. An error names the variable and what is
// wrong with it, and never its value, which may be a secret.
func readConfig(getenv func(string) string) (config, error) {
	e := environment{getenv: getenv}
	c := config{
		DatabaseURL:          e.required("DATABASE_URL", "postgres://user:password@host:port/database"),
		HTTPAddr:             e.address("HTTP_ADDR", ":8080"),
		AdminAddr:            e.address("ADMIN_ADDR", "127.0.0.1:8081"),
		AdminToken:           e.token("ADMIN_TOKEN"),
		StripeSecretKey:      e.stripeKey(),
		StripeAPIBase:        e.baseURL("STRIPE_API_BASE"),
		StripeWebhookSecrets: e.list("STRIPE_WEBHOOK_SECRET"),
		StripeTimeout:        e.stripeTimeout(),
		StripeRPS:            e.stripeRPS(),
		RateLimitRPS:         e.rate("RATE_LIMIT_RPS", 100),
		BrokerURL:            e.text("BROKER_URL", "embedded:payonce-data/broker"),
		IdempotencyLease:     e.duration("IDEMPOTENCY_LEASE", time.Minute),
		IdempotencyRetention: e.duration("IDEMPOTENCY_RETENTION", 72*time.Hour),
		ActionTimeout:        e.duration("ACTION_TIMEOUT", time.Hour),
		NotifyPrivate:        e.boolean("NOTIFY_PRIVATE_ADDRESSES", false),
		AutoMigrate:          e.boolean("AUTO_MIGRATE", false),
		GroupCommit:          e.boolean("GROUP_COMMIT", true),
		LogLevel:             e.logLevel(),
		LogFormat:            e.oneOf("LOG_FORMAT", "json", "text"),
		OTLPEndpoint:         e.baseURL("OTEL_EXPORTER_OTLP_ENDPOINT"),
		TracesEndpoint:       e.baseURL("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"),
		TracesDisabled:       e.boolean("OTEL_SDK_DISABLED", false),
	}
	e.oneOf("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf") // the only one that is spoken here
	if getenv("STRIPE_WEBHOOK_SECRET") != "" && len(c.StripeWebhookSecrets) == 0 {
		e.fail("STRIPE_WEBHOOK_SECRET", "has no secret in it, only separators; unset it to take no webhooks")
	}
	for _, secret := range c.StripeWebhookSecrets {
		e.secret("STRIPE_WEBHOOK_SECRET", secret, "each secret must begin with whsec_", "whsec_")
	}
	if c.IdempotencyLease/requestBudget <= c.StripeTimeout { // divided, because a product of hours may overflow
		e.fail("IDEMPOTENCY_LEASE", fmt.Sprintf("must exceed %d × STRIPE_TIMEOUT (%s), or a lease would end while its holder still works", requestBudget, c.StripeTimeout))
	}
	if c.IdempotencyRetention <= c.IdempotencyLease {
		e.fail("IDEMPOTENCY_RETENTION", fmt.Sprintf("must exceed IDEMPOTENCY_LEASE (%s)", c.IdempotencyLease))
	}
	return c, e.err
}

// readStripeConfig is what a command needs that only asks Stripe.
func readStripeConfig(getenv func(string) string) (payments.StripeOptions, error) {
	e := environment{getenv: getenv}
	o := payments.StripeOptions{SecretKey: e.stripeKey(), BaseURL: e.baseURL("STRIPE_API_BASE"), Timeout: e.stripeTimeout()}
	o.Limits = payments.NewLimits(e.stripeRPS(), nil)
	return o, e.err
}

func (e *environment) stripeKey() string {
	key := e.required("STRIPE_SECRET_KEY", "sk_test_… or sk_live_…")
	if key != "" {
		e.secret("STRIPE_SECRET_KEY", key, "must begin with sk_test_ or sk_live_", "sk_test_", "sk_live_")
	}
	return key
}

// secret refuses a value that has none of the prefixes, and one that is not a
// secret at all: a prefix alone, whose signatures anybody could make, or text
// that no header can carry.
func (e *environment) secret(name, value, wrong string, prefixes ...string) {
	for _, prefix := range prefixes {
		rest, ok := strings.CutPrefix(value, prefix)
		if !ok {
			continue
		}
		if rest == "" || strings.ContainsFunc(rest, func(r rune) bool { return r <= ' ' || r > '~' }) {
			e.fail(name, "must go on after "+prefix+" with visible ASCII characters")
		}
		return
	}
	e.fail(name, wrong)
}

func (e *environment) stripeTimeout() time.Duration {
	return e.duration("STRIPE_TIMEOUT", 15*time.Second)
}

// stripeRPS is by default what Stripe itself allows one endpoint.
func (e *environment) stripeRPS() float64 { return e.rate("STRIPE_RPS", 25) }

// environment reads variables and keeps the first thing that is wrong. A
// variable that is set to nothing counts as not set.
type environment struct {
	getenv func(string) string
	err    error
}

func (e *environment) fail(name, wrong string) {
	if e.err == nil {
		e.err = fmt.Errorf("%s %s", name, wrong)
	}
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

// tokenMin is what cannot be guessed, one try a millisecond, by whoever reaches
// the address.
const tokenMin = 24

func (e *environment) token(name string) string {
	v := e.getenv(name)
	if v != "" && len(v) < tokenMin {
		e.fail(name, fmt.Sprintf("must have at least %d characters, such as those of openssl rand -hex 24", tokenMin))
	}
	if v != strings.TrimSpace(v) { // of a file, most likely; nobody could type it
		e.fail(name, "must not begin or end with white space")
	}
	return v
}

func (e *environment) list(name string) (list []string) {
	for part := range strings.SplitSeq(e.getenv(name), ",") {
		if part = strings.TrimSpace(part); part != "" {
			list = append(list, part)
		}
	}
	return list
}

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

func (e *environment) rate(name string, otherwise float64) float64 {
	v := e.getenv(name)
	if v == "" {
		return otherwise
	}
	n, err := strconv.ParseFloat(v, 64)
	if err != nil || !(n >= 0 && n <= 1e6) {
		e.fail(name, "must be a number of calls a second, or 0 for no limit")
		return otherwise
	}
	return n
}

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

func (e *environment) address(name, otherwise string) string {
	v := e.text(name, otherwise)
	if _, port, err := net.SplitHostPort(v); err != nil || port == "" {
		e.fail(name, "must be host:port or :port")
	}
	return v
}

func (e *environment) baseURL(name string) string {
	v := e.getenv(name)
	if v == "" {
		return ""
	}
	u, err := url.Parse(v)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "" {
		e.fail(name, "must be an http or https URL, without a query")
	}
	return strings.TrimRight(v, "/") // a path follows, and begins with one
}

// logLevel is one of slog's four words, in capitals or not. slog itself also reads
// sums, such as info+3.
func (e *environment) logLevel() (level slog.Level) {
	v := e.text("LOG_LEVEL", "info")
	if level.UnmarshalText([]byte(v)) != nil || strings.ContainsAny(v, "+-") {
		e.fail("LOG_LEVEL", "must be info or debug or warn or error")
	}
	return level
}

var errNoDatabaseURL = errors.New("DATABASE_URL is required: postgres://user:password@host:port/database")

// LogValue is what is printed of the settings at the start. No secret is in it.
func (c config) LogValue() slog.Value {
	base := c.StripeAPIBase
	if base == "" {
		base = "Stripe"
	}
	mode := "live"
	if strings.HasPrefix(c.StripeSecretKey, "sk_test_") {
		mode = "test"
	}
	return slog.GroupValue(
		slog.String("http", c.HTTPAddr), slog.String("admin", c.AdminAddr), slog.Bool("operator_may_act", c.AdminToken != ""), slog.String("stripe", withoutUser(base)), slog.String("stripe_mode", mode),
		slog.Int("webhook_secrets", len(c.StripeWebhookSecrets)), slog.Duration("stripe_timeout", c.StripeTimeout), slog.Float64("stripe_rps", c.StripeRPS),
		slog.Float64("rate_limit_rps", c.RateLimitRPS), slog.String("broker", withoutUser(c.BrokerURL)), slog.Duration("lease", c.IdempotencyLease),
		slog.Duration("retention", c.IdempotencyRetention), slog.Duration("action_timeout", c.ActionTimeout), slog.Bool("auto_migrate", c.AutoMigrate),
		slog.String("traces", withoutUser(c.tracesURL())),
	)
}

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
