package broker

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"example.com/payonce/internal/outbox"
)

const (
	streamName   = "PAYONCE"
	subjectRoot  = "payonce"
	dedupeWindow = 2 * time.Minute
	inFlightMax  = 16384 // unacknowledged messages on a connection; a relay's batch is 1000
)

var natsScheme = Scheme{
	Names: []string{"nats", "tls"}, Use: "nats://",
	Open:    func(_ context.Context, brokerURL string, o Options) (Broker, error) { return openNATS(brokerURL, o) },
	Examine: examineNATS,
	Since:   sinceNATS,
}

var errNotConnected = errors.New("not connected to NATS")

// jetStream is a NATS server with JetStream, embedded or elsewhere. A server elsewhere needs sync_interval: always in
// its configuration, or replicas on machines that do not fail together: by default it acknowledges before it syncs, and
// syncs every two minutes.
//
// A consumer has one message in flight, in all processes together. That keeps the order when a message is redelivered,
// and it costs little: the handler waits for a commit, not for the broker.
type jetStream struct {
	conn     *nats.Conn
	js       jetstream.JetStream
	replicas int
	ackWait  time.Duration
	log      *slog.Logger

	setUpWithin time.Duration

	mu    sync.Mutex
	ready bool // the stream exists; reset by errors that say it does not

	atomic   bool // the stream takes atomic batches
	batchMax int  // of the server, if it has refused a batch as too large
	warned   bool // that it does not take them

	unconfirmed   int       // batches without an acknowledgement, each soon after the one before
	unconfirmedAt time.Time // the last of them
}

func openNATS(brokerURL string, o Options) (*jetStream, error) {
	list, rest, err := Hosts(brokerURL)
	if err != nil {
		return nil, err
	}
	query := rest.Query()
	if err := CheckSettings(query, "replicas", "ack_wait"); err != nil {
		return nil, err
	}
	replicas, err := strconv.Atoi(cmp.Or(query.Get("replicas"), "1"))
	if err != nil || replicas < 1 || replicas > 5 {
		return nil, errors.New("replicas must be a number from 1 to 5")
	}
	ackWait, err := time.ParseDuration(cmp.Or(query.Get("ack_wait"), DeadAfter.String()))
	if err != nil || ackWait < 500*time.Millisecond || ackWait > time.Minute {
		return nil, errors.New("ack_wait must be a duration from 500ms to 1m")
	}
	dialer := natsDialer{secure: rest.Scheme == "tls"}
	for i, host := range list {
		dialer.hosts = append(dialer.hosts, (&url.URL{Host: host}).Hostname())
		list[i] = rest.Scheme + "://" + host
	}
	options := []nats.Option{nats.SetCustomDialer(dialer), nats.SkipHostLookup()} // names are for certificates
	if dialer.secure {
		// What a server says before the handshake may be of somebody in between, who names a host with a certificate.
		options = append(options, nats.IgnoreDiscoveredServers())
	}
	if rest.User != nil {
		password, _ := rest.User.Password()
		options = append(options, nats.UserInfo(rest.User.Username(), password))
	}
	b, err := connect(strings.Join(list, ","), replicas, ackWait, o.Log, options...)
	if err != nil {
		return nil, err
	}
	b.setUpWithin = cmp.Or(o.SetUp, SetUpWithin)
	return b, nil
}

func connect(
	servers string, replicas int, ackWait time.Duration, log *slog.Logger, options ...nats.Option,
) (*jetStream, error) {
	options = append(options,
		nats.Name("payonce"),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(250*time.Millisecond),
		nats.IgnoreAuthErrorAbort(), // a password may be wrong only while it is being changed
		nats.ReconnectBufSize(-1),   // no buffer: a message is sent now or fails, and the relay retries it
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				log.Warn("broker connection lost", "error", err)
			}
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			log.Warn("broker reported an error", "error", err)
		}),
		nats.ReconnectHandler(func(*nats.Conn) { log.Info("broker reconnected") }),
	)
	conn, err := nats.Connect(servers, options...)
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(
		conn,
		jetstream.WithPublishAsyncMaxPending(inFlightMax),
		jetstream.WithPublishAsyncTimeout(PublishWithin),
	)
	if err != nil {
		conn.Close()
		return nil, err
	}
	return &jetStream{conn: conn, js: js, replicas: replicas, ackWait: ackWait, log: log, setUpWithin: SetUpWithin}, nil
}

