package client

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// fastDir is a folder in memory, where there is one: tests that open thousands of journals need not wait for a disk.
func fastDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "payonce-client-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// realJournal is what a client leaves that is killed three times among its intents, and the server it has talked to.
func realJournal(t *testing.T, intents int) ([]byte, *server) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "j")
	s := &server{}
	ends := []fault{says(400, problem(400, "invalid-request")), kill(cutBefore), cutAfter, kill(cutAfter), doesAndSays(503, "{}"), cutInBody, kill(cutInBody)}
	for i := range intents {
		s.mu = sync.Mutex{} // which a kill has left locked
		s.faults = ends[i%len(ends) : i%len(ends)+1]
		j := openFile(t, path)
		func() {
			defer func() { _ = recover() }()
			_, _ = newClient(t, s, j).Do(t.Context(), payment(i))
		}()
		_ = j.file.Close()
	}
	s.mu, s.faults = sync.Mutex{}, nil
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return whole, s
}

// copy is a server that has done the same, or only what the journal knows to be done.
func (s *server) copy(j *File, all bool) *server {
	c := &server{stored: map[string]stored{}, done: map[string]int{}}
	for key, entry := range s.stored {
		if all || slices.ContainsFunc(slices.Collect(maps.Values(j.records)), func(r Record) bool { return r.Key == key && (r.State == Final || r.Seen.Done) }) {
			c.stored[key], c.done[entry.body] = entry, s.done[entry.body]
		}
	}
	return c
}

// resumeAndRepeat is a process that starts on a journal: it resumes, and then its caller does all intents once more.
func resumeAndRepeat(t *testing.T, s *server, j *File, intents int) error {
	t.Helper()
	c := newClient(t, s, j)
	outcomes, err := c.Resume(t.Context())
	if err != nil {
		return err
	}
	for _, o := range outcomes {
		if o.Err != nil || !o.Response.OK() {
			return fmt.Errorf("resumed %q: %v, %w", o.Intent, o.Response, o.Err)
		}
	}
	for i := range intents {
		res, err := c.Do(t.Context(), payment(i))
		if err != nil || !res.OK() {
			return fmt.Errorf("intent %d: %v, %w", i, res, err)
		}
	}
	return nil
}

// Wherever a journal is cut after its first line, each intent is executed once: by a server that has executed all
// of them before, and by one that has executed those only that what is left knows to be done. A journal that is cut in its first line is refused.
func TestJournalCutAtEveryByte(t *testing.T) {
	const intents = 8
	whole, before := realJournal(t, intents)
	head := bytes.IndexByte(whole, '\n') + 1
	if before.requests < intents || bytes.Count(whole, []byte(`"state":"sent"`)) < intents || !bytes.Contains(whole, []byte(`"final"`)) ||
		!bytes.Contains(whole, []byte(`"refused"`)) {
		t.Fatalf("the journal is not what it should be:\n%s", whole)
	}
	const parts = 16 // at the same time
	for part := range parts {
		t.Run(fmt.Sprint(part), func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(fastDir(t), "cut")
			for n := part; n <= len(whole); n += parts {
				if err := os.WriteFile(path, whole[:n], 0o600); err != nil {
					t.Fatal(err)
				}
				j, err := OpenFile(path)
				if n < head {
					if !errors.Is(err, ErrJournalForeign) {
						t.Fatalf("cut to %d bytes it was opened: %v", n, err)
					}
					continue
				}
				if err != nil {
					t.Fatalf("cut to %d bytes: %v", n, err)
				}
				s := before.copy(j, n%2 == 0)
				s.faults = []fault{cutAfter, cutInBody}
				if err := errors.Join(resumeAndRepeat(t, s, j, intents), j.Close()); err != nil {
					t.Fatalf("cut to %d bytes: %v", n, err)
				}
				s.once(t, intents)
				if n%64 != 0 {
					continue
				}
				requests := s.requests
				if j, err = OpenFile(path); err != nil {
					t.Fatalf("cut to %d bytes, resumed and opened again: %v", n, err)
				}
				if err := errors.Join(resumeAndRepeat(t, s, j, intents), j.Close()); err != nil || s.requests != requests {
					t.Fatalf("cut to %d bytes, resumed and opened again: %v, %d requests", n, err, s.requests-requests)
				}
			}
		})
	}
}

