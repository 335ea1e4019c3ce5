// Command bench measures what the service costs, as ratios within one run:
// against pgbench running exactly the same statements on the same server, and
// against the ways to charge once that are usually taught.
//
//	go run -C proof ./bench                            requests, webhooks, relay, memory, more processors: half an hour
//	go run -C proof ./bench -only 'requests|webhooks'  some of it
//	go run -C proof ./bench -only 'stored keys' -stored 10000000  against the same with so many keys stored
//	go run -C proof ./bench -only 'another commit' -against v1.2.0  payments against the service of another commit
//	go run -C proof ./bench -only 'policies and encryption'  what an operator may turn off
//	go run -C proof ./bench -only memory -memory 10m   resident memory, for longer than the minute it is otherwise
//	go run -C proof ./bench -rounds 9 -seconds 10      for figures to quote
//	go run -C proof ./bench -write docs                put targets, tables and plots into docs/performance.md
//	go run -C proof ./bench -render docs               the same from docs/performance.json, measuring nothing
//
// Absolute figures are this machine's and today's; the ratios travel better.
// Rounds are interleaved, so that a machine that slows down slows all of them.
// What is written keeps the groups that an earlier run has measured and this one
// has not.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"time"

	"example.com/payonce/proof/internal/inventory"
	"example.com/payonce/proof/internal/plot"
	"example.com/payonce/testkit/devpg"
)

