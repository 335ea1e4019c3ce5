// Command chaos breaks a running system for a minute and counts the charges.
//
//	go run ./cmd/chaos [-duration 60s] [-seed N] [-json FILE]
//
// It exits 0 only if nothing was violated and enough was broken to mean
// something. Everything it starts is its own, on loopback, and ends with it.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"example.com/payonce/internal/chaos"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	c := chaos.Config{Log: func(format string, args ...any) { fmt.Printf(format+"\n", args...) }}
	flag.DurationVar(&c.Duration, "duration", time.Minute, "how long faults are injected")
	flag.Uint64Var(&c.Seed, "seed", uint64(time.Now().UnixNano()), "the schedule of faults and traffic")
	flag.IntVar(&c.Processes, "processes", 3, "API processes")
	flag.IntVar(&c.Clients, "clients", 8, "clients")
	flag.IntVar(&c.Tenants, "tenants", 2, "tenants")
	file := flag.String("json", "", "write the report there")
	flag.Parse()
	report, err := chaos.Run(ctx, c)
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(2)
	}
	report.Print(os.Stdout)
	if *file != "" {
		b, err := json.MarshalIndent(report, "", "  ")
		if err == nil {
			err = os.WriteFile(*file, append(b, '\n'), 0o600)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "chaos:", err)
			os.Exit(2)
		}
	}
	if !report.OK() {
		os.Exit(1)
	}
}
