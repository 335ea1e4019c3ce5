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
)

const (
	// keptFor is how long JetStream keeps a message; Kafka and SQS have settings
	// of their own, seven and at most fourteen days.
	keptFor = 7 * 24 * time.Hour

	publishWithin = 10 * time.Second // if the caller does not give less
	handleWithin  = 20 * time.Second
	deadAfter     = 6 * time.Second // without a sign of life; then the broker delivers to somebody else
	retryPauseMax = 5 * time.Second
)

// retryPause is the first pause after a failure; a variable because a test of
// many failures would take minutes.
var retryPause = 500 * time.Millisecond

const (
	_ = uint(outbox.Retention - keptFor)         // what a broker lost can be sent again
	_ = uint(inbox.Retention - 2*7*24*time.Hour) // what a broker still has is not forgotten by us
)

// Handler applies a message; inbox.Consumer.Handle is one. nil: the broker may
// forget it. An error: deliver it again, and nothing of its aggregate before it.
type Handler func(ctx context.Context, m inbox.Message) error

// Broker publishes and delivers. All methods may be called from several
// goroutines.
type Broker interface {
	outbox.Publisher

	// Consume delivers to the handler everything published since the consumer of
	// this name first appeared anywhere, and blocks until ctx ends or Close. It
	// returns an error only if going on is pointless.
	Consume(ctx context.Context, name string, handle Handler) error

	// Close gives up connections and, if the broker runs in this process, ends it.
	Close() error
}

// Options may be left zero.
type Options struct {
	Log *slog.Logger
}

// Open returns the broker that a BROKER_URL names.
//
//	embedded:DIR[?listen=host:port]                    a JetStream server in this process, store in DIR
//	nats://[user:password@]host[:port],…[?replicas=n&ack_wait=d]  JetStream elsewhere; tls:// for TLS
//	kafka://[user:password@]host[:port],…[/topic][?tls=true&sasl=plain|scram-sha-256|scram-sha-512&partitions=n&replicas=n]
//	sqs://host/account/prefix?consumers=a,b[&region=r][&endpoint=url]   FIFO queues prefix-a.fifo, prefix-b.fifo
//
// With ack_wait, JetStream delivers a message to another process that much later
// than the last sign of life of the one that had it; without, six seconds.
//
// A broker that does not answer is no error: the service starts, and publishes
// when it is there. An error is a setting that can never work, or a directory
// that another process uses.
func Open(ctx context.Context, brokerURL string, o Options) (Broker, error) {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	scheme, _, _ := strings.Cut(brokerURL, ":")
	var b Broker
	var err error
	switch scheme {
	case "embedded":
		b, err = openEmbedded(brokerURL, o)
	case "nats", "tls":
		b, err = openNATS(brokerURL, o)
	case "kafka":
		b, err = openKafka(brokerURL, o)
	case "sqs":
		b, err = openSQS(ctx, brokerURL, o)
	default:
		err = fmt.Errorf("it begins with %q; there are embedded:, nats://, kafka:// and sqs://", scheme+":")
	}
	if err != nil {
		return nil, fmt.Errorf("BROKER_URL: %w", err)
	}
	return b, nil
}

// hosts takes the hosts out of a URL that may name several, which net/url
// refuses when they have ports.
func hosts(brokerURL string) (list []string, rest *url.URL, err error) {
	scheme, after, ok := strings.Cut(brokerURL, "://")
	if !ok {
		return nil, nil, fmt.Errorf("it needs %s://host", scheme)
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
			return nil, nil, fmt.Errorf("it needs %s://host", scheme)
		}
		list = append(list, host)
	}
	rest, err = url.Parse(scheme + "://" + user + "host" + after)
	if err != nil {
		// The URL holds a password, and url's error repeats it.
		return nil, nil, fmt.Errorf("not a %s:// URL (special characters percent-encoded?)", scheme)
	}
	return list, rest, nil
}

// onlyKnows refuses a query with a misspelt name: a setting that is silently
// ignored is found out in production.
func onlyKnows(query url.Values, names ...string) error {
	for name := range query {
		known := false
		for _, n := range names {
			known = known || n == name
		}
		if !known {
			return fmt.Errorf("it has no setting %q, only %s", name, strings.Join(names, ", "))
		}
	}
	return nil
}

// message reads a body. One that no relay of ours sent keeps the id it has at
// the broker and has no type; the inbox parks it.
func message(id string, body []byte, deliveries int) inbox.Message {
	m := inbox.Message{ID: id, Body: body, Deliveries: deliveries}
	var e outbox.Envelope
	if err := json.Unmarshal(body, &e); err != nil {
		return m
	}
	m.ID, m.Type, m.TenantID, m.Subject, m.Version, m.Traceparent = e.ID, e.Type, e.TenantID, e.Subject, e.Version, e.Traceparent
	return m
}

// encoded returns the bodies of events, and an error for each that has none.
func encoded(events []outbox.Envelope) (bodies [][]byte, errs []error) {
	bodies, errs = make([][]byte, len(events)), make([]error, len(events))
	for i, e := range events {
		var err error
		if bodies[i], err = json.Marshal(e); err != nil {
			errs[i] = permanent(err)
		}
	}
	return bodies, errs
}

func permanent(err error) error { return fmt.Errorf("%w: %w", outbox.ErrPermanent, err) }

// failAll is the answer when nothing could be sent.
func failAll(errs []error, err error) []error {
	for i := range errs {
		if errs[i] == nil {
			errs[i] = err
		}
	}
	return errs
}

// pauseAfter is how long a consumer waits after so many failures in a row.
func pauseAfter(failures int) time.Duration {
	return min(retryPause<<min(failures-1, 10), retryPauseMax)
}

// sleep reports whether the pause ended before ctx did.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// handleOne runs the handler to its end, also while the consumer stops: half an
// event would only be rolled back and delivered again.
func handleOne(ctx context.Context, handle Handler, m inbox.Message) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), handleWithin)
	defer cancel()
	return handle(ctx, m)
}
