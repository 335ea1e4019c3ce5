package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"time"
)

// A flood is sent by a process of its own: what it costs to send must not delay the victim's requests, which this
// process sends. It runs with a lower priority, because an attacker has machines of his own.

// floodArgument makes this program send a flood instead. The process ends with its standard input.
const floodArgument = "-send-a-flood"

// flood is what is sent, over each connection one request after the other.
type flood struct {
	Addr        string
	Connections int
	// Requests are taken in turn. Each RANDOM is replaced with 16 characters that differ from request to request; it takes
	// as many bytes.
	Requests []string
	// Trickle sends what is left of a request in pieces of so many bytes, ten a second.
	Trickle int
	// Unread is for how long nothing of an answer is read. Then the connection is closed.
	Unread time.Duration
	// Networks are how many networks the connections come from, of loopback. 0: they come from one address.
	Networks int
}

// random is the placeholder, as long as the digits that take its place.
const random = "RANDOM__________"

// answered counts the answers by status; 0 is a connection that was closed without one.
type answered map[int]int

// send starts the flood, and returns what ends it and says what was answered.
func (f flood) send(ctx context.Context) (end func() (answered, error), err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	command := exec.CommandContext(ctx, "nice", "-n", "10", self, floodArgument)
	command.Stderr = os.Stderr
	out := &bytes.Buffer{}
	command.Stdout = out
	in, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	if err := json.NewEncoder(in).Encode(f); err != nil {
		return nil, errors.Join(err, command.Wait())
	}
	return func() (answered, error) {
		if err := errors.Join(in.Close(), command.Wait()); err != nil {
			return nil, fmt.Errorf("send a flood: %w", err)
		}
		answers := answered{}
		err := json.Unmarshal(out.Bytes(), &answers)
		return answers, err
	}, nil
}

// sendFlood is the process that sends one, described on in, until that ends.
func sendFlood(in io.Reader, out io.Writer) error {
	var f flood
	lines := json.NewDecoder(in)
	if err := lines.Decode(&f); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, in)
		stop()
	}()
	var (
		mu  sync.Mutex
		sum = answered{}
		all sync.WaitGroup
	)
	for i := range f.Connections {
		all.Go(func() {
			counts := answered{}
			for n := i; ctx.Err() == nil; {
				n = f.converse(ctx, f.from(i), n, counts)
			}
			mu.Lock()
			defer mu.Unlock()
			for status, n := range counts {
				sum[status] += n
			}
		})
	}
	all.Wait()
	return json.NewEncoder(out).Encode(sum)
}

// from is the source of the ith connection, nil if any will do. Linux has all of 127.0.0.0/8 on loopback.
func (f flood) from(i int) net.Addr {
	if f.Networks == 0 {
		return nil
	}
	n := i % f.Networks
	return &net.TCPAddr{IP: net.IPv4(127, byte(1+n%250), byte(n/250), 1)}
}

// converse sends requests over one connection until it is closed, from the nth of the flood on.
func (f flood) converse(ctx context.Context, from net.Addr, n int, counts answered) int {
	c, err := (&net.Dialer{LocalAddr: from}).DialContext(ctx, "tcp", f.Addr)
	if err != nil {
		time.Sleep(100 * time.Millisecond)
		return n
	}
	if f.Unread > 0 {
		_ = c.(*net.TCPConn).SetReadBuffer(4 << 10)
	}
	done := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer func() { done(); _ = c.Close() }()
	answers := bufio.NewReader(c)
	for ; ; n++ {
		request := []byte(f.Requests[n%len(f.Requests)])
		for at := bytes.Index(request, []byte(random)); at >= 0; at = bytes.Index(request, []byte(random)) {
			copy(request[at:], fmt.Sprintf("k%015x", rand.Uint64N(1<<60)))
		}
		if err := f.write(c, request); err != nil && ctx.Err() != nil {
			return n
		}
		if f.Unread > 0 {
			select {
			case <-ctx.Done():
			case <-time.After(f.Unread):
			}
		}
		asked := &http.Request{Method: http.MethodGet}
		if bytes.HasPrefix(request, []byte(http.MethodHead+" ")) { // whose answer says a length, and has none
			asked.Method = http.MethodHead
		}
		answer, err := http.ReadResponse(answers, asked) //nolint:bodyclose // it is read to its end, and closes nothing
		if err == nil {
			if f.Unread == 0 {
				_, err = io.Copy(io.Discard, answer.Body)
			}
			counts[answer.StatusCode]++
		}
		switch {
		case ctx.Err() != nil:
			return n
		case answer == nil:
			counts[0]++
			return n + 1
		case err != nil || answer.Close || f.Unread > 0:
			return n + 1
		}
	}
}

func (f flood) write(c net.Conn, request []byte) error {
	if f.Trickle == 0 {
		_, err := c.Write(request)
		return err
	}
	for len(request) > 0 {
		n := min(f.Trickle, len(request))
		if _, err := c.Write(request[:n]); err != nil {
			return err
		}
		request = request[n:]
		time.Sleep(100 * time.Millisecond)
	}
	return nil
}
