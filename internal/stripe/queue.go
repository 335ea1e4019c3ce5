package stripe

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// NoTenant is the tenant of a call that is made for none of them, by a loop that compares rows with Stripe, or for an
// operator's action. Such calls take turns with the tenants' as if they were one more tenant's.
const NoTenant = ""

// errTooLong says that a turn would come after the caller's deadline, so there is no use in waiting for it.
var errTooLong = errors.New("the queue is too long")

// queue hands out the tokens of a bucket. While several tenants wait they get them in rotation, and the calls of one
// tenant in the order of their arrival. So a tenant that is alone has the whole rate, and one that has a thousand calls
// waiting delays another's by one turn (I30). Only who waits has an entry.
type queue struct {
	bucket *rate.Limiter

	mu       sync.Mutex
	waiting  map[string][]chan struct{} // by tenant, none of them empty; closed when the call has its turn
	rotation []string                   // the tenants in waiting, in the order of their turns
	timed    bool                       // a timer will hand out the next token
}

func newQueue(perSecond float64) *queue {
	return &queue{
		bucket:  rate.NewLimiter(rate.Limit(perSecond), max(1, int(perSecond))),
		waiting: map[string][]chan struct{}{},
	}
}

// wait takes a turn. An error: the caller's time is over, or would be before its turn, and it has none.
func (q *queue) wait(ctx context.Context, tenantID string) error {
	turn, err := q.join(ctx, tenantID)
	if turn == nil || err != nil {
		return err
	}
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
		return q.leave(tenantID, turn, ctx.Err())
	}
}

// join takes a turn, or a place in the queue: then turn is not nil.
func (q *queue) join(ctx context.Context, tenantID string) (turn chan struct{}, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.take() {
		return nil, nil
	}
	if until, ok := ctx.Deadline(); ok && q.delay(tenantID, 0) > time.Until(until) {
		return nil, errTooLong
	}
	if len(q.waiting[tenantID]) == 0 {
		q.rotation = append(q.rotation, tenantID)
	}
	turn = make(chan struct{})
	q.waiting[tenantID] = append(q.waiting[tenantID], turn)
	q.handOut()
	return turn, nil
}

// leave gives a place up. nil: the turn came in the same moment.
func (q *queue) leave(tenantID string, turn chan struct{}, why error) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.waiting[tenantID], turn)
	if i < 0 {
		return nil
	}
	q.waiting[tenantID] = slices.Delete(q.waiting[tenantID], i, i+1)
	if len(q.waiting[tenantID]) == 0 {
		delete(q.waiting, tenantID)
		i := slices.Index(q.rotation, tenantID)
		q.rotation = slices.Delete(q.rotation, i, i+1)
	}
	return why
}

// tryTake takes a turn if there is one to spare: no other call waits for it.
func (q *queue) tryTake() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.take()
}

func (q *queue) take() bool { return len(q.rotation) == 0 && q.bucket.Allow() }

// handOut hands out the tokens that there are, and sets a timer for the next one if a call waits for it.
func (q *queue) handOut() {
	for len(q.rotation) > 0 && q.bucket.Allow() {
		tenantID := q.rotation[0]
		q.rotation = q.rotation[1:]
		close(q.waiting[tenantID][0])
		if q.waiting[tenantID] = q.waiting[tenantID][1:]; len(q.waiting[tenantID]) > 0 {
			q.rotation = append(q.rotation, tenantID)
		} else {
			delete(q.waiting, tenantID)
		}
	}
	if len(q.rotation) == 0 || q.timed {
		return
	}
	q.timed = true
	time.AfterFunc(q.until(1), func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.timed = false
		q.handOut()
	})
}

// delay is how long another call of the tenant would wait if no other came, behind so many of its own that are not in
// the queue yet. It may be one turn for each tenant too long.
func (q *queue) delay(tenantID string, more int) time.Duration {
	own := len(q.waiting[tenantID]) + more
	before := own
	for other, calls := range q.waiting {
		if other != tenantID {
			before += min(len(calls), own+1)
		}
	}
	return q.until(before + 1)
}

// until is when the bucket will have had so many tokens more to give.
func (q *queue) until(tokens int) time.Duration {
	missing := float64(tokens) - q.bucket.Tokens()
	return max(0, time.Duration(missing/float64(q.bucket.Limit())*float64(time.Second)))
}

// delayOf is delay, for who does not hold the lock.
func (q *queue) delayOf(tenantID string, more int) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.delay(tenantID, more)
}
