// Package port finds a port for a process that must be where it was when it
// comes back: servers are killed here, and started again.
package port

import (
	"context"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync/atomic"
)

const first, ports = 20_000, 12_000

var given atomic.Uint32 // ports are given one after the other, from a random one on

func init() { given.Store(rand.Uint32N(ports)) }

// Loopback is an address of this machine on which nothing listens. Each call has another port, until all were given.
//
// Its port is below those that kernels give to outgoing connections (from 32768 on
// Linux, from 49152 elsewhere), or one of those might have it while the process is
// gone. Another process may still take it before the caller does.
func Loopback(ctx context.Context) (addr netip.AddrPort, err error) {
	for range 100 {
		addr = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(first+given.Add(1)%ports))
		var l net.Listener
		if l, err = (&net.ListenConfig{}).Listen(ctx, "tcp", addr.String()); err == nil {
			return addr, l.Close()
		}
	}
	return addr, err
}
