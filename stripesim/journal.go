package stripesim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// journal is the file behind a simulator that survives its own death. Every
// committed transaction is one line. Lines are gathered by one writer, so that
// many requests share a write; an answer leaves only after the line it depends
// on has been written. Written, not synced: the promise is to survive kill -9 of
// the process, not the loss of power.
type journal struct {
	f    *os.File
	mu   sync.Mutex
	cond *sync.Cond

	pending  []byte
	appended int64 // the position of the last line handed over
	written  int64 // the position of the last line the kernel has
	err      error
	closed   bool
	done     chan struct{}
}

// openJournal reads the file line by line into apply and makes it ready for
// more. A last line that was cut short by a kill was never acknowledged
// and is dropped; anything else that cannot be read is an error.
func openJournal(path string, apply func(entry) error) (*journal, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	if err := lockInTime(f); err != nil {
		f.Close()
		return nil, fmt.Errorf("journal %s is in use by another simulator: %w", path, err)
	}
	good, err := readJournal(f, apply)
	if err == nil {
		err = f.Truncate(good)
	}
	if err == nil {
		_, err = f.Seek(good, io.SeekStart)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("read journal %s: %w", path, err)
	}
	return newJournal(f), nil
}

func newJournal(f *os.File) *journal {
	j := &journal{f: f, done: make(chan struct{})}
	j.cond = sync.NewCond(&j.mu)
	go j.write()
	return j
}

// lockInTime gives a predecessor that is still being buried a moment to let go.
func lockInTime(f *os.File) error {
	var err error
	for range 50 {
		if err = lockFile(f); err == nil {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return err
}

// readJournal returns the offset of the end of the last whole line.
func readJournal(f *os.File, apply func(entry) error) (int64, error) {
	data, err := io.ReadAll(f)
	if err != nil {
		return 0, err
	}
	var good int64
	for n := 1; len(data) > 0; n++ {
		line, rest, whole := bytes.Cut(data, []byte{'\n'})
		if !whole {
			break
		}
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			return 0, fmt.Errorf("line %d: %w", n, err)
		}
		if err := apply(e); err != nil {
			return 0, fmt.Errorf("line %d: %w", n, err)
		}
		good += int64(len(line)) + 1
		data = rest
	}
	return good, nil
}

// append hands a line to the writer. Positions must grow.
func (j *journal) append(position int64, line []byte) {
	j.mu.Lock()
	j.pending = append(j.pending, line...)
	j.appended = position
	j.mu.Unlock()
	j.cond.Broadcast()
}

// wait returns when everything up to position has been written.
func (j *journal) wait(position int64) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	for j.written < min(position, j.appended) && j.err == nil {
		j.cond.Wait()
	}
	return j.err
}

func (j *journal) write() {
	defer close(j.done)
	var spare []byte
	j.mu.Lock()
	defer j.mu.Unlock()
	for {
		for len(j.pending) == 0 && !j.closed {
			j.cond.Wait()
		}
		if len(j.pending) == 0 {
			return
		}
		batch, position := j.pending, j.appended
		j.pending = spare[:0]
		j.mu.Unlock()
		_, err := j.f.Write(batch)
		j.mu.Lock()
		spare = batch
		if err != nil && j.err == nil {
			j.err = fmt.Errorf("write journal: %w", err)
		}
		j.written = position
		j.cond.Broadcast()
	}
}

// clear empties the file, for a simulator that starts anew.
func (j *journal) clear() error {
	if err := j.wait(j.position()); err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.f.Truncate(0); err != nil {
		return err
	}
	_, err := j.f.Seek(0, io.SeekStart)
	return err
}

func (j *journal) position() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.appended
}

func (j *journal) close() error {
	j.mu.Lock()
	j.closed = true
	j.mu.Unlock()
	j.cond.Broadcast()
	<-j.done
	if j.err != nil {
		j.f.Close()
		return j.err
	}
	return j.f.Close()
}
