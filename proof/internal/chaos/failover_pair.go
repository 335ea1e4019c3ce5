package chaos

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"example.com/payonce/internal/postgres"
	"example.com/payonce/testkit/devpg"
)

// pair is a primary and its standby, and what a failover manager does by hand: it notices that the primary is away,
// fences it, and promotes the standby. The service has both hosts in its DATABASE_URL.
type pair struct {
	synchronous bool
	delay       time.Duration // of what the standby is sent; an asynchronous one is behind by as much

	world    *world
	servers  [2]*devpg.Server
	follow   [2]*link // how the other one finds server i
	manager  [2]*link // how the manager finds it
	primary  int
	straying *node // is on the lost primary's side
}

func (p *pair) name(i int) string { return fmt.Sprintf("server_%d", i+1) }

func (p *pair) version() int { return p.servers[0].Version }

func (p *pair) addresses() (list []string) {
	for _, s := range p.servers {
		list = append(list, address(s))
	}
	return list
}

// address is the host and port of a server.
func address(s *devpg.Server) string {
	u, err := url.Parse(s.URL)
	if err != nil {
		panic("bug: " + err.Error()) // devpg made it
	}
	return u.Host
}

func (p *pair) start(ctx context.Context, w *world) (primary string, err error) {
	p.world = w
	p.servers[0], err = devpg.Start(ctx, devpg.Options{Durable: true, MaxConnections: 200, Only: devpg.FromLocal})
	if err != nil {
		return "", err
	}
	if err := p.lay(0); err != nil {
		return "", err
	}
	if p.servers[1], err = p.servers[0].Replica(ctx, devpg.Following{Name: p.name(1), Through: p.follow[0].addr()}); err != nil {
		return "", err
	}
	if err := p.lay(1); err != nil {
		return "", err
	}
	return p.servers[0].URL, p.followed(ctx)
}

// lay lays the cables to a server.
func (p *pair) lay(i int) (err error) {
	if p.follow[i], err = p.world.network.lay(p.name(1-i), p.name(i), address(p.servers[i])); err != nil {
		return err
	}
	p.manager[i], err = p.world.network.lay("manager", p.name(i), address(p.servers[i]))
	return err
}

// followed waits until the standby follows, and has commits wait for it.
func (p *pair) followed(ctx context.Context) error {
	names := ""
	if p.synchronous {
		names = p.name(1 - p.primary)
	}
	err := p.exec(ctx, p.primary, "ALTER SYSTEM SET synchronous_standby_names = '"+names+"'", "SELECT pg_reload_conf()")
	if err != nil {
		return err
	}
	state := map[bool]string{true: "sync", false: "async"}[p.synchronous]
	err = eventually(ctx, 30*time.Second, "the standby follows", func(ctx context.Context) bool {
		n, err := p.count(ctx, p.primary, "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = '"+
			state+"'")
		return err == nil && n == 1
	})
	if err == nil && p.delay > 0 {
		_, err = p.follow[p.primary].slow(p.delay)
	}
	return err
}

// on runs do on a server as the superuser, in sessions that wait for no standby.
func on(ctx context.Context, dsn string, do func(*postgres.Pool) error) error {
	u, err := url.Parse(dsn)
	if err != nil {
		return err
	}
	query := u.Query()
	query.Set("synchronous_commit", "local")
	u.RawQuery = query.Encode()
	pool, err := postgres.Open(ctx, u.String(), postgres.Options{Name: "manager", MaxConn: 1, ReadOnly: true})
	if err != nil {
		return err
	}
	defer pool.Close()
	return do(pool)
}

func (p *pair) exec(ctx context.Context, i int, statements ...string) error {
	return on(ctx, p.servers[i].URL, func(pool *postgres.Pool) error {
		for _, sql := range statements {
			if _, err := pool.Raw().Exec(ctx, sql); err != nil {
				return err
			}
		}
		return nil
	})
}

func (p *pair) count(ctx context.Context, i int, sql string) (n int, err error) {
	err = on(ctx, p.servers[i].URL, func(pool *postgres.Pool) error { return pool.Raw().QueryRow(ctx, sql).Scan(&n) })
	return n, err
}

// lose implements cluster.
func (p *pair) lose(ctx context.Context, r *failover, how string) (l Loss, err error) {
	old := p.primary
	l.How = how
	p.straying = nil
	if how == Canceled {
		if l.WaitsCanceled, err = p.cancelWaits(ctx, old); err != nil {
			return l, err
		}
	}
	if how == Frozen || how == Cut {
		p.straying = p.world.nodes[len(p.world.nodes)-1]
		p.straying.link(toServer(1 - old)).cut() // It is on the other side. What it is answered, the lost primary answers.
		r.traffic.knockAt(p.world.nodes[:len(p.world.nodes)-1])
	}
	var undo []func()
	switch how {
	case Killed, Canceled:
		err = signalAll(p.servers[old].PID(), syscall.SIGKILL)
	case Frozen:
		err = signalAll(p.servers[old].PID(), syscall.SIGSTOP)
	case Cut:
		undo, err = p.cutOff(old)
	default:
		err = fmt.Errorf("a primary of a pair cannot be %q", how)
	}
	if err != nil {
		return l, err
	}
	l.At = r.now() // What it acknowledged until here, it acknowledged.
	p.notice(ctx, old)
	l.Noticed = r.since(l)
	p.fence(old)
	for _, f := range undo {
		f()
	}
	err = eventually(ctx, 20*time.Second, "the standby is promoted", func(ctx context.Context) bool {
		return p.exec(ctx, 1-old, "SELECT pg_promote()") == nil // Replay may cancel it (40001).
	})
	if err != nil {
		return l, err
	}
	p.primary = 1 - old
	l.Promoted = r.since(l)
	if p.straying != nil {
		err = p.comeBack(ctx, r, &l, old)
	}
	return l, err
}

