//go:build brokers || rabbitmq

// Package rabbitmq is RabbitMQ, for a BROKER_URL of amqp:// or amqps://. A program that imports it has this broker
// (see broker.Register).
package rabbitmq

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"example.com/payonce/internal/broker"
)

const (
	defaultExchange = "payonce.events"
	dialWithin      = 3 * time.Second // for one of several servers
	closeWithin     = time.Second     // for the server's goodbye
)

func init() {
	broker.Register(broker.Scheme{
		Names: []string{"amqp", "amqps"}, Use: "amqp://", Examine: examine,
		Open: func(_ context.Context, brokerURL string, o broker.Options) (broker.Broker, error) {
			return open(brokerURL, o)
		},
	})
}

// rabbit is RabbitMQ: a durable topic exchange, and a quorum queue for each consumer. A quorum queue acknowledges what a
// majority of its servers has on disk. The routing key is <tenant>.<type>, so that others can bind their own queues to
// some of the events.
//
// A queue keeps the order of what it was sent on one channel. Each has a single active consumer, so that two processes
// do not handle two events of one aggregate at once. A message that failed is held and tried again: one that is given
// back with basic.nack goes to the end of a quorum queue, behind later events of its aggregate.
type rabbit struct {
	servers   []string
	tls       bool
	config    amqp.Config
	exchange  string
	consumers []string
	replicas  int // 0: the cluster's default
	log       *slog.Logger

	closing context.Context
	close   context.CancelFunc
	reading sync.WaitGroup
	turn    chan struct{} // holds one token; who has it may publish, and use session
	session *session      // nil: not connected
}

func open(brokerURL string, o broker.Options) (*rabbit, error) {
	servers, u, err := broker.Hosts(brokerURL)
	if err != nil {
		return nil, err
	}
	query := u.Query()
	if err := broker.CheckSettings(query, "consumers", "exchange", "replicas"); err != nil {
		return nil, err
	}
	r := &rabbit{
		tls: u.Scheme == "amqps", exchange: cmp.Or(query.Get("exchange"), defaultExchange), log: o.Log,
		turn: make(chan struct{}, 1),
	}
	r.turn <- struct{}{}
	port := "5672"
	if r.tls {
		port = "5671"
	}
	for _, server := range servers {
		if _, _, err := net.SplitHostPort(server); err != nil {
			server = net.JoinHostPort(strings.Trim(server, "[]"), port)
		}
		r.servers = append(r.servers, server)
	}
	for name := range strings.SplitSeq(query.Get("consumers"), ",") {
		if name != "" {
			r.consumers = append(r.consumers, name)
		}
	}
	if s := query.Get("replicas"); s != "" {
		if r.replicas, err = strconv.Atoi(s); err != nil || r.replicas < 1 {
			return nil, errors.New("replicas must be a number, 1 or more")
		}
	}
	user := amqp.PlainAuth{Username: "guest", Password: "guest"}
	if u.User != nil {
		user.Username = u.User.Username()
		user.Password, _ = u.User.Password()
	}
	r.config = amqp.Config{
		SASL: []amqp.Authentication{&user}, Vhost: cmp.Or(strings.TrimPrefix(u.Path, "/"), "/"), Locale: "en_US",
		Heartbeat: broker.DeadAfter, FrameSize: 128 << 10,
		Properties: amqp.Table{"connection_name": "payonce", "product": "payonce"},
	}
	r.closing, r.close = context.WithCancel(context.Background())
	return r, nil
}

func (r *rabbit) queue(consumer string) string { return r.exchange + "." + consumer }

// session is a connection with its channel. An error of a channel closes it, as the protocol has it; then we end
// the connection, too, and make another.
type session struct {
	conn   *amqp.Connection
	ch     *amqp.Channel
	socket net.Conn
	closed chan *amqp.Error // of the channel or its connection

	returned chan amqp.Return // of the publisher
	blocked  chan string      // why the server accepts nothing now
}

// abort ends the session without a goodbye: the client's calls take no context, and end with the connection.
func (s *session) abort() { _ = s.socket.Close() }

func (s *session) Close() { _ = s.conn.CloseDeadline(time.Now().Add(closeWithin)) }

// why is what ended the session. It is asked once.
func (s *session) why() error {
	select {
	case err, ok := <-s.closed:
		if ok && err != nil {
			return err
		}
	default:
	}
	return amqp.ErrClosed
}

// connect tries one server after the other.
func (r *rabbit) connect(ctx context.Context) (s *session, err error) {
	ctx, cancel := context.WithTimeout(ctx, broker.SetUpWithin)
	defer cancel()
	var errs []error
	for _, server := range r.servers {
		if s, err = r.dial(ctx, server); err == nil {
			return s, nil
		}
		errs = append(errs, fmt.Errorf("connect to RabbitMQ at %s: %w", server, err))
	}
	return nil, errors.Join(errs...)
}

func (r *rabbit) dial(ctx context.Context, server string) (*session, error) {
	if len(r.servers) > 1 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, dialWithin)
		defer cancel()
	}
	socket, err := (&net.Dialer{}).DialContext(ctx, "tcp", server)
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { _ = socket.Close() })() // the handshakes take no context
	stream := socket
	if r.tls {
		host, _, _ := net.SplitHostPort(server)
		stream = tls.Client(socket, &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12})
	}
	conn, err := amqp.Open(stream, r.config)
	if err != nil {
		_ = socket.Close()
		return nil, cmp.Or(ctx.Err(), err)
	}
	s := &session{conn: conn, socket: socket}
	if err := s.channel(); err != nil {
		s.abort()
		return nil, err
	}
	return s, nil
}

