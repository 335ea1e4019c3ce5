package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// hostileAnswersOfBroker are what comes in the place of the answer to a request of the service, in turn.
var hostileAnswersOfBroker = []func(c net.Conn, reply, subscription string){
	func(c net.Conn, reply, subscription string) {
		forever(c, fmt.Sprintf("MSG %s %s %d\r\n", reply, subscription, 400<<20), megabyte)
	},
	func(c net.Conn, reply, subscription string) {
		forever(c, fmt.Sprintf("HMSG %s %s 12 %d\r\nNATS/1.0\r\n\r\n", reply, subscription, 400<<20), megabyte)
	},
	func(c net.Conn, _, _ string) { forever(c, `INFO {"server_id":"`, megabyte) },
	func(c net.Conn, _, _ string) { forever(c, "-ERR '", megabyte) },
	func(c net.Conn, reply, subscription string) { forever(c, "MSG "+reply+" "+subscription+" ", megabyte) },
	func(c net.Conn, _, _ string) { forever(c, ok200, megabyte) },
}

// hostileServer speaks NATS until it is asked for something.
type hostileServer struct{ sent atomic.Int64 }

func (h *hostileServer) serve(c net.Conn) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	say(c, `INFO {"server_id":"x","version":"2.12.0","proto":1,"headers":true,"max_payload":1048576,"jetstream":true}`+"\r\n")
	subscription := "1"
	for from := bufio.NewReader(c); ; {
		line, err := from.ReadString('\n')
		words := strings.Fields(line)
		if err != nil || len(words) == 0 {
			return
		}
		switch words[0] {
		case "PING":
			say(c, "PONG\r\n")
		case "SUB":
			subscription = words[len(words)-1]
		case "PUB", "HPUB":
			n, err := strconv.Atoi(words[len(words)-1])
			if err != nil || len(words) < 4 {
				return
			}
			if _, err := from.Discard(n + len("\r\n")); err != nil {
				return
			}
			which := h.sent.Add(1) - 1
			hostileAnswersOfBroker[int(which)%len(hostileAnswersOfBroker)](c, words[2], subscription)
			return
		}
	}
}

// brokerMore is the memory that messages of 8 MiB may take, and their copies.
const brokerMore = 96 << 20

// hostileBroker: events wait in the outbox, and nothing else depends on the broker.
var hostileBroker = attack{
	name: "hostile broker", who: "who has the broker's place",
	tries: fmt.Sprintf("%d answers of NATS: messages of 400 MiB, with a header and without, and lines without end", len(hostileAnswersOfBroker)),
	holds: "no message is held whole in memory, the connection ends and is made again; payments succeed all the while",
	run: func(ctx context.Context, s *site) (string, error) {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return "", err
		}
		defer l.Close()
		h := &hostileServer{}
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go h.serve(c)
			}
		}()
		return s.another(ctx, s.server, []string{"BROKER_URL=nats://" + l.Addr().String()}, func(s *site) (string, error) {
			return s.hostileBroker(ctx, h)
		})
	},
}

func (s *site) hostileBroker(ctx context.Context, h *hostileServer) (string, error) {
	memory, err := s.api.Sample(ctx, "process_resident_memory_bytes")
	if err != nil {
		return "", err
	}
	most, paid, rounds := 0.0, 0, s.form(1, 3)
	// The service pauses longer after each failure.
	for until := time.Now().Add(3 * time.Minute); h.sent.Load() < int64(rounds*len(hostileAnswersOfBroker)); paid++ {
		if time.Now().After(until) {
			return "", fmt.Errorf("in three minutes the broker was asked only %d times", h.sent.Load())
		}
		object, err := s.victim.must(ctx, http.StatusCreated, "POST", "/v1/orders", fmt.Sprint("order-", paid), smallOrder)
		if err != nil {
			return "", err
		}
		if _, err := s.victim.must(ctx, http.StatusCreated, "POST", "/v1/payments", fmt.Sprint("payment-", paid),
			fmt.Sprintf(`{"order_id":%q,"payment_method":"pm_card_visa"}`, object["id"])); err != nil {
			return "", didNotHold("a payment failed: %v", err)
		}
		now, err := s.api.Sample(ctx, "process_resident_memory_bytes")
		if err != nil {
			return "", err
		}
		if most = max(most, now-memory); most > brokerMore {
			return "", didNotHold("the process has %.0f MiB more in memory", most/(1<<20))
		}
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Sprintf("%d answers; %d payments succeeded; at most %.0f MiB more", h.sent.Load(), paid, most/(1<<20)), nil
}
