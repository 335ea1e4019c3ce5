package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"
)

const (
	memoryHolders = 400
	memoryMore    = 448 // MiB; 879 without the limit. Unsigned bodies are 32: their buffers double as they grow, and so does Go's heap.
	headerHolders = 400
	headersMore   = 256 // MiB; 1645 without the limit
	unreadHolders = 40
	unreadOrders  = 100
	unreadFor     = 10 * time.Second // less than the service waits
	unreadMore    = 160              // MiB; a tenant has a fifth of 128, and what it is served at the time
)

// memory has the process hold as much as it will.
var memory = attack{
	name: "memory", who: "anybody",
	tries: fmt.Sprintf("%d connections that slowly send events of 1 MiB under made-up signatures", memoryHolders),
	holds: growsByAtMost(memoryMore),
	run: func(ctx context.Context, s *site) (string, error) {
		return s.growing(ctx, memoryMore, flood{
			Connections: memoryHolders,
			Requests:    []string{unsignedWebhook(1<<20 - 100), unsignedWebhook(100)}, Trickle: 64 << 10, // The small ones are answered.
		})
	},
}

// unfinishedHeaders come before anything that says whose they are.
var unfinishedHeaders = attack{
	name: "unfinished headers", who: "anybody",
	tries: fmt.Sprintf("%d connections that send 1 MB of a header, without its end", headerHolders),
	holds: growsByAtMost(headersMore),
	run: func(ctx context.Context, s *site) (string, error) {
		return s.growing(ctx, headersMore, flood{
			Connections: headerHolders,
			Requests:    []string{"GET /healthz HTTP/1.1\r\nHost: a\r\nX-A: " + strings.Repeat("a", 1_000_000)},
		})
	},
}

// unreadAnswers are as large as a tenant can make them: in JSON a < is \u003c.
var unreadAnswers = attack{
	name: "unread answers", who: "a tenant",
	tries: fmt.Sprintf("%d connections that ask for a list of %d orders of 100 KB, and do not read it", unreadHolders, unreadOrders),
	holds: growsByAtMost(unreadMore),
	run: func(ctx context.Context, s *site) (string, error) {
		for i := range unreadOrders {
			if _, err := s.attacker.must(ctx, http.StatusCreated, "POST", "/v1/orders", fmt.Sprint("unread-", i), largeOrder()); err != nil {
				return "", err
			}
		}
		return s.growing(ctx, unreadMore, flood{
			Connections: unreadHolders, Unread: unreadFor,
			Requests: []string{raw("GET", "/v1/orders?limit=100", s.attacker.key, "", "")},
		})
	},
}

func growsByAtMost(mib int) string {
	return fmt.Sprintf("the process's resident memory grows by at most %d MiB, and the victim notices as little as in a flood", mib)
}

// growing is what becomes of the process's memory, and of the victim, in a flood.
func (s *site) growing(ctx context.Context, atMost int, f flood) (string, error) {
	before, err := resident(s.api.PID())
	if err != nil {
		return "", err
	}
	most, stop, stopped := before, make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			if now, err := resident(s.api.PID()); err == nil {
				most = max(most, now)
			}
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	f.Addr = strings.TrimPrefix(s.api.URL, "http://")
	seen, err := s.under(ctx, f)
	close(stop)
	<-stopped
	grown := fmt.Sprintf("resident memory grew from %d to %d MiB", before, most)
	if most-before > atMost {
		return "", didNotHold("%s", grown)
	}
	return grown + "; " + seen, err
}

// resident is a process's memory in MiB, as Linux tells it.
func resident(pid int) (mib int, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("resident memory: %w", err)
	}
	_, line, _ := strings.Cut(string(status), "VmRSS:")
	if _, err := fmt.Sscanf(line, "%d kB", &mib); err != nil {
		return 0, fmt.Errorf("VmRSS: %w", err)
	}
	return mib >> 10, nil
}
