package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"example.com/payonce/internal/notifier"
)

// endpointSecret is what a tenant verifies deliveries with.
const endpointSecret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="

// inside are URLs that a tenant must not have us call. PORT is the canary's.
var inside = []string{
	// Loopback, as it is written, and as resolvers and other clients read it.
	"https://127.0.0.1:PORT/", "https://127.0.0.2:PORT/", "https://127.255.255.254:PORT/", "https://0.0.0.0:PORT/",
	"https://0:PORT/", "https://127.1:PORT/", "https://127.0.1:PORT/", "https://2130706433:PORT/", "https://0x7f000001:PORT/",
	"https://0x7F.0.0.1:PORT/", "https://0x7f.1:PORT/", "https://017700000001:PORT/", "https://0177.0.0.1:PORT/",
	"https://0177.0.0.0x1:PORT/", "https://127.0.0.1.:PORT/", "https://%31%32%37.0.0.1:PORT/",
	"https://00000127.0.0.1:PORT/", "https://4294967297:PORT/", "https://383.0.0.1:PORT/",
	"https://[::1]:PORT/", "https://[::]:PORT/", "https://[0:0:0:0:0:0:0:1]:PORT/", "https://[0000::0001]:PORT/",
	"https://[::ffff:127.0.0.1]:PORT/", "https://[::ffff:7f00:1]:PORT/", "https://[::127.0.0.1]:PORT/",
	"https://[0:0:0:0:0:ffff:127.0.0.1]:PORT/", "https://[::ffff:0:127.0.0.1]:PORT/", "https://[::1%25lo]:PORT/",
	"https://[fe80::1%25lo]:PORT/", "https://[fe80::1%25eth0]:PORT/", "https://[fe80::1]:PORT/",
	"https://[64:ff9b::7f00:1]:PORT/", "https://[64:ff9b:1::7f00:1]:PORT/", "https://[2002:7f00:1::]:PORT/",
	"https://[2001:0:7f00:1::]:PORT/", "https://[fec0::1]:PORT/",
	// What clouds tell a machine of itself, keys among it.
	"https://169.254.169.254/latest/meta-data/", "http://169.254.169.254/latest/meta-data/", "https://2852039166/",
	"https://0xa9fea9fe/", "https://0251.0376.0251.0376/", "https://[::ffff:169.254.169.254]/", "https://[::ffff:a9fe:a9fe]/",
	"https://[fd00:ec2::254]/", "https://100.100.100.200/", "https://192.0.0.192/", "https://[64:ff9b::a9fe:a9fe]/",
	"https://169.254.170.2/v2/credentials",
	// Networks of ours, and of nobody's.
	"https://10.0.0.1/", "https://10.255.255.255/", "https://172.16.0.1/", "https://172.31.255.254/", "https://192.168.1.1/",
	"https://100.64.0.1/", "https://198.18.0.1/", "https://192.0.2.1/", "https://198.51.100.1/", "https://203.0.113.1/", "https://192.88.99.1/",
	"https://224.0.0.1/", "https://240.0.0.1/", "https://255.255.255.255/", "https://[fc00::1]/", "https://[fd12::1]/",
	"https://[ff02::1]/", "https://[100::1]/", "https://[2001:db8::1]/", "https://167772161/", "https://0xac100001/",
	// Names of this machine.
	"https://localhost:PORT/", "https://LOCALHOST:PORT/", "https://localhost.:PORT/",
	// Where parsers of URLs differ.
	"https://example.com@127.0.0.1:PORT/", "https://127.0.0.1:PORT@example.com/", "https://example.com:443@127.0.0.1:PORT/",
	"https://127.0.0.1:PORT#@example.com/", "https://127.0.0.1:PORT?@example.com/", `https://example.com\@127.0.0.1:PORT/`,
	`https://127.0.0.1:PORT\@example.com/`, "https:127.0.0.1:PORT/", "https:/127.0.0.1:PORT/", "https:///127.0.0.1:PORT/",
	"//127.0.0.1:PORT/", "https://127.0.0.1:PORT\r\nHost: example.com", "https://127.0.0.1 :PORT/",
	"https://127.0.0.1:PORT, https://example.com/", " https://127.0.0.1:PORT/",
	"HTTPS://127.0.0.1:PORT/", "https://127.0.0.1:0PORT/", "https://[127.0.0.1]:PORT/", "https://[::1/:PORT", "https://::1:PORT/",
	// Other schemes.
	"http://127.0.0.1:PORT/", "http://localhost:PORT/", "HTTP://[::1]:PORT/", "http://1.1.1.1/", "ftp://127.0.0.1:PORT/",
	"gopher://127.0.0.1:PORT/_GET", "file:///etc/passwd", "unix:///var/run/docker.sock", "dict://127.0.0.1:PORT/",
	"ldap://127.0.0.1:PORT/", "jar:https://127.0.0.1:PORT/", "data:text/plain,a", "javascript:alert(1)", "", "https://", "https://:PORT/",
}

// insideNames are URLs whose names resolve to such addresses in some networks, and in others not at all.
var insideNames = []string{
	"https://a.localhost:PORT/", "https://localhost.localdomain:PORT/", "https://ip6-localhost:PORT/",
	"https://ip6-loopback:PORT/", "https://HOSTNAME:PORT/", "https://ⓛⓞⓒⓐⓛⓗⓞⓢⓣ:PORT/", "https://①②⑦.⓪.⓪.①:PORT/",
	"https://127。0。0。1:PORT/", "https://127.0.0.1.nip.io:PORT/", "https://localtest.me:PORT/",
	"https://metadata.google.internal/", "https://kubernetes.default.svc/",
}

