package broker

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"example.com/payonce/internal/outbox"
)

const (
	batchMax      = 1000    // the server's default for max_batch_size
	batchBytesMax = 4 << 20 // of bodies; the server stages a batch on disk until its commit
	headerRoom    = 1024    // our headers are smaller

	errAtomicDisabled = 10174 // the stream does not have AllowAtomicPublish
	errBatchTooLarge  = 10199
)

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
	if b.batchSize() == 0 { // the batch before was refused
		return batch
	}
	err := b.sendBatch(ctx, events, bodies, batch)
	var refused *batchRefusedError
	if errors.As(err, &refused) {
		b.noteRefusal(refused, len(batch))
		return batch
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
		response, err := b.conn.RequestMsgWithContext(ctx, m)
		if errors.Is(err, nats.ErrNoResponders) {
			err = jetstream.ErrNoStreamResponse
			b.checkStream(err)
		}
		if err != nil {
			return fmt.Errorf("wait for the acknowledgement of a batch: %w", err)
		}
		return checkBatchAck(response.Data, id, len(batch))
	}
	return nil
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
		return fmt.Errorf("read the acknowledgement of a batch: %w", err)
	}
	if ack.Error != nil {
		return &batchRefusedError{code: ack.Error.Code, description: ack.Error.Description}
	}
	if ack.Batch != id || ack.Count != size { // by a server that does not know batches: it has stored them one by one
		return fmt.Errorf("the acknowledgement is of batch %q with %d events, not of %q with %d",
			ack.Batch, ack.Count, id, size)
	}
	return nil
}

// batchSize is how many events a batch may have; zero: the stream takes none.
func (b *jetStream) batchSize() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.atomic {
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
		b.batchMax = max(size/2, 2)
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
