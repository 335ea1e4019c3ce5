//go:build brokers || kinesis

// Package kinesis is Amazon Kinesis, for a BROKER_URL of kinesis://. A program that imports it has this broker
// (see broker.Register).
package kinesis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
	"github.com/aws/smithy-go"

	"example.com/payonce/internal/broker"
	"example.com/payonce/internal/outbox"
)

const (
	batchMax     = 500     // records of one request, Kinesis's limit
	bytesMax     = 5 << 20 // of one request, keys included; a stream that takes larger records takes more
	keyMax       = 256     // characters of a partition key
	answerMax    = 1 << 20 // of a response; 500 records are 100 kB
	attempts     = 2       // by the SDK, within one call
	pauseMin     = 50 * time.Millisecond
	pauseMax     = time.Second
	retentionMin = 24 // hours: the least that Kinesis has
	form         = "must be kinesis://region/stream"
)

func init() {
	broker.Register(broker.Scheme{
		Names: []string{"kinesis"}, Use: "kinesis://", Examine: examine,
		Open: func(ctx context.Context, brokerURL string, o broker.Options) (broker.Broker, error) {
			return open(ctx, brokerURL, o)
		},
	})
}

// stream is an Amazon Kinesis data stream, which must exist. The partition key of an event is its aggregate's id, so
// the events of an aggregate are in one shard, in the order in which they were accepted.
//
// One PutRecords may store some of its records and not others, and a later record of an aggregate although an earlier
// one failed. So a request has one event of an aggregate, and the next follows once that is acknowledged.
//
// A split or a merge of shards sends the later events of an aggregate to another shard, a child of the first. Who reads
// the child before the parent is read to its end reads them in the wrong order; Amazon's client library does not.
//
// It only publishes. A consumer of Kinesis keeps its position in each shard itself, in a store that Kinesis does not have;
// those of the service read the outbox, where the broker is a hint.
type stream struct {
	client *kinesis.Client
	name   string
	log    *slog.Logger
}

func open(ctx context.Context, brokerURL string, o broker.Options) (*stream, error) {
	u, err := url.Parse(brokerURL)
	if err != nil {
		return nil, errors.New(form)
	}
	name := strings.Trim(u.Path, "/")
	if u.Host == "" || name == "" || strings.Contains(name, "/") {
		return nil, errors.New(form)
	}
	query := u.Query()
	if err := broker.CheckSettings(query, "endpoint"); err != nil {
		return nil, err
	}
	cfg, err := config.LoadDefaultConfig(
		ctx, config.WithRetryMaxAttempts(attempts), config.WithRegion(u.Host),
	)
	if err != nil {
		return nil, err
	}
	k := &stream{name: name, log: o.Log}
	k.client = kinesis.NewFromConfig(cfg, func(ko *kinesis.Options) {
		ko.HTTPClient = shortAnswers{ko.HTTPClient}
		if endpoint := query.Get("endpoint"); endpoint != "" {
			ko.BaseEndpoint = aws.String(endpoint)
		}
	})
	return k, nil
}

// shortAnswers fails a response that is longer than answerMax, where the SDK would read it to its end.
type shortAnswers struct{ kinesis.HTTPClient }

func (c shortAnswers) Do(r *http.Request) (*http.Response, error) {
	res, err := c.HTTPClient.Do(r)
	if err == nil {
		res.Body = http.MaxBytesReader(nil, res.Body, answerMax)
	}
	return res, err
}

// Publish sends one request after the other. Records that Kinesis refused for now, as it does those of a busy shard, are
// sent again until ctx ends: as failures of single events the relay would count and at last park them.
func (k *stream) Publish(ctx context.Context, events []outbox.Envelope) []error {
	ctx, cancel := context.WithTimeout(ctx, broker.PublishWithin)
	defer cancel()
	bodies, errs := broker.Encode(events)
	for i, e := range events {
		if n := len([]rune(e.Subject)); errs[i] == nil && (n == 0 || n > keyMax) {
			errs[i] = broker.Permanent(fmt.Errorf("a partition key of %d characters", n))
		}
	}
	pause := pauseMin
	for waiting := unsent(errs); ; pause = min(2*pause, pauseMax) {
		var again []int
		for _, part := range partsOf(events, bodies, waiting) {
			again = append(again, k.put(ctx, events, bodies, part, errs)...)
		}
		if len(again) == 0 || !broker.Sleep(ctx, pause) {
			return errs
		}
		waiting = again
	}
}

