package broker

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"example.com/payonce/internal/outbox"
)

const (
	batchMax      = 1000    // the server's default for max_batch_size
	batchBytesMax = 4 << 20 // of bodies; the server stages a batch on disk until its commit
	headerRoom    = 1024    // our headers are smaller

	// After so many batches without a confirmation, each within doubtFor of the one before, events are published
	// singly for a while: then the server confirms each event for itself. After that one more such batch is enough.
	unconfirmedMax = 2
	singlyFor      = time.Minute
	doubtFor       = 2 * time.Minute

	errAtomicDisabled = 10174 // the stream does not have AllowAtomicPublish
	errBatchTooLarge  = 10199
)

const _ = uint(doubtFor - singlyFor - PublishWithin) // the batch tried after that minute is still within doubtFor

// errUnconfirmed means that the commit of a batch was sent and its acknowledgement did not come: the server may have
// stored all of the batch or nothing.
var errUnconfirmed = errors.New("no acknowledgement of a batch")

// batchRefusedError means that the server has stored nothing of a batch.
type batchRefusedError struct {
	code        int
	description string
}

func (e *batchRefusedError) Error() string {
	return fmt.Sprintf("the batch was refused: %s (%d)", e.description, e.code)
}

// publishBatches publishes events in atomic batches, which cost one sync each. It returns those that must be sent
// singly: the server refuses a batch whole if it has one event that is stored already or that it rejects. An error
// without the server's refusal leaves every event of the batch in doubt: the caller sends it again with the same id.
//
// A server may confirm no batch and still confirm single messages: a batch that it cannot sync or that a link cannot
// carry in time, or a server of an older version. So after a second batch without a confirmation, events are sent
// singly. The count is of the connection, not of an event: the relay tries other events after a failure, and each of
// them would wait for its own second failure.
//
// nats-server 2.15.2, processJetStreamAtomicBatchMsg in server/stream.go: with sync_interval always and one replica the
// commit stores the messages, calls FlushAllPending of the stream's store, which syncs its blocks, and responds after
// that. With replicas the batch is one proposal, acknowledged like single messages when it is applied.
func (b *jetStream) publishBatches(
	ctx context.Context, events []outbox.Envelope, bodies [][]byte, errs []error,
) (singly []int) {
	var batch []int
	size := 0
	flush := func() {
		if len(batch) > 1 {
			singly = append(singly, b.publishBatch(ctx, events, bodies, errs, batch)...)
		} else {
			singly = append(singly, batch...)
		}
		batch, size = nil, 0
	}
	for i, e := range events {
		if errs[i] != nil {
			continue
		}
		_, err := subjectOf(e)
		if err != nil || int64(len(bodies[i])+headerRoom) > b.conn.MaxPayload() {
			singly = append(singly, i) // it may be rejected, and would have the batch rejected with it
			continue
		}
		// It may be less than for the batch before, which was refused.
		if len(batch) >= b.batchSize() || size+len(bodies[i]) > batchBytesMax {
			flush()
		}
		batch, size = append(batch, i), size+len(bodies[i])
	}
	flush()
	return singly
}

func (b *jetStream) publishBatch(
	ctx context.Context, events []outbox.Envelope, bodies [][]byte, errs []error, batch []int,
) (singly []int) {
	err := ctx.Err() // after the deadline it would only be staged, and never committed
	if err == nil {
		err = b.sendBatch(ctx, events, bodies, batch)
	}
	var refused *batchRefusedError
	if errors.As(err, &refused) {
		b.noteRefusal(refused, len(batch))
		return batch
	}
	if errors.Is(err, errUnconfirmed) {
		b.noteUnconfirmed(err)
	}
	for _, i := range batch {
		errs[i] = err
	}
	return nil
}