// notice returns once the primary has not answered twice.
func (p *pair) notice(ctx context.Context, i int) {
	for missed := 0; missed < 2 && ctx.Err() == nil; {
		began := time.Now()
		if p.answers(ctx, i) {
			missed = 0
		} else {
			missed++
		}
		rest(ctx, 250*time.Millisecond-time.Since(began))
	}
}

// answers reports whether a server answers the manager within a second.
func (p *pair) answers(ctx context.Context, i int) bool {
	ctx, stop := context.WithTimeout(ctx, time.Second)
	defer stop()
	dsn, err := at(p.servers[i].URL, p.manager[i].addr())
	if err != nil {
		return false
	}
	return on(ctx, dsn, func(pool *postgres.Pool) error { return pool.Ping(ctx) }) == nil
}

// fence takes the cables of a lost primary away from all that can be reached from here.
func (p *pair) fence(i int) {
	for _, n := range p.world.nodes {
		if n != p.straying {
			n.link(toServer(i)).cut()
		}
	}
}

// cutOff drops what is sent between a server and all but the straying node, without a word.
func (p *pair) cutOff(i int) (undo []func(), err error) {
	cables := []*link{p.follow[i], p.manager[i]}
	for _, n := range p.world.nodes {
		if n != p.straying {
			cables = append(cables, n.link(toServer(i)))
		}
	}
	for _, l := range cables {
		heal, err := l.swallow()
		undo = append(undo, heal)
		if err != nil {
			return undo, err
		}
	}
	return undo, nil
}

// comeBack is the lost primary at work again, with a node that is connected to it.
func (p *pair) comeBack(ctx context.Context, r *failover, l *Loss, old int) error {
	rest(ctx, time.Second)
	if l.How == Frozen {
		if err := signalAll(p.servers[old].PID(), syscall.SIGCONT); err != nil {
			return err
		}
	}
	watching, stop := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		for watching.Err() == nil {
			n, err := p.count(watching, old, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
			if err == nil {
				l.Holding = max(l.Holding, n)
			}
			rest(watching, 50*time.Millisecond)
		}
	})
	r.askLate(ctx, p.straying, l, 4*time.Second)
	stop()
	watch.Wait()
	return nil
}

// cancelWaits has commits wait in vain for the standby, and cancels their waits, for two seconds: an operator who frees a
// database that hangs.
func (p *pair) cancelWaits(ctx context.Context, i int) (n int64, err error) {
	if _, err := p.follow[i].swallow(); err != nil {
		return 0, err
	}
	err = on(ctx, p.servers[i].URL, func(pool *postgres.Pool) error {
		for end := time.Now().Add(2 * time.Second); time.Now().Before(end); {
			tag, err := pool.Raw().Exec(ctx, "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
			if err != nil {
				return err
			}
			n += tag.RowsAffected()
			rest(ctx, 5*time.Millisecond)
		}
		return nil
	})
	return n, err
}

// heal stops the lost primary, makes it the standby of the other, and lays its cables again.
func (p *pair) heal(ctx context.Context, r *failover) error {
	old := 1 - p.primary
	if err := signalAll(p.servers[old].PID(), syscall.SIGKILL); err != nil {
		return err
	}
	if err := p.servers[old].Halt("immediate"); err != nil {
		return err
	}
	for _, f := range []*link{p.follow[old], p.manager[old]} { // what was swallowed, or slow
		f.cut()
		if err := f.clean(ctx); err != nil {
			return err
		}
	}
	err := p.servers[old].Rejoin(ctx, devpg.Following{Name: p.name(old), Through: p.follow[p.primary].addr()})
	if err != nil {
		return err
	}
	for _, n := range p.world.nodes {
		for i := range p.servers {
			if err := n.link(toServer(i)).repair(ctx); err != nil {
				return err
			}
		}
	}
	r.traffic.knockAt(p.world.nodes)
	return p.followed(ctx)
}

func (p *pair) stop() {
	for _, s := range p.servers {
		if s != nil {
			_ = signalAll(s.PID(), syscall.SIGCONT)
			_ = s.Stop()
		}
	}
}

// signalAll sends a signal to a server's first process and to all others of it, which are its children.
func signalAll(pid int, signal syscall.Signal) error {
	if pid == 0 {
		return nil
	}
	for range 3 { // The first one goes on to start others until it has the signal.
		pids := []int{pid}
		list, err := filepath.Glob("/proc/[0-9]*/stat")
		if err != nil {
			return err
		}
		for _, file := range list {
			text, err := os.ReadFile(file)
			if err != nil {
				continue // it is gone
			}
			fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:])) // state, parent, …
			child, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			if err == nil && len(fields) > 1 && fields[1] == strconv.Itoa(pid) {
				pids = append(pids, child)
			}
		}
		for _, p := range pids {
			if err := syscall.Kill(p, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
				return err
			}
		}
	}
	return nil
}
