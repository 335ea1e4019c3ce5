package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
)

// File is a journal in one file, to which records are appended. One process has it open at a time. Its methods may be
// called by several goroutines; those that begin at the same time share one sync.
//
// Each line is a checksum and a record. The last ones may be torn, by a crash in the middle of a write: they were never
// sent, and are cut off. The file holds requests as they were sent, and is readable by its owner only.
type File struct {
	id string

	mu      sync.Mutex
	file    *os.File
	size    int64 // up to here all is written whole
	failed  error // no record is taken any more
	records map[string]Record
	order   []string // of first records

	syncing sync.Mutex
	synced  int64 // up to here all survives a crash
}

var _ Journal = (*File)(nil)

const fileHead = "payonce-journal 1 " // and the id

// OpenFile opens the journal at path, or makes it. Its folder must exist. Errors: [ErrJournalInUse],
// [ErrJournalForeign], [ErrJournalDamaged], or those of the file system.
func OpenFile(path string) (*File, error) {
	f, err := open(path)
	if err != nil {
		return nil, fmt.Errorf("open the journal %s: %w", path, err)
	}
	return f, nil
}

func open(path string) (_ *File, err error) {
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		if err := create(path); err != nil {
			return nil, err
		}
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = file.Close()
		}
	}()
	if err := lock(file); err != nil {
		return nil, err
	}
	f := &File{file: file, records: map[string]Record{}}
	if err := f.load(); err != nil {
		return nil, err
	}
	// What a crash tore goes, and what is left is known to be on the disk before it is relied on.
	if err := errors.Join(file.Truncate(f.size), file.Sync()); err != nil {
		return nil, err
	}
	_, err = file.Seek(f.size, io.SeekStart)
	f.synced = f.size
	return f, err
}

// create makes a journal that is whole or not there: the id is the one thing of it that must not be lost.
func create(path string) error {
	folder := filepath.Dir(path)
	file, err := os.CreateTemp(folder, filepath.Base(path)+".new-*") // 0600
	if err != nil {
		return err
	}
	_, err = file.WriteString(fileHead + rand.Text() + "\n")
	err = errors.Join(err, file.Sync(), file.Close())
	if err == nil {
		err = os.Link(file.Name(), path) // fails if another process has made one meanwhile
		if errors.Is(err, os.ErrExist) {
			err = nil
		}
	}
	return errors.Join(err, os.Remove(file.Name()), syncFolder(folder))
}

func (f *File) load() error {
	all, err := io.ReadAll(f.file)
	if err != nil {
		return err
	}
	head, rest, whole := bytes.Cut(all, []byte("\n"))
	id, ours := bytes.CutPrefix(head, []byte(fileHead))
	if !whole || !ours || len(id) < 26 {
		return ErrJournalForeign
	}
	f.id, f.size = string(id), int64(len(head)+1)
	torn := int64(-1)
	for at := f.size; len(rest) > 0; {
		var text []byte
		text, rest, whole = bytes.Cut(rest, []byte("\n"))
		r, ok := decode(text)
		switch {
		case !whole || !ok:
			if torn < 0 {
				torn = at
			}
		case torn >= 0:
			return fmt.Errorf("%w: the line at byte %d is unreadable, and records follow it", ErrJournalDamaged, torn)
		default:
			f.put(r)
			f.size = at + int64(len(text)+1)
		}
		at += int64(len(text) + 1)
	}
	return nil
}

func (f *File) put(r Record) {
	if _, ok := f.records[r.Intent]; !ok {
		f.order = append(f.order, r.Intent)
	}
	f.records[r.Intent] = r
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func encode(r Record) ([]byte, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, "%08x %s\n", crc32.Checksum(text, castagnoli), text), nil
}

func decode(line []byte) (r Record, ok bool) {
	sum, text, ok := bytes.Cut(line, []byte(" "))
	if !ok {
		return r, false
	}
	want, err := strconv.ParseUint(string(sum), 16, 32)
	if err != nil || len(sum) != 8 || uint32(want) != crc32.Checksum(text, castagnoli) {
		return r, false
	}
	return r, json.Unmarshal(text, &r) == nil
}

// ID implements [Journal].
func (f *File) ID() string { return f.id }

// Begin implements [Journal].
func (f *File) Begin(_ context.Context, r Record) (*Record, error) {
	f.mu.Lock()
	if stored, ok := f.records[r.Intent]; ok && stored.State != Refused {
		size := f.size
		f.mu.Unlock()
		return &stored, f.sync(size) // which may be one that another goroutine has just written
	}
	size, err := f.write(r)
	f.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return nil, f.sync(size)
}

// Note implements [Journal].
func (f *File) Note(_ context.Context, r Record) error {
	f.mu.Lock()
	size, err := f.write(r)
	f.mu.Unlock()
	if err != nil || r.State != Refused {
		return err
	}
	return f.sync(size)
}

// write appends a record. A part that was written of one is taken back.
func (f *File) write(r Record) (int64, error) {
	if f.failed != nil {
		return 0, f.failed
	}
	line, err := encode(r)
	if err != nil {
		return 0, err
	}
	if _, err := f.file.Write(line); err != nil {
		_, seek := f.file.Seek(f.size, io.SeekStart)
		if again := errors.Join(f.file.Truncate(f.size), seek); again != nil {
			f.failed = fmt.Errorf("%w: %w", ErrJournalFailed, errors.Join(err, again))
		}
		return 0, fmt.Errorf("%w: %w", ErrJournalFailed, err)
	}
	f.size += int64(len(line))
	f.put(r)
	return f.size, nil
}

// sync returns once all up to size is on the disk. After a sync that failed nobody knows what is
// (https://wiki.postgresql.org/wiki/Fsync_Errors), so the journal takes nothing more.
func (f *File) sync(size int64) error {
	f.syncing.Lock()
	defer f.syncing.Unlock()
	if f.synced >= size {
		return nil
	}
	f.mu.Lock()
	written, failed := f.size, f.failed
	f.mu.Unlock()
	if failed != nil {
		return failed
	}
	if err := f.file.Sync(); err != nil {
		err = fmt.Errorf("%w: %w", ErrJournalFailed, err)
		f.mu.Lock()
		f.failed = err
		f.mu.Unlock()
		return err
	}
	f.synced = written
	return nil
}

// Open implements [Journal].
func (f *File) Open(context.Context) ([]Record, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var open []Record
	for _, intent := range f.order {
		if r := f.records[intent]; r.State == Sent {
			open = append(open, r)
		}
	}
	slices.SortStableFunc(open, func(a, b Record) int { return a.BegunAt.Compare(b.BegunAt) })
	return open, nil
}

// Close syncs the journal and gives it free for another process.
func (f *File) Close() error {
	f.mu.Lock()
	size := f.size
	f.mu.Unlock()
	err := f.sync(size)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed == nil {
		f.failed = fmt.Errorf("%w: it is closed", ErrJournalFailed)
	}
	return errors.Join(err, f.file.Close())
}