// Each byte changed: it is told, or it was in the last record and the request is sent again.
func TestJournalWithAChangedByte(t *testing.T) {
	path := filepath.Join(fastDir(t), "j")
	s := &server{}
	j := openFile(t, path)
	c := newClient(t, s, j)
	for i := range 2 {
		if _, err := c.Do(t.Context(), payment(i)); err != nil {
			t.Fatal(err)
		}
	}
	_ = j.Close()
	whole, _ := os.ReadFile(path)
	last := bytes.LastIndexByte(whole[:len(whole)-1], '\n') + 1
	head := bytes.IndexByte(whole, '\n') + 1
	for n := range whole {
		if n >= len(fileHead) && n < head-1 {
			continue // another id is another journal
		}
		changed := bytes.Clone(whole)
		changed[n] ^= 1
		if err := os.WriteFile(path, changed, 0o600); err != nil {
			t.Fatal(err)
		}
		j, err := OpenFile(path)
		switch {
		case n < head:
			if !errors.Is(err, ErrJournalForeign) {
				t.Fatalf("byte %d: %v", n, err)
			}
		case n < last-1: // the newline between the last two makes them one line, at the end
			if !errors.Is(err, ErrJournalDamaged) {
				t.Fatalf("byte %d: %v", n, err)
			}
		case err != nil:
			t.Fatalf("byte %d: %v", n, err)
		default:
			for i := range 2 {
				if res, err := newClient(t, s, j).Do(t.Context(), payment(i)); err != nil || !res.OK() {
					t.Fatal(res, err)
				}
			}
			_ = j.Close()
		}
		s.once(t, 2)
	}
}

func TestOpenFileRefuses(t *testing.T) {
	folder := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, text := range map[string]string{"Empty": "", "Log": "hello\nworld\n", "Later": "payonce-journal 2 ABCDEFGHIJKLMNOPQRSTUVWXYZ\n",
		"ShortId": fileHead + "A\n", "Digits": fileHead + "ABCDEFGHIJKLMNOPQRSTUVWXY1\n", "Lower": fileHead + "abcdefghijklmnopqrstuvwxyz\n", "Torn": fileHead + "ABCDEFGHIJKLMNOPQRSTUVWXYZ"} {
		path := write(name, text)
		if _, err := OpenFile(path); !errors.Is(err, ErrJournalForeign) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
		if now, _ := os.ReadFile(path); string(now) != text {
			t.Errorf("%s was changed", name)
		}
	}
	if _, err := OpenFile(filepath.Join(folder, "no", "j")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if _, err := OpenFile(folder); err == nil {
		t.Error("a folder was opened")
	}
	j := openFile(t, filepath.Join(folder, "j"))
	if _, err := OpenFile(filepath.Join(folder, "j")); !errors.Is(err, ErrJournalInUse) || !strings.Contains(err.Error(), "in this process or another") {
		t.Error(err)
	}
	if info, err := os.Stat(filepath.Join(folder, "j")); err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info.Mode(), err)
	}
	_ = j.Close()
	if left, _ := filepath.Glob(filepath.Join(folder, "*.new-*")); len(left) > 0 {
		t.Error(left)
	}
}

// Of many processes that make a journal at once, all get the same one.
func TestCreateAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "j")
	var all sync.WaitGroup
	for range 20 {
		all.Add(1)
		go func() {
			defer all.Done()
			if err := createJournal(path); err != nil {
				t.Error(err)
			}
		}()
	}
	all.Wait()
	first := openFile(t, path).ID()
	if len(first) < 26 {
		t.Fatal(first)
	}
}

