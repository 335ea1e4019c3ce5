package notifier

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const resolveWithin = 5 * time.Second

// numeric matches a host that resolvers take for an IPv4 address in another spelling: 2130706433, 0x7f.1, 0177.0.0.1.
var numeric = regexp.MustCompile(`(?i)(^|\.)(0x[0-9a-f]*|[0-9]+)\.?$`)

// CheckURL returns why events are not to be sent to a URL: it is no web address, it is not https, or its host is, or
// resolves to, an address that is not public. allowPrivate drops the last two.
//
// It spares a tenant deliveries that would fail. It protects nothing: a name may resolve to another address a moment
// later, and one that does not resolve now is accepted. What protects is the check of every connection (see the package).
func CheckURL(ctx context.Context, endpoint string, allowPrivate bool) error {
	u, err := parseURL(endpoint)
	if err != nil || allowPrivate {
		return err
	}
	if u.Scheme != "https" {
		return errors.New("a webhook's URL must begin with https://")
	}
	host := u.Hostname()
	if name := "." + strings.ToLower(strings.TrimSuffix(host, ".")); strings.HasSuffix(name, ".localhost") { // RFC 6761
		return fmt.Errorf("a tenant's webhooks are sent to public addresses only, and %s is this machine", host)
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return checkPublic(host, ip)
	}
	if numeric.MatchString(host) {
		return fmt.Errorf("a webhook's URL must name a host: %q is no name, and no IP address as it is usually written", host)
	}
	ctx, cancel := context.WithTimeout(ctx, resolveWithin)
	defer cancel()
	addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil // It may resolve when it is needed.
	}
	for _, ip := range addresses {
		if err := checkPublic(host, ip); err != nil {
			return err
		}
	}
	return nil
}

func checkPublic(host string, ip netip.Addr) error {
	if public(ip) {
		return nil
	}
	// Which address an internal name has is not the tenant's business.
	return fmt.Errorf("a tenant's webhooks are sent to public addresses only, and an address of the host %q is none", host)
}

// parseURL accepts what may be an endpoint somewhere, be it in development.
func parseURL(endpoint string) (*url.URL, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Hostname() == "" || (u.Scheme != "https" && u.Scheme != "http") {
		return nil, errors.New("a webhook's URL must begin with https:// and name a host")
	}
	if u.User != nil {
		return nil, errors.New("a webhook's URL must not contain a password; the signature authenticates the sender")
	}
	if strings.ContainsAny(u.Hostname(), " \\@") {
		return nil, errors.New("a webhook's URL must name a host")
	}
	if !strings.HasPrefix(endpoint, u.Scheme+"://") { // the table and the sender look for it as it is written here
		return nil, fmt.Errorf("a webhook's URL must begin with %s:// in lower case", u.Scheme)
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return nil, fmt.Errorf("a webhook's URL must have a port from 1 to 65535, and %s is none", port)
		}
	}
	return u, nil
}
