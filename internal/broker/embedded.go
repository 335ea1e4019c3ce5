package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

const startWithin = 30 * time.Second // recovering a large store takes a while

var embeddedScheme = Scheme{
	Names: []string{"embedded"}, Use: "embedded:DIR",
	Open: func(_ context.Context, brokerURL string, o Options) (Broker, error) {
		return openEmbedded(brokerURL, o)
	},
	Examine: examineEmbedded,
	Since:   sinceEmbedded,
}

// embedded is a JetStream server in this process, for development and for services of one process. Every write is
// synced to disk before it is acknowledged. JetStream's default is to sync every two minutes, and an event that was
// marked as published and then lost in a power failure would never be sent again. So the disk's sync rate limits the
// throughput.
type embedded struct {
	*jetStream
	server *server.Server
	unlock func()
}

func openEmbedded(brokerURL string, o Options) (_ *embedded, err error) {
	dir, query, _ := strings.Cut(strings.TrimPrefix(brokerURL, "embedded:"), "?")
	settings, err := url.ParseQuery(query)
	if err != nil || dir == "" {
		return nil, errors.New("must be embedded:DIR, with the directory of its store")
	}
	if err := CheckSettings(settings, "listen"); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	// NATS does not lock its store: two processes that open it would both write to it.
	unlock, err := lockFile(filepath.Join(dir, "lock"))
	if err != nil {
		return nil, fmt.Errorf(
			"%s is in use by another process (%w); an embedded broker serves one process; use nats:// to share one",
			dir, err,
		)
	}
	defer func() {
		if err != nil {
			unlock()
		}
	}()
	s, err := startServer(dir, settings.Get("listen"), o.Log)
	if err != nil {
		return nil, err
	}
	js, err := connect("", 1, DeadAfter, o.Log, nats.InProcessServer(s))
	if err != nil {
		stop(s)
		return nil, err
	}
	return &embedded{jetStream: js, server: s, unlock: unlock}, nil
}

func startServer(dir, listen string, log *slog.Logger) (*server.Server, error) {
	opts := &server.Options{
		ServerName: "payonce-embedded",
		JetStream:  true,
		StoreDir:   dir,
		SyncAlways: true,
		DontListen: listen == "",
		NoSigs:     true, // main handles the signals
	}
	if listen != "" {
		host, port, err := net.SplitHostPort(listen)
		if err != nil {
			return nil, fmt.Errorf("listen: %w", err)
		}
		opts.Host = host
		if opts.Port, err = strconv.Atoi(port); err != nil {
			return nil, fmt.Errorf("listen: %w", err)
		}
		if opts.Port == 0 {
			opts.Port = server.RANDOM_PORT
		}
	}
	s, err := server.NewServer(opts)
	if err != nil {
		return nil, err
	}
	s.SetLoggerV2(natsLog{log}, false, false, false)
	s.Start()
	if !s.ReadyForConnections(startWithin) || !s.JetStreamEnabled() {
		stop(s)
		return nil, fmt.Errorf("the embedded broker in %s did not start within %s", dir, startWithin)
	}
	return s, nil
}

func (b *embedded) Close() error {
	err := b.jetStream.Close()
	stop(b.server)
	b.unlock()
	return err
}

// Addr is the server's address for other processes; empty if it does not listen.
func (b *embedded) Addr() string {
	if a, ok := b.server.Addr().(*net.TCPAddr); ok {
		return a.String()
	}
	return ""
}

func stop(s *server.Server) {
	s.Shutdown()
	s.WaitForShutdown()
}

// natsLog passes on warnings and errors only: the server's other messages are of no use to an operator.
type natsLog struct{ log *slog.Logger }

func (l natsLog) Noticef(string, ...any)        {}
func (l natsLog) Debugf(string, ...any)         {}
func (l natsLog) Tracef(string, ...any)         {}
func (l natsLog) Warnf(format string, v ...any) { l.log.Warn("broker: " + fmt.Sprintf(format, v...)) }
func (l natsLog) Errorf(format string, v ...any) {
	l.log.Error("broker: " + fmt.Sprintf(format, v...))
}
func (l natsLog) Fatalf(format string, v ...any) {
	l.log.Error("broker: " + fmt.Sprintf(format, v...))
}
