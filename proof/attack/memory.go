package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"regexp"
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
	podMemory     = 384              // MiB, as deploy/kubernetes/base/api.yaml limits it
	halfSent      = 1500             // 4000 in the long form
	errorSenders  = 100
	errorsMore    = 256 // MiB
	docsReaders   = 960
	docsNetworks  = 120
	docsMore      = 320 // MiB; 1099 without one limit for all networks
	unreadMore    = 160 // MiB; a tenant has a fifth of 128, and what it is served at the time
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

// halfSentBodies are those of one API key, in a process with a pod's memory: as the process itself would, it is told to plan
// with nine tenths.
var halfSentBodies = attack{
	name: "half-sent bodies", who: "a tenant",
	tries: fmt.Sprintf("%d connections, by night 4000, of one API key that send 63 KiB of a body of 64 KiB, and wait", halfSent),
	holds: fmt.Sprintf("the process's resident memory stays under the %d MiB of the Kubernetes manifest, and the victim notices as little as in a flood", podMemory),
	run: func(ctx context.Context, s *site) (string, error) {
		return s.another(ctx, s.server, []string{fmt.Sprintf("GOMEMLIMIT=%dMiB", podMemory*9/10)}, func(s *site) (string, error) {
			body := strings.Repeat(" ", 64<<10)
			request := raw("POST", "/v1/orders", s.attacker.key, random, body)
			_, most, seen, err := s.watched(ctx, flood{
				Connections: s.form(halfSent, 4000), Requests: []string{request[:len(request)-1<<10]},
			})
			if most >= podMemory {
				return "", didNotHold("resident memory was %d MiB", most)
			}
			return fmt.Sprintf("resident memory was %d MiB at most; %s", most, seen), err
		})
	},
}

// floodOfErrors has mistakes in each item, and card numbers as names, each of which is left out of the answer.
var floodOfErrors = attack{
	name: "flood of errors", who: "a tenant",
	tries: fmt.Sprintf("%d connections that send bodies of 64 KiB with thousands of mistakes, and with thousands of card numbers", errorSenders),
	holds: growsByAtMost(errorsMore),
	run: func(ctx context.Context, s *site) (string, error) {
		if err := s.floodIsOver(ctx); err != nil {
			return "", err
		}
		items := `{"currency":"usd","items":[{}` + strings.Repeat(",{}", 20_000) + "]}"
		names := `{"currency":"usd"`
		for i := 0; len(names) < 60<<10; i++ {
			names += fmt.Sprintf(`,"4242424242424242 %d":{}`, i)
		}
		return s.growing(ctx, errorsMore, flood{Connections: errorSenders, Requests: []string{
			raw("POST", "/v1/orders", s.attacker.key, random, items), raw("POST", "/v1/orders", s.attacker.key, random, names+"}"),
		}})
	},
}

// floodOfDocuments asks for what is largest, and for what costs the most to look at, from many networks, each of which has
// a limit of its own.
var floodOfDocuments = attack{
	name: "flood of documents", who: "anybody",
	tries: fmt.Sprintf("%d connections from %d networks that read and HEAD the largest script of the documentation without gzip, and ask for "+
		"/healthz with 15 KiB of digits", docsReaders, docsNetworks),
	holds: growsByAtMost(docsMore),
	run: func(ctx context.Context, s *site) (string, error) {
		a, err := client{base: s.api.URL}.send(ctx, "GET", "/docs", "", nil)
		if err != nil {
			return "", err
		}
		script := regexp.MustCompile(`/docs/assets/scalar[^"]*`).FindString(a.body)
		if script == "" {
			return "", fmt.Errorf("/docs has no script: %d", a.status)
		}
		return s.growing(ctx, docsMore, flood{Connections: docsReaders, Networks: docsNetworks, Requests: []string{
			raw("GET", script, "", "", ""), raw("HEAD", script, "", "", ""),
			raw("GET", "/healthz?"+strings.Repeat("4+", 7_500), "", "", ""),
		}})
	},
}

func growsByAtMost(mib int) string {
	return fmt.Sprintf("the process's resident memory grows by at most %d MiB, and the victim notices as little as in a flood", mib)
}

// growing is what becomes of the process's memory, and of the victim, in a flood.
func (s *site) growing(ctx context.Context, atMost int, f flood) (string, error) {
	before, most, seen, err := s.watched(ctx, f)
	grown := fmt.Sprintf("resident memory grew from %d to %d MiB", before, most)
	if most-before > atMost {
		return "", didNotHold("%s", grown)
	}
	return grown + "; " + seen, err
}

// watched measures the process's memory, before a flood and at most within it.
func (s *site) watched(ctx context.Context, f flood) (before, most int, seen string, err error) {
	if before, err = resident(s.api.PID()); err != nil {
		return 0, 0, "", err
	}
	most = before
	stop, stopped := make(chan struct{}), make(chan struct{})
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
	seen, err = s.under(ctx, f)
	close(stop)
	<-stopped
	return before, most, seen, err
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