type settings struct {
	rounds      int
	seconds     int
	connections int
	role        string
	dataKey     string // of the service; empty: nothing is encrypted
	clients     int    // pgbench's
	events      int
	stored      int
	against     string
	storing     time.Duration
	memory      time.Duration
	only        string
	write       string
	render      string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if len(os.Args) > 1 && os.Args[1] == "service" { // started by ourselves, to be measured apart
		exit(service(ctx, os.Args[2:]))
	}
	var s settings
	flag.IntVar(&s.rounds, "rounds", 5, "interleaved rounds; medians are quoted")
	flag.IntVar(&s.seconds, "seconds", 3, "length of one measurement")
	flag.IntVar(&s.connections, "connections", 32, "connections to the service")
	flag.IntVar(&s.clients, "clients", 16, "clients of pgbench, and connections of the service's pool")
	flag.IntVar(&s.events, "events", 10_000, "backlog that the relay drains")
	flag.IntVar(&s.stored, "stored", 0, "measure again with so many finished keys stored")
	flag.DurationVar(&s.storing, "storing", time.Hour,
		"stop storing keys after so long, and measure with what there is")
	flag.StringVar(&s.against, "against", "",
		"measure payments against the service of this `commit`, which is built apart")
	flag.StringVar(&s.role, "role", "payonce_service",
		"the service's `role` in the database; empty: that of the server's URL, whom the policies of the tables do not bind")
	flag.DurationVar(&s.memory, "memory", time.Minute, "how long resident memory is watched")
	flag.StringVar(&s.only, "only", ".",
		"what matches this `regexp`: a group, or a group and a line, as requests/replays")
	flag.StringVar(&s.write, "write", "",
		"write the results into performance.md of this `directory`; a relative path starts at the repository's root")
	flag.StringVar(&s.render, "render", "",
		"measure nothing: write tables and plots again from performance.json in this `directory`")
	flag.Parse()
	if s.render != "" {
		exit(render(inventory.Path(s.render), (&bench{s: s}).groups()))
	}
	exit(run(ctx, s))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func run(ctx context.Context, s settings) error {
	only, err := regexp.Compile(s.only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	server, err := devpg.Start(ctx, devpg.Options{
		URL: os.Getenv("DATABASE_URL"), URLVar: "DATABASE_URL", Durable: true, MaxConnections: 300,
		Settings: map[string]string{"shared_buffers": "1GB", "max_wal_size": "8GB", "track_wal_io_timing": "on"},
		Log:      func(format string, args ...any) { fmt.Printf(format+"\n", args...) },
	})
	if err != nil {
		return err
	}
	defer func() { _ = server.Stop() }()
	b, err := prepare(ctx, server.URL, s)
	if err != nil {
		return err
	}
	defer b.close()
	if err := b.startService(ctx); err != nil {
		return err
	}

	groups := b.groups()
	if err := checkTargets(targets, groups); err != nil {
		return err
	}
	var failed error
	nothing := true
	for _, g := range groups {
		if g = g.only(only); g.off || len(g.list) == 0 {
			continue
		}
		nothing = false
		fmt.Printf("\n%s\n", g.name)
		r, err := g.played(ctx, b)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil { // The others are measured all the same.
			failed = errors.Join(failed, fmt.Errorf("%s: %w", g.name, err))
			continue
		}
		r.print()
		if s.write != "" { // at once: what follows may take long, and fail
			if err := write(inventory.Path(s.write), groups, []result{r}); err != nil {
				return err
			}
			failed = errors.Join(failed, explained(r.Outcomes))
		}
	}
	if nothing {
		return fmt.Errorf("nothing was measured: no group and no line matches %q, or it needs -against or -stored", s.only)
	}
	return failed
}

// groups are in the order of the page.
func (b *bench) groups() []group {
	return []group{b.addedGroup(), b.requestGroup(), b.manyGroup(), b.slowGroup(), b.processesGroup(),
		b.processorsGroup(), b.webhookGroup(), b.relayGroup(synced), b.relayGroup(unsynced), b.housekeepingGroup(), b.memoryGroup(), b.storedGroup(), b.cacheGroup(),
		b.protectionGroup(), b.againstGroup()}
}

// The names of the groups, as targets and -only have them.
const (
	inAdded         = "added latency"
	inRequests      = "requests"
	inMany          = "256 clients"
	inSlow          = "gateway latency 100 ms"
	inProcesses     = "processes and connections"
	inProcessors    = "more processors"
	inWebhooks      = "webhooks"
	inRelay         = "relay"
	inRelayUnsynced = "relay, broker syncs later"
	inHousekeeping  = "housekeeping"
	inMemory        = "memory"
	inStored        = "stored keys"
	inCache         = "a cache of responses"
	inProtection    = "policies and encryption"
	inAgainst       = "another commit"
)

// group is what is measured in turns.
type group struct {
	name    string
	says    func() string               // what one must know of it, for the page; may be nil
	prepare func(context.Context) error // once, before the first round; may be nil
	finish  func()                      // after the last; may be nil
	rounds  int                         // zero: as many as are asked for
	list    []*measurement
	left    []string     // the lines that -only has left out
	off     bool         // it needs a flag that was not given
	clients bool         // its own numbers of them, which it says
	curve   func() curve // to draw instead of the medians; may be nil
}

// only leaves what matches, and the floors that it is compared with.
func (g group) only(match *regexp.Regexp) group {
	needed := map[string]bool{}
	for _, m := range slices.Backward(g.list) { // a floor stands above what it is the floor of
		if needed[m.name] || match.MatchString(g.name+"/"+m.name) {
			needed[m.name], needed[m.floor] = true, true
		}
	}
	var list []*measurement
	for _, m := range g.list {
		if needed[m.name] {
			list = append(list, m)
		} else {
			g.left = append(g.left, m.name)
		}
	}
	g.list = list
	return g
}

// measurement is one thing measured once a round. One without a floor is a floor.
type measurement struct {
	name, unit string
	kind       plot.Kind // how it is drawn: ours unless it says otherwise
	floor      string
	timed      bool // its times are shown beside its costs
	late       bool // and p99.9 of all its rounds, which is enough responses
	run        func(context.Context) (sample, error)
	samples    []sample
}

// sample is one measurement. Costs are for one operation, and zero where not
// asked.
type sample struct {
	rate   float64
	cpu    time.Duration // of the service
	load   time.Duration // of the driver, which takes it from the service's processors
	wal    float64       // bytes; negative: not measured
	n      int           // operations
	p50    time.Duration
	p99    time.Duration
	times  []time.Duration // of all responses, the shortest first
	lag    time.Duration   // p99 from an event's insert to its mark
	memory float64         // megabytes resident at most
	growth float64         // of memory, from the second quarter of the time to the last
	note   string
}

// played is the group's result once it was measured.
func (g group) played(ctx context.Context, b *bench) (result, error) {
	if err := g.play(ctx, b.s.rounds); err != nil {
		return result{}, err
	}
	return g.result(b)
}

func (g group) play(ctx context.Context, rounds int) error {
	if g.finish != nil {
		defer g.finish()
	}
	if g.prepare != nil {
		if err := g.prepare(ctx); err != nil {
			return err
		}
	}
	if g.rounds > 0 {
		rounds = g.rounds
	}
	for round := range rounds {
		for _, m := range g.list {
			got, err := m.run(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", m.name, err)
			}
			m.samples = append(m.samples, got)
			fmt.Printf("  round %d  %-56s %9.0f %s\n", round+1, m.name, got.rate, m.unit)
		}
	}
	return nil
}
