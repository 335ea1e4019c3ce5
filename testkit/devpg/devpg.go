package devpg

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	oldest = 15 // NULLS NOT DISTINCT, MERGE and CREATE DATABASE … STRATEGY begin here
	newest = 18 // what this project is tested against, no further

	startWithin    = 60 * time.Second // crash recovery of a durable cluster included
	stopWithin     = 10 * time.Second // a fast stop waits for a checkpoint; then we stop being polite
	portAttempts   = 3                // another process may take the port between our choice and the bind
	downloadWithin = 5 * time.Minute
)

// The names of the sources, as Options.Only and Server.Source spell them.
const (
	FromURL      = "url"
	FromDocker   = "docker"
	FromLocal    = "local"
	FromDownload = "download"
)

// Options say what the server is for. The zero value is a fast, throwaway
// server from wherever one can be had.
type Options struct {
	URL    string // a server that exists already: the value of DATABASE_URL or TEST_DATABASE_URL
	URLVar string // the name of that variable, for the messages

	Durable        bool              // write as in production: the demo, chaos, benchmarks
	Memory         bool              // with Durable: the data is in memory, where it outlasts a killed server
	Dir            string            // keep the data in this folder; a temporary one if empty
	MaxConnections int               // 100 if zero
	Settings       map[string]string // further server settings, which win over ours

	Log  func(format string, args ...any) // gets the one line; nil is silence
	Only string                           // one of the sources, to the exclusion of the others; empty is any
}

// Server is a PostgreSQL that answers. URL is the DSN of its database postgres,
// as a superuser unless the source is a URL, whose role is the caller's choice.
type Server struct {
	URL     string
	Source  string
	Version int // server_version_num: 170010

	impl running
}

// running is what the sources differ in once the server answers.
type running interface {
	stop() error
	halt(mode string) error
	resume() error
	pid() int
}

// A source returns a running server and what to call it, or why there is none.
type source struct {
	name  string
	start func(context.Context, Options) (started, error)
}

type started struct {
	url, from string // from: "this machine's binaries in /usr/lib/postgresql/15/bin, as user postgres"
	impl      running
}

var sources = []source{
	{FromURL, startURL},
	{FromDocker, startDocker},
	{FromLocal, startLocal},
	{FromDownload, startDownload},
}

// Start finds or starts a server; ctx bounds the search, not the server's life.
// The caller must Stop it.
func Start(ctx context.Context, o Options) (*Server, error) {
	if o.URLVar == "" {
		o.URLVar = "DATABASE_URL"
	}
	if o.Log == nil {
		o.Log = func(string, ...any) {}
	}
	var passed []error // over, and why
	for _, src := range sources {
		if o.Only != "" && o.Only != src.name {
			continue
		}
		got, err := src.start(ctx, o)
		if err == nil {
			return accept(ctx, o, src, got, passed)
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("devpg: %s: %w", src.name, errors.Join(ctx.Err(), err))
		}
		if src.name == FromURL && o.URL != "" {
			return nil, fmt.Errorf("devpg: %w", err)
		}
		passed = append(passed, fmt.Errorf("%s: %w", src.name, err))
	}
	if len(passed) == 0 {
		return nil, fmt.Errorf("devpg: no source is called %q; there are url, docker, local and download", o.Only)
	}
	return nil, notFound(o, passed)
}

// accept checks the version, which only a running server knows for certain, and prints the line.
func accept(ctx context.Context, o Options, src source, got started, passed []error) (*Server, error) {
	version, err := serverVersion(ctx, got.url)
	if err == nil {
		err = supported(version)
	}
	if err != nil {
		return nil, fmt.Errorf("devpg: %s: %w", src.name, errors.Join(err, got.impl.stop()))
	}
	why := ""
	switch {
	case o.Only != "":
		why = " (asked for by name)"
	case len(passed) > 0:
		why = " (" + strings.ReplaceAll(errors.Join(passed...).Error(), "\n", "; ") + ")"
	}
	o.Log("PostgreSQL %s from %s%s", spell(version), got.from, why)
	return &Server{URL: got.url, Source: src.name, Version: version, impl: got.impl}, nil
}

func supported(version int) error {
	if major := version / 10000; major < oldest || major > newest {
		return fmt.Errorf("PostgreSQL %s is not one of %d to %d", spell(version), oldest, newest)
	}
	return nil
}

func spell(version int) string { return fmt.Sprintf("%d.%d", version/10000, version%10000) }

func serverVersion(ctx context.Context, url string) (version int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return 0, err
	}
	defer conn.Close(ctx)
	err = conn.QueryRow(ctx, "SELECT current_setting('server_version_num')::int").Scan(&version)
	return version, err
}

func notFound(o Options, passed []error) error {
	install := map[string]string{
		"linux": "install PostgreSQL's server package (Debian, Ubuntu: apt-get install postgresql; Fedora: dnf " +
			"install postgresql-server)",
		"darwin":  "install PostgreSQL (brew install postgresql@17)",
		"windows": "install PostgreSQL with its Windows installer",
	}[runtime.GOOS]
	if install == "" {
		install = "install PostgreSQL's server binaries, initdb and postgres, and put them on PATH"
	}
	return fmt.Errorf(`devpg: no PostgreSQL to be had
%w
One of these fixes it:
  - set %s to a server, version %d to %d, whose role may create databases;
  - start a Docker engine that has postgres:17 or can pull it;
  - %s;
  - let npm, or this program, reach npm's registry once, to download binaries`,
		errors.Join(passed...), o.URLVar, oldest, newest, install)
}

// Stop ends the server and removes everything it left on this machine. A server
// that was named by URL is not ours to stop, and is left alone.
func (s *Server) Stop() error { return s.impl.stop() }

// Restart takes the server away and brings it back on the same port with its
// data. Mode "immediate" is a crash, with recovery at the start; "fast" closes
// the sessions first and writes a checkpoint.
func (s *Server) Restart(mode string) error {
	if err := s.Halt(mode); err != nil {
		return err
	}
	return s.Resume()
}

// Halt is the first half of Restart: until Resume the database is away.
func (s *Server) Halt(mode string) error { return s.impl.halt(mode) }

// Resume is the second half of Restart.
func (s *Server) Resume() error { return s.impl.resume() }

// PID is the process id of the server on this machine, 0 if it is elsewhere.
func (s *Server) PID() int { return s.impl.pid() }

// startURL uses the server that was named.
func startURL(ctx context.Context, o Options) (started, error) {
	if o.URL == "" {
		return started{}, fmt.Errorf("%s is not set", o.URLVar)
	}
	if _, err := serverVersion(ctx, o.URL); err != nil {
		return started{}, fmt.Errorf("%s is set, but the server does not answer: %w", o.URLVar,
			err) // pgx never prints the password
	}
	return started{o.URL, o.URLVar, named{o.URLVar}}, nil
}

// named is a server that was not started here.
type named struct{ urlVar string }

func (named) stop() error { return nil }
func (n named) halt(string) error {
	return fmt.Errorf("devpg: the server named by %s is not ours to restart", n.urlVar)
}
func (n named) resume() error { return n.halt("") }
func (named) pid() int        { return 0 }