// channel opens a channel in place of the one that an error has closed.
func (s *session) channel() (err error) {
	if s.ch, err = s.conn.Channel(); err == nil {
		s.closed = s.ch.NotifyClose(make(chan *amqp.Error, 1))
	}
	return err
}

// setUp makes what is missing: the exchange, the queues and their bindings. Without the permission for that an
// administrator must have made them. A queue that has other arguments than ours is an administrator's: it is used as it
// is, and the doctor shows the difference.
func (r *rabbit) setUp(ctx context.Context, s *session) error {
	defer context.AfterFunc(ctx, s.abort)()
	if err := s.try(r.declareExchange); refused(err, amqp.AccessRefused) {
		r.log.Info("not allowed to create the exchange; it must exist", "exchange", r.exchange)
	} else if err != nil {
		return fmt.Errorf("create the exchange %s: %w", r.exchange, cmp.Or(ctx.Err(), err))
	}
	for _, consumer := range r.consumers {
		queue := r.queue(consumer)
		switch err := s.try(r.declareQueue(queue)); {
		case refused(err, amqp.AccessRefused):
			r.log.Info("not allowed to create the queue; it must exist", "queue", queue)
		case refused(err, amqp.PreconditionFailed):
			r.log.Warn("the queue differs from the service's", "queue", queue, "error", err)
		case err != nil:
			return fmt.Errorf("create the queue %s: %w", queue, cmp.Or(ctx.Err(), err))
		}
		// Also of a queue that was there: the process that made it may have been killed before this.
		err := s.try(func(ch *amqp.Channel) error { return ch.QueueBind(queue, "#", r.exchange, false, nil) })
		if refused(err, amqp.AccessRefused) {
			r.log.Info("not allowed to bind the queue; it must be bound", "queue", queue, "exchange", r.exchange)
		} else if err != nil {
			return fmt.Errorf("bind the queue %s: %w", queue, cmp.Or(ctx.Err(), err))
		}
	}
	return nil
}

func (r *rabbit) declareExchange(ch *amqp.Channel) error {
	return ch.ExchangeDeclare(r.exchange, amqp.ExchangeTopic, true, false, false, false, nil)
}

func (r *rabbit) declareQueue(queue string) func(*amqp.Channel) error {
	args := amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeQuorum, amqp.SingleActiveConsumerArg: true}
	if r.replicas > 0 {
		args["x-quorum-initial-group-size"] = r.replicas
	}
	return func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(queue, true, false, false, false, args)
		return err
	}
}

// try calls, and opens another channel if the call has closed this one.
func (s *session) try(call func(*amqp.Channel) error) error {
	err := call(s.ch)
	if err != nil && !s.conn.IsClosed() {
		if err := s.channel(); err != nil {
			return err
		}
	}
	return err
}

func refused(err error, code int) bool {
	var refused *amqp.Error
	return errors.As(err, &refused) && refused.Code == code
}

// examine declares only what is there, which changes nothing, and compares.
func examine(ctx context.Context, brokerURL string) (st broker.State, err error) {
	r, err := open(brokerURL, broker.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return st, err
	}
	s, err := r.connect(ctx)
	if err != nil {
		return st, err
	}
	defer s.Close()
	defer context.AfterFunc(ctx, s.abort)()
	st.Reached = fmt.Sprintf("%v %v", s.conn.Properties["product"], s.conn.Properties["version"])
	differs := func(what string, exists, declare func(*amqp.Channel) error) error {
		switch err := s.try(exists); {
		case refused(err, amqp.NotFound):
			st.Missing = true
			return nil
		case err != nil:
			return fmt.Errorf("read %s: %w", what, err)
		}
		err := s.try(declare)
		if refused(err, amqp.PreconditionFailed) {
			_, text, _ := strings.Cut(err.Error(), "inequivalent ")
			st.Loses = append(st.Loses, what+" differs: "+cmp.Or(strings.Trim(text, `"`), err.Error()))
			return nil
		}
		if refused(err, amqp.AccessRefused) {
			return nil // it is there, and an administrator's
		}
		return err
	}
	err = differs("the exchange "+r.exchange, func(ch *amqp.Channel) error {
		return ch.ExchangeDeclarePassive(r.exchange, amqp.ExchangeTopic, true, false, false, false, nil)
	}, r.declareExchange)
	for _, consumer := range r.consumers {
		queue := r.queue(consumer)
		err = cmp.Or(err, differs("the queue "+queue, func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
			return err
		}, r.declareQueue(queue)))
	}
	if err != nil || st.Missing {
		return st, err
	}
	st.Stream = fmt.Sprintf("exchange %s, %d quorum queues", r.exchange, len(r.consumers))
	if len(r.consumers) == 0 {
		st.Stream = fmt.Sprintf("exchange %s; its queues are others'", r.exchange)
	}
	return st, nil
}

func (r *rabbit) Close() error {
	r.close()
	r.reading.Wait()
	<-r.turn
	if r.session != nil {
		r.session.Close()
		r.session = nil
	}
	r.turn <- struct{}{}
	return nil
}

// named reports whether consumers= lists the consumer.
func (r *rabbit) named(consumer string) bool { return slices.Contains(r.consumers, consumer) }
