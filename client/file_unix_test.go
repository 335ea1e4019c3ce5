//go:build unix

package client

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A file or a folder that may not be written is an error of OpenFile, so there is no client that could send anything.
func TestJournalWithoutPermission(t *testing.T) {
	if folder := os.Getenv("JOURNALS"); folder != "" { // as a user without rights
		for _, name := range []string{"j", "none/j"} {
			if _, err := OpenFile(filepath.Join(folder, name)); !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), name) {
				t.Error(name, err)
			}
		}
		return
	}
	folder, err := os.MkdirTemp("", "payonce-journal-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	_ = openFile(t, filepath.Join(folder, "j")).Close()
	if err := errors.Join(os.Mkdir(filepath.Join(folder, "none"), 0o500), os.Chmod(filepath.Join(folder, "j"), 0o444), os.Chmod(folder, 0o755)); err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, "test")
	syscall.ForkLock.RLock() // a process that another test starts meanwhile would hold the file open: "text file busy"
	err = os.WriteFile(path, program, 0o755)
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
	again := exec.Command(path, "-test.run", "^TestJournalWithoutPermission$", "-test.v")
	again.Dir, again.Env = folder, []string{"JOURNALS=" + folder}
	if os.Geteuid() == 0 { // who may write everything
		again.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	out, err := again.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS") {
		t.Fatalf("%v\n%s", err, out)
	}
}

// What is no regular file is refused at once: reading /dev/full to its end, or a pipe, would take for ever.
func TestOpenFileRefusesDevices(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/dev/full", "/dev/null", pipe} {
		done := make(chan error, 1)
		go func() { _, err := OpenFile(path); done <- err }()
		select {
		case err := <-done:
			if err == nil || !(errors.Is(err, ErrJournalForeign) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission)) {
				t.Error(path, err)
			}
		case <-time.After(10 * time.Second):
			t.Error(path, "is being read")
		}
	}
}
