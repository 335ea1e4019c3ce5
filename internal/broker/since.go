package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"example.com/payonce/internal/outbox"
)

// ErrNotReadable means that the broker cannot tell what it was sent: its kind cannot be read again, or there is no stream.
var (
	ErrNotReadable = errors.New("the broker cannot tell")
	errKind        = fmt.Errorf("%w: only what JetStream has kept can be read again", ErrNotReadable)
	errNoStream    = fmt.Errorf("%w: BROKER_URL names a broker without a stream of events", ErrNotReadable)
)

const (
	readPage   = 1000 // events that Since passes on at once
	readWithin = 10 * time.Second
)

// Since passes on the events that the broker has kept from a time on, in their order, and changes nothing there. It skips
// messages that are no events of ours. An embedded broker must not be open in another process, unless it listens.
func Since(ctx context.Context, brokerURL string, from time.Time, each func([]outbox.Envelope) error) error {
	s, err := schemeOf(brokerURL)
	if err != nil {
		return err
	}
	if s.Since == nil {
		return errKind
	}
	return s.Since(ctx, brokerURL, from, each)
}

func sinceNATS(ctx context.Context, brokerURL string, from time.Time, each func([]outbox.Envelope) error) error {
	b, err := openNATS(brokerURL, Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer b.conn.Close()
	return b.since(ctx, from, each)
}

func sinceEmbedded(ctx context.Context, brokerURL string, from time.Time, each func([]outbox.Envelope) error) error {
	st, err := examineEmbedded(ctx, brokerURL)
	if err == nil && st.Missing {
		err = errNoStream
	}
	if err != nil {
		return err
	}
	b, err := openEmbedded(brokerURL, Options{Log: slog.New(slog.DiscardHandler)})
	if err == nil {
		return errors.Join(b.since(ctx, from, each), b.Close())
	}
	_, query, _ := strings.Cut(brokerURL, "?")
	settings, _ := url.ParseQuery(query)
	if listen := settings.Get("listen"); listen != "" && !strings.HasSuffix(listen, ":0") {
		return sinceNATS(ctx, "nats://"+listen, from, each)
	}
	return err
}

func (b *jetStream) since(ctx context.Context, from time.Time, each func([]outbox.Envelope) error) error {
	asking, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	if err := b.connected(asking); err != nil {
		return err
	}
	stream, err := b.js.Stream(asking, streamName)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return errNoStream
	}
	if err != nil {
		return fmt.Errorf("read the stream %s: %w", streamName, err)
	}
	consumer, err := stream.OrderedConsumer(asking, jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &from,
	})
	if err != nil {
		return fmt.Errorf("read the stream %s: %w", streamName, err)
	}
	for left := consumer.CachedInfo().NumPending; left > 0; {
		batch, err := consumer.Fetch(int(min(left, readPage)), jetstream.FetchMaxWait(readWithin))
		if err != nil {
			return fmt.Errorf("read the stream %s: %w", streamName, err)
		}
		var events []outbox.Envelope
		before := left
		for m := range batch.Messages() {
			var e outbox.Envelope
			if e.UnmarshalJSON(m.Data()) == nil {
				events = append(events, e)
			}
			left--
		}
		if err := batch.Error(); err != nil {
			return fmt.Errorf("read the stream %s: %w", streamName, err)
		}
		if left == before {
			return fmt.Errorf("read the stream %s: no message within %s", streamName, readWithin)
		}
		if err := each(events); err != nil {
			return err
		}
	}
	return nil
}

// connected waits for the connection, which is made in the background and tries every server.
func (b *jetStream) connected(ctx context.Context) error {
	for b.conn.Status() != nats.CONNECTED {
		select {
		case <-ctx.Done():
			return errors.Join(errNotConnected, b.conn.LastError())
		case <-b.conn.StatusChanged(nats.CONNECTED):
		}
	}
	return nil
}
