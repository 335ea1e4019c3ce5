// Package logs keeps what a program logs, for a test that reads it while the program goes on.
package logs

import (
	"log/slog"
	"strings"
	"sync"
)

// Buffer is where a log is written to. Its zero value is empty.
type Buffer struct {
	mu   sync.Mutex
	text strings.Builder
}

// Logger writes to the buffer all records of a level and above.
func (b *Buffer) Logger(level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{Level: level}))
}

// Write implements io.Writer.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String is what was written since the last Take.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// Take is String, and empties the buffer.
func (b *Buffer) Take() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.text.Reset()
	return b.text.String()
}