// A disk that is full, or takes no writes, is told before anything is sent. The file is what it was.
func TestJournalCannotBeWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "j")
	s := &server{}
	j := openFile(t, path)
	if _, err := newClient(t, s, j).Do(t.Context(), payment(0)); err != nil {
		t.Fatal(err)
	}
	_ = j.Close()

	t.Run("Full", func(t *testing.T) {
		if os.Getenv("JOURNAL") == "" {
			// A limit on the size of files is to a program what a full disk is: part of a record is written.
			again := exec.Command("sh", "-c", `ulimit -f 2; exec "$0" -test.run '^TestJournalCannotBeWritten$/^Full$' -test.v`, os.Args[0])
			again.Env = append(os.Environ(), "JOURNAL="+path)
			out, err := again.CombinedOutput()
			if err != nil || !bytes.Contains(out, []byte("it is full")) {
				t.Fatalf("%v\n%s", err, out)
			}
			j := openFile(t, path) // nothing is torn
			if res, err := newClient(t, s, j).Do(t.Context(), payment(0)); err != nil || !res.OK() {
				t.Fatal(res, err)
			}
			s.once(t, 1)
			_ = j.Close()
			return
		}
		j := openFile(t, os.Getenv("JOURNAL"))
		s := &server{}
		c := newClient(t, s, j)
		for i := 1; i < 100; i++ {
			_, err := c.Do(t.Context(), payment(i))
			if errors.Is(err, ErrNotSent) && errors.Is(err, ErrJournalFailed) {
				if s.requests != i-1 {
					t.Fatal("it was sent")
				}
				if info, err := j.file.Stat(); err != nil || info.Size() != j.size {
					t.Fatal("a part of a record was left: ", info.Size(), j.size, err)
				}
				t.Log("it is full: ", err)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		t.Fatal("it was never full")
	})

	// A disk that reports an error when it is synced may have lost anything since the last time.
	t.Run("FsyncFails", func(t *testing.T) {
		j := openFile(t, filepath.Join(t.TempDir(), "j"))
		read, write, err := os.Pipe() // takes bytes, and cannot be synced
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = read.Close(); _ = write.Close() })
		file := j.file
		j.file = write
		s := &server{}
		c := newClient(t, s, j)
		if _, err := c.Do(t.Context(), payment(1)); !errors.Is(err, ErrNotSent) || !errors.Is(err, ErrJournalFailed) {
			t.Fatal(err)
		}
		j.file = file // in order again, but what is on it is not known
		for i := range 3 {
			if _, err := c.Do(t.Context(), payment(i)); !errors.Is(err, ErrNotSent) || !errors.Is(err, ErrJournalFailed) {
				t.Fatal(i, err)
			}
		}
		if s.requests != 0 {
			t.Fatal("it was sent")
		}
	})

	t.Run("ReadOnly", func(t *testing.T) {
		j := openFile(t, path)
		readOnly, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		j.file = readOnly
		s := &server{}
		for range 2 {
			if _, err := newClient(t, s, j).Do(t.Context(), payment(1)); !errors.Is(err, ErrNotSent) || !errors.Is(err, ErrJournalFailed) {
				t.Fatal(err)
			}
		}
		if s.requests != 0 {
			t.Fatal("it was sent")
		}
	})

	t.Run("Closed", func(t *testing.T) {
		j := openFile(t, filepath.Join(t.TempDir(), "j"))
		_ = j.Close()
		if _, err := newClient(t, &server{}, j).Do(t.Context(), payment(1)); !errors.Is(err, ErrNotSent) {
			t.Fatal(err)
		}
	})
}

// What is begun is on the disk, not only in this process, when Begin returns.
func TestBeginIsSynced(t *testing.T) {
	j := openFile(t, filepath.Join(t.TempDir(), "j"))
	var all sync.WaitGroup
	for i := range 50 {
		all.Add(1)
		go func() {
			defer all.Done()
			r := Record{Intent: fmt.Sprint(i), State: Sent}
			if stored, err := j.Begin(t.Context(), r); err != nil || stored != nil {
				t.Error(stored, err)
			}
			j.syncing.Lock()
			defer j.syncing.Unlock()
			all, err := os.ReadFile(j.file.Name())
			if err != nil || !bytes.Contains(all[:j.synced], fmt.Appendf(nil, `"intent":"%d"`, i)) {
				t.Errorf("%d is not synced: %v", i, err)
			}
		}()
	}
	all.Wait()
	open, err := j.Open(t.Context())
	if err != nil || len(open) != 50 {
		t.Fatal(len(open), err)
	}
}

