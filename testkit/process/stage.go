package process

import (
	"errors"
	"net"
	"net/http"
	"os"
	"slices"
)

// Stage is where a program starts others: a folder, the group that its children
// join, the log they write to, and how everything on it is taken down. The zero
// Stage owns no resources; it records what is to be stopped.
type Stage struct {
	Dir   string // goes with the stage
	Group *Group
	Log   *Log

	undo []func() error
}

// NewStage sets one up. The names of its folder and of its log begin with name.
func NewStage(name string) (_ *Stage, err error) {
	s := &Stage{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Strike(false))
		}
	}()
	if s.Log, err = NewLog(name + "-*.log"); err != nil {
		return nil, err
	}
	if s.Dir, err = os.MkdirTemp("", name+"-"); err != nil {
		return nil, err
	}
	s.Later(func() error { return os.RemoveAll(s.Dir) })
	if s.Group, err = NewGroup(s.Dir); err != nil {
		return nil, err
	}
	s.Later(func() error { s.Group.Dismiss(); return nil })
	return s, nil
}

// Later remembers how to undo a step. Strike undoes them all, the last one first.
func (s *Stage) Later(undo func() error) { s.undo = append(s.undo, undo) }

// Listen serves on loopback until Strike, and returns where.
func (s *Stage) Listen(h http.Handler) (url string, err error) {
	l, err := net.Listen("tcp", AnyPort) //nolint:noctx // it is there or it is not, at once
	if err != nil {
		return "", err
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: StopWithin}
	go func() { _ = server.Serve(l) }() // ends with Close
	s.Later(server.Close)
	return "http://" + l.Addr().String(), nil
}

// Strike takes everything down. The log is kept on request.
func (s *Stage) Strike(keepLog bool) error {
	var err error
	for _, undo := range slices.Backward(s.undo) {
		err = errors.Join(err, undo())
	}
	s.undo = nil
	if s.Log != nil {
		err = errors.Join(err, s.Log.Close(keepLog))
		s.Log = nil
	}
	return err
}
