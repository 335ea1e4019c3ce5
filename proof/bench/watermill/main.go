// Command watermill is the forwarder of Watermill as its documentation sets it
// up: an outbox in PostgreSQL, written through its publisher, and drained to
// JetStream. The benchmark of the relay runs it beside ours; it is a module of
// its own so that none of this is among the service's dependencies.
//
//	watermill -database URL -nats URL -subject payonce.bench.forwarded -events 20000 -batch 1000
//
// The size of a batch is the one setting that its documentation recommends for
// throughput. Whatever it is, the forwarder publishes one message after the
// other, each when the one before is acknowledged, inside the transaction that
// moves its offset.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	wmsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

type settings struct {
	database, nats, subject string
	events, batch           int
}

func main() {
	var s settings
	flag.StringVar(&s.database, "database", "", "PostgreSQL, where the outbox is made")
	flag.StringVar(&s.nats, "nats", "", "JetStream, which has a stream for the subject")
	flag.StringVar(&s.subject, "subject", "", "where the events go")
	flag.IntVar(&s.events, "events", 20_000, "backlog to drain")
	flag.IntVar(&s.batch, "batch", 0, "rows read at once; 0: Watermill's default, 100")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, s)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "watermill:", err)
		os.Exit(1)
	}
}

// run prints how many events a second were drained.
func run(ctx context.Context, s settings) error {
	pool, err := pgxpool.New(ctx, s.database)
	if err != nil {
		return err
	}
	defer pool.Close()
	outbox := wmsql.BeginnerFromPgx(pool)
	schema := wmsql.DefaultPostgreSQLSchema{SubscribeBatchSize: s.batch}
	from, err := wmsql.NewSubscriber(outbox, wmsql.SubscriberConfig{
		SchemaAdapter: schema, OffsetsAdapter: wmsql.DefaultPostgreSQLOffsetsAdapter{}, InitializeSchema: true,
	}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	if err := from.SubscribeInitialize(outboxTopic); err != nil {
		return err
	}
	if err := write(ctx, pool, schema, s); err != nil {
		return fmt.Errorf("write the backlog: %w", err)
	}
	to, err := wmnats.NewPublisher(wmnats.PublisherConfig{
		// the broker drops what it has seen, as it does for us
		URL: s.nats, JetStream: wmnats.JetStreamConfig{TrackMsgId: true},
	}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	drained := &counting{Publisher: to, until: s.events, done: make(chan struct{})}
	f, err := forwarder.NewForwarder(from, drained, watermill.NopLogger{},
		forwarder.Config{ForwarderTopic: outboxTopic})
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	began := time.Now()
	go func() { ended <- f.Run(ctx) }()
	select {
	case <-drained.done:
	case err := <-ended:
		return errors.Join(err, errors.New("it ended before the outbox was empty"))
	}
	fmt.Println(strconv.FormatFloat(float64(s.events)/time.Since(began).Seconds(), 'f', 1, 64))
	if err := f.Close(); err != nil {
		return err
	}
	return <-ended
}

const (
	outboxTopic = "outbox"
	writeBatch  = 1000 // PostgreSQL takes 65535 parameters, and a message has three
)

// write fills the outbox as a service would, but with many events in each
// transaction.
func write(ctx context.Context, pool *pgxpool.Pool, schema wmsql.DefaultPostgreSQLSchema, s settings) error {
	pad := strings.Repeat("x", 500)
	for made := 0; made < s.events; {
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			p, err := wmsql.NewPublisher(wmsql.TxFromPgx(tx), wmsql.PublisherConfig{SchemaAdapter: schema},
				watermill.NopLogger{})
			if err != nil {
				return err
			}
			var batch []*message.Message
			for ; made < s.events && len(batch) < writeBatch; made++ {
				batch = append(batch,
					message.NewMessage(watermill.NewUUID(),
						fmt.Appendf(nil, `{"id":"pay_%07d","object":"payment","pad":%q}`, made, pad)))
			}
			return forwarder.NewPublisher(p, forwarder.PublisherConfig{
				ForwarderTopic: outboxTopic,
			}).Publish(s.subject,
				batch...)
		})
		if err != nil {
			return err
		}
	}
	_, err := pool.Exec(ctx, "VACUUM (ANALYZE) "+schema.MessagesTable(outboxTopic))
	return err
}

// counting says when the last message is on the broker. Watermill publishes from
// one goroutine.
type counting struct {
	message.Publisher
	until, n int
	done     chan struct{}
}

// Publish passes messages on and counts those that the broker has.
func (c *counting) Publish(topic string, messages ...*message.Message) error {
	if err := c.Publisher.Publish(topic, messages...); err != nil {
		return err
	}
	if c.n += len(messages); c.n == c.until {
		close(c.done)
	}
	return nil
}
