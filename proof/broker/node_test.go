//go:build brokers

package broker_test

import (
	"context"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/proof/internal/installed"
	"example.com/payonce/testkit/port"
	"example.com/payonce/testkit/process"
)

// nodeServer is a program of npm that stands in for a service of Amazon.
type nodeServer struct {
	process.Child
	url string
}

// newNodeServer starts one of the scripts beside this file, with a port and more arguments. Its data is in the folder.
func newNodeServer(t testing.TB, script string, more ...string) *nodeServer {
	t.Helper()
	installed.Packages(t)
	s := stage(t)
	addr, err := port.Loopback(t.Context())
	require.NoError(t, err)
	path, err := filepath.Abs(script)
	require.NoError(t, err)
	for i := range more {
		more[i] = filepath.Join(s.Dir, more[i])
	}
	n := &nodeServer{url: "http://" + addr.String(), Child: process.Child{
		Name: script, Program: nodeProgram(t), Group: s.Group, Log: s.Log,
		Args: append([]string{path, strconv.Itoa(int(addr.Port()))}, more...),
	}}
	n.start(t)
	s.Later(n.Kill)
	return n
}

func (n *nodeServer) start(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), process.ReadyWithin)
	defer cancel()
	_, err := n.Start(ctx)
	require.NoError(t, err)
}

// freeze stops the program where it is.
func (n *nodeServer) freeze(t testing.TB) (thaw func()) {
	require.NoError(t, n.Pause())
	return func() { require.NoError(t, n.Resume()) }
}

func nodeProgram(t testing.TB) string {
	t.Helper()
	installed.Need(t, "node")
	path, err := exec.LookPath("node")
	require.NoError(t, err)
	return path
}
