package http

import (
	"log/slog"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	linesPerSecond = 20               // of refusals with one status; the burst is five seconds' worth
	leftOutEvery   = 10 * time.Second // how often the number of lines that were left out is logged
)

// logLines limits the lines about refused requests. A client can cause as many as it can send, and in a flood of them the
// log would be most of the work, and the others would be lost in it. Up to a rate each has its line, beyond it they are
// counted; requests that took effect, were replayed, or were refused for what is stored, have theirs always.
type logLines struct {
	log *slog.Logger

	mu    sync.Mutex
	kinds map[lineKind]*lineCount
}

// lineKind is a message and the status that it is about. A flood of one kind leaves out none of another.
type lineKind struct {
	message string
	status  int
}

type lineCount struct {
	limit   *rate.Limiter
	leftOut int // since it was logged; a timer will log it, unless it is zero
}

func newLogLines(log *slog.Logger) *logLines {
	return &logLines{log: log, kinds: map[lineKind]*lineCount{}}
}

// allow reports whether a line may be written. If not, it is counted.
func (l *logLines) allow(message string, status int) bool {
	switch status {
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound,
		http.StatusMethodNotAllowed, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType,
		http.StatusTooManyRequests, http.StatusServiceUnavailable:
	default:
		return true
	}
	kind := lineKind{message, status}
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.kinds[kind]
	if k == nil {
		k = &lineCount{limit: rate.NewLimiter(linesPerSecond, 5*linesPerSecond)}
		l.kinds[kind] = k
	}
	if k.limit.Allow() {
		return true
	}
	if k.leftOut++; k.leftOut == 1 {
		time.AfterFunc(leftOutEvery, func() { l.tell(kind) })
	}
	return false
}

// tell logs how many lines were left out.
func (l *logLines) tell(kind lineKind) {
	l.mu.Lock()
	k := l.kinds[kind]
	n := k.leftOut
	k.leftOut = 0
	l.mu.Unlock()
	if n > 0 {
		l.log.Info("log lines left out", "message", kind.message, "status", kind.status, "lines", n)
	}
}

// tellAll is tell for all kinds, at the end of the process.
func (l *logLines) tellAll() {
	l.mu.Lock()
	var kinds []lineKind
	for kind := range l.kinds {
		kinds = append(kinds, kind)
	}
	l.mu.Unlock()
	for _, kind := range kinds {
		l.tell(kind)
	}
}
