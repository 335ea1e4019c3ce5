//go:build brokers || sqs

package sqs

import (
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/port"
)

// server speaks SQS's JSON protocol, as much of it as the adapter uses, with
// the semantics of FIFO queues: deduplication, groups that wait for their first
// message, visibility timeouts. A second lasts 10 ms there, but for the poll.
type server struct {
	mu         sync.Mutex
	queues     map[string]*fifo
	addr       string
	http       *http.Server
	attributes map[string]string // of every queue, besides FifoQueue
}

const fakeSecond = 10 * time.Millisecond

type fifo struct {
	messages []*fakeMessage
	ids      map[string]bool // deduplication ids seen; the window of five minutes outlasts a test
	receipts int
}

type fakeMessage struct {
	body, group, id string
	receipt         string
	received        int
	hiddenUntil     time.Time
}

func newServer(t testing.TB) *server {
	at, err := port.Loopback(t.Context())
	require.NoError(t, err)
	p := &server{queues: map[string]*fifo{}, addr: at.String()}
	p.start(t)
	t.Cleanup(p.stop)
	return p
}

func (p *server) url() string {
	return "sqs://sqs.eu-central-1.amazonaws.com/123456789012/payonce?consumers=ledger,notifier&endpoint=http://" +
		p.addr
}

func (p *server) start(t testing.TB) {
	l, err := net.Listen("tcp", p.addr)
	require.NoError(t, err)
	p.http = &http.Server{Handler: p, ReadHeaderTimeout: time.Minute}
	go func(s *http.Server) { _ = s.Serve(l) }(p.http)
}

func (p *server) stop() { _ = p.http.Close() }

func (p *server) raw(_ testing.TB, body string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range []string{"ledger", "notifier"} {
		p.queue("payonce-"+name+".fifo").send(body, "stranger", "stranger-1")
	}
}

func (p *server) queue(url string) *fifo {
	name := url[strings.LastIndexByte(url, '/')+1:]
	if p.queues[name] == nil {
		p.queues[name] = &fifo{ids: map[string]bool{}}
	}
	return p.queues[name]
}

func (p *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var in struct {
		QueueURL string `json:"QueueUrl"`
		Entries  []struct {
			ID   string `json:"Id"`
			Body string `json:"MessageBody"`
			Grp  string `json:"MessageGroupId"`
			Dup  string `json:"MessageDeduplicationId"`
		}
		MaxNumberOfMessages int
		WaitTimeSeconds     int
		VisibilityTimeout   int
		ReceiptHandle       string
	}
	if err := json.Unmarshal(body, &in); err != nil || !strings.HasSuffix(in.QueueURL, ".fifo") {
		p.refuse(w, "AWS.SimpleQueueService.NonExistentQueue")
		return
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	var out any = struct{}{}
	switch action := strings.TrimPrefix(r.Header.Get("X-Amz-Target"), "AmazonSQS."); action {
	case "SendMessageBatch":
		size := 0
		for _, e := range in.Entries {
			size += len(e.Body)
		}
		if size > bytesMax {
			p.refuse(w, "AWS.SimpleQueueService.BatchRequestTooLong")
			return
		}
		if len(in.Entries) > batchMax {
			p.refuse(w, "AWS.SimpleQueueService.TooManyEntriesInBatchRequest")
			return
		}
		p.mu.Lock()
		var sent []map[string]string
		for _, e := range in.Entries {
			p.queue(in.QueueURL).send(e.Body, e.Grp, e.Dup)
			sum := md5.Sum([]byte(e.Body))
			sent = append(
				sent,
				map[string]string{
					"Id":               e.ID,
					"MessageId":        "m-" + e.Dup,
					"MD5OfMessageBody": hex.EncodeToString(sum[:]),
				},
			)
		}
		p.mu.Unlock()
		out = map[string]any{"Successful": sent}
	case "GetQueueAttributes":
		attributes := map[string]string{"FifoQueue": "true"}
		maps.Copy(attributes, p.attributes)
		out = map[string]any{"Attributes": attributes}
	case "ReceiveMessage":
		deadline := time.Now().Add(time.Duration(in.WaitTimeSeconds) * time.Second)
		for {
			p.mu.Lock()
			messages := p.queue(in.QueueURL).
				receive(in.MaxNumberOfMessages, time.Duration(in.VisibilityTimeout)*fakeSecond)
			p.mu.Unlock()
			out = map[string]any{"Messages": messages}
			if len(messages) > 0 || time.Now().After(deadline) || r.Context().Err() != nil {
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
	case "DeleteMessage":
		p.mu.Lock()
		p.queue(in.QueueURL).remove(in.ReceiptHandle)
		p.mu.Unlock()
	case "ChangeMessageVisibility":
		p.mu.Lock()
		p.queue(in.QueueURL).hide(in.ReceiptHandle, time.Duration(in.VisibilityTimeout)*fakeSecond)
		p.mu.Unlock()
	default:
		p.refuse(w, "InvalidAction."+action)
		return
	}
	_ = json.NewEncoder(w).Encode(out)
}

func (p *server) refuse(w http.ResponseWriter, code string) {
	w.Header().Set("X-Amzn-Query-Error", code+";Sender")
	w.WriteHeader(http.StatusBadRequest)
	_, _ = fmt.Fprintf(
		w, `{"__type":"com.amazonaws.sqs#%s","message":"refused"}`, code[strings.LastIndexByte(code, '.')+1:],
	)
}

func (q *fifo) send(body, group, id string) {
	if q.ids[id] {
		return // accepted, and not stored
	}
	q.ids[id] = true
	q.messages = append(q.messages, &fakeMessage{body: body, group: group, id: id})
}

// receive takes visible messages in order. A group with an invisible message
// gives none.
func (q *fifo) receive(limit int, hide time.Duration) (out []map[string]any) {
	now := time.Now()
	blocked := map[string]bool{}
	for _, m := range q.messages {
		if m.hiddenUntil.After(now) {
			blocked[m.group] = true
		}
	}
	for _, m := range q.messages {
		if len(out) == limit || blocked[m.group] {
			continue
		}
		q.receipts++
		m.receipt, m.hiddenUntil = strconv.Itoa(q.receipts), now.Add(hide)
		m.received++
		sum := md5.Sum([]byte(m.body))
		out = append(
			out,
			map[string]any{
				"MessageId":     "m-" + m.id,
				"ReceiptHandle": m.receipt,
				"Body":          m.body,
				"MD5OfBody":     hex.EncodeToString(sum[:]),
				"Attributes": map[string]string{
					"MessageGroupId":          m.group,
					"MessageDeduplicationId":  m.id,
					"ApproximateReceiveCount": strconv.Itoa(m.received),
				},
			},
		)
	}
	return out
}

func (q *fifo) find(receipt string) int {
	for i, m := range q.messages {
		if m.receipt == receipt {
			return i
		}
	}
	return -1
}

func (q *fifo) remove(receipt string) {
	if i := q.find(receipt); i >= 0 {
		q.messages = append(q.messages[:i], q.messages[i+1:]...)
	}
}

func (q *fifo) hide(receipt string, d time.Duration) {
	if i := q.find(receipt); i >= 0 {
		q.messages[i].hiddenUntil = time.Now().Add(d)
	}
}
