//go:build brokers || kafka

// Package kafka is Kafka, for a BROKER_URL of kafka://. A program that imports it has this broker
// (see broker.Register).
package kafka

import (
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

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"example.com/payonce/internal/broker"
	"example.com/payonce/internal/outbox"
)

const (
	fetchMax  = 8 << 20  // bytes of records that a broker is asked for at once
	answerMax = 32 << 20 // bytes of a response; a longer one is not read, and the connection is closed
)

const (
	defaultTopic  = "payonce.events"
	groupPrefix   = "payonce."
	eventIDHeader = "ce_id"
	pollMax       = 200 // records between two commits of offsets, all repeated after a kill
	bufferedMax   = 20000
)

func init() {
	broker.Register(broker.Scheme{
		Names: []string{"kafka"}, Use: "kafka://", Examine: examine,
		Open: func(_ context.Context, brokerURL string, o broker.Options) (broker.Broker, error) {
			return open(brokerURL, o)
		},
	})
}

// cluster is a Kafka cluster. Records of one aggregate have its id as their key, so they share a partition, and one
// process of a group reads a partition. Adding partitions moves keys: during such a change the order holds only for
// aggregates without new events.
//
// The producer is idempotent: a record that the client retries is in the log once. Kafka's transactions would add
// nothing, because our effects are in PostgreSQL, which is no part of them. Offsets are committed after the handler's
// transaction, never by a timer.
type cluster struct {
	options    []kgo.Opt
	producer   *kgo.Client
	topic      string
	partitions int32
	replicas   int16
	log        *slog.Logger
	closing    context.Context
	close      context.CancelFunc
	consumers  sync.WaitGroup
	mu         sync.Mutex
	ready      bool
}

func open(brokerURL string, o broker.Options) (*cluster, error) {
	seeds, u, err := broker.Hosts(brokerURL)
	if err != nil {
		return nil, err
	}
	query := u.Query()
	if err := broker.CheckSettings(query, "tls", "sasl", "partitions", "replicas"); err != nil {
		return nil, err
	}
	k := &cluster{topic: cmp.Or(strings.Trim(u.Path, "/"), defaultTopic), log: o.Log}
	partitions, err := strconv.ParseInt(cmp.Or(query.Get("partitions"), "-1"), 10, 32) // -1: the cluster's default
	if err != nil {
		return nil, errors.New("partitions must be a number")
	}
	replicas, err := strconv.ParseInt(cmp.Or(query.Get("replicas"), "-1"), 10, 16)
	if err != nil {
		return nil, errors.New("replicas must be a number")
	}
	k.partitions, k.replicas = int32(partitions), int16(replicas)
	k.options = []kgo.Opt{
		kgo.SeedBrokers(seeds...), kgo.ClientID("payonce"),
		kgo.DialTimeout(3 * time.Second), kgo.RetryTimeout(broker.PublishWithin),
		kgo.BrokerMaxReadBytes(answerMax), kgo.FetchMaxBytes(fetchMax),
	}
	if query.Get("tls") == "true" {
		k.options = append(k.options, kgo.DialTLS())
	}
	if mechanism, err := saslOf(query.Get("sasl"), u.User); err != nil {
		return nil, err
	} else if mechanism != nil {
		k.options = append(k.options, kgo.SASL(mechanism))
	}
	k.options = slices.Clip(k.options) // two clients append to it
	k.producer, err = kgo.NewClient(append(k.options,
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordDeliveryTimeout(broker.PublishWithin),
		kgo.ProducerLinger(2*time.Millisecond),
		kgo.MaxBufferedRecords(bufferedMax),
	)...)
	if err != nil {
		return nil, err
	}
	k.closing, k.close = context.WithCancel(context.Background())
	return k, nil
}

