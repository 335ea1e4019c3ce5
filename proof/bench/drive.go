package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// drive sends requests over so many connections, one at a time on each, and
// demands one status of every answer.
func (b *bench) drive(ctx context.Context, addr string, length time.Duration, connections, status int,
	next func(conn, i int) ([]byte, bool)) (rate float64, n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	var (
		all   sync.WaitGroup
		count atomic.Int64
		errs  = make(chan error, connections)
		began = time.Now()
	)
	for conn := range connections {
		all.Go(func() {
			c, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
			if err != nil {
				errs <- err
				return
			}
			defer func() { _ = c.Close() }()
			answers := bufio.NewReaderSize(c, 8192)
			for i := 1; ctx.Err() == nil; i++ {
				request, more := next(conn, i)
				if !more {
					return
				}
				if _, err := c.Write(request); err != nil {
					errs <- err
					return
				}
				if err := readAnswer(answers, status); err != nil {
					errs <- err
					return
				}
				count.Add(1)
			}
		})
	}
	all.Wait()
	took := time.Since(began)
	select {
	case err = <-errs:
	default:
	}
	return float64(count.Load()) / took.Seconds(), int(count.Load()), err
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
