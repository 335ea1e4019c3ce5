package devpg

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
)

// Standby starts a hot standby of a server on this machine: a copy of its data
// that follows it by streaming replication and can be read, on a port of its
// own, until pg_promote() is called on it. The server is restarted for the
// copy. The caller must stop both.
func (s *Server) Standby(ctx context.Context) (*Server, error) {
	primary, ok := s.impl.(*process)
	if !ok {
		return nil, fmt.Errorf("devpg: a standby needs a server on this machine, and this one is from %s", s.Source)
	}
	u, err := url.Parse(s.URL)
	if err != nil {
		return nil, err
	}
	password, _ := u.User.Password()
	follow := fmt.Sprintf("primary_conninfo = 'host=127.0.0.1 port=%s user=postgres password=%s'\n", u.Port(), password)

	p := &process{bin: primary.bin, acc: primary.acc, args: primary.args}
	got, err := p.begin(ctx, Options{Durable: true}, func() (string, error) {
		data := filepath.Join(p.dir, "data")
		// What a server has written when it was stopped is whole, and needs no other tool to be copied.
		err := s.Halt("fast")
		if err == nil {
			err = errors.Join(copyTree(filepath.Join(primary.dir, "data"), data, p.acc), s.Resume())
		}
		for name, text := range map[string]string{"standby.signal": "", "postgresql.auto.conf": follow} {
			file := filepath.Join(data, name)
			err = errors.Join(err, os.WriteFile(file, []byte(text), 0o600), p.acc.own(file))
		}
		return password, err
	}, "a standby of "+primary.dir)
	if err != nil {
		return nil, err
	}
	return &Server{URL: got.url, Source: s.Source, Version: s.Version, impl: got.impl}, nil
}
