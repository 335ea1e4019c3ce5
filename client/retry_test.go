package client

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"testing"
	"time"
)

func isUnknown(err error) bool {
	var unknown *UnknownError
	return errors.As(err, &unknown)
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"": 0, "0": 0, "1": time.Second, "120": 2 * time.Minute, "007": 7 * time.Second,
		"Fri, 27 Nov 2026 12:00:30 GMT":  30 * time.Second,
		"Friday, 27-Nov-26 12:00:30 GMT": 30 * time.Second, // RFC 850
		"Fri Nov 27 12:00:30 2026":       30 * time.Second, // asctime
		"Fri, 27 Nov 2026 11:59:00 GMT":  0,
		"-1":                             0, "1.5": 0, "soon": 0, "+1": 0,
		"2147483647": longestRetryAfter, "2147483648": longestRetryAfter, "99999999999999999999": longestRetryAfter,
		"Fri, 31 Dec 9999 12:00:30 GMT": longestRetryAfter,
	} {
		h := http.Header{}
		h.Set("Retry-After", value)
		if got := retryAfter(h, now); got != want {
			t.Errorf("%q: %s", value, got)
		}
	}
}

// Each wait is between 1/20 and all of a time that doubles, and is spread over it.
func TestWaitsDoubleWithJitter(t *testing.T) {
	t.Parallel()
	for n, most := range []time.Duration{200, 400, 800, 1600, 3200, 6400, 10000, 10000, 10000} {
		most *= time.Millisecond
		var low, high int
		for range 1000 {
			b := &budget{}
			got := b.wait(n, nil, time.Time{})
			if got < most/20 || got >= most {
				t.Fatalf("wait %d is %s", n, got)
			}
			if got < most/4 {
				low++
			}
			if got > most*3/4 {
				high++
			}
		}
		if low < 100 || high < 100 {
			t.Errorf("wait %d is in the first quarter %d times, and in the last %d times, of 1000", n, low, high)
		}
	}
	b := &budget{}
	if got := b.wait(1<<30, nil, time.Time{}); got > longestWait {
		t.Error(got)
	}
}

// What Retry-After wants is waited for, and a different time by each client.
func TestWaitsAtLeastRetryAfter(t *testing.T) {
	t.Parallel()
	res := response(503, "", "Retry-After", "30")
	seen := map[time.Duration]bool{}
	for range 100 {
		b := &budget{}
		got := b.wait(3, res, time.Time{})
		if got < 30*time.Second || got > 31*time.Second {
			t.Fatal(got)
		}
		seen[got] = true
	}
	if len(seen) < 50 {
		t.Errorf("of 100 clients many come back together: %d times", len(seen))
	}
}

// When retries are many for each call, all of them wait the longest time.
func TestRetryBudget(t *testing.T) {
	t.Parallel()
	b := &budget{}
	short := func() (n int) {
		for range 1000 {
			if b.wait(0, nil, time.Time{}) < firstWait {
				n++
			}
		}
		return n
	}
	// Of those without a budget some are short by chance: 1 in 67.
	if got := short(); got < budgetMax || got > budgetMax+60 {
		t.Fatalf("%d of 1000 retries were early", got)
	}
	if got := short(); got > 60 {
		t.Fatalf("%d more retries were early", got)
	}
	for range 250 {
		b.deposit()
	}
	if got := short(); got < 50 || got > 110 {
		t.Fatalf("%d retries were early after 250 calls", got)
	}
	for range 10000 {
		b.deposit()
	}
	if b.spent != 0 {
		t.Error("the budget grows beyond its limit")
	}
}

// A call ends when its time is over, and no wait goes beyond it.
func TestDeadlines(t *testing.T) {
	for name, change := range map[string]struct {
		options func(*Options)
		ctx     time.Duration
	}{
		"Timeout": {func(o *Options) { o.Timeout = 100 * time.Millisecond }, time.Minute},
		"Context": {func(o *Options) { o.Timeout = time.Minute }, 100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &server{}
			for range 100000 {
				s.faults = append(s.faults, says(500, problem(500, "internal")))
			}
			ctx := t.Context()
			j := openFile(t, filepath.Join(t.TempDir(), "j"))
			c := newClient(t, s, j, change.options)
			q := payment(0)
			q.Method, q.ContentType = "POST", "application/json"
			// Begun before, so that a slow disk takes no time of the call.
			if _, err := j.Begin(ctx, Record{Intent: q.Intent, Key: "k", Base: "http://pay.example", Request: q, State: Sent, BegunAt: time.Now()}); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(ctx, change.ctx)
			defer cancel()
			began := time.Now()
			if _, err := c.Do(ctx, payment(0)); !isUnknown(err) || !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
			if took := time.Since(began); took > 30*time.Second {
				t.Fatal(took)
			}
		})
	}
}

// An attempt that gets no response is given up, and the next one succeeds.
func TestAttemptTimeout(t *testing.T) {
	hang := func(q *http.Request, execute func() *http.Response) (*http.Response, error) {
		execute()
		<-q.Context().Done()
		return nil, q.Context().Err()
	}
	s := &server{faults: []fault{hang}}
	c := newClient(t, s, openFile(t, filepath.Join(t.TempDir(), "j")), func(o *Options) { o.Timeout, o.AttemptTimeout = time.Minute, 50*time.Millisecond })
	if res, err := c.Do(t.Context(), payment(0)); err != nil || !res.OK() || s.requests < 2 {
		t.Fatal(res, err, s.requests)
	}
	s.once(t, 1)
}

func TestCancelDuringWait(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := &server{faults: []fault{func(*http.Request, func() *http.Response) (*http.Response, error) {
		cancel()
		return answer(500, problem(500, "internal")), nil
	}}}
	c := newClient(t, s, openFile(t, filepath.Join(t.TempDir(), "j")), func(o *Options) { o.Timeout = time.Hour })
	c.retries.scale = 0 // the real waits
	if _, err := c.Do(ctx, payment(0)); !isUnknown(err) || !errors.Is(err, context.Canceled) || s.requests != 1 {
		t.Fatal(err)
	}
}
