package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"
)

// load is how requests are sent, and which status each response must have.
type load struct {
	addr        string   // of a process of the service
	others      []string // of more of them, over which the connections are spread
	length      time.Duration
	connections int
	status      int
	// arrivals, if not nil, is an open loop: when each request is due, however long those before it take. A request that
	// finds no free connection waits, and its wait counts. Nil is a closed loop: each connection sends its next request
	// when it has its response, so that a slow service is asked for less.
	arrivals []time.Duration
}

// driven is what a load came to.
type driven struct {
	rate  float64
	n     int
	times []time.Duration // of all responses, from when each request was due, the shortest first
}

// percentile is a time that so many percent of the responses did not exceed.
func (d driven) percentile(p int) time.Duration { return quantile(d.times, float64(p)/100) }

// quantile is a time that this part of sorted times did not exceed.
func quantile(times []time.Duration, part float64) time.Duration {
	if len(times) == 0 {
		return 0
	}
	return times[min(int(float64(len(times))*part+1e-9), len(times)-1)]
}

// arrivals are so many a second, at random as customers come: an even pace would hide what a queue costs.
func arrivals(perSecond float64, length time.Duration) (due []time.Duration) {
	random := rand.New(rand.NewPCG(1, uint64(perSecond))) // the same in each round
	for at := 0.0; ; {
		at += random.ExpFloat64() / perSecond
		if at >= length.Seconds() {
			return due
		}
		due = append(due, time.Duration(at*float64(time.Second)))
	}
}

// openLoopEnds is how long after the last arrival an open loop may still wait for responses.
const openLoopEnds = 20 * time.Second

// limit is how long a load is driven at most.
func (l load) limit() time.Duration {
	if n := len(l.arrivals); n > 0 {
		return l.arrivals[n-1] + openLoopEnds
	}
	return l.length
}

// drive sends requests over so many connections, one at a time on each, and demands one status of every response.
func drive(ctx context.Context, l load, next func(conn, i int) ([]byte, bool)) (got driven, err error) {
	conns := make([]net.Conn, l.connections)
	defer func() {
		for _, c := range conns {
			if c != nil {
				_ = c.Close()
			}
		}
	}()
	addrs := append([]string{l.addr}, l.others...)
	for i := range conns {
		if conns[i], err = (&net.Dialer{}).DialContext(ctx, "tcp", addrs[i%len(addrs)]); err != nil {
			return got, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, l.limit())
	defer cancel()
	var (
		all   sync.WaitGroup
		came  = make(chan time.Time, len(l.arrivals)) // when each was due
		times = make([][]time.Duration, l.connections)
		errs  = make(chan error, l.connections)
		began = time.Now()
	)
	for conn, c := range conns {
		all.Go(func() {
			responses := bufio.NewReaderSize(c, 8192)
			for i := 1; ctx.Err() == nil; i++ {
				request, more := next(conn, i)
				if !more {
					return
				}
				due := time.Now()
				if l.arrivals != nil {
					if due, more = <-came; !more {
						return
					}
				}
				if _, err := c.Write(request); err != nil {
					errs <- err
					return
				}
				if err := readAnswer(responses, l.status); err != nil {
					errs <- err
					return
				}
				times[conn] = append(times[conn], time.Since(due))
			}
		})
	}
	for _, at := range l.arrivals {
		due := began.Add(at)
		time.Sleep(time.Until(due))
		came <- due
	}
	close(came)
	all.Wait()
	took := time.Since(began)
	select {
	case err = <-errs:
	default:
	}
	got.times = slices.Concat(times...)
	slices.Sort(got.times)
	got.n = len(got.times)
	if got.n > 0 && l.arrivals != nil {
		took -= got.times[0] // A gateway that takes its time delays the first response as the last, and lowers no rate.
	}
	got.rate = float64(got.n) / took.Seconds()
	if err == nil && l.arrivals != nil && got.n < len(l.arrivals) {
		err = fmt.Errorf("only %d of %d requests had their response in time", got.n, len(l.arrivals))
	}
	return got, err
}

// readAnswer reads one answer as cheaply as can be: the driver shares the cores.
func readAnswer(r *bufio.Reader, status int) error {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return err
	}
	got, err := strconv.Atoi(string(line[9:12]))
	if err != nil {
		return fmt.Errorf("a status line: %w", err)
	}
	length := 0
	for {
		line, err = r.ReadSlice('\n')
		if err != nil {
			return err
		}
		if len(line) <= 2 {
			break
		}
		if n, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(n))); err != nil {
				return err
			}
		}
	}
	body, err := r.Peek(min(length, 400))
	if err != nil {
		return err
	}
	if got != status {
		return fmt.Errorf("status %d, expected %d: %s", got, status, body)
	}
	_, err = r.Discard(length)
	return err
}
