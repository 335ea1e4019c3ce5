package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"example.com/payonce/db"
	httpapi "example.com/payonce/internal/http"
	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/sealed"
	"example.com/payonce/testkit/devpg"
)

// ordersMax is how many fresh orders one measurement may use up: more than any
// machine has paid in that time.
func (b *bench) ordersMax() int { return 15_000 * b.s.seconds }

// bench is a migrated database with a tenant, and the service on it.
type bench struct {
	s                   settings
	serverURL, version  string
	url, apiKey, tenant string
	database            string
	pool                *postgres.Pool
	addr, peers         string
	child               *exec.Cmd
	more                []*bench // other processes of the service on the same database
	program, programDir string   // of another commit's service; empty: this one's
	dir                 string
	before              struct{ bytes, payments int64 } // what was there when measuring began
	replay              [][]byte                        // requests that were answered
	batched             batched
	floorEvents         int // the batch of events that pgbench inserted last
}

// databases made so far by this process, and batches of orders and events: each measurement gets its own.
var databases, batches int

func newBatch() int {
	batches++
	return batches
}

func prepare(ctx context.Context, serverURL string, s settings) (*bench, error) {
	return prepareWith(ctx, serverURL, s, func(ctx context.Context, b *bench) error {
		_, err := devpg.Migrate(ctx, b.url)
		return err
	})
}

// prepareWith is prepare with the migrations of another commit.
func prepareWith(ctx context.Context, serverURL string, s settings,
	migrate func(context.Context, *bench) error) (*bench, error) {
	admin, err := postgres.Open(ctx, serverURL, postgres.Options{MaxConn: 2})
	if err != nil {
		return nil, err
	}
	databases++
	name := fmt.Sprintf("bench_%d_%d", os.Getpid(), databases)
	_, err = admin.Raw().Exec(ctx, "CREATE DATABASE "+name)
	admin.Close()
	if err != nil {
		return nil, fmt.Errorf("create the database: %w", err)
	}
	b := &bench{s: s, serverURL: serverURL, url: withDatabase(serverURL, name), database: name,
		tenant: ids.New(ids.Tenant)}
	if b.pool, err = postgres.Open(ctx, b.url, postgres.Options{MaxConn: 4}); err != nil {
		return nil, err
	}
	if err := migrate(ctx, b); err != nil {
		return nil, err
	}
	if _, err := b.pool.Raw().Exec(ctx, peerTables); err != nil {
		return nil, err
	}
	box, err := sealed.New(s.dataKey)
	if err != nil {
		return nil, err
	}
	key, hash, hint := httpapi.NewAPIKey(b.tenant)
	b.apiKey = key
	if err := b.pool.TenantCreate(ctx,
		db.TenantCreateParams{ID: b.tenant, Name: "bench", FingerprintSecret: box.Seal(
			sealed.FingerprintSecret(b.tenant), make([]byte, 32))}); err != nil {
		return nil, err
	}
	if err := b.pool.APIKeyCreate(ctx,
		db.APIKeyCreateParams{TenantID: b.tenant, KeyHash: hash, Hint: hint}); err != nil {
		return nil, err
	}
	if err := b.pool.Raw().QueryRow(ctx,
		"SELECT 'PostgreSQL ' || split_part(current_setting('server_version'), ' ', 1)").Scan(&b.version); err != nil {
		return nil, err
	}
	b.dir, err = os.MkdirTemp("", "payonce-bench")
	return b, err
}

// as is the same service and database with another number of clients.
func (b *bench) as(clients int) *bench {
	other := *b
	other.s.connections = clients
	return &other
}

// another is one more database with a service of its own, for what must not meet
// what others have left behind.
func (b *bench) another(ctx context.Context, s settings, args ...string) (*bench, error) {
	other, err := prepare(ctx, b.serverURL, s)
	if err != nil {
		return nil, err
	}
	if err := other.startService(ctx, args...); err != nil {
		other.close()
		return nil, err
	}
	return other, nil
}

var databaseName = regexp.MustCompile(`^(postgres(?:ql)?://[^/]+/)[^?]*`)

func withDatabase(url, name string) string { return databaseName.ReplaceAllString(url, "${1}"+name) }

