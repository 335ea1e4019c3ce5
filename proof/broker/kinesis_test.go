//go:build brokers

package broker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/broker"
	"example.com/payonce/internal/inbox"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/testkit/brokertest"
)

const region = "eu-central-1"

// kinesalite is npm's Kinesis, with its streams in a folder.
type kinesalite struct {
	*nodeServer
	client  *kinesis.Client
	streams atomic.Int32
}

func newKinesalite(t testing.TB) *kinesalite {
	t.Helper()
	n := newNodeServer(t, "kinesalite.js", "streams")
	cfg, err := config.LoadDefaultConfig(t.Context(), config.WithRegion(region))
	require.NoError(t, err)
	return &kinesalite{nodeServer: n, client: kinesis.NewFromConfig(cfg, func(o *kinesis.Options) {
		o.BaseEndpoint = aws.String(n.url)
	})}
}

// stream makes a stream of that many shards.
func (k *kinesalite) stream(t testing.TB, shards int32) (name string) {
	t.Helper()
	name = fmt.Sprintf("payonce-%d", k.streams.Add(1))
	_, err := k.client.CreateStream(t.Context(), &kinesis.CreateStreamInput{StreamName: &name, ShardCount: &shards})
	require.NoError(t, err)
	k.awaitActive(t, name)
	return name
}

func (k *kinesalite) awaitActive(t testing.TB, name string) {
	t.Helper()
	require.Eventually(t, func() bool {
		out, err := k.client.DescribeStreamSummary(t.Context(), &kinesis.DescribeStreamSummaryInput{StreamName: &name})
		return err == nil && out.StreamDescriptionSummary.StreamStatus == types.StreamStatusActive
	}, 30*time.Second, 10*time.Millisecond)
}

func (k *kinesalite) brokerURL(stream string) string {
	return "kinesis://" + region + "/" + stream + "?endpoint=" + k.url
}

func (k *kinesalite) place(t testing.TB) brokertest.Place {
	name := k.stream(t, 3)
	kill := func() { require.NoError(t, k.Kill()) }
	return brokertest.Place{
		URL: k.brokerURL(name), Stop: kill, Kill: kill, Start: k.start, Freeze: k.freeze,
		Consume: k.reader(name).parentsFirst,
		Raw: func(t testing.TB, body string) {
			_, err := k.client.PutRecord(t.Context(), &kinesis.PutRecordInput{
				StreamName: &name, PartitionKey: aws.String("stranger"), Data: []byte(body),
			})
			require.NoError(t, err)
		},
	}
}

func TestKinesis(t *testing.T) {
	t.Parallel()
	k := newKinesalite(t)
	brokertest.Suite{
		Server: "Kinesis", Place: k.place, Open: open, Shared: true, TooLarge: 2 << 20, Kills: kills(t),
	}.Run(t)
}

// shardReader reads a stream as Amazon's client library does, without its store of positions.
type shardReader struct {
	*kinesalite
	name string
}

func (k *kinesalite) reader(stream string) *shardReader { return &shardReader{k, stream} }

type handler = func(context.Context, inbox.Message) error