// setUp creates the stream on first use, and again after an error that says it does not exist.
func (b *jetStream) setUp(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ready {
		return nil
	}
	if !b.conn.IsConnected() {
		return errNotConnected
	}
	ctx, cancel := context.WithTimeout(ctx, b.setUpWithin)
	defer cancel()
	if err := b.makeStream(ctx); err != nil {
		return fmt.Errorf("create the stream %s: %w", streamName, err)
	}
	b.ready = true
	return nil
}

const streamDescription = "payonce: what happened to orders, payments, refunds and checkouts"

// streamConfig is the stream as the service needs it.
func (b *jetStream) streamConfig() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:        streamName,
		Description: streamDescription,
		Subjects:    []string{subjectRoot + ".>"},
		Storage:     jetstream.FileStorage,
		Replicas:    b.replicas,
		MaxAge:      messageRetention,
		Duplicates:  dedupeWindow,
		DenyDelete:  true,
	}
}

// makeStream makes the stream or brings it up to date, and otherwise only looks:
// an update that changes nothing is written and announced all the same, at every
// start of every process, and what an operator has set beside ours would be gone.
func (b *jetStream) makeStream(ctx context.Context) error {
	want := b.streamConfig()
	want.AllowAtomicPublish = true
	stream, err := b.js.Stream(ctx, streamName)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		stream, err = b.js.CreateStream(ctx, want) // idempotent: several processes may do it at the same time
		if isAPIError(err) {                       // perhaps only for a setting that the server does not know
			reason := err
			want.AllowAtomicPublish = false
			if _, err = b.js.CreateStream(ctx, want); err == nil {
				b.setAtomic(false, reason)
			}
			return err
		}
	} else if err == nil && !sameConfig(stream.CachedInfo().Config, want) {
		have := stream.CachedInfo().Config
		have.AllowAtomicPublish = true
		updated, failed := b.js.UpdateStream(ctx, want)
		switch {
		case failed == nil:
			stream = updated
		case sameConfig(have, want): // the stream is as we need it, only slower
			b.setAtomic(false, failed)
			return nil
		default:
			want.AllowAtomicPublish = false
			if _, err = b.js.UpdateStream(ctx, want); err == nil {
				b.setAtomic(false, failed)
			}
			return err
		}
	}
	if err == nil { // an older server ignores the setting
		b.setAtomic(stream.CachedInfo().Config.AllowAtomicPublish, nil)
	}
	return err
}

func isAPIError(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api)
}

func sameConfig(have, want jetstream.StreamConfig) bool {
	return have.Description == want.Description && slices.Equal(have.Subjects, want.Subjects) &&
		have.Storage == want.Storage && have.Replicas == want.Replicas && have.MaxAge == want.MaxAge &&
		have.Duplicates == want.Duplicates && have.DenyDelete == want.DenyDelete &&
		have.AllowAtomicPublish == want.AllowAtomicPublish
}

// checkStream has the stream created again after an error that says it is missing.
func (b *jetStream) checkStream(err error) {
	if errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, jetstream.ErrStreamNotFound) ||
		errors.Is(err, jetstream.ErrConsumerDeleted) {
		b.mu.Lock()
		b.ready = false
		b.mu.Unlock()
	}
}

