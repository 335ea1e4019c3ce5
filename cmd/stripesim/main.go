// Command stripesim runs the simulated Stripe as a process: for docker compose,
// for chaos tests, and for use with curl.
//
//	stripesim [-addr 127.0.0.1:12111] [-admin 127.0.0.1:12112] [-store FILE]
//	          [-keys sk_test_…,…] [-webhook-url URL -webhook-secret whsec_…]
//	          [-latency 80ms] [-seed N] [-release-regime refunds|basil] [-tls]
//	stripesim healthcheck [-admin ADDR]
//
// Every flag can also be given as STRIPESIM_ADDR, STRIPESIM_WEBHOOK_URL and so on;
// a flag wins. Port 0 takes a free one, and the line printed when ready has its address.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"example.com/payonce/stripesim"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "stripesim:", err)
		os.Exit(1)
	}
}

// drain is how long answers may take to leave at shutdown. Held and delayed
// requests are abandoned at once.
const drain = 2 * time.Second

type config struct {
	addr, admin, store, keys  string
	webhookURL, webhookSecret string
	latency                   time.Duration
	seed                      uint64
	regime                    string
	tls                       bool
}

func parse(args []string, getenv func(string) string, stderr io.Writer) (config, error) {
	var c config
	fs := flag.NewFlagSet("stripesim", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.StringVar(&c.addr, "addr", "127.0.0.1:12111", "Stripe's port")
	fs.StringVar(&c.admin, "admin", "127.0.0.1:12112", "the admin port: faults, effects, clock")
	fs.StringVar(&c.store, "store", "", "journal file; empty keeps everything in memory")
	fs.StringVar(
		&c.keys, "keys", stripesim.DefaultKey, "accepted secret keys, separated by commas; * is any sk_test_ key",
	)
	fs.StringVar(&c.webhookURL, "webhook-url", "", "deliver all events here")
	fs.StringVar(&c.webhookSecret, "webhook-secret", "", "sign them with this")
	fs.DurationVar(&c.latency, "latency", 0, "how long an answer takes, on average")
	fs.Uint64Var(&c.seed, "seed", 0, "makes ids and latencies repeatable; 0 draws one")
	fs.StringVar(&c.regime, "release-regime", string(stripesim.RegimeRefunds),
		"what a release of authorised money leaves behind: refunds (before 2025-03-31.basil) or basil (nothing)")
	fs.BoolVar(&c.tls, "tls", false,
		"Stripe's port has TLS, with HTTP/2 on offer; GET /ca.pem of the admin port has what clients must trust")
	var bad error
	fs.VisitAll(func(f *flag.Flag) {
		name := "STRIPESIM_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		if v := getenv(name); v != "" {
			if err := f.Value.Set(v); err != nil {
				bad = errors.Join(bad, fmt.Errorf("%s: %w", name, err))
			}
		}
	})
	if err := fs.Parse(args); err != nil {
		return c, err
	}
	switch {
	case bad != nil:
		return c, bad
	case fs.NArg() > 0:
		return c, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	case c.webhookURL != "" && c.webhookSecret == "":
		return c, errors.New("STRIPESIM_WEBHOOK_SECRET is needed to sign what goes to STRIPESIM_WEBHOOK_URL")
	}
	return c, nil
}

func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) error {
	if len(args) > 0 && args[0] == "healthcheck" {
		return healthcheck(ctx, args[1:], getenv, stderr)
	}
	cfg, err := parse(args, getenv, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	sim, err := stripesim.New(cfg.options(slog.New(slog.NewJSONHandler(stderr, nil))))
	if err != nil {
		return err
	}
	defer sim.Close() // for the early returns; a second Close does nothing

	api, err := sim.Listen(cfg.addr, cfg.tls)
	if err != nil {
		return err
	}
	admin, err := serve(cfg.admin, sim.AdminHandler())
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "stripesim: Stripe at %s, admin at http://%s\n", api.URL, admin.Addr)
	<-ctx.Done()

	err = sim.Close() // lets the held and the delayed go, so that Shutdown need not wait for them
	late, cancel := context.WithTimeout(context.Background(), drain)
	defer cancel()
	return errors.Join(err, api.Shutdown(late), shutdown(late, admin))
}

func (c config) options(log *slog.Logger) stripesim.Options {
	o := stripesim.Options{
		Store: c.store, WebhookURL: c.webhookURL, WebhookSecret: c.webhookSecret, Seed: c.seed, Log: log,
		ReleaseRegime: stripesim.ReleaseRegime(c.regime),
	}
	if c.keys != "*" {
		o.Keys = strings.Split(c.keys, ",")
	}
	if c.latency > 0 {
		o.Latency = sampled(c.latency, c.seed)
	}
	return o
}

// sampled draws latencies of a given mean: half of it is certain, the rest has
// a long tail, as networks have.
func sampled(mean time.Duration, seed uint64) func() time.Duration {
	if seed == 0 {
		seed = rand.Uint64()
	}
	var mu sync.Mutex
	source := rand.New(rand.NewPCG(seed, 2))
	return func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return mean/2 + time.Duration(source.ExpFloat64()*float64(mean/2))
	}
}

// serve listens and serves in the background; Addr is the address.
func serve(addr string, h http.Handler) (*http.Server, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	srv := &http.Server{
		Addr: l.Addr().String(), Handler: h, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute,
	}
	go func() { _ = srv.Serve(l) }() // ends with Shutdown
	return srv, nil
}

func shutdown(ctx context.Context, srv *http.Server) error {
	if err := srv.Shutdown(ctx); err != nil {
		return srv.Close()
	}
	return nil
}

// healthcheck asks the admin port, for containers that have no curl.
func healthcheck(ctx context.Context, args []string, getenv func(string) string, stderr io.Writer) error {
	cfg, err := parse(args, getenv, stderr)
	if err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(cfg.admin)
	if err != nil {
		return err
	}
	if ip := net.ParseIP(host); host == "" || (ip != nil && ip.IsUnspecified()) {
		host = "127.0.0.1"
	}
	ctx, cancel := context.WithTimeout(ctx, drain)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(host, port)+"/healthz", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the admin port responded with %s", resp.Status)
	}
	return nil
}