// parentsFirst reads a shard only once those that it was made from are read to their end.
func (r *shardReader) parentsFirst(ctx context.Context, _ string, handle handler) error {
	last, ended := map[string]string{}, map[string]bool{}
	for ctx.Err() == nil {
		shards := r.shards(ctx)
		for _, s := range shards {
			open := func(parent *string) bool {
				return parent != nil && !ended[*parent] && slices.ContainsFunc(shards, func(o types.Shard) bool { return *o.ShardId == *parent })
			}
			if !ended[*s.ShardId] && !open(s.ParentShardId) && !open(s.AdjacentParentShardId) {
				last[*s.ShardId], ended[*s.ShardId] = r.read(ctx, *s.ShardId, last[*s.ShardId], handle)
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
	return nil
}

// shards are those of the stream; none while the server is away.
func (r *shardReader) shards(ctx context.Context) []types.Shard {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	out, err := r.client.ListShards(ctx, &kinesis.ListShardsInput{StreamName: &r.name})
	if err != nil {
		return nil
	}
	return out.Shards
}

// read handles what is in a shard after a record, until there is no more for now.
func (r *shardReader) read(ctx context.Context, shard, after string, handle handler) (last string, ended bool) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	in := &kinesis.GetShardIteratorInput{
		StreamName: &r.name, ShardId: &shard, ShardIteratorType: types.ShardIteratorTypeTrimHorizon,
	}
	if after != "" {
		in.ShardIteratorType, in.StartingSequenceNumber = types.ShardIteratorTypeAfterSequenceNumber, &after
	}
	at, err := r.client.GetShardIterator(ctx, in)
	if err != nil {
		return after, false
	}
	for next := at.ShardIterator; next != nil; {
		out, err := r.client.GetRecords(ctx, &kinesis.GetRecordsInput{ShardIterator: next})
		if err != nil {
			return after, false
		}
		for _, record := range out.Records {
			m := inbox.Message{ID: *record.SequenceNumber, Body: record.Data}
			var e outbox.Envelope
			if json.Unmarshal(record.Data, &e) == nil {
				m.ID, m.Type, m.TenantID, m.Subject = e.ID, e.Type, e.TenantID, e.Subject
				m.Version, m.Traceparent = e.Version, e.Traceparent
			}
			if handle(ctx, m) != nil {
				return after, false
			}
			after = *record.SequenceNumber
		}
		if len(out.Records) == 0 && out.NextShardIterator != nil {
			return after, false
		}
		next = out.NextShardIterator
	}
	return after, true
}

// TestKinesisReshard: a split and a merge, under traffic. A reader that ends with the parents first has every event in
// order; one that reads all shards at once, the newest first, has not.
func TestKinesisReshard(t *testing.T) {
	t.Parallel()
	k := newKinesalite(t)
	name := k.stream(t, 1)
	b := open(t, k.brokerURL(name))
	relay := brokertest.NewRelay(40, 1000) // more than the test waits for
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		relay.Run(ctx, b)
	}()
	await := func(n int) {
		require.Eventually(t, func() bool { return len(relay.Acknowledged()) >= n }, time.Minute, time.Millisecond)
	}
	r := k.reader(name)
	await(200)
	_, err := k.client.SplitShard(t.Context(), &kinesis.SplitShardInput{
		StreamName: &name, ShardToSplit: r.shards(t.Context())[0].ShardId,
		NewStartingHashKey: aws.String("170141183460469231731687303715884105728"), // half of 2^128
	})
	require.NoError(t, err)
	k.awaitActive(t, name)
	await(600)
	shards := r.shards(t.Context())
	require.Len(t, shards, 3)
	_, err = k.client.MergeShards(t.Context(), &kinesis.MergeShardsInput{
		StreamName: &name, ShardToMerge: shards[1].ShardId, AdjacentShardToMerge: shards[2].ShardId,
	})
	require.NoError(t, err)
	k.awaitActive(t, name)
	await(len(relay.Acknowledged()) + 200)
	stop()
	<-stopped
	require.Len(t, r.shards(t.Context()), 4)

	relay.RequireRead(t, brokertest.Read(t, r.parentsFirst, "", nil))

	var naive []inbox.Message
	shards = r.shards(t.Context())
	slices.Reverse(shards)
	for _, s := range shards {
		r.read(t.Context(), *s.ShardId, "", func(_ context.Context, m inbox.Message) error {
			naive = append(naive, m)
			return nil
		})
	}
	require.GreaterOrEqual(t, len(naive), len(relay.Acknowledged()))
	_, overtakes := brokertest.Overtaking(naive)
	require.True(t, overtakes, "then the order of reading shards would not matter")
}

// faulty is in front of Kinesis. Of the records of a request it lets some fail, as a busy shard does, and it loses the
// responses of some requests.
type faulty struct {
	to             string
	failed, lost   atomic.Int32
	records, whole atomic.Int32
}

func (f *faulty) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var in struct {
		StreamName string
		Records    []json.RawMessage
	}
	body := json.NewDecoder(r.Body)
	if err := body.Decode(&in); err != nil || !strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".PutRecords") {
		http.Error(w, "only PutRecords", http.StatusNotImplemented)
		return
	}
	pass := in
	pass.Records = nil
	var fails []bool
	for _, record := range in.Records {
		fail := rand.IntN(10) < 3
		fails = append(fails, fail)
		f.records.Add(1)
		if fail {
			f.failed.Add(1)
		} else {
			pass.Records = append(pass.Records, record)
		}
	}
	var stored struct{ Records []json.RawMessage }
	if len(pass.Records) > 0 {
		if err := f.forward(r, pass, &stored); err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
	}
	if f.whole.Add(1)%7 == 0 {
		f.lost.Add(1)
		panic(http.ErrAbortHandler)
	}
	out := []any{}
	for _, fail := range fails {
		if fail {
			out = append(out, map[string]string{
				"ErrorCode": "ProvisionedThroughputExceededException", "ErrorMessage": "Rate exceeded for shard",
			})
			continue
		}
		out, stored.Records = append(out, stored.Records[0]), stored.Records[1:]
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	_ = json.NewEncoder(w).Encode(map[string]any{"FailedRecordCount": len(fails) - len(pass.Records), "Records": out})
}