// A record that is returned by Begin is on the disk, even if it was another goroutine that has just written it.
func TestBeginSyncsWhatItReturns(t *testing.T) {
	j := openFile(t, filepath.Join(t.TempDir(), "j"))
	r := Record{Intent: "a", State: Sent}
	if err := j.Note(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if stored, err := j.Begin(t.Context(), r); err != nil || stored == nil || j.synced != j.size {
		t.Fatal(stored, err, j.synced, j.size)
	}
}

// The end of a record that a crash has left is cut off, and does not stay behind the records that follow.
func TestTornEndIsCutOff(t *testing.T) {
	path := filepath.Join(t.TempDir(), "j")
	j := openFile(t, path)
	if _, err := j.Begin(t.Context(), Record{Intent: "a", State: Sent}); err != nil {
		t.Fatal(err)
	}
	_ = j.Close()
	whole, _ := os.ReadFile(path)
	if err := os.WriteFile(path, append(bytes.Clone(whole), strings.Repeat("x", 1000)...), 0o600); err != nil {
		t.Fatal(err)
	}
	j = openFile(t, path)
	if left, _ := os.ReadFile(path); !bytes.Equal(left, whole) || len(j.records) != 1 {
		t.Fatalf("%q", left)
	}
}

func FuzzOpenFile(f *testing.F) {
	path := filepath.Join(f.TempDir(), "j")
	j, err := OpenFile(path)
	if err != nil {
		f.Fatal(err)
	}
	for _, state := range []State{Sent, Final, Refused} {
		if err := j.Note(f.Context(), Record{Intent: string(state), State: state}); err != nil {
			f.Fatal(err)
		}
	}
	_ = j.Close()
	whole, _ := os.ReadFile(path)
	f.Add(whole)
	f.Add(whole[:len(whole)-3])
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(t.TempDir(), "j")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		j, err := OpenFile(path)
		if err != nil {
			return
		}
		records := len(j.records)
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		if j, err = OpenFile(path); err != nil || len(j.records) != records {
			t.Fatalf("opened again: %v", err)
		}
		_ = j.Close()
		if kept, _ := os.ReadFile(path); !bytes.HasPrefix(text, kept) {
			t.Fatal("it was changed, and not only cut")
		}
	})
}

// TestWhatHasEndedIsNotOverwritten: an operator has settled the intent while a request of it was in flight, and the
// response comes after that.
func TestWhatHasEndedIsNotOverwritten(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "intents")
	f := openFile(t, path)
	r := Record{Intent: "order 1", Key: "k", State: Sent, Request: Request{Intent: "order 1", Method: "POST", Path: "/v1/payments"}}
	if _, err := f.Begin(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	settled := r
	settled.State, settled.Response = Final, &Response{Status: 201, Body: []byte(`{"id":"pay_1"}`)}
	if err := f.Note(t.Context(), settled); err != nil {
		t.Fatal(err)
	}
	late := r
	late.State = Refused
	if err := f.Note(t.Context(), late); !errors.Is(err, errOthers) {
		t.Errorf("a refusal after the end: %v", err)
	}
	for _, state := range []State{Sent, Broken, Final} {
		late.State, late.Response = state, &Response{Status: 201, Body: []byte(`{"id":"pay_2"}`)}
		if err := f.Note(t.Context(), late); err != nil {
			t.Errorf("state %v after the end: %v", state, err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := openFile(t, path).Begin(t.Context(), r)
	if err != nil || got == nil || got.State != Final || string(got.Response.Body) != `{"id":"pay_1"}` {
		t.Fatalf("%+v, %v", got, err)
	}
}
