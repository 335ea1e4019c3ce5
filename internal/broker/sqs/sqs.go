//go:build brokers || sqs

// Package sqs is Amazon SQS, for a BROKER_URL of sqs://. A program that imports it has this broker
// (see broker.Register).
package sqs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"

	"example.com/payonce/internal/broker"
	"example.com/payonce/internal/outbox"
)

const (
	batchMax  = 10         // entries of one request, SQS's limit
	bytesMax  = 256 * 1024 // of one request and of one message; newer queues take more, none takes less
	workers   = 8          // requests at the same time
	answerMax = 32 << 20   // of a response: ten messages of a newer queue, with every character escaped
	pollWait  = 10 * time.Second
	attempts  = 2                // by the SDK, within one call; the relay retries anyway
	visible   = 30 * time.Second // without heartbeats: how long the messages of a crashed process wait
	startable = visible - broker.HandleWithin
)

const _ = uint(startable) // a handler that was started must end before the queue delivers its message to another

func init() {
	broker.Register(broker.Scheme{
		Names: []string{"sqs"}, Use: "sqs://", Examine: examine,
		Open: func(ctx context.Context, brokerURL string, o broker.Options) (broker.Broker, error) {
			return open(ctx, brokerURL, o)
		},
	})
}

// queues is Amazon SQS with a FIFO queue for each consumer, because each message of a queue is delivered to one
// consumer only. An event is published when every queue has it. The queues must exist: FIFO, without content-based
// deduplication (we give the ids), and without a redrive policy.
//
// A message group is an aggregate: while one of its messages is in flight or waits for redelivery, the queue holds back
// the rest of the group.
type queues struct {
	client *sqs.Client
	urls   map[string]string // by consumer
	log    *slog.Logger
	wait   time.Duration
}

func open(ctx context.Context, brokerURL string, o broker.Options) (*queues, error) {
	u, err := url.Parse(brokerURL)
	if err != nil || u.Host == "" || strings.Trim(u.Path, "/") == "" {
		return nil, errors.New("must be sqs://host/account/prefix?consumers=a,b")
	}
	query := u.Query()
	if err := broker.CheckSettings(query, "consumers", "region", "endpoint"); err != nil {
		return nil, err
	}
	if query.Get("consumers") == "" {
		return nil, errors.New("?consumers= is missing: every consumer has its own queue")
	}
	options := []func(*config.LoadOptions) error{config.WithRetryMaxAttempts(attempts)}
	if region := cmp.Or(query.Get("region"), regionOf(u.Host)); region != "" {
		options = append(options, config.WithRegion(region))
	}
	cfg, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return nil, err
	}
	if cfg.Region == "" {
		return nil, errors.New("the region is missing: add &region=, or set AWS_REGION")
	}
	base := "https://" + u.Host
	endpoint := query.Get("endpoint")
	if endpoint != "" {
		base = strings.TrimSuffix(endpoint, "/")
	}
	b := &queues{urls: map[string]string{}, log: o.Log, wait: pollWait}
	b.client = sqs.NewFromConfig(cfg, func(so *sqs.Options) {
		so.HTTPClient = boundedAnswers{so.HTTPClient}
		if endpoint != "" {
			so.BaseEndpoint = aws.String(endpoint)
		}
	})
	for name := range strings.SplitSeq(query.Get("consumers"), ",") {
		b.urls[name] = base + "/" + strings.Trim(u.Path, "/") + "-" + name + ".fifo"
	}
	return b, nil
}