func saslOf(name string, user *url.Userinfo) (sasl.Mechanism, error) {
	if name == "" && user == nil {
		return nil, nil
	}
	password, _ := user.Password()
	switch name {
	case "plain":
		return plain.Auth{User: user.Username(), Pass: password}.AsMechanism(), nil
	case "scram-sha-256":
		return scram.Auth{User: user.Username(), Pass: password}.AsSha256Mechanism(), nil
	case "scram-sha-512", "":
		return scram.Auth{User: user.Username(), Pass: password}.AsSha512Mechanism(), nil
	}
	return nil, fmt.Errorf("sasl must be plain, scram-sha-256 or scram-sha-512, not %q", name)
}

// examine asks for the topic, and does not have it made.
func examine(ctx context.Context, brokerURL string) (st broker.State, err error) {
	k, err := open(brokerURL, broker.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return st, err
	}
	defer func() { _ = k.Close() }()
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = kmsg.StringPtr(k.topic)
	req := kmsg.NewPtrMetadataRequest()
	req.Topics, req.AllowAutoTopicCreation = append(req.Topics, topic), false
	resp, err := req.RequestWith(ctx, k.producer)
	if err != nil {
		return st, fmt.Errorf("connect to Kafka: %w", err)
	}
	st.Reached = fmt.Sprintf("Kafka, %d brokers", len(resp.Brokers))
	for _, t := range resp.Topics {
		err := kerr.ErrorForCode(t.ErrorCode)
		switch {
		case errors.Is(err, kerr.UnknownTopicOrPartition):
			st.Missing = true
			return st, nil
		case err != nil:
			return st, fmt.Errorf("read the topic %s: %w", k.topic, err)
		}
		replicas := 0
		for _, p := range t.Partitions {
			replicas = len(p.Replicas)
			if p.Leader < 0 {
				st.Loses = append(st.Loses, fmt.Sprintf("partition %d has no leader", p.Partition))
			}
			if len(p.ISR) < len(p.Replicas) {
				st.Differs = append(st.Differs, fmt.Sprintf("partition %d has %d of its %d replicas in sync",
					p.Partition, len(p.ISR), len(p.Replicas)))
			}
		}
		st.Stream = fmt.Sprintf("topic %s: %d partitions, %d replicas", k.topic, len(t.Partitions), replicas)
		if k.partitions > 0 && len(t.Partitions) != int(k.partitions) {
			st.Differs = append(st.Differs,
				fmt.Sprintf("it has %d partitions, not %d", len(t.Partitions), k.partitions))
		}
		if k.replicas > 0 && replicas != int(k.replicas) {
			st.Differs = append(st.Differs, fmt.Sprintf("it has %d replicas, not %d", replicas, k.replicas))
		}
	}
	return st, nil
}

// setUp creates the topic. Without the permission for that, an administrator must have created it.
func (k *cluster) setUp(ctx context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ready {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, broker.SetUpWithin)
	defer cancel()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = k.topic, k.partitions, k.replicas
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(ctx, k.producer)
	if err != nil {
		return fmt.Errorf("connect to Kafka: %w", err)
	}
	for _, t := range resp.Topics {
		err := kerr.ErrorForCode(t.ErrorCode)
		switch {
		case err == nil, errors.Is(err, kerr.TopicAlreadyExists):
		case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.ClusterAuthorizationFailed):
			k.log.Info("not allowed to create the topic; it must exist", "topic", k.topic)
		default:
			return fmt.Errorf("create the topic %s: %w", k.topic, err)
		}
	}
	k.ready = true
	return nil
}

// Publish gives all records to the producer, which sends them in batches.
func (k *cluster) Publish(ctx context.Context, events []outbox.Envelope) []error {
	ctx, cancel := context.WithTimeout(ctx, broker.PublishWithin)
	defer cancel()
	bodies, errs := broker.Encode(events)
	if err := k.setUp(ctx); err != nil {
		return broker.FailAll(errs, err)
	}
	type outcome struct {
		i   int
		err error
	}
	// buffered for all: a callback must not block the producer after we have returned
	outcomes := make(chan outcome, len(events))
	waiting := map[int]bool{}
	for i, e := range events {
		if errs[i] != nil {
			continue
		}
		waiting[i] = true
		record := &kgo.Record{Topic: k.topic, Key: []byte(e.Subject), Value: bodies[i], Headers: []kgo.RecordHeader{
			{Key: eventIDHeader, Value: []byte(e.ID)},
			{Key: "content-type", Value: []byte("application/cloudevents+json")},
		}}
		k.producer.TryProduce(ctx, record, func(_ *kgo.Record, err error) { outcomes <- outcome{i, err} })
	}
	for len(waiting) > 0 {
		select {
		case o := <-outcomes:
			delete(waiting, o.i)
			errs[o.i] = o.err
			if errors.Is(o.err, kerr.MessageTooLarge) || errors.Is(o.err, kerr.InvalidRecord) {
				errs[o.i] = broker.Permanent(o.err)
			}
		case <-ctx.Done():
			for i := range waiting {
				errs[i] = fmt.Errorf("wait for the acknowledgement: %w", ctx.Err())
			}
			return errs
		}
	}
	return errs
}

