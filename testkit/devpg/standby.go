package devpg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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
	got, err := p.begin(ctx, Options{Durable: true, Memory: primary.memory}, func() (string, error) {
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

// Following says how a replica follows its primary.
type Following struct {
	Name    string // by which synchronous_standby_names knows the replica
	Through string // host and port at which it finds the primary: the primary's own, or those of a proxy in between
}

// Replica is Standby on a server that goes on meanwhile: the copy is made by pg_basebackup, which must be installed
// beside the server.
func (s *Server) Replica(ctx context.Context, f Following) (*Server, error) {
	primary, ok := s.impl.(*process)
	if !ok {
		return nil, fmt.Errorf("devpg: a replica needs a server on this machine, and this one is from %s", s.Source)
	}
	password, err := s.password()
	if err != nil {
		return nil, err
	}
	p := &process{bin: primary.bin, acc: primary.acc, args: primary.args}
	got, err := p.begin(ctx, Options{Durable: true, Memory: primary.memory}, func() (string, error) {
		return password, p.copyFrom(ctx, password, f)
	}, "a replica of "+primary.dir)
	if err != nil {
		return nil, err
	}
	return &Server{URL: got.url, Source: s.Source, Version: s.Version, impl: got.impl}, nil
}

// Rejoin makes a server that was the primary once, and is halted, a replica of the one that is now. Its own data, with
// what it committed and nobody followed, is deleted. It keeps its port.
func (s *Server) Rejoin(ctx context.Context, f Following) error {
	p, ok := s.impl.(*process)
	if !ok {
		return fmt.Errorf("devpg: only a server on this machine can rejoin, and this one is from %s", s.Source)
	}
	password, err := s.password()
	if err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(p.dir, "data")); err != nil {
		return err
	}
	if err := p.copyFrom(ctx, password, f); err != nil {
		return err
	}
	return s.Resume()
}

func (s *Server) password() (string, error) {
	u, err := url.Parse(s.URL)
	if err != nil {
		return "", err
	}
	password, _ := u.User.Password()
	return password, nil
}

// copyFrom fills the folder of data from a running primary.
func (p *process) copyFrom(ctx context.Context, password string, f Following) error {
	host, port, err := net.SplitHostPort(f.Through)
	if err != nil {
		return err
	}
	data := filepath.Join(p.dir, "data")
	cmd := exec.CommandContext(ctx, p.bin.path("pg_basebackup"), "--pgdata="+data, "--host="+host, "--port="+port,
		"--username=postgres", "--no-password", "--checkpoint=fast", "--wal-method=stream", "--no-sync")
	cmd.Dir, cmd.Env, cmd.SysProcAttr = p.dir, append(environment(p.dir), "PGPASSWORD="+password), childOf(p.acc)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("pg_basebackup: %w: %s", err, bytes.TrimSpace(out))
	}
	// The primary's own settings (ALTER SYSTEM) are its, not the replica's.
	conninfo := fmt.Sprintf("host=%s port=%s user=postgres password=%s application_name=%s", host, port, password, f.Name)
	for name, text := range map[string]string{
		"standby.signal": "", "postgresql.auto.conf": "primary_conninfo = '" + strings.ReplaceAll(conninfo, "'", "''") + "'\n",
	} {
		file := filepath.Join(data, name)
		if err := errors.Join(os.WriteFile(file, []byte(text), 0o600), p.acc.own(file)); err != nil {
			return err
		}
	}
	return nil
}