// examine reads the attributes of every queue.
func examine(ctx context.Context, brokerURL string) (st broker.State, err error) {
	b, err := open(ctx, brokerURL, broker.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return st, err
	}
	for _, name := range slices.Sorted(maps.Keys(b.urls)) {
		out, err := b.client.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
			QueueUrl: aws.String(b.urls[name]), AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll},
		})
		if err != nil {
			return st, fmt.Errorf("the queue of %s: %w", name, err)
		}
		is := func(name types.QueueAttributeName) string { return out.Attributes[string(name)] }
		if is(types.QueueAttributeNameFifoQueue) != "true" {
			st.Loses = append(st.Loses, "the queue of "+name+" is not FIFO")
		}
		if is(types.QueueAttributeNameRedrivePolicy) != "" {
			st.Loses = append(st.Loses, "the queue of "+name+" has a redrive policy, which breaks the order")
		}
		if is(types.QueueAttributeNameContentBasedDeduplication) == "true" {
			st.Differs = append(st.Differs, "the queue of "+name+" has content-based deduplication")
		}
	}
	st.Reached, st.Stream = "SQS", fmt.Sprintf("%d FIFO queues", len(b.urls))
	return st, nil
}

// boundedAnswers fails a response that is longer than answerMax, where the SDK would read it to its end.
type boundedAnswers struct{ sqs.HTTPClient }

func (c boundedAnswers) Do(r *http.Request) (*http.Response, error) {
	res, err := c.HTTPClient.Do(r)
	if err == nil {
		res.Body = http.MaxBytesReader(nil, res.Body, answerMax)
	}
	return res, err
}

// regionOf reads sqs.<region>.amazonaws.com.
func regionOf(host string) string {
	parts := strings.Split(host, ".")
	if len(parts) >= 4 && parts[0] == "sqs" && parts[2] == "amazonaws" {
		return parts[1]
	}
	return ""
}

// Publish sends batches of the size that SQS accepts to each queue, several at the same time. Events of one call belong
// to different aggregates, so they may arrive in any order.
func (b *queues) Publish(ctx context.Context, events []outbox.Envelope) []error {
	ctx, cancel := context.WithTimeout(ctx, broker.PublishWithin)
	defer cancel()
	bodies, errs := broker.Encode(events)
	var mu sync.Mutex // guards errs
	var all sync.WaitGroup
	slots := make(chan struct{}, workers)
	parts := batches(bodies, errs)
	for _, queue := range b.urls {
		for _, part := range parts {
			slots <- struct{}{}
			all.Go(func() {
				defer func() { <-slots }()
				failed := b.send(ctx, queue, events, bodies, part)
				mu.Lock()
				defer mu.Unlock()
				for i, err := range failed {
					if errs[i] == nil || errors.Is(err, outbox.ErrPermanent) {
						errs[i] = err
					}
				}
			})
		}
	}
	all.Wait()
	return errs
}

// batches groups the events that can be sent. It reads errs before any request is started.
func batches(bodies [][]byte, errs []error) (parts [][]int) {
	var part []int
	size := 0
	for i, body := range bodies {
		if errs[i] != nil {
			continue
		}
		if len(part) == batchMax || (len(part) > 0 && size+len(body) > bytesMax) {
			parts, part, size = append(parts, part), nil, 0
		}
		part, size = append(part, i), size+len(body)
	}
	if len(part) > 0 {
		parts = append(parts, part)
	}
	return parts
}

func (b *queues) send(
	ctx context.Context, queue string, events []outbox.Envelope, bodies [][]byte, part []int,
) map[int]error {
	entries := make([]types.SendMessageBatchRequestEntry, len(part))
	for n, i := range part {
		entries[n] = types.SendMessageBatchRequestEntry{
			Id:                     aws.String(strconv.Itoa(i)),
			MessageBody:            aws.String(string(bodies[i])),
			MessageGroupId:         aws.String(events[i].Subject),
			MessageDeduplicationId: aws.String(events[i].ID),
		}
	}
	failed := map[int]error{}
	out, err := b.client.SendMessageBatch(ctx, &sqs.SendMessageBatchInput{QueueUrl: &queue, Entries: entries})
	if err != nil {
		if len(part) == 1 && rejectsTheMessage(err) {
			err = broker.Permanent(err)
		}
		for _, i := range part {
			failed[i] = err
		}
		return failed
	}
	for _, i := range part {
		failed[i] = errors.New("the response of SQS does not mention the message")
	}
	for _, ok := range out.Successful {
		if i, err := strconv.Atoi(aws.ToString(ok.Id)); err == nil {
			delete(failed, i)
		}
	}
	for _, f := range out.Failed {
		if i, err := strconv.Atoi(aws.ToString(f.Id)); err == nil {
			failed[i] = fmt.Errorf("%s: %s", aws.ToString(f.Code), aws.ToString(f.Message))
			if f.SenderFault {
				failed[i] = broker.Permanent(failed[i])
			}
		}
	}
	return failed
}