func (b *bench) startService(ctx context.Context, args ...string) error {
	program := b.program
	if program == "" {
		var err error
		if program, err = os.Executable(); err != nil {
			return err
		}
	}
	if b.program == "" { // another commit's may know no roles
		args = append(args, "-role", b.s.role, "-data_key", b.s.dataKey)
	}
	b.child = exec.CommandContext(ctx, program,
		append([]string{"service", "-database", b.url, "-tenant", b.tenant, "-pool", strconv.Itoa(b.s.clients)},
			args...)...)
	b.child.Cancel = func() error { return b.child.Process.Signal(os.Interrupt) }
	b.child.Stderr = os.Stderr
	b.child.Env = append(os.Environ(), "GOGC=250") // as cmd/api sets it
	out, err := b.child.StdoutPipe()
	if err != nil {
		return err
	}
	if err := b.child.Start(); err != nil {
		return err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	b.addr, b.peers, _ = strings.Cut(strings.TrimSpace(line), " ")
	return err
}

// serverCPU is the processor time of PostgreSQL's processes, also of those that have ended; zero if they are elsewhere.
func (b *bench) serverCPU(ctx context.Context) (all time.Duration) {
	var backend int
	if err := b.pool.Raw().QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&backend); err != nil {
		return 0
	}
	server := procOf(backend).parent
	if server <= 1 {
		return 0
	}
	all = procOf(server).own + procOf(server).children
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range processes {
		pid, _ := strconv.Atoi(filepath.Base(p))
		if one := procOf(pid); one.parent == server {
			all += one.own
		}
	}
	return all
}

// serveToo starts another process of the service on the same database.
func (b *bench) serveToo(ctx context.Context) error {
	other := &bench{s: b.s, url: b.url, tenant: b.tenant}
	if err := other.startService(ctx); err != nil {
		return err
	}
	b.more = append(b.more, other)
	return nil
}

// others are the addresses of the other processes.
func (b *bench) others() (addrs []string) {
	for _, other := range b.more {
		addrs = append(addrs, other.addr)
	}
	return addrs
}

// cpu is the processor time of the service's processes.
func (b *bench) cpu() (all time.Duration) {
	for _, one := range append([]*bench{b}, b.more...) {
		all += cpuOf(one.child.Process.Pid)
	}
	return all
}

// end ends the process of the service.
func (b *bench) end() {
	if b.child != nil && b.child.Process != nil {
		_ = b.child.Process.Signal(os.Interrupt)
		_ = b.child.Wait()
	}
}

func (b *bench) close() {
	for _, one := range append([]*bench{b}, b.more...) {
		one.end()
	}
	b.pool.Close()
	_ = os.RemoveAll(b.dir)
	if b.programDir != "" {
		_ = os.RemoveAll(b.programDir)
	}
	admin, err := postgres.Open(context.Background(), b.serverURL, postgres.Options{
		MaxConn: 1, Statement: time.Minute,
	})
	if err != nil {
		return
	}
	defer admin.Close()
	// A server of ours is thrown away with its databases; a named server is left as it was.
	_, _ = admin.Raw().Exec(context.Background(), "DROP DATABASE "+b.database+" WITH (FORCE)")
}

// orders makes fresh orders: ord_ and 26 digits, the last of which count.
func (b *bench) orders(ctx context.Context, each, clients int) (prefix string, err error) {
	prefix = fmt.Sprintf("ord_%04d", newBatch())
	_, err = b.pool.Raw().Exec(ctx, `
		INSERT INTO orders (tenant_id, id, currency, amount_minor, items, created_at)
		SELECT $1, $2 || lpad(c::text, 4, '0') || lpad(i::text, 18, '0'), 'usd', 1000,
			'[{"sku":"a","quantity":2,"unit_amount":500}]', clock_timestamp()
		FROM generate_series(0, $4::int - 1) c, generate_series(1, $3::int) i`, b.tenant, prefix, each, clients)
	if err == nil {
		_, err = b.pool.Raw().Exec(ctx, "VACUUM (ANALYZE) orders")
	}
	if err == nil { // Otherwise payments are measured while the disk writes these.
		_, err = b.pool.Raw().Exec(ctx, "CHECKPOINT")
	}
	return prefix, err
}

// cpuOf is the processor time a process has used, from /proc; zero elsewhere.
func cpuOf(pid int) time.Duration { return procOf(pid).own }

// proc is what /proc says of a process; nothing elsewhere.
type proc struct {
	parent        int
	own, children time.Duration // processor time; of children that have ended
}

func procOf(pid int) (s proc) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return s
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 15 {
		return s
	}
	s.parent, _ = strconv.Atoi(fields[1])
	ticks := func(user, system int) (all time.Duration) {
		for _, i := range []int{user, system} {
			n, _ := strconv.ParseInt(fields[i], 10, 64)
			all += time.Duration(n) * 10 * time.Millisecond
		}
		return all
	}
	s.own, s.children = ticks(11, 12), ticks(13, 14)
	return s
}
