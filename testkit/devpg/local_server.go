package devpg

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"example.com/payonce/testkit/port"
)

// settings are what every server of ours has in common, wherever it runs.
func settings(o Options) map[string]string {
	s := map[string]string{
		"timezone":        "UTC",
		"log_timezone":    "UTC",
		"max_connections": "100",
		"shared_buffers":  "32MB", // many test packages run at once, each with a server of its own
	}
	if o.MaxConnections > 0 {
		s["max_connections"] = strconv.Itoa(o.MaxConnections)
	}
	if o.Durable {
		s["shared_buffers"] = "128MB" // the server's own default
	} else {
		s["fsync"], s["full_page_writes"], s["synchronous_commit"] = "off", "off", "off"
		s["min_wal_size"], s["max_wal_size"] = "32MB",
			"128MB" // it may be in memory, and a checkpoint without fsync costs little
	}
	maps.Copy(s, o.Settings)
	return s
}

// process is a server that we started ourselves, and the folder it lives in.
type process struct {
	bin    binaries
	acc    *account
	dir    string // holds data, password, server.log and the lock
	keep   bool   // the folder is the caller's: leave it
	memory bool   // the folder is in memory
	args   []string
	port   int
	unlock func()
	tidy   *janitor

	mu     sync.Mutex
	cmd    *exec.Cmd     // nil while the server is away
	exited chan struct{} // closed when cmd is gone
}

// startCluster starts a server on a fresh cluster, or on the one in o.Dir.
func startCluster(ctx context.Context, o Options, acc *account, bin binaries, from string) (started, error) {
	p := &process{bin: bin, acc: acc, keep: o.Dir != ""}
	for _, name := range slices.Sorted(maps.Keys(settings(o))) {
		p.args = append(p.args, "-c", name+"="+settings(o)[name])
	}
	return p.begin(ctx, o, func() (string, error) { return p.makeData(ctx, o) }, from)
}

// begin makes a home for the server, has data put into it and starts it.
func (p *process) begin(
	ctx context.Context, o Options, makeData func() (password string, err error), from string,
) (_ started, err error) {
	if err := p.makeHome(ctx, o); err != nil {
		return started{}, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.stop())
		}
	}()
	if p.tidy, err = hireJanitor(p.dir, p.keep, p.acc); err != nil {
		return started{}, err
	}
	password, err := makeData()
	if err != nil {
		return started{}, err
	}
	if err := p.launchSomewhere(ctx); err != nil {
		return started{}, err
	}
	url := fmt.Sprintf("postgres://postgres:%s@127.0.0.1:%d/postgres?sslmode=disable", password, p.port)
	return started{url, from + p.acc.String(), p}, nil
}

// makeHome makes the server's folder and takes its lock. Nothing stands in it
// yet, or what an earlier run left in a kept one.
func (p *process) makeHome(ctx context.Context, o Options) (err error) {
	if o.Dir != "" {
		if p.dir, err = filepath.Abs(o.Dir); err != nil {
			return err
		}
		if err := os.MkdirAll(p.dir, 0o700); err != nil {
			return err
		}
		if err := p.acc.own(p.dir); err != nil {
			return err
		}
		if !p.acc.reaches(p.dir) {
			return fmt.Errorf("user %s cannot reach %s: name a folder that others may enter", p.acc.name, p.dir)
		}
		if p.unlock, err = tryLockFile(filepath.Join(p.dir, "lock")); err != nil {
			return fmt.Errorf("another process runs a server in %s: %w", p.dir, err)
		}
		endServerIn(p.dir)
		return nil
	}
	roots := p.acc.tempRoots()
	sweep(ctx, append(roots, memory))
	if inMemory := p.acc.memoryRoot(); inMemory != "" && (!o.Durable || o.Memory) {
		roots, p.memory = []string{inMemory}, true
	}
	if len(roots) == 0 {
		return fmt.Errorf("user %s can reach no temporary folder", p.acc.name)
	}
	// Between making the lock and taking it, another process that sweeps can
	// take it for a dead server's, and the folder with it. Then we make another.
	for range homeAttempts {
		if p.dir, err = os.MkdirTemp(roots[0], dirPrefix); err != nil {
			return err
		}
		if p.unlock, err = tryLockFile(filepath.Join(p.dir, "lock")); err != nil {
			continue
		}
		if err = p.acc.own(p.dir); err == nil {
			return nil
		}
		p.unlock()
	}
	p.unlock = nil
	return err
}

// homeAttempts is how many folders may be swept away under a start. Losing the
// race once takes a busy machine; ten times takes another reason.
const homeAttempts = 10

// makeData returns the superuser's password, after making a cluster if there is none.
func (p *process) makeData(ctx context.Context, o Options) (string, error) {
	secret := filepath.Join(p.dir, "password")
	if dataMajor(o.Dir) != 0 {
		text, err := os.ReadFile(secret)
		return strings.TrimSpace(string(text)), err
	}
	// What a start that was killed left half made is in the way.
	if err := os.RemoveAll(filepath.Join(p.dir, "data")); err != nil {
		return "", err
	}
	if !p.keep {
		return initialised(ctx, p.acc, p.bin, p.dir)
	}
	// Data that is to outlive this machine's next power failure is made by
	// initdb itself, which ends by forcing it to disk. A copy would not be.
	return initdb(ctx, p.acc, p.bin, p.dir)
}

