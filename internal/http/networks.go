package http

import (
	"net/netip"
	"sync"
	"time"
)

// Clients without a valid API key are told apart by the network that they send from. One client may have many: a /48 of
// IPv6, which a provider gives to a customer, has 65 536 networks of the size that a household gets. If each were another
// client, an attacker would have as many shares, and the process as many queues. So of the networks within a larger one
// only some are told apart, and the others count as the larger one.

const (
	networksWithinMax = 8    // networks that are told apart in the next larger one: 9 in a /48, 73 in a /32
	networksMax       = 4096 // networks that are told apart in all; beyond that the others are one
)

// networks finds the network as which a client counts. They are forgotten after each period of activity.
type networks struct {
	mu     sync.Mutex
	period int64                // the time, in activeFor
	known  map[netip.Prefix]int // each with the number of those known in it, of the next smaller size
}

func newNetworks() *networks {
	return &networks{known: map[netip.Prefix]int{}}
}

// of is the network of an address and port. Behind a proxy it is the proxy's: a header that names another could be
// anybody's.
func (n *networks) of(remoteAddr string) netip.Prefix {
	from, err := netip.ParseAddrPort(remoteAddr)
	if err != nil {
		return netip.Prefix{}
	}
	addr := from.Addr().Unmap().WithZone("")
	sizes := [...]int{16, 24, 32}
	if addr.Is6() {
		sizes = [...]int{32, 48, 64}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if period := time.Now().UnixNano() / int64(activeFor); period != n.period {
		n.period = period
		clear(n.known)
	}
	network, _ := addr.Prefix(0)
	for i, bits := range sizes {
		within, _ := addr.Prefix(bits)
		if _, ok := n.known[within]; !ok {
			if len(n.known) >= networksMax || i > 0 && n.known[network] >= networksWithinMax {
				return network
			}
			n.known[network]++
			n.known[within] = 0
		}
		network = within
	}
	return network
}
