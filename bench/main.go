// Command bench measures what the service costs, as ratios within one run:
// payments against pgbench running exactly the same statements on the same
// server, replays against pgbench's read of the same row.
//
//	go run ./bench                       about a minute
//	go run ./bench -rounds 9 -seconds 10 for figures to quote
//
// Absolute figures are this machine's and today's; the ratios travel better.
// Rounds are interleaved, so that a machine that slows down slows all of them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/db/devpg"
)

type settings struct {
	rounds      int
	seconds     int
	connections int
	clients     int // pgbench's
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
	flag.Parse()
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
	server, err := devpg.Start(ctx, devpg.Options{
		URL: os.Getenv("DATABASE_URL"), URLVar: "DATABASE_URL", Durable: true, MaxConnections: 300,
		Settings: map[string]string{"shared_buffers": "1GB", "max_wal_size": "8GB"},
		Log:      func(format string, args ...any) { fmt.Printf(format+"\n", args...) },
	})
	if err != nil {
		return err
	}
	defer func() { _ = server.Stop() }()
	pgbench, err := findPgbench()
	if err != nil {
		return err
	}
	b, err := prepare(ctx, server.URL)
	if err != nil {
		return err
	}
	defer b.close()
	measurements := []measurement{
		{name: "fresh payments, pgbench", unit: "payments/s", run: func(ctx context.Context) (float64, error) { return b.pgbench(ctx, pgbench, "fresh", s) }},
		{name: "fresh payments, service", unit: "payments/s", floor: 0, run: func(ctx context.Context) (float64, error) { return b.fresh(ctx, s) }},
		{name: "reads of a finished key, pgbench", unit: "reads/s", run: func(ctx context.Context) (float64, error) { return b.pgbench(ctx, pgbench, "replay", s) }},
		{name: "replays, service", unit: "replays/s", floor: 2, run: func(ctx context.Context) (float64, error) { return b.replays(ctx, s) }},
		{name: "duplicates in flight (409), service", unit: "answers/s", floor: 2, run: func(ctx context.Context) (float64, error) { return b.conflicts(ctx, s) }},
	}
	for round := range s.rounds {
		for i := range measurements {
			m := &measurements[i]
			rate, err := m.run(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", m.name, err)
			}
			m.rates = append(m.rates, rate)
			fmt.Printf("round %d  %-38s %9.0f %s\n", round+1, m.name, rate, m.unit)
		}
	}
	report(measurements)
	return b.costs(ctx)
}

// measurement is one thing measured once a round.
type measurement struct {
	name, unit string
	floor      int // index of what it is compared with; itself for a floor
	run        func(context.Context) (float64, error)
	rates      []float64
}

func report(list []measurement) {
	fmt.Printf("\n%-38s %12s %22s %8s\n", "median of the rounds", "", "min – max", "of floor")
	for i, m := range list {
		ratio := ""
		if m.floor != i && i%2 == 1 || i == 4 {
			var ratios []float64
			for r := range m.rates {
				ratios = append(ratios, m.rates[r]/list[m.floor].rates[r])
			}
			ratio = fmt.Sprintf("%8.2f", median(ratios))
		}
		fmt.Printf("%-38s %12.0f %10.0f – %-9.0f %8s\n", m.name, median(m.rates), slices.Min(m.rates), slices.Max(m.rates), ratio)
	}
}

func median(list []float64) float64 {
	sorted := slices.Sorted(slices.Values(list))
	if n := len(sorted); n%2 == 0 {
		return (sorted[n/2-1] + sorted[n/2]) / 2
	}
	return sorted[len(sorted)/2]
}

// findPgbench looks beside the newest PostgreSQL of this machine, and on the path.
func findPgbench() (string, error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/pgbench")
	slices.Sort(found)
	if len(found) > 0 {
		return found[len(found)-1], nil
	}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if path := filepath.Join(dir, "pgbench"); isFile(path) {
			return path, nil
		}
	}
	return "", errors.New("pgbench is not on this machine; it comes with PostgreSQL")
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

func seconds(s settings) time.Duration { return time.Duration(s.seconds) * time.Second }

var _ = db.HotPath
