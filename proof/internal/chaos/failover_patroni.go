package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"text/template"
	"time"

	"example.com/payonce/internal/postgres"
	"example.com/payonce/testkit/port"
)

// How a primary of a real cluster is lost.
const (
	KilledServer  = "killed_server"  // PostgreSQL alone: Patroni is there to notice
	KilledMachine = "killed_machine" // PostgreSQL and Patroni: the others notice when its lease in etcd expires
	FrozenMachine = "frozen_machine" // both stand still for twice the lease; then the machine's watchdog resets it
)

// RealLosses are how the primary of a real cluster may be lost.
var RealLosses = []string{KilledServer, KilledMachine, FrozenMachine}

// Times of Patroni. The primary's lease in etcd is what a failover waits for if nobody releases it.
const (
	patroniTTL  = 5 * time.Second
	patroniLoop = time.Second
	frozenFor   = 2 * patroniTTL
)

// patroni is a cluster of three servers under Patroni, as Debian has it, with etcd, and HAProxy before them. Nothing of
// ours chooses the primary, fences or promotes. The service knows HAProxy's address alone.
type patroni struct {
	world    *world
	etcd     *program
	proxy    *program
	nodes    []*patroniNode
	endpoint netip.AddrPort // HAProxy's
	number   int            // server_version_num

	lost *patroniNode
	how  string
}

// patroniNode is one machine: Patroni and its PostgreSQL.
type patroniNode struct {
	Name, Dir, Etcd, Password, Bin string
	Server, REST                   netip.AddrPort
	TTL, Loop                      int
	patroni                        *program
}

// program is one of those that are not ours.
type program struct {
	cmd    *exec.Cmd
	exited chan struct{}
	log    string
}

const patroniConfig = `scope: payonce
name: {{.Name}}
etcd3:
  host: {{.Etcd}}
restapi:
  listen: {{.REST}}
  connect_address: {{.REST}}
bootstrap:
  dcs:
    ttl: {{.TTL}}
    loop_wait: {{.Loop}}
    retry_timeout: 2
    maximum_lag_on_failover: 1048576
    primary_start_timeout: 0   # A primary that ended is not waited for.
    synchronous_mode: true     # Only a standby that has every acknowledged commit may become the primary,
    synchronous_mode_strict: true # and a primary without one does not go on alone.
    postgresql:
      use_pg_rewind: true
      use_slots: true
      parameters:
        wal_log_hints: "on"
        max_connections: 200
        synchronous_commit: "on"
        wal_retrieve_retry_interval: 500ms # The other standby is to follow the new primary at once: commits wait for it.
  initdb:
  - encoding: UTF8
  - locale: C
  - auth-host: scram-sha-256
  - auth-local: trust
  pg_hba:
  - local all all trust
  - host all all 127.0.0.1/32 scram-sha-256
  - host replication all 127.0.0.1/32 scram-sha-256
postgresql:
  listen: {{.Server}}
  connect_address: {{.Server}}
  data_dir: {{.Dir}}/data
  bin_dir: {{.Bin}}
  pgpass: {{.Dir}}/pgpass
  authentication:
    superuser: {username: postgres, password: {{.Password}}}
    replication: {username: replicator, password: {{.Password}}}
    rewind: {username: rewind, password: {{.Password}}}
  parameters:
    unix_socket_directories: {{.Dir}}
`

const proxyConfig = `global
  maxconn 1000
defaults
  mode tcp
  timeout connect 1s
  timeout client 30m
  timeout server 30m
  timeout check 1s
listen primary
  bind {{.Endpoint}}
  option httpchk OPTIONS /primary
  http-check expect status 200
  default-server inter 500ms fall 2 rise 1 on-marked-down shutdown-sessions
{{range .Nodes}}  server {{.Name}} {{.Server}} check port {{.REST.Port}}
{{end}}`

func (p *patroni) version() int { return p.number }

func (p *patroni) addresses() []string { return []string{p.endpoint.String()} }

func (p *patroni) start(ctx context.Context, w *world) (primary string, err error) {
	p.world = w
	for _, name := range []string{"patroni", "etcd", "haproxy"} {
		if _, err := exec.LookPath(name); err != nil {
			return "", fmt.Errorf("%w; apt-get install patroni etcd-server haproxy postgresql", err)
		}
	}
	servers, err := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if err != nil || len(servers) == 0 {
		return "", errors.Join(err, errors.New("there is no PostgreSQL in /usr/lib/postgresql; apt-get install postgresql"))
	}
	var ports [3]netip.AddrPort
	for i := range ports {
		if ports[i], err = port.Loopback(ctx); err != nil {
			return "", err
		}
	}
	if err := os.Chmod(w.dir, 0o755); err != nil { // PostgreSQL's user has a folder in it
		return "", err
	}
	p.endpoint = ports[2]
	etcd, peers := "http://"+ports[0].String(), "http://"+ports[1].String()
	p.etcd, err = p.launch("etcd", nil, "etcd", "--data-dir", filepath.Join(w.dir, "etcd"), "--listen-client-urls", etcd,
		"--advertise-client-urls", etcd, "--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers,
		"--initial-cluster", "default="+peers)
	if err != nil {
		return "", err
	}
	for i := range 3 {
		name := fmt.Sprint("server", i+1)
		p.nodes = append(p.nodes, &patroniNode{
			Name: name, Dir: filepath.Join(w.dir, name), Etcd: ports[0].String(), Password: "failover",
			Bin: filepath.Dir(servers[len(servers)-1]), TTL: int(patroniTTL.Seconds()), Loop: int(patroniLoop.Seconds()),
		})
	}
	return p.startServers(ctx)
}

