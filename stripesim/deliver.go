package stripesim

import (
	"bytes"
	"container/heap"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// deliverAll starts each delivery when it is due.
func (s *Sim) deliverAll() {
	d := &s.outbox
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var out sync.WaitGroup
	defer out.Wait()
	for {
		now := s.Now()
		next := time.Hour
		d.mu.Lock()
		for len(d.queue) > 0 && !d.queue[0].due.After(now) {
			j := heap.Pop(&d.queue).(*job)
			d.busy++
			out.Go(func() {
				select {
				case d.slots <- struct{}{}:
					s.send(j)
					<-d.slots
				case <-s.closed:
				}
				d.mu.Lock()
				d.busy--
				d.mu.Unlock()
				d.kick()
			})
		}
		if len(d.queue) > 0 {
			next = min(next, d.queue[0].due.Sub(now))
		}
		if d.settled != nil && d.busy == 0 && (len(d.queue) == 0 || d.queue[0].due.After(now)) {
			close(d.settled)
			d.settled = nil
		}
		d.mu.Unlock()
		timer.Reset(max(next, time.Millisecond))
		select {
		case <-timer.C:
		case <-d.wake:
		case <-s.closed:
			return
		}
	}
}

// send makes one attempt.
func (s *Sim) send(j *job) {
	s.durable(j.position)
	j.attempt++
	if next := j.then; next != nil {
		j.then = nil
		defer s.outbox.add(next)
	}
	body, target, at := s.payload(j)
	if target == nil {
		s.outbox.drop(j) // the event or the endpoint is gone
		return
	}
	result := Delivery{At: at, EventID: j.Event, Type: j.typ, Endpoint: j.Endpoint, URL: target.URL, Attempt: j.attempt}
	if j.url != "" {
		result.URL = j.url
	}
	status, err := s.push(result.URL, body, signature(body, target.Secret, j.bend))
	result.Status = status
	if err != nil {
		result.Error = err.Error()
	}
	if status/100 != 2 {
		s.log.Info(
			"webhook not taken", "event", j.Event, "type", j.typ, "url", withoutPassword(result.URL), "attempt", j.attempt, "status",
			status, "error", result.Error,
		)
	}
	s.outbox.record(result)
	if !j.resend {
		s.finish(j, status)
	}
}

// payload renders the event for one attempt.
func (s *Sim) payload(j *job) ([]byte, *endpoint, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.st.events.byID[j.Event]
	target := s.st.endpoints.byID[j.Endpoint]
	if j.Endpoint == configuredEndpoint {
		target = s.outbox.fixed
	}
	if e == nil || target == nil || target.Status != "enabled" {
		return nil, nil, s.now()
	}
	if s.thin[j.Endpoint] {
		return thinOf(e), target, s.now()
	}
	shown := s.outbox.counted(e)
	if j.bend.apiVersion != "" {
		shown.APIVersion = j.bend.apiVersion
	}
	return indented(shown), target, s.now()
}

// push posts the bytes and returns the response.
func (s *Sim) push(url string, body []byte, signed string) (int, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-s.closed:
			cancel()
		case <-ctx.Done():
		}
	}()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json; charset=utf-8")
	req.Header.Set("User-Agent", "Stripe/1.0 (+https://stripe.com/docs/webhooks)")
	req.Header.Set("Cache-Control", "no-cache")
	req.Header.Set("Stripe-Signature", signed)
	resp, err := s.outbox.client.Do(req)
	if err != nil {
		return 0, err
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20))
	return resp.StatusCode, resp.Body.Close()
}

// signature is the Stripe-Signature header. Its time is the wall clock's, since
// the receiver's is; v0 is the decoy that test mode sends along.
func signature(body []byte, secret string, b bend) string {
	at := strconv.FormatInt(time.Now().Add(-b.age).Unix(), 10)
	if b.wrongSignature {
		secret += "_wrong"
	}
	return fmt.Sprintf("t=%s,v1=%s,v0=%s", at, hmacHex(secret, at, body), hmacHex("v0"+secret, at, body))
}

func hmacHex(secret, at string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(at + "."))
	mac.Write(body)
	return hex.EncodeToString(mac.Sum(nil))
}

// finish settles an attempt: done, or later again.
func (s *Sim) finish(j *job, status int) {
	if status/100 == 2 {
		if s.outbox.drop(j) {
			s.note(entry{Arrived: &j.arrival})
		}
		return
	}
	now := s.Now()
	if now.Sub(j.born) > giveUpAfter {
		return // it stays pending for ever, as delivery_success shows
	}
	j.bend = bend{}
	s.outbox.mu.Lock()
	pause := min(s.outbox.retry<<min(j.attempt-1, 20), longestRetry)
	j.due = now.Add(max(pause, s.outbox.retry))
	heap.Push(&s.outbox.queue, j)
	s.outbox.mu.Unlock()
}
