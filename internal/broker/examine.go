package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// State is what a broker says about itself.
type State struct {
	Reached string   // what responded, such as "NATS 2.11"
	Stream  string   // what events are stored in, and how; empty if it was not asked
	Missing bool     // there is no stream yet
	Loses   []string // settings with which events that are acknowledged can be lost
	Differs []string // other settings that are not the service's
}

// Examine asks the broker of a BROKER_URL without changing anything there: it makes no stream, and starts no server. An
// error means that the broker cannot be reached or used.
func Examine(ctx context.Context, brokerURL string) (State, error) {
	s, err := schemeOf(brokerURL)
	if err != nil {
		return State{}, err
	}
	// A client can be in a call that no context ends, such as a handshake with a server that is silent. The examination
	// ends a little earlier than ctx, so that it can still say why it failed.
	asking := ctx
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		asking, cancel = context.WithDeadline(ctx, deadline.Add(-time.Until(deadline)/20))
		defer cancel()
	}
	type examined struct {
		State
		error
	}
	done := make(chan examined, 1)
	go func() {
		st, err := s.Examine(asking, brokerURL)
		done <- examined{st, err}
	}()
	select {
	case e := <-done:
		return e.State, e.error
	case <-ctx.Done():
		return State{}, fmt.Errorf("the broker does not respond: %w", ctx.Err())
	}
}

func examineNATS(ctx context.Context, brokerURL string) (State, error) {
	b, err := openNATS(brokerURL, Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return State{}, err
	}
	defer b.conn.Close() // at once: nothing was published that would have to be flushed
	return b.examine(ctx)
}

func (b *jetStream) examine(ctx context.Context) (st State, err error) {
	if err := b.connected(ctx); err != nil {
		return st, err
	}
	st.Reached = "NATS " + b.conn.ConnectedServerVersion()
	stream, err := b.js.Stream(ctx, streamName)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		st.Missing = true
		return st, nil
	}
	if err != nil {
		return st, fmt.Errorf("read the stream %s: %w", streamName, err)
	}
	have, want := stream.CachedInfo().Config, b.streamConfig()
	st.Stream = fmt.Sprintf("stream %s: %s, %d replicas, kept for %s, duplicates known for %s",
		streamName, have.Storage, have.Replicas, have.MaxAge, have.Duplicates)
	differ := func(list *[]string, name string, have, want any) {
		if have != want {
			*list = append(*list, fmt.Sprintf("%s is %v, not %v", name, have, want))
		}
	}
	differ(&st.Loses, "storage", have.Storage, want.Storage)
	differ(&st.Loses, "subjects", strings.Join(have.Subjects, " "), strings.Join(want.Subjects, " "))
	if have.Replicas < want.Replicas {
		differ(&st.Loses, "replicas", have.Replicas, want.Replicas)
	}
	if have.MaxAge < want.MaxAge && have.MaxAge != 0 {
		differ(&st.Loses, "max_age", have.MaxAge, want.MaxAge)
	}
	differ(&st.Differs, "duplicate_window", have.Duplicates, want.Duplicates)
	differ(&st.Differs, "deny_delete", have.DenyDelete, want.DenyDelete)
	if slices.Contains([]bool{have.MaxMsgs > 0, have.MaxBytes > 0, have.MaxMsgsPerSubject > 0}, true) {
		st.Differs = append(st.Differs, "the number or the size of messages is limited")
	}
	return st, nil
}

// examineEmbedded looks whether a process has the store. Only that process can be asked about the stream, if it listens;
// it brings the stream up to date at every start.
func examineEmbedded(ctx context.Context, brokerURL string) (State, error) {
	dir, query, _ := strings.Cut(strings.TrimPrefix(brokerURL, "embedded:"), "?")
	settings, err := url.ParseQuery(query)
	if err != nil || dir == "" {
		return State{}, errors.New("must be embedded:DIR, with the directory of its store")
	}
	if err := CheckSettings(settings, "listen"); err != nil {
		return State{}, err
	}
	if _, err := os.Stat(filepath.Join(dir, "lock")); errors.Is(err, os.ErrNotExist) {
		return State{Reached: "the embedded broker is not running, and " + dir + " has no store yet", Missing: true}, nil
	}
	unlock, err := lockFile(filepath.Join(dir, "lock"))
	if err == nil {
		unlock()
		return State{Reached: "the embedded broker of " + dir + " is not running: no service has it open"}, nil
	}
	if errors.Is(err, os.ErrPermission) {
		return State{}, err
	}
	listen := settings.Get("listen")
	if listen == "" || strings.HasSuffix(listen, ":0") {
		return State{Reached: "the embedded broker of " + dir + " runs in the service"}, nil
	}
	st, err := examineNATS(ctx, "nats://"+listen)
	st.Reached = "the embedded broker of " + dir + ", " + st.Reached
	return st, err
}
