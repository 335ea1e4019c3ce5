package pooler

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/proof/internal/installed"
	"example.com/payonce/testkit/devpg"
	"example.com/payonce/testkit/port"
	"example.com/payonce/testkit/world"
)

// ignored are the settings that the service sends while it connects, and that PgBouncer would refuse. docs/operations.md
// has the same line.
const ignored = "statement_timeout, lock_timeout, idle_in_transaction_session_timeout, client_min_messages"

// program is the PgBouncer under test.
func program(t *testing.T) string {
	t.Helper()
	program := cmp.Or(os.Getenv("PGBOUNCER"), "pgbouncer")
	installed.Need(t, program)
	return program
}

// keepsPrepared reports whether it is one that can keep prepared statements in transaction mode: 1.21 or later.
func keepsPrepared(t *testing.T) bool {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), program(t), "--version").Output()
	require.NoError(t, err)
	var major, minor int
	_, err = fmt.Sscanf(string(out), "PgBouncer %d.%d", &major, &minor)
	require.NoError(t, err, string(out))
	return major > 1 || minor >= 21
}

// bouncer is a PgBouncer in front of a world's database.
type bouncer struct {
	t      *testing.T
	at     netip.AddrPort
	target *url.URL // the database, as the service's role
	config string
	as     []string // how a program of root's says which user it wants to be
	cmd    *exec.Cmd
	exited chan struct{}
}

// newBouncer starts one. More are lines of its configuration.
func newBouncer(t *testing.T, w *world.World, more ...string) *bouncer {
	t.Helper()
	program := program(t)
	at, err := port.Loopback(t.Context())
	require.NoError(t, err)
	target, err := url.Parse(devpg.As(w.URL, "payonce_service"))
	require.NoError(t, err)
	dir, err := os.MkdirTemp("", "payonce-pgbouncer-") // t.TempDir's parents are closed to the user that it runs as
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	b := &bouncer{t: t, at: at, target: target, config: filepath.Join(dir, "pgbouncer.ini")}
	password, _ := target.User.Password()
	users := filepath.Join(dir, "users.txt")
	text := fmt.Sprintf("[databases]\n* = host=%s port=%s\n[pgbouncer]\nlisten_addr = %s\nlisten_port = %d\n"+
		"unix_socket_dir =\nauth_type = scram-sha-256\nauth_file = %s\nmax_client_conn = 500\n",
		target.Hostname(), target.Port(), at.Addr(), at.Port(), users)
	for _, line := range more {
		text += line + "\n"
	}
	for file, text := range map[string]string{
		b.config: text, users: fmt.Sprintf("%q %q\n", target.User.Username(), password),
	} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	if os.Geteuid() == 0 { // PgBouncer refuses to run as root.
		nobody, err := user.Lookup("nobody")
		require.NoError(t, err)
		uid, err := strconv.Atoi(nobody.Uid)
		require.NoError(t, err)
		for _, path := range []string{dir, b.config, users} {
			require.NoError(t, os.Chown(path, uid, -1))
		}
		b.as = []string{"-u", nobody.Username}
	}
	b.as = append([]string{program}, b.as...)
	b.start()
	t.Cleanup(b.kill)
	return b
}

func (b *bouncer) start() {
	b.t.Helper()
	b.cmd = exec.Command(b.as[0], append(b.as[1:], "-q", b.config)...)
	b.cmd.Stderr = &logs{t: b.t}
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(b.t, b.cmd.Start())
	b.exited = make(chan struct{})
	go func() {
		defer close(b.exited)
		_ = b.cmd.Wait()
	}()
	world.Eventually(b.t, world.Patience, "the pooler listens", func() bool {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(context.Background(), "tcp", b.at.String())
		if err != nil {
			return false
		}
		return conn.Close() == nil
	})
}

// kill is kill -9: connections end in the middle of whatever they were doing.
func (b *bouncer) kill() {
	_ = b.cmd.Process.Kill()
	<-b.exited
}

// url leads through the pooler, with the kind of statements unless that is empty.
func (b *bouncer) url(statements string) string {
	u := *b.target
	u.Host = b.at.String()
	if statements != "" {
		query := u.Query()
		query.Set("default_query_exec_mode", statements)
		u.RawQuery = query.Encode()
	}
	return u.String()
}

// setTimeouts sets for the role what the pooler keeps from the server, as docs/operations.md says; here only in one
// database, because others on the server have the same role.
func setTimeouts(w *world.World) {
	database := w.Text(`SELECT quote_ident(current_database())`)
	for _, set := range []string{
		"statement_timeout = '10s'", "lock_timeout = '5s'", "idle_in_transaction_session_timeout = '10s'",
	} {
		w.Exec(`ALTER ROLE payonce_service IN DATABASE ` + database + ` SET ` + set)
	}
}

// logs puts what a program says into the test's log.
type logs struct{ t *testing.T }

func (l *logs) Write(b []byte) (int, error) {
	l.t.Logf("%s", b)
	return len(b), nil
}
