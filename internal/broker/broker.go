package broker

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"example.com/payonce/internal/inbox"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/postgres" // part: cdc
)

const (
	// messageRetention is how long JetStream keeps a message: as long as the outbox keeps its event. Another broker has its
	// own setting, at most fourteen days.
	messageRetention = outbox.Retention

	// PublishWithin is how long Publish takes at most, if the caller does not give less.
	PublishWithin = 10 * time.Second
	// SetUpWithin is how long a call takes at most that makes a stream, a topic or a queue, or that tells the broker what
	// was handled.
	SetUpWithin = 5 * time.Second
	// DeadAfter is how long a consumer may be without a heartbeat. Then it has failed, and the broker delivers to another.
	DeadAfter = 6 * time.Second
)

const (
	_ = uint(inbox.Retention - 2*7*24*time.Hour) // a message that a broker can still redeliver is a known duplicate
)

// Broker publishes and delivers. All methods may be called from several goroutines.
type Broker interface {
	outbox.Publisher
	Consumer // part: consumers

	// Close closes the connections and, if the broker runs in this process, shuts it down.
	Close() error
}

// Options may be left zero.
type Options struct {
	Log *slog.Logger
	// SetUp is how long JetStream may take to make its stream, or to say what it is; default SetUpWithin.
	SetUp time.Duration
	// Pool is the service's database, in which cdc: writes.
	Pool *postgres.Pool // part: cdc
}

// Open returns the broker that a BROKER_URL names.
//
//	embedded:DIR[?listen=host:port]                    a JetStream server in this process, store in DIR
//	nats://[user:password@]host[:port],…[?replicas=n&ack_wait=d]  JetStream elsewhere; tls:// for TLS
//	kafka://[user:password@]host[:port],…[/topic][?tls=true&sasl=plain|scram-sha-256|scram-sha-512&partitions=n…]
//	sqs://host/account/prefix?consumers=a,b[&region=r][&endpoint=url]   FIFO queues prefix-a.fifo, prefix-b.fifo
//	amqp://[user:password@]host[:port],…[/vhost][?consumers=a,b&exchange=x&replicas=n]   RabbitMQ; amqps:// for TLS
//	kinesis://region/stream[?endpoint=url]   Kinesis, which only publishes
//	cdc:                                               the write-ahead log of Options.Pool's database, and no broker
//
// listen lets other programs connect to the embedded server, without a password. ack_wait is how long after a consumer's
// last heartbeat JetStream delivers its message to another process; default six seconds. docs/operations.md has every
// parameter.
//
// An unreachable broker is no error: the service starts, and publishes once it can connect. An error is a setting that
// can never work, or a directory that another process uses.
func Open(ctx context.Context, brokerURL string, o Options) (Broker, error) {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	s, err := schemeOf(brokerURL)
	if err != nil {
		return nil, fmt.Errorf("BROKER_URL: %w", err)
	}
	b, err := s.Open(ctx, brokerURL, o)
	if err != nil {
		return nil, fmt.Errorf("BROKER_URL: %w", err)
	}
	return b, nil
}

// Hosts returns the hosts of a URL, which may be several: net/url rejects several hosts with ports. rest is the URL with
// one host, which is not among them. Errors do not contain the URL, which may have a password.
func Hosts(brokerURL string) (list []string, rest *url.URL, err error) {
	scheme, after, ok := strings.Cut(brokerURL, "://")
	if !ok {
		return nil, nil, fmt.Errorf("must be %s://host", scheme)
	}
	authority := after
	if i := strings.IndexAny(after, "/?#"); i >= 0 {
		authority, after = after[:i], after[i:]
	} else {
		after = ""
	}
	user := ""
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		user, authority = authority[:i+1], authority[i+1:]
	}
	for host := range strings.SplitSeq(authority, ",") {
		if host == "" {
			return nil, nil, fmt.Errorf("must be %s://host", scheme)
		}
		list = append(list, host)
	}
	rest, err = url.Parse(scheme + "://" + user + "host" + after)
	if err != nil {
		// net/url's error would repeat the URL, with its password.
		return nil, nil, fmt.Errorf("not a %s:// URL (special characters percent-encoded?)", scheme)
	}
	return list, rest, nil
}

// CheckSettings rejects unknown names: a misspelt setting that is silently ignored is noticed in production only.
func CheckSettings(query url.Values, names ...string) error {
	for name := range query {
		known := false
		for _, n := range names {
			known = known || n == name
		}
		if !known {
			return fmt.Errorf("unknown setting %q; known: %s", name, strings.Join(names, ", "))
		}
	}
	return nil
}

// Encode returns the bodies of events, and an error for each that cannot be encoded: what Publish returns, so far.
func Encode(events []outbox.Envelope) (bodies [][]byte, errs []error) {
	bodies, errs = make([][]byte, len(events)), make([]error, len(events))
	for i, e := range events {
		var err error
		if bodies[i], err = json.Marshal(e); err != nil {
			errs[i] = Permanent(err)
		}
	}
	return bodies, errs
}

// Permanent makes an error one that sending the event again cannot help.
func Permanent(err error) error { return fmt.Errorf("%w: %w", outbox.ErrPermanent, err) }

// FailAll gives the error to every event that has none: nothing could be sent.
func FailAll(errs []error, err error) []error {
	for i := range errs {
		if errs[i] == nil {
			errs[i] = err
		}
	}
	return errs
}
