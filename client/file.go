package client

import (
	"bufio"
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
	"strings"
	"sync"
)

// File is a journal in one file, to which records are appended. One process has it open at a time. Its methods may be
// called by several goroutines; those that begin intents at the same time share one fsync.
//
// The first line names the format and the journal's id; each line after it is a checksum and a record. A crash may
// leave the last lines incomplete: their requests were never sent, and OpenFile cuts them off. The file holds requests
// as they were sent, and only its owner can read it. It is never shortened otherwise, and its records are held in
// memory; for more than some hundred thousand intents use [SQL], where old rows can be deleted.
type File struct {
	id string

	mu      sync.Mutex
	file    *os.File
	size    int64 // all before it is written whole
	failed  error // no record is accepted any more
	records map[string]Record
	callers map[string]int // how many calls have begun an intent, those before OpenFile counted as one
	order   []string       // the intents, as they were first begun

	syncing sync.Mutex
	synced  int64 // all before it survives a crash
}

var _ Journal = (*File)(nil)

const (
	fileHead = "payonce-journal 1 " // and the id, and a newline
	idLength = 26                   // of rand.Text, which is base32
)

// OpenFile opens the journal at path, or makes it. Its folder must exist, on a file system with hard links and flock.
// Errors: [ErrJournalInUse], [ErrJournalForeign], [ErrJournalDamaged], or those of the file system, such as a file that
// may not be written. Whatever the error, the file is left as it was.
func OpenFile(path string) (*File, error) {
	f, err := openJournal(path)
	if err != nil {
		return nil, fmt.Errorf("open the journal %s: %w", path, err)
	}
	return f, nil
}

func openJournal(path string) (_ *File, err error) {
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		if err := createJournal(path); err != nil {
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
	if info, err := file.Stat(); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: it is not a regular file", ErrJournalForeign)
	}
	if err := lockFile(file); err != nil {
		return nil, err
	}
	f := &File{file: file, records: map[string]Record{}, callers: map[string]int{}}
	if err := f.load(); err != nil {
		return nil, err
	}
	// The incomplete end is cut off, and the rest must be on the disk before anything relies on it. So must the file's
	// name, of which another process may have had no time to sync the folder.
	if err := errors.Join(file.Truncate(f.size), file.Sync(), syncFolder(filepath.Dir(path))); err != nil {
		return nil, err
	}
	_, err = file.Seek(f.size, io.SeekStart)
	f.synced = f.size
	return f, err
}

// createJournal makes a journal that has its whole first line or does not exist: of all in it, the id must not be lost.
func createJournal(path string) error {
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

// load reads the file, and sets size to where its whole records end.
func (f *File) load() error {
	in := bufio.NewReader(f.file)
	head := make([]byte, len(fileHead)+idLength+1)
	if _, err := io.ReadFull(in, head); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	id, ours := bytes.CutPrefix(head, []byte(fileHead))
	if !ours || id[idLength] != '\n' || bytes.ContainsFunc(id[:idLength], notBase32) {
		return ErrJournalForeign
	}
	f.id, f.size = string(id[:idLength]), int64(len(head))
	torn := int64(-1)
	for at := f.size; ; {
		line, err := in.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		text, whole := bytes.CutSuffix(line, []byte("\n"))
		r, ok := decode(text)
		switch {
		case len(line) == 0:
			return nil
		case !whole || !ok:
			if torn < 0 {
				torn = at
			}
		case torn >= 0:
			return fmt.Errorf("%w: the line at byte %d cannot be read, and records follow it", ErrJournalDamaged, torn)
		default:
			f.put(r)
			f.callers[r.Intent] = 1
			f.size = at + int64(len(line))
		}
		at += int64(len(line))
	}
}

func notBase32(r rune) bool { return !strings.ContainsRune("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", r) }

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
		f.callers[r.Intent]++
		size := f.size
		f.mu.Unlock()
		return &stored, f.sync(size) // another goroutine may have just written it
	}
	size, err := f.write(r)
	if err == nil {
		f.callers[r.Intent] = 1
	}
	f.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return nil, f.sync(size)
}

// Continue implements [Journal]. It is one caller more, so that no other says that the request was refused.
func (f *File) Continue(_ context.Context, intent string) (*Record, error) {
	f.mu.Lock()
	r, ok := f.records[intent]
	if ok && r.State == Sent {
		f.callers[intent]++
	}
	size := f.size
	f.mu.Unlock()
	if !ok || r.State != Sent {
		return nil, nil
	}
	return &r, f.sync(size)
}

// Note implements [Journal]. Final and Broken are never overwritten. Refused is written only if no other call has begun
// the intent, perhaps through another client of this process, because that one may have sent it.
func (f *File) Note(_ context.Context, r Record) error {
	f.mu.Lock()
	stored, ok := f.records[r.Intent]
	ended := ok && (stored.State == Final || stored.State == Broken)
	if r.State == Refused && (ended || f.callers[r.Intent] > 1) {
		f.mu.Unlock()
		return errOthers
	}
	if ended {
		f.mu.Unlock()
		return nil
	}
	size, err := f.write(r)
	f.mu.Unlock()
	if err != nil || (r.State != Refused && r.State != Broken) {
		return err
	}
	return f.sync(size)
}

// write appends a record, and returns the size of the file with it. If only a part of it could be written, that is
// removed.
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

// sync returns once all before size is on the disk. After an fsync that failed it is not known what is
// (https://wiki.postgresql.org/wiki/Fsync_Errors), so the journal accepts no more records.
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

// Close syncs the journal and releases it for another process. Calls of Do that are running go on, and what they note is
// lost: their requests are sent again by Resume.
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