// sendBatch sends the messages without waiting; the last one commits, and only its response is awaited.
func (b *jetStream) sendBatch(ctx context.Context, events []outbox.Envelope, bodies [][]byte, batch []int) error {
	id := rand.Text()
	for n, i := range batch {
		subject, err := subjectOf(events[i])
		if err != nil {
			return err
		}
		m := &nats.Msg{Subject: subject, Data: bodies[i], Header: nats.Header{
			"Content-Type":                 {"application/cloudevents+json"},
			jetstream.MsgIDHeader:          {events[i].ID},
			jetstream.ExpectedStreamHeader: {streamName},
			"Nats-Batch-Id":                {id},
			"Nats-Batch-Sequence":          {strconv.Itoa(n + 1)},
		}}
		if n < len(batch)-1 {
			if err := b.conn.PublishMsg(m); err != nil {
				return fmt.Errorf("send a batch: %w", err) // without its commit the server drops it
			}
			continue
		}
		m.Header["Nats-Batch-Commit"] = []string{"1"}
		response, err := b.request(ctx, m)
		switch {
		case errors.Is(err, nats.ErrNoResponders):
			b.checkStream(jetstream.ErrNoStreamResponse)
			return fmt.Errorf("commit a batch: %w", jetstream.ErrNoStreamResponse)
		case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrDisconnected):
			return fmt.Errorf("%w: %w", errUnconfirmed, err)
		case err != nil:
			return fmt.Errorf("commit a batch: %w", err)
		}
		return checkBatchAck(response.Data, id, len(batch))
	}
	return nil
}

// request sends a message and waits for the response, but not after the connection was lost: a response that was
// under way then does not come.
func (b *jetStream) request(ctx context.Context, m *nats.Msg) (*nats.Msg, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	lost := b.conn.StatusChanged(nats.RECONNECTING, nats.CLOSED)
	defer b.conn.RemoveStatusListener(lost) // closes it
	go func() {
		if _, ok := <-lost; ok {
			cancel(nats.ErrDisconnected)
		}
	}()
	response, err := b.conn.RequestMsgWithContext(ctx, m)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return response, err
}

func checkBatchAck(body []byte, id string, size int) error {
	var ack struct {
		Error *struct {
			Code        int    `json:"err_code"`
			Description string `json:"description"`
		} `json:"error"`
		Batch string `json:"batch"`
		Count int    `json:"count"`
	}
	if err := json.Unmarshal(body, &ack); err != nil {
		return fmt.Errorf("%w, but a response that cannot be read: %w", errUnconfirmed, err)
	}
	if ack.Error != nil {
		return &batchRefusedError{code: ack.Error.Code, description: ack.Error.Description}
	}
	if ack.Batch != id || ack.Count != size { // by a server that does not know batches: it has stored them one by one
		return fmt.Errorf("%w, but one of batch %q with %d events, not of %q with %d",
			errUnconfirmed, ack.Batch, ack.Count, id, size)
	}
	return nil
}

// batchSize is how many events a batch may have; zero: the stream takes none, or batches were not confirmed.
func (b *jetStream) batchSize() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.atomic || b.unconfirmed >= unconfirmedMax && time.Since(b.unconfirmedAt) < singlyFor {
		return 0
	}
	return cmp.Or(b.batchMax, batchMax)
}

func (b *jetStream) noteRefusal(refused *batchRefusedError, size int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch refused.code {
	case errAtomicDisabled: // another process has changed the stream: it is brought up to date before the next publish
		b.atomic, b.ready = false, false
	case errBatchTooLarge:
		b.batchMax = min(cmp.Or(b.batchMax, batchMax), size/2)
		if b.batchMax < 2 {
			b.setAtomic(false, refused)
		}
	}
}

func (b *jetStream) noteUnconfirmed(reason error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if time.Since(b.unconfirmedAt) > doubtFor {
		b.unconfirmed = 0
	}
	b.unconfirmed++
	b.unconfirmedAt = time.Now()
	if b.unconfirmed >= unconfirmedMax {
		b.log.Warn("the broker did not confirm several batches; events are published singly for a while",
			"batches", b.unconfirmed, "for", singlyFor, "error", reason)
	}
}

// setAtomic records whether the stream takes batches. It is logged once if not.
func (b *jetStream) setAtomic(atomic bool, reason error) {
	b.atomic = atomic
	if !atomic && !b.warned {
		b.warned = true
		b.log.Warn("the broker's stream does not allow atomic batches; events are published singly, which is slower",
			"stream", streamName, "error", reason)
	}
}