// unsent are the events that have no error yet.
func unsent(errs []error) (list []int) {
	for i, err := range errs {
		if err == nil {
			list = append(list, i)
		}
	}
	return list
}

// partsOf splits a batch into requests.
func partsOf(events []outbox.Envelope, bodies [][]byte, waiting []int) (parts [][]int) {
	var part []int
	size := 0
	for _, i := range waiting {
		bytes := len(bodies[i]) + len(events[i].Subject)
		if len(part) == batchMax || (len(part) > 0 && size+bytes > bytesMax) {
			parts, part, size = append(parts, part), nil, 0
		}
		part, size = append(part, i), size+bytes
	}
	if len(part) > 0 {
		parts = append(parts, part)
	}
	return parts
}

// put sends one request, sets the errors of its events, and returns those that may be sent again at once.
func (k *stream) put(
	ctx context.Context, events []outbox.Envelope, bodies [][]byte, part []int, errs []error,
) (again []int) {
	records := make([]types.PutRecordsRequestEntry, len(part))
	for n, i := range part {
		records[n] = types.PutRecordsRequestEntry{PartitionKey: aws.String(events[i].Subject), Data: bodies[i]}
	}
	out, err := k.client.PutRecords(ctx, &kinesis.PutRecordsInput{StreamName: &k.name, Records: records})
	switch {
	case err != nil && len(part) > 1 && rejectsARecord(err):
		// One record too large refuses all: each is sent alone.
		for _, i := range part {
			again = append(again, k.put(ctx, events, bodies, []int{i}, errs)...)
		}
		return again
	case err != nil && rejectsARecord(err):
		errs[part[0]] = broker.Permanent(err)
		return nil
	case err != nil:
		for _, i := range part {
			errs[i] = err
		}
		return nil
	}
	for n, i := range part {
		errs[i] = errors.New("the response of Kinesis does not mention the record")
		if n >= len(out.Records) {
			continue
		}
		r := out.Records[n]
		switch {
		case r.ErrorCode != nil:
			errs[i] = fmt.Errorf("%s: %s", *r.ErrorCode, aws.ToString(r.ErrorMessage))
			again = append(again, i)
		case r.SequenceNumber != nil:
			errs[i] = nil
		}
	}
	return again
}

// rejectsARecord is whether Kinesis will never accept a request with these records. A stream that is missing is another
// matter: an operator can make it.
func rejectsARecord(err error) bool {
	var api smithy.APIError
	if !errors.As(err, &api) {
		return false
	}
	switch api.ErrorCode() {
	case "ValidationException", "InvalidArgumentException", "SerializationException":
		return true
	default:
		return false
	}
}

// Consume waits until ctx ends: nothing is delivered. Consumers of the service read the outbox anyway.
func (k *stream) Consume(ctx context.Context, name string, _ broker.Handler) error {
	k.log.Info("Kinesis delivers nothing to the service's consumers; they read the outbox", "consumer", name)
	<-ctx.Done()
	return nil
}

// examine reads the stream's summary.
func examine(ctx context.Context, brokerURL string) (st broker.State, err error) {
	k, err := open(ctx, brokerURL, broker.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return st, err
	}
	out, err := k.client.DescribeStreamSummary(ctx, &kinesis.DescribeStreamSummaryInput{StreamName: &k.name})
	if err != nil {
		return st, fmt.Errorf("the stream %s: %w", k.name, err)
	}
	s := out.StreamDescriptionSummary
	hours := aws.ToInt32(s.RetentionPeriodHours)
	st.Reached = "Kinesis"
	st.Stream = fmt.Sprintf("stream %s: %d shards, kept for %d h", k.name, aws.ToInt32(s.OpenShardCount), hours)
	switch s.StreamStatus {
	case types.StreamStatusActive:
	case types.StreamStatusUpdating:
		st.Differs = append(st.Differs, "its shards are being split or merged: a reader must end with a shard before it begins its children")
	default:
		return st, fmt.Errorf("the stream %s is %s", k.name, cmp.Or(string(s.StreamStatus), "in no state"))
	}
	if hours <= retentionMin {
		st.Differs = append(st.Differs, fmt.Sprintf("records are kept for %d h: what a reader has not read by then is lost to it", hours))
	}
	return st, nil
}

// Close has nothing to close.
func (k *stream) Close() error { return nil }
