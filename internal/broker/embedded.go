package broker

import (
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

// embedded is a JetStream server in this process, for one process and for
// development. Every write is synced before it is acknowledged: by default
// JetStream syncs every two minutes, and an event that is marked as published
// but lost with the power is lost for good. That costs throughput, about what
// the disk can sync.
type embedded struct {
	*jetStream
	server *server.Server
	unlock func()
}

func openEmbedded(brokerURL string, o Options) (_ *embedded, err error) {
	dir, query, _ := strings.Cut(strings.TrimPrefix(brokerURL, "embedded:"), "?")
	settings, err := url.ParseQuery(query)
	if err != nil || dir == "" {
		return nil, errors.New("it needs embedded:DIR")
	}
	if err := onlyKnows(settings, "listen"); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	// NATS would open the store of another process without a word, and both would write it.
	unlock, err := lockFile(filepath.Join(dir, "lock"))
	if err != nil {
		return nil, fmt.Errorf("%s is in use by another process (%w); an embedded broker serves one: use nats:// to share one", dir, err)
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
	js, err := connect("", 1, deadAfter, o.Log, nats.InProcessServer(s))
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
		NoSigs:     true, // signals are the program's business
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
		return nil, fmt.Errorf("the embedded broker did not start in %s within %s", dir, startWithin)
	}
	return s, nil
}

func (b *embedded) Close() error {
	err := b.jetStream.Close()
	stop(b.server)
	b.unlock()
	return err
}

// Addr is where others can reach the server; empty if it does not listen.
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

// natsLog passes on what an operator should know.
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