// insideURLs are those, and those of this machine.
func (s *site) insideURLs() []string {
	urls := slices.Concat(insideNames, inside)
	addresses, _ := net.InterfaceAddrs() // None is one form less.
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP); ok && ip.Unmap().IsPrivate() {
				urls = append(urls, "https://"+netip.AddrPortFrom(ip.Unmap(), uint16(s.canary.port)).String()+"/")
			}
		}
	}
	host, _ := os.Hostname()
	for i, u := range urls {
		urls[i] = strings.NewReplacer("PORT", fmt.Sprint(s.canary.port), "HOSTNAME", host).Replace(u)
	}
	return urls
}

// neverCalled is why a delivery may have failed without a connection. A name that does not resolve here may do so
// elsewhere: that nothing is called then is notifier's TestNameThatMoves.
var neverCalled = regexp.MustCompile(`is not a public (address|one)|is not https|no such host|server misbehaving|no suitable address|` +
	`lookup .*|invalid |missing port|too many colons`)

// internalAddresses: tenants choose where their events are sent, and this process is inside the network.
var internalAddresses = attack{
	name: "internal addresses", who: "a tenant",
	tries: "as its endpoint: loopback, link-local, private and metadata addresses in every spelling, names of this machine, what parsers read differently, other schemes; a proxy in the environment",
	holds: "each is refused when it is set, or never called; a canary on loopback counts no connection",
	run: func(ctx context.Context, s *site) (string, error) {
		before := s.canary.calls.Load()
		urls := s.insideURLs()
		set, accepted, err := s.refusedWhenSet(ctx, urls)
		if err != nil {
			return "", err
		}
		// They are set all the same, as far as the database takes them, as if names had moved since.
		var tenants []string
		for _, u := range urls {
			t, err := s.tenant(ctx)
			if err != nil {
				return "", err
			}
			if notifier.SetEndpoint(ctx, s.pool, t.id, u, endpointSecret) != nil {
				continue // no URL, anywhere
			}
			tenants = append(tenants, t.id)
			if _, err := t.must(ctx, http.StatusCreated, "POST", "/v1/orders", "tell", smallOrder); err != nil {
				return "", err
			}
		}
		if len(tenants) < len(urls)/2 {
			return "", fmt.Errorf("of %d URLs only %d could be set", len(urls), len(tenants))
		}
		if err := s.attempted(ctx, tenants); err != nil {
			return "", err
		}
		if calls := s.canary.calls.Load() - before; calls > 0 {
			return "", didNotHold("the canary was called %d times", calls)
		}
		names := ""
		if len(accepted) > 0 {
			names = fmt.Sprintf(" and accepted %s, which resolved to no address inside (each is checked again when it is dialled)",
				strings.Join(accepted, ", "))
		}
		return fmt.Sprintf("%d URLs: the command refused %d of %d%s; %d were set all the same and none was called", len(urls),
			set-len(accepted), set, names, len(tenants)), nil
	},
}

const smallOrder = `{"currency":"usd","items":[{"sku":"a","quantity":1,"unit_amount":1000}]}`

// refusedWhenSet has the command set URLs for the attacker. It may accept names that do not resolve to an address inside,
// which are checked again whenever they are called, and no other.
func (s *site) refusedWhenSet(ctx context.Context, urls []string) (tried int, accepted []string, err error) {
	var mu sync.Mutex
	var all sync.WaitGroup
	atOnce := make(chan struct{}, 4)
	for i := 0; i < len(urls); i += s.form(4, 1) { // each is a process
		atOnce <- struct{}{}
		tried++
		all.Go(func() {
			defer func() { <-atOnce }()
			set := exec.CommandContext(ctx, s.api.Program, "tenant", "notify", s.attacker.id, urls[i])
			set.Env = append([]string{"PATH=" + os.Getenv("PATH")}, s.api.Env...)
			out, failed := set.CombinedOutput()
			mu.Lock()
			defer mu.Unlock()
			switch {
			case failed != nil && !strings.Contains(string(out), "webhook") && !strings.Contains(string(out), "URL is empty"):
				err = fmt.Errorf("tenant notify %q: %w: %.300s", urls[i], failed, out)
			case failed != nil:
			case i >= len(insideNames):
				err = didNotHold("tenant notify takes %q", urls[i])
			default:
				accepted = append(accepted, strings.ReplaceAll(insideNames[i], ":PORT", ""))
			}
		})
	}
	all.Wait()
	return tried, accepted, err
}

// attempted waits until each tenant's delivery was tried, and says if one was tried otherwise than in vain.
func (s *site) attempted(ctx context.Context, tenants []string) error {
	var waiting int
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if err := s.pool.Raw().QueryRow(ctx, `SELECT count(*) FROM unnest($1::text[]) t WHERE NOT EXISTS (
			SELECT FROM webhook_deliveries d WHERE d.tenant_id = t AND (d.last_error IS NOT NULL OR d.status <> 'pending'))`,
			tenants).Scan(&waiting); err != nil {
			return err
		}
		if waiting > 0 {
			continue
		}
		rows, err := s.pool.Raw().Query(ctx, `SELECT w.url, d.status::text, coalesce(d.last_error, '')
			FROM webhook_deliveries d JOIN webhook_endpoints w ON w.tenant_id = d.tenant_id AND w.id = d.endpoint_id
			WHERE d.tenant_id = ANY ($1)`, tenants)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var url, status, why string
			if err := rows.Scan(&url, &status, &why); err != nil {
				return err
			}
			if status == "delivered" || !neverCalled.MatchString(why) {
				return didNotHold("the delivery to %q: %s %s", url, status, why)
			}
		}
		return rows.Err()
	}
	return fmt.Errorf("%d deliveries were not tried", waiting)
}