func (f *faulty) forward(r *http.Request, in, out any) error {
	text, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(r.Context(), http.MethodPost, f.to, strings.NewReader(string(text)))
	if err != nil {
		return err
	}
	req.Header = r.Header.Clone()
	req.ContentLength = int64(len(text))
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("kinesalite: %s", res.Status)
	}
	return json.NewDecoder(res.Body).Decode(out)
}

// TestKinesisPartialFailures: three records of ten fail beside others that are stored, and each seventh response is lost.
func TestKinesisPartialFailures(t *testing.T) {
	t.Parallel()
	k := newKinesalite(t)
	name := k.stream(t, 2)
	f := &faulty{to: k.url}
	s := stage(t)
	at, err := s.Listen(f)
	require.NoError(t, err)
	relay := brokertest.NewRelay(30, 10)
	relay.Run(t.Context(), open(t, "kinesis://"+region+"/"+name+"?endpoint="+at))
	require.Len(t, relay.Acknowledged(), 300)
	t.Logf("%d of %d records failed, %d of %d responses were lost", f.failed.Load(), f.records.Load(), f.lost.Load(), f.whole.Load())
	require.Greater(t, f.failed.Load(), int32(50))
	require.Positive(t, f.lost.Load())
	relay.RequireRead(t, brokertest.Read(t, k.reader(name).parentsFirst, "", nil))
}

func TestExamineKinesis(t *testing.T) {
	t.Parallel()
	k := newKinesalite(t)
	_, err := broker.Examine(t.Context(), k.brokerURL("none"))
	require.ErrorContains(t, err, "ResourceNotFoundException")
	name := k.stream(t, 2)
	st, err := broker.Examine(t.Context(), k.brokerURL(name))
	require.NoError(t, err)
	require.Equal(t, "stream "+name+": 2 shards, kept for 24 h", st.Stream)
	require.Equal(t, []string{"records are kept for 24 h: what a reader has not read by then is lost to it"}, st.Differs)
	require.Empty(t, st.Loses)
	hours := int32(168)
	_, err = k.client.IncreaseStreamRetentionPeriod(t.Context(), &kinesis.IncreaseStreamRetentionPeriodInput{
		StreamName: &name, RetentionPeriodHours: &hours,
	})
	require.NoError(t, err)
	k.awaitActive(t, name)
	st, err = broker.Examine(t.Context(), k.brokerURL(name))
	require.NoError(t, err)
	require.Empty(t, st.Differs)
}
