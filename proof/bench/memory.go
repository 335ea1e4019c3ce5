package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.com/payonce/proof/internal/plot"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/devpg"
	"example.com/payonce/testkit/process"
)

const (
	brokerElsewhere = "cmd/api, external broker"
	brokerEmbedded  = "cmd/api, embedded broker"
)

// memoryGroup watches the program as it is deployed, not the service by itself:
// with its loops and consumers, and the simulator for Stripe.
func (b *bench) memoryGroup() group {
	var seen []plot.Series
	watched := func(name string, embedded bool) *measurement {
		return &measurement{name: name, unit: "answers/s", run: func(ctx context.Context) (sample, error) {
			got, line, err := b.watched(ctx, embedded)
			line.Name = name
			seen = append(seen, line)
			return got, err
		}}
	}
	return group{
		name: inMemory,
		says: func() string {
			return "The whole program, with relay and consumers; the broker is in another process or embedded. 64 " +
				"clients send each payment and then repeat it twice."
		},
		rounds: 1,
		list:   []*measurement{watched(brokerElsewhere, false), watched(brokerEmbedded, true)},
		curve:  func() curve { return curve{"Resident memory of cmd/api", "seconds", "MB", seen} },
	}
}

// startProgram builds cmd/api and starts it as in production.
func (b *bench) startProgram(ctx context.Context, brokerURL string) (end func(), err error) {
	binary := filepath.Join(b.dir, "api")
	if err := process.Build(ctx, "cmd/api", binary); err != nil {
		return nil, err
	}
	sim, err := stripesim.New(stripesim.Options{})
	if err != nil {
		return nil, err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	stripe := &http.Server{Handler: sim.Handler(), ReadHeaderTimeout: time.Minute}
	go func() { _ = stripe.Serve(l) }() // until end
	end = func() {
		_ = stripe.Close()
		_ = sim.Close()
	}
	b.child = exec.CommandContext(ctx, binary, "serve")
	b.child.Env = []string{
		"PATH=" + os.Getenv("PATH"), "DATABASE_URL=" + devpg.As(b.url, b.s.role), "HTTP_ADDR=127.0.0.1:0", "ADMIN_ADDR=127.0.0.1:0",
		"LOG_LEVEL=info",
		"STRIPE_API_BASE=http://" + l.Addr().String(), "STRIPE_SECRET_KEY=" + stripesim.DefaultKey,
		"STRIPE_WEBHOOK_SECRET=" + webhookSecret,
		"STRIPE_RPS=0", "RATE_LIMIT_RPS=0", "BROKER_URL=" + brokerURL,
	}
	said, err := b.child.StderrPipe()
	if err != nil {
		return end, err
	}
	if err := b.child.Start(); err != nil {
		return end, err
	}
	lines := bufio.NewScanner(said)
	for lines.Scan() {
		var entry struct{ Msg, Addr string }
		if json.Unmarshal(lines.Bytes(), &entry) == nil && entry.Msg == "serving" {
			b.addr = entry.Addr
			break
		}
	}
	if b.addr == "" {
		return end, errors.New("cmd/api does not serve")
	}
	go func() { // so that it can go on logging
		for lines.Scan() {
			continue
		}
	}()
	_, err = sim.AddWebhookEndpoint(stripesim.DefaultKey, "http://"+b.addr+"/v1/webhooks/stripe", webhookSecret)
	return end, err
}

// watched pays each order and asks twice more, and looks at the process's memory
// four times a second.
func (b *bench) watched(ctx context.Context, embedded bool) (got sample, line plot.Series, err error) {
	s := b.s
	s.connections, s.seconds = 64, int(b.s.memory.Seconds())
	own, err := prepare(ctx, b.serverURL, s)
	if err != nil {
		return got, line, err
	}
	defer own.close()
	brokerURL := "embedded:" + filepath.Join(own.dir, "broker")
	if !embedded {
		broker, err := startBroker(filepath.Join(own.dir, "broker"), synced)
		if err != nil {
			return got, line, err
		}
		defer broker.Shutdown()
		brokerURL = broker.ClientURL()
	}
	end, err := own.startProgram(ctx, brokerURL)
	if end != nil {
		defer end()
	}
	if err != nil {
		return got, line, err
	}
	pay, err := own.freshRequests(ctx, timeOrdered)
	if err != nil {
		return got, line, err
	}
	latest := make([][]byte, s.connections)
	next := func(conn, i int) ([]byte, bool) {
		more := true
		if i%3 == 1 {
			latest[conn], more = pay(conn, i)
		}
		return latest[conn], more
	}
	looking, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	began := time.Now()
	go func() {
		defer close(done)
		for tick := time.NewTicker(time.Second / 4); ; {
			select {
			case <-tick.C:
				line.X, line.Y = append(line.X, time.Since(began).Seconds()),
					append(line.Y, residentOf(own.child.Process.Pid))
			case <-looking.Done():
				tick.Stop()
				return
			}
		}
	}()
	got, err = own.measured(ctx, own.addr, http.StatusCreated, next)
	stop()
	<-done
	n := len(line.Y)
	if err == nil && n < 8 {
		err = fmt.Errorf("looked %d times at its memory", n)
	}
	if err != nil {
		return got, line, err
	}
	got.memory = slices.Max(line.Y)
	got.growth = median(line.Y[n*3/4:]) / median(line.Y[n/4:n/2])
	got.note = fmt.Sprintf("%.0f MB peak resident memory in %s", got.memory, b.s.memory)
	return got, line, nil
}

// residentOf is a process's resident memory in megabytes, from /proc; zero elsewhere.
func residentOf(pid int) float64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	kilobytes, _ := strconv.ParseFloat(fields[0], 64)
	return kilobytes / 1024
}
