package process

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
)

// listener copies what a process logs, and reads the address it serves on.
type listener struct {
	name   string
	log    *Log
	says   string
	serves chan Served

	mu   sync.Mutex
	rest []byte // an unfinished line
	last string
}

func (l *listener) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, b...)
	for {
		line, rest, whole := bytes.Cut(l.rest, []byte("\n"))
		if !whole {
			return len(b), nil
		}
		l.rest, l.last = rest, string(line)
		l.log.line(l.name, l.last)
		var said struct {
			Msg string
			Served
		}
		if json.Unmarshal(line, &said) == nil && said.Msg == l.says {
			select {
			case l.serves <- said.Served:
			default:
			}
		}
	}
}

func (l *listener) lastLine() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// Log gets what all processes log. It is kept if something went wrong.
type Log struct {
	Name string
	mu   sync.Mutex
	file *os.File
}

// NewLog makes one in the folder for temporary files.
func NewLog(pattern string) (*Log, error) {
	file, err := os.CreateTemp("", pattern)
	if err != nil {
		return nil, err
	}
	return &Log{Name: file.Name(), file: file}, nil
}

func (l *Log) line(from, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = fmt.Fprintf(l.file, "%s: %s\n", from, text) // a full disk must not end the show
}

// LastLines is the end of what a program printed, for the message of a test: at most so many lines, and the name of a file
// with the whole. The whole would push what failed off the screen.
func LastLines(text string, most int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if len(lines) <= most {
		return text
	}
	where := "a file that could not be made"
	if file, err := os.CreateTemp("", "payonce-output-*.txt"); err == nil {
		_, _ = file.WriteString(text)
		_ = file.Close()
		where = file.Name()
	}
	return fmt.Sprintf("… the last %d of %d lines; all are in %s\n%s\n", most, len(lines), where,
		strings.Join(lines[len(lines)-most:], "\n"))
}

// Tail is the last lines of one process, for an error that has to say why.
func (l *Log) Tail(from string) string {
	text, err := os.ReadFile(l.Name)
	if err != nil {
		return err.Error()
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, from+": ") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines[max(0, len(lines)-10):], "")
}

// Close closes the file, and removes it unless it is to be kept.
func (l *Log) Close(keep bool) error {
	err := l.file.Close()
	if !keep {
		err = errors.Join(err, os.Remove(l.Name))
	}
	return err
}
