package notifier

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"
)

// notPublic are the ranges of the IANA's registries of special-purpose addresses that netip's own predicates do not cover.
// They are, or can be routed to, internal addresses.
var notPublic = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),         // this network
	netip.MustParsePrefix("100.64.0.0/10"),     // carrier-grade NAT; some clouds keep their metadata here
	netip.MustParsePrefix("192.0.0.0/24"),      // protocol assignments; metadata elsewhere
	netip.MustParsePrefix("192.0.2.0/24"),      // documentation
	netip.MustParsePrefix("192.31.196.0/24"),   // AS112, whose nodes anybody runs, also inside
	netip.MustParsePrefix("192.52.193.0/24"),   // relays of multicast
	netip.MustParsePrefix("192.88.99.0/24"),    // relays of 6to4
	netip.MustParsePrefix("192.175.48.0/24"),   // AS112
	netip.MustParsePrefix("198.18.0.0/15"),     // benchmarks
	netip.MustParsePrefix("198.51.100.0/24"),   // documentation
	netip.MustParsePrefix("203.0.113.0/24"),    // documentation
	netip.MustParsePrefix("240.0.0.0/4"),       // reserved, broadcast
	netip.MustParsePrefix("2001::/23"),         // protocol assignments, Teredo among them
	netip.MustParsePrefix("2001:db8::/32"),     // documentation
	netip.MustParsePrefix("2002::/16"),         // 6to4: contains an IPv4 address
	netip.MustParsePrefix("2620:4f:8000::/48"), // AS112
	netip.MustParsePrefix("3fff::/20"),         // documentation
}

// globalIPv6 is all of IPv6 that is given out to networks. What is outside, such as NAT64 (64:ff9b::/96) and the other
// forms that contain an IPv4 address (::/96, ::ffff:0:0:0/96), is special or not in use.
var globalIPv6 = netip.MustParsePrefix("2000::/3")

func public(ip netip.Addr) bool {
	ip = ip.Unmap()
	if !ip.IsValid() || !ip.IsGlobalUnicast() || ip.IsPrivate() || ip.IsLoopback() ||
		ip.IsLinkLocalUnicast() || ip.Zone() != "" || ip.Is6() && !globalIPv6.Contains(ip) {
		return false
	}
	for _, p := range notPublic {
		if p.Contains(ip) {
			return false
		}
	}
	return true
}

// errNotPublic does not name the address: the tenant reads it.
var errNotPublic = errors.New("the host's address is not a public one")

// refusePrivate runs after the name is resolved and before the connection is made, with
// the address that is dialled, so that DNS cannot return another one after the check.
func refusePrivate(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	if !public(to.Addr()) {
		return errNotPublic
	}
	return nil
}

func newDialer(allowPrivate bool) *net.Dialer {
	dialer := &net.Dialer{Timeout: 5 * time.Second}
	if !allowPrivate {
		dialer.Control = refusePrivate
	}
	return dialer
}

func newClient(dialer *net.Dialer) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			Proxy:                  nil, // a proxy would dial for us, without the check
			DialContext:            dialer.DialContext,
			ForceAttemptHTTP2:      true,
			TLSHandshakeTimeout:    5 * time.Second,
			MaxResponseHeaderBytes: 64 << 10,
			MaxIdleConnsPerHost:    2,
			IdleConnTimeout:        time.Minute,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
