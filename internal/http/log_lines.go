package http

import (
	"context"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	linesPerSecond = 20               // of refusals with one status; the burst is five seconds' worth
	leftOutEvery   = 10 * time.Second // how often the number of lines that were left out is logged
	leftOutTenants = 100              // that are told apart in it; the other tenants' lines are in one sum
)

// otherTenants is the tenant_id of those that are not told apart.
const otherTenants = "other"

// logLines limits the lines about refused requests. A client can cause as many as it can send, and in a flood of them the
// log would be most of the work, and the others would be lost in it. Up to a rate each has its line, beyond it they are
// counted by tenant, so that the log shows whose flood it is; requests that took effect, were replayed, or were refused for
// what is stored, have theirs always. Probes that succeed are limited as well, because anybody can send them.
type logLines struct {
	log *slog.Logger

	mu    sync.Mutex
	kinds map[lineKind]*lineCount
}

// lineKind is a message and the status that it is about, and of a probe that succeeded its route. A flood of one kind
// leaves out none of another.
type lineKind struct {
	message string
	status  int
	route   string
}

type lineCount struct {
	limit   *rate.Limiter
	leftOut map[string]int // lines by tenant, since they were logged; a timer will log them, unless it is empty
}

func newLogLines(log *slog.Logger) *logLines {
	return &logLines{log: log, kinds: map[lineKind]*lineCount{}}
}

// allow reports whether a line about a request of the tenant, or of a client without a valid API key, may be written. If
// not, it is counted.
func (l *logLines) allow(message string, status int, tenantID string) bool {
	if !costsNothing(status) && status != http.StatusServiceUnavailable {
		return true
	}
	return l.allowKind(lineKind{message: message, status: status}, tenantID)
}

// allowProbe is allow for the line of a probe that succeeded.
func (l *logLines) allowProbe(status int, route string) bool {
	return l.allowKind(lineKind{message: "request", status: status, route: route}, "")
}

func (l *logLines) allowKind(kind lineKind, tenantID string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.kinds[kind]
	if k == nil {
		k = &lineCount{limit: rate.NewLimiter(linesPerSecond, 5*linesPerSecond), leftOut: map[string]int{}}
		l.kinds[kind] = k
	}
	if k.limit.Allow() {
		return true
	}
	if len(k.leftOut) == 0 {
		time.AfterFunc(leftOutEvery, func() { l.logLeftOut(kind) })
	}
	if _, counted := k.leftOut[tenantID]; !counted && len(k.leftOut) >= leftOutTenants {
		tenantID = otherTenants
	}
	k.leftOut[tenantID]++
	return false
}

// logLeftOut logs how many lines of each tenant were left out, most of them first.
func (l *logLines) logLeftOut(kind lineKind) {
	l.mu.Lock()
	k := l.kinds[kind]
	leftOut := k.leftOut
	k.leftOut = map[string]int{}
	l.mu.Unlock()
	tenants := slices.Collect(maps.Keys(leftOut))
	slices.SortFunc(tenants, func(a, b string) int { return leftOut[b] - leftOut[a] })
	for _, tenantID := range tenants {
		line := []slog.Attr{slog.String("message", kind.message), slog.Int("status", kind.status)}
		if kind.route != "" {
			line = append(line, slog.String("route", kind.route))
		}
		if tenantID != "" {
			line = append(line, slog.String("tenant_id", tenantID))
		}
		l.log.LogAttrs(context.Background(), slog.LevelInfo, "log lines left out",
			append(line, slog.Int("lines", leftOut[tenantID]))...)
	}
}

// logAllLeftOut is logLeftOut for all kinds, at the end of the process.
func (l *logLines) logAllLeftOut() {
	l.mu.Lock()
	kinds := slices.Collect(maps.Keys(l.kinds))
	l.mu.Unlock()
	for _, kind := range kinds {
		l.logLeftOut(kind)
	}
}