// Publish sends the events in atomic batches if the stream takes them. The others, and those of a batch that was
// refused, are sent singly: all of them first, then their acknowledgements are awaited.
func (b *jetStream) Publish(ctx context.Context, events []outbox.Envelope) []error {
	ctx, cancel := context.WithTimeout(ctx, PublishWithin)
	defer cancel()
	bodies, errs := Encode(events)
	if err := b.setUp(ctx); err != nil {
		return FailAll(errs, err)
	}
	acks, repeated := make([]jetstream.PubAckFuture, len(events)), map[int]uint64{}
	for _, i := range b.publishBatches(ctx, events, bodies, errs) {
		if errs[i] = ctx.Err(); errs[i] == nil { // a batch may have waited until the deadline
			acks[i], errs[i] = b.send(events[i], bodies[i])
		}
	}
	for i, ack := range acks {
		if ack == nil {
			continue
		}
		select {
		case stored := <-ack.Ok():
			if stored.Duplicate {
				repeated[i] = stored.Sequence
			}
		case err := <-ack.Err():
			b.checkStream(err)
			errs[i] = err
		case <-ctx.Done():
			errs[i] = fmt.Errorf("wait for the acknowledgement: %w", ctx.Err())
		}
	}
	b.checkRepeated(ctx, events, bodies, repeated, errs)
	return errs
}

// checkRepeated reads the messages for whose sake the server dropped events as repetitions: each must be the event, which
// a relay has sent and not marked. The server goes by the id alone, and anybody who can publish can send a message under
// the id of an event to come.
func (b *jetStream) checkRepeated(
	ctx context.Context, events []outbox.Envelope, bodies [][]byte, repeated map[int]uint64, errs []error,
) {
	if len(repeated) == 0 {
		return
	}
	stream, err := b.js.Stream(ctx, streamName)
	var all sync.WaitGroup
	for i, sequence := range repeated {
		if err != nil {
			errs[i] = fmt.Errorf("look at the message that was dropped as a repetition: %w", err)
			continue
		}
		all.Go(func() { errs[i] = checkStored(ctx, stream, sequence, events[i], bodies[i]) })
	}
	all.Wait()
}

// checkStored compares a stored message with the event that was dropped as its repetition. A message that is not there
// any more proves nothing, so the event is sent again, too.
func checkStored(
	ctx context.Context, stream jetstream.Stream, sequence uint64, e outbox.Envelope, body []byte,
) error {
	stored, err := stream.GetMsg(ctx, sequence)
	if err != nil {
		return fmt.Errorf("look at the message that was dropped as a repetition: %w", err)
	}
	same := bytes.Equal(stored.Data, body) || outbox.ErasedSince(body, stored.Data)
	if subject, _ := subjectOf(e); stored.Subject != subject || !same {
		return fmt.Errorf("%w: %s", outbox.ErrIDTaken, e.ID)
	}
	return nil
}

func (b *jetStream) send(e outbox.Envelope, body []byte) (jetstream.PubAckFuture, error) {
	subject, err := subjectOf(e)
	if err != nil {
		return nil, Permanent(err)
	}
	header := nats.Header{"Content-Type": {"application/cloudevents+json"}}
	ack, err := b.js.PublishMsgAsync(&nats.Msg{Subject: subject, Data: body, Header: header},
		jetstream.WithMsgID(e.ID), jetstream.WithExpectStream(streamName), jetstream.WithRetryAttempts(0))
	if errors.Is(err, nats.ErrMaxPayload) {
		return nil, Permanent(err)
	}
	return ack, err
}

func subjectOf(e outbox.Envelope) (string, error) {
	if e.TenantID == "" || strings.ContainsAny(e.TenantID, ".*> \t\r\n") ||
		e.Type == "" || strings.ContainsAny(e.Type, "*> \t\r\n") {
		return "", fmt.Errorf("tenant %q and type %q make no valid subject", e.TenantID, e.Type)
	}
	return subjectRoot + "." + e.TenantID + "." + e.Type, nil
}

// part: rabbitmq {

// RoutingKey is the subject that NATS gives to an event, without its root: <tenant>.<type>.
func RoutingKey(e outbox.Envelope) (string, error) {
	subject, err := subjectOf(e)
	return strings.TrimPrefix(subject, subjectRoot+"."), err
}

// part: rabbitmq }

func (b *jetStream) Close() error {
	_ = b.conn.FlushTimeout(time.Second) // the last acknowledgements; a message whose own is lost is delivered again
	b.conn.Close()
	return nil
}