// Consume reads as a member of the consumer group of that name.
func (k *cluster) Consume(ctx context.Context, name string, handle broker.Handler) error {
	k.consumers.Add(1)
	defer k.consumers.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(k.closing, cancel)()
	for failures := 1; ; failures++ {
		err := k.setUp(ctx)
		if err == nil {
			break
		}
		k.log.Warn("consumer waits for the broker", "consumer", name, "error", err)
		if !broker.Sleep(ctx, broker.PauseAfter(failures)) {
			return nil
		}
	}
	client, err := kgo.NewClient(append(k.options,
		kgo.ConsumerGroup(groupPrefix+name),
		kgo.ConsumeTopics(k.topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(), // partitions stay assigned until the polled records are handled and committed
		kgo.SessionTimeout(broker.DeadAfter),
		kgo.HeartbeatInterval(broker.DeadAfter/3),
		kgo.FetchMaxWait(500*time.Millisecond),
	)...)
	if err != nil {
		return fmt.Errorf("create the consumer %s: %w", name, err)
	}
	defer client.CloseAllowingRebalance()
	for failures := 0; ctx.Err() == nil; {
		fetches := client.PollRecords(ctx, pollMax)
		if err := fetches.Err0(); err != nil && ctx.Err() == nil {
			failures++
			k.log.Warn("consumer cannot read from the broker", "consumer", name, "error", err)
			client.AllowRebalance()
			broker.Sleep(ctx, broker.PauseAfter(failures))
			continue
		}
		failures = 0
		k.deliver(ctx, client, name, fetches, handle)
		client.AllowRebalance()
	}
	return nil
}

func (k *cluster) deliver(
	ctx context.Context, client *kgo.Client, name string, fetches kgo.Fetches, handle broker.Handler,
) {
	var handled []*kgo.Record
	for record := range fetches.RecordsAll() {
		if !k.deliverOne(ctx, name, record, handle) {
			break
		}
		handled = append(handled, record)
	}
	if len(handled) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), broker.SetUpWithin)
	defer cancel()
	if err := client.CommitRecords(ctx, handled...); err != nil {
		k.log.Warn(
			"offsets not committed; the records will be delivered again", "consumer", name, "records",
			len(handled),
			"error", err,
		)
	}
}

// deliverOne retries until the handler succeeds or ctx ends: later records of the partition must not be handled first.
func (k *cluster) deliverOne(ctx context.Context, name string, r *kgo.Record, handle broker.Handler) (done bool) {
	id := fmt.Sprintf("%s-%d-at-%d", r.Topic, r.Partition, r.Offset)
	for _, h := range r.Headers {
		if h.Key == eventIDHeader {
			id = string(h.Value)
		}
	}
	for tries := 1; ctx.Err() == nil; tries++ {
		err := broker.HandleOne(ctx, handle, broker.Message(id, r.Value, tries))
		if err == nil {
			return true
		}
		pause := broker.PauseAfter(tries)
		k.log.Warn("message will be delivered again", "consumer", name, "message_id", id, "deliveries", tries,
			"after", pause, "error", err)
		broker.Sleep(ctx, pause)
	}
	return false
}

func (k *cluster) Close() error {
	k.close()
	k.consumers.Wait()
	k.producer.Close()
	return nil
}