// rejectsTheMessage is whether SQS will never accept the message. A queue that is missing or forbidden is another
// matter: an operator can fix that.
func rejectsTheMessage(err error) bool {
	var api smithy.APIError
	if !errors.As(err, &api) {
		return false
	}
	switch code := api.ErrorCode(); {
	case strings.HasSuffix(code, "BatchRequestTooLong"), strings.HasSuffix(code, "InvalidMessageContents"):
		return true
	default:
		return false
	}
}

// Consume polls the consumer's queue.
func (b *queues) Consume(ctx context.Context, name string, handle broker.Handler) error {
	queue, ok := b.urls[name]
	if !ok {
		return fmt.Errorf("BROKER_URL: consumers= does not list the consumer %s", name)
	}
	for failures := 0; ctx.Err() == nil; {
		out, err := b.client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
			QueueUrl:                    &queue,
			MaxNumberOfMessages:         batchMax,
			WaitTimeSeconds:             int32(b.wait / time.Second), //nolint:gosec // at most 20
			VisibilityTimeout:           int32(visible / time.Second),
			MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
		})
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			failures++
			b.log.Warn("consumer cannot read from the broker", "consumer", name, "error", err)
			broker.Sleep(ctx, broker.PauseAfter(failures))
			continue
		}
		failures = 0
		b.deliver(ctx, queue, name, out.Messages, handle)
	}
	return nil
}

// deliver handles a batch in order. After a failure the rest of that group is returned as well, or later messages would
// be handled first. So is every message once ctx has ended, or when so much time has passed that the next message could
// become visible to others while it is handled.
func (b *queues) deliver(
	ctx context.Context, queue, name string, messages []types.Message, handle broker.Handler,
) {
	begun := time.Now()
	held := map[string]time.Duration{}
	for _, m := range messages {
		group := m.Attributes[string(types.MessageSystemAttributeNameMessageGroupId)]
		pause, isHeld := held[group]
		if !isHeld && ctx.Err() == nil && time.Since(begun) < startable {
			id := cmp.Or(
				m.Attributes[string(types.MessageSystemAttributeNameMessageDeduplicationId)],
				aws.ToString(m.MessageId),
			)
			deliveries, _ := strconv.Atoi(m.Attributes[string(types.MessageSystemAttributeNameApproximateReceiveCount)])
			err := broker.HandleOne(ctx, handle, broker.Message(id, []byte(aws.ToString(m.Body)), deliveries))
			if err == nil {
				b.settle(ctx, name, func(ctx context.Context) error {
					_, err := b.client.DeleteMessage(
						ctx, &sqs.DeleteMessageInput{QueueUrl: &queue, ReceiptHandle: m.ReceiptHandle},
					)
					return err
				})
				continue
			}
			pause = broker.PauseAfter(max(1, deliveries))
			held[group] = pause
			b.log.Warn("message will be delivered again", "consumer", name, "message_id", id, "deliveries", deliveries,
				"after", pause, "error", err)
		}
		b.settle(ctx, name, func(ctx context.Context) error {
			_, err := b.client.ChangeMessageVisibility(ctx, &sqs.ChangeMessageVisibilityInput{
				QueueUrl: &queue, ReceiptHandle: m.ReceiptHandle,
				VisibilityTimeout: int32((pause + time.Second - 1) / time.Second), //nolint:gosec // minutes at most
			})
			return err
		})
	}
}

// settle deletes a message or returns it to the queue, even while ctx ends.
func (b *queues) settle(ctx context.Context, name string, call func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), broker.SetUpWithin)
	defer cancel()
	if err := call(ctx); err != nil {
		b.log.Warn("message not acknowledged; it will be delivered again", "consumer", name, "error", err)
	}
}

func (b *queues) Close() error { return nil }
