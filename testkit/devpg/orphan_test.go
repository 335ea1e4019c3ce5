//go:build unix

package devpg

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestStopLeavesNoProcessAndNoFolder(t *testing.T) {
	t.Parallel()
	s, _ := start(t, Options{Only: FromLocal})
	p := s.impl.(*process)
	server, janitor := s.PID(), p.tidy.pid()
	require.True(t, Alive(server) && Alive(janitor))
	require.NoError(t, s.Stop())
	require.False(t, Alive(server), "the server")
	require.False(t, Alive(janitor), "the janitor")
	require.True(t, gone(p.dir), p.dir)
	require.NoError(t, s.Stop(), "a second time")
}

// patience is for machines that do ten things at once. On an idle one the
// server is gone within a tenth of a second, janitor and folder soon after.
const patience = 15 * time.Second

func TestOwnerKilled(t *testing.T) {
	t.Parallel()

	t.Run("NothingIsLeft", func(t *testing.T) {
		t.Parallel()
		o := startOwner(t)
		o.kill(t)
		require.Eventually(t, func() bool { return ended(o.server) }, patience, 20*time.Millisecond, "an orphaned server")
		require.Eventually(t, func() bool { return ended(o.janitor) }, patience, 20*time.Millisecond, "an orphaned janitor")
		require.True(t, gone(o.dir), o.dir)
	})

	t.Run("WithItsJanitorTheNextStartTidiesUp", func(t *testing.T) {
		t.Parallel()
		o := startOwner(t)
		require.NoError(t, syscall.Kill(o.janitor, syscall.SIGKILL))
		o.kill(t)
		if !gone(o.dir) { // unless another test's server was started in this moment
			start(t, Options{Only: FromLocal})
		}
		require.Eventually(t, func() bool { return ended(o.server) && gone(o.dir) }, patience, 20*time.Millisecond, o.dir)
	})

	t.Run("AServerThatLivesOnIsEnded", func(t *testing.T) {
		t.Parallel()
		o := startOwner(t)
		endServerIn(o.dir + "/data") // not the folder that holds the data: nothing may happen
		require.False(t, ended(o.server))
		endServerIn(o.dir)
		if _, err := os.Stat("/proc/self/cwd"); err != nil {
			t.Skip("this system does not tell where a process works, so no process is ended on suspicion")
		}
		require.Eventually(t, func() bool { return ended(o.server) }, patience, 20*time.Millisecond)
	})
}

func TestSweepLeavesTheLivingAlone(t *testing.T) {
	t.Parallel()
	s, _ := start(t, Options{Only: FromLocal})
	sweepOne(s.impl.(*process).dir)
	require.Equal(t, "1", query(t, s.URL, "SELECT 1"))
}

// owner is another process with a server.
type owner struct {
	cmd             *exec.Cmd
	server, janitor int
	dir             string
}

func startOwner(t *testing.T) owner {
	t.Helper()
	o := owner{cmd: exec.Command(os.Args[0])}
	o.cmd.Env = append(os.Environ(), roleVar+"=owner")
	out, err := o.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, o.cmd.Start())
	t.Cleanup(func() {
		_ = o.cmd.Process.Kill()
		_ = o.cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	_, err = fmt.Sscan(line, &o.server, &o.janitor, &o.dir)
	require.NoError(t, err, line)
	require.False(t, ended(o.server) || ended(o.janitor) || gone(o.dir))
	return o
}

func (o owner) kill(t *testing.T) {
	t.Helper()
	require.NoError(t, o.cmd.Process.Kill())
	_ = o.cmd.Wait() // killed, as it says
}

// ended counts a zombie as ended: in a container there may be no init to collect it.
func ended(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return !Alive(pid)
	}
	var n int
	var name, state string
	_, _ = fmt.Sscan(string(stat), &n, &name, &state)
	return state == "Z"
}