func (p *patroni) startServers(ctx context.Context) (primary string, err error) {
	for _, n := range p.nodes {
		if n.Server, err = port.Loopback(ctx); err != nil {
			return "", err
		}
		if n.REST, err = port.Loopback(ctx); err != nil {
			return "", err
		}
		if err := n.prepare(); err != nil {
			return "", err
		}
		if err := p.run(n); err != nil {
			return "", err
		}
	}
	config := filepath.Join(p.world.dir, "haproxy.cfg")
	if err := render(config, proxyConfig, map[string]any{"Endpoint": p.endpoint, "Nodes": p.nodes}); err != nil {
		return "", err
	}
	if p.proxy, err = p.launch("haproxy", nil, "haproxy", "-db", "-f", config); err != nil {
		return "", err
	}
	primary = fmt.Sprintf("postgres://postgres:%s@%s/postgres?sslmode=disable", p.nodes[0].Password, p.endpoint)
	if err := p.whole(ctx, 2*time.Minute); err != nil {
		return "", err
	}
	err = eventually(ctx, 30*time.Second, "HAProxy leads to the primary", func(ctx context.Context) bool {
		return on(ctx, primary, func(pool *postgres.Pool) error {
			return pool.Raw().QueryRow(ctx, `SELECT current_setting('server_version_num')::int`).Scan(&p.number)
		}) == nil
	})
	return primary, err
}

// prepare makes the folder of a node.
func (n *patroniNode) prepare() error {
	if err := os.Mkdir(n.Dir, 0o700); err != nil {
		return err
	}
	if err := render(filepath.Join(n.Dir, "patroni.yml"), patroniConfig, n); err != nil {
		return err
	}
	owner, err := unprivileged()
	if err != nil || owner == nil {
		return err
	}
	for _, path := range []string{n.Dir, filepath.Join(n.Dir, "patroni.yml")} {
		if err := os.Lchown(path, int(owner.Uid), int(owner.Gid)); err != nil {
			return err
		}
	}
	return nil
}

// unprivileged is PostgreSQL's user, if we are root, whom it refuses.
func unprivileged() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, err
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, err
}

func (p *patroni) run(n *patroniNode) (err error) {
	as, err := unprivileged()
	if err != nil {
		return err
	}
	n.patroni, err = p.launch(n.Name, as, "patroni", filepath.Join(n.Dir, "patroni.yml"))
	return err
}

// launch starts a program, which writes its log beside its folder.
func (p *patroni) launch(name string, as *syscall.Credential, file string, args ...string) (*program, error) {
	path, err := exec.LookPath(file)
	if err != nil {
		return nil, err
	}
	started := &program{
		cmd:    exec.Command(path, args...), //nolint:noctx // stop ends it, in its turn
		exited: make(chan struct{}), log: filepath.Join(p.world.dir, name+".log"),
	}
	log, err := os.OpenFile(started.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	started.cmd.Stdout, started.cmd.Stderr = log, log
	started.cmd.Dir = "/"
	started.cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", "TZ=UTC"}
	started.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: as}
	if err := started.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = started.cmd.Wait() // how it ended stands in its log
		close(started.exited)
	}()
	return started, nil
}

func (p *program) signal(s syscall.Signal) {
	if p != nil {
		_ = p.cmd.Process.Signal(s) // if it is there
	}
}

// end has a program end, and kills one that does not.
func (p *program) end(within time.Duration) {
	if p == nil {
		return
	}
	p.signal(syscall.SIGTERM)
	select {
	case <-p.exited:
	case <-time.After(within):
		p.signal(syscall.SIGKILL)
		<-p.exited
	}
}

func render(path, text string, data any) error {
	var b bytes.Buffer
	if err := template.Must(template.New("").Parse(text)).Execute(&b, data); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o600)
}

// is asks a node's Patroni: GET /primary, /sync.
func (n *patroniNode) is(ctx context.Context, what string) bool {
	ctx, stop := context.WithTimeout(ctx, time.Second)
	defer stop()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.REST.String()+"/"+what, nil)
	if err != nil {
		return false
	}
	res, err := http.DefaultClient.Do(q)
	if err != nil {
		return false
	}
	_ = res.Body.Close()
	return res.StatusCode == http.StatusOK
}

func (p *patroni) primary(ctx context.Context) *patroniNode {
	for _, n := range p.nodes {
		if n.is(ctx, "primary") {
			return n
		}
	}
	return nil
}