// launchSomewhere starts the server on a free port. Between our look and the
// server's bind another process may take the port, so it may take a few looks.
func (p *process) launchSomewhere(ctx context.Context) (err error) {
	for range portAttempts {
		free, failed := port.Loopback(ctx)
		if failed != nil {
			return failed
		}
		p.port = int(free.Port())
		if err = p.launch(ctx); !errors.Is(err, errPortTaken) {
			return err
		}
	}
	return err
}

var (
	errPortTaken  = errors.New("the port is taken")
	errStillDying = errors.New("the server before this one is not gone yet")
)

// launch starts the server and waits until it takes connections.
func (p *process) launch(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	logName := filepath.Join(p.dir, "server.log")
	log, err := os.OpenFile(logName, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	begin, err := log.Seek(0, 2)
	if err != nil {
		return err
	}

	// No Unix socket at all: TCP on loopback works everywhere, and the path of
	// a socket is limited to about 100 bytes, which temporary folders exceed.
	args := append([]string{"-D", filepath.Join(p.dir, "data"), "-p", strconv.Itoa(p.port),
		"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="}, p.args...)
	cmd := exec.Command(p.bin.path("postgres"), args...) //nolint:noctx // it outlives the search, whose context ctx is
	cmd.Dir, cmd.Env, cmd.SysProcAttr = p.dir, environment(p.dir), diesWithUs(childOf(p.acc))
	cmd.Stdout, cmd.Stderr = log, log
	exited := make(chan struct{})
	if err := startLocked(cmd, exited); err != nil {
		return err
	}
	p.mu.Lock()
	p.cmd, p.exited = cmd, exited
	p.mu.Unlock()

	if err := p.awaitReady(ctx, cmd.Process.Pid, exited); err != nil {
		err = errors.Join(err, p.halt("immediate"))
		switch said := logFrom(logName, begin); {
		case strings.Contains(said, "could not bind"), strings.Contains(said, "could not create any TCP/IP sockets"):
			return fmt.Errorf("%w: %s", errPortTaken, said)
		case strings.Contains(said, "pre-existing shared memory block"):
			return fmt.Errorf("%w: %s", errStillDying, said)
		default:
			return fmt.Errorf("postgres: %w: %s", err, said)
		}
	}
	return nil
}

// awaitReady waits for the server's own word: it writes its state into the
// eighth line of postmaster.pid, which costs less than trying to connect. The
// first line is its process id: a server that was killed left its file behind.
func (p *process) awaitReady(ctx context.Context, pid int, exited <-chan struct{}) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		text, _ := os.ReadFile(filepath.Join(p.dir, "data", "postmaster.pid")) // not there yet: not ready yet
		lines := strings.Split(string(text), "\n")
		if len(lines) >= 8 && lines[0] == strconv.Itoa(pid) && strings.TrimSpace(lines[7]) == "ready" {
			return nil
		}
		select {
		case <-exited:
			return errors.New("ended at once")
		case <-ctx.Done():
			return fmt.Errorf("not ready within %s: %w", startWithin, ctx.Err())
		case <-tick.C:
		}
	}
}

// logFrom returns what the server said since begin, on one line.
func logFrom(name string, begin int64) string {
	text, err := os.ReadFile(name)
	if err != nil || int64(len(text)) < begin {
		return "(no log)"
	}
	text = text[begin:]
	if keep := 2000; len(text) > keep {
		text = text[len(text)-keep:]
	}
	return strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", " | ")
}

func (p *process) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// halt ends the server process. Politely first; a server that is still there
// after stopWithin is crashed, and a process that ignores even that is killed.
func (p *process) halt(mode string) error {
	if mode != "fast" && mode != "immediate" {
		return fmt.Errorf("devpg: no shutdown mode is called %q; there are fast and immediate", mode)
	}
	p.mu.Lock()
	cmd, exited := p.cmd, p.exited
	p.cmd = nil
	p.mu.Unlock()
	if cmd == nil {
		return nil
	}
	for _, how := range []string{mode, "immediate", "kill"} {
		select {
		case <-exited:
			return nil
		default:
		}
		if err := p.signal(cmd, how); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("stop postgres: %w", err)
		}
		select {
		case <-exited:
			return nil
		case <-time.After(stopWithin):
		}
	}
	return fmt.Errorf("postgres, process %d, cannot be stopped", cmd.Process.Pid)
}

// resume starts the server again. If it was killed, its sessions may take a
// moment longer to notice, and until then their shared memory stops a new one.
func (p *process) resume() error {
	if p.pid() != 0 {
		return errors.New("devpg: the server is running")
	}
	ctx, cancel := context.WithTimeout(context.Background(), startWithin)
	defer cancel()
	for {
		err := p.launch(ctx)
		if !errors.Is(err, errStillDying) || ctx.Err() != nil {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// stop ends the server and removes its folder, unless it is the caller's.
func (p *process) stop() error {
	err := p.halt("fast")
	p.tidy.dismiss()
	if p.unlock != nil {
		p.unlock() // first, because Windows removes no open file
	}
	if !p.keep {
		err = errors.Join(err, os.RemoveAll(p.dir))
	}
	return err
}