// whole waits until there is a primary, and two others follow, one of them synchronously.
func (p *patroni) whole(ctx context.Context, within time.Duration) error {
	err := eventually(ctx, within, "three servers, one primary, one synchronous standby", func(ctx context.Context) bool {
		n := p.primary(ctx)
		if n == nil {
			return false
		}
		var cluster struct {
			Members []struct{ Role, State string }
		}
		q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.REST.String()+"/cluster", nil)
		if err != nil {
			return false
		}
		res, err := http.DefaultClient.Do(q)
		if err != nil {
			return false
		}
		defer func() { _ = res.Body.Close() }()
		if json.NewDecoder(res.Body).Decode(&cluster) != nil {
			return false
		}
		running, synchronous := 0, 0
		for _, m := range cluster.Members {
			if m.State == "running" || m.State == "streaming" {
				running++
			}
			if m.Role == "sync_standby" {
				synchronous++
			}
		}
		return running == len(p.nodes) && synchronous > 0
	})
	if err != nil {
		return fmt.Errorf("%w\n%s", err, p.logs())
	}
	return nil
}

// logs is the end of each log.
func (p *patroni) logs() string {
	var b strings.Builder
	for _, n := range p.nodes {
		if text, err := os.ReadFile(n.patroni.log); err == nil {
			fmt.Fprintf(&b, "%s:\n%s\n", n.Name, text[max(0, len(text)-2000):])
		}
	}
	return b.String()
}

// server is the first process of a node's PostgreSQL, 0 if there is none.
func (n *patroniNode) server() int {
	text, err := os.ReadFile(filepath.Join(n.Dir, "data", "postmaster.pid"))
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(line)
	if err != nil || syscall.Kill(pid, 0) != nil {
		return 0
	}
	return pid
}

// lose implements cluster.
func (p *patroni) lose(ctx context.Context, r *failover, how string) (l Loss, err error) {
	l.How = how
	if p.lost = p.primary(ctx); p.lost == nil {
		return l, errors.New("there is no primary to lose")
	}
	p.how = how
	switch how {
	case KilledServer:
		err = signalAll(p.lost.server(), syscall.SIGKILL)
	case KilledMachine:
		p.lost.patroni.signal(syscall.SIGKILL)
		err = signalAll(p.lost.server(), syscall.SIGKILL)
	case FrozenMachine:
		p.lost.patroni.signal(syscall.SIGSTOP)
		err = signalAll(p.lost.server(), syscall.SIGSTOP)
	default:
		err = fmt.Errorf("a primary of a real cluster cannot be %q", how)
	}
	if err != nil {
		return l, err
	}
	l.At = r.now() // What it acknowledged until here, it acknowledged.
	err = eventually(ctx, time.Minute, "another server is the primary", func(ctx context.Context) bool {
		for _, n := range p.nodes {
			if n != p.lost && n.is(ctx, "primary") {
				return true
			}
		}
		return false
	})
	if err != nil {
		return l, fmt.Errorf("%w\n%s", err, p.logs())
	}
	l.Promoted = r.since(l)
	return l, nil
}

// heal implements cluster. Patroni makes the lost server a standby of the other by itself. One that was lost again before
// its promotion reached a checkpoint cannot be rewound, and does not come back: then its data is copied anew, as an
// operator does with patronictl reinit.
func (p *patroni) heal(ctx context.Context, r *failover) error {
	switch p.how {
	case KilledMachine:
		if err := p.run(p.lost); err != nil {
			return err
		}
	case FrozenMachine:
		rest(ctx, frozenFor)
		if err := p.reset(p.lost); err != nil {
			return err
		}
	}
	if err := p.whole(ctx, time.Minute); err == nil {
		return nil
	}
	r.Log("%s does not follow: its data is copied anew", p.lost.Name)
	p.lost.patroni.end(5 * time.Second)
	if err := signalAll(p.lost.server(), syscall.SIGKILL); err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(p.lost.Dir, "data")); err != nil {
		return err
	}
	if err := p.run(p.lost); err != nil {
		return err
	}
	return p.whole(ctx, 2*time.Minute)
}

// reset is what the watchdog does to a machine that stood still, and what Patroni requires with watchdog.mode: it starts
// anew. It is played, because processes have no device for one. A machine that only went on could lose answers: Patroni
// 3.0.2 that stood still between reading its lock in etcd and renewing it writes over the lock of the new primary
// (patroni/patroni#2689), which then follows it.
func (p *patroni) reset(n *patroniNode) error {
	n.patroni.signal(syscall.SIGKILL)
	if err := signalAll(n.server(), syscall.SIGKILL); err != nil {
		return err
	}
	<-n.patroni.exited
	return p.run(n)
}

func (p *patroni) stop() {
	for _, n := range p.nodes {
		n.patroni.signal(syscall.SIGCONT)
		n.patroni.end(5 * time.Second)
		_ = signalAll(n.server(), syscall.SIGKILL)
	}
	p.proxy.end(time.Second)
	p.etcd.end(time.Second)
}
