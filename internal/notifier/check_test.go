package notifier

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheckURL(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"", "example.com", "https://", "https://:443", "ftp://example.com", "https://user:pw@example.com",
		"https://user@127.0.0.1", "https://exa mple.com", "https://[::1", "file:///etc/passwd", "gopher://127.0.0.1",
		"HTTPS://shop.example", "Http://127.0.0.1", "https://shop.example:0", "https://shop.example:65536",
	} {
		require.Error(t, CheckURL(t.Context(), url, true), url)
	}
	for _, url := range []string{
		"http://1.1.1.1/", "https://127.0.0.1/", "https://[::1]/", "https://[::ffff:10.0.0.1]/", "https://localhost/",
		"https://LocalHost./", "https://a.localhost/",
		"https://169.254.169.254/", "https://[fe80::1%25eth0]/",
		"https://2130706433/", "https://0x7f000001/", "https://0x7f.1/", "https://0177.0.0.1/", "https://127.1/",
		"https://127.0.0.1./", "https://017700000001/",
	} {
		require.Error(t, CheckURL(t.Context(), url, false), url)
		require.NoError(t, CheckURL(t.Context(), url, true), url)
	}
	for _, url := range []string{"https://1.1.1.1/", "https://[2606:4700::1]:8443/a?b=c", "https://nowhere.invalid/",
		"https://4.example.invalid", "https://xn--bcher-kva.invalid"} {
		require.NoError(t, CheckURL(t.Context(), url, false), url)
	}
}

// TestNameThatMoves: what counts is the address that is dialled, whatever the name resolved to before.
func TestNameThatMoves(t *testing.T) {
	t.Parallel()
	var asked, called atomic.Int32
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { called.Add(1) }))
	t.Cleanup(server.Close)
	resolver := &net.Resolver{PreferGo: true, Dial: nameServer(t, func() [][4]byte {
		if asked.Add(1) == 1 {
			return [][4]byte{{192, 88, 98, 1}} // public: it would be asked for before the call
		}
		return [][4]byte{{127, 0, 0, 1}, {10, 0, 0, 1}}
	})}
	before, err := resolver.LookupNetIP(t.Context(), "ip4", "moves.example.")
	require.NoError(t, err)
	require.True(t, public(before[0]))

	url := "https://moves.example.:" + server.URL[strings.LastIndexByte(server.URL, ':')+1:]
	dialer := newDialer(false)
	dialer.Resolver = resolver
	_, err = newClient(dialer).Get(url)
	require.ErrorContains(t, err, "the host's address is not a public one")
	require.Zero(t, called.Load())

	dialer = newDialer(true)
	dialer.Resolver = resolver
	_, err = newClient(dialer).Get(url)
	require.ErrorContains(t, err, "certificate", "the same name is called where private addresses are allowed")
}

// nameServer returns the Dial of a resolver whose names all have the addresses that are returned.
func nameServer(t *testing.T, addresses func() [][4]byte) func(context.Context, string, string) (net.Conn, error) {
	t.Helper()
	server, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Close() })
	go func() {
		const header, typeA = 12, 1
		query := make([]byte, 512)
		for {
			n, from, err := server.ReadFrom(query)
			if err != nil {
				return
			}
			question := query[header:n]
			if end := bytes.IndexByte(question, 0); end >= 0 {
				question = question[:end+5] // behind the name, its type and class
			}
			var answers [][4]byte
			if binary.BigEndian.Uint16(question[len(question)-4:]) == typeA {
				answers = addresses()
			}
			response := append([]byte{query[0], query[1], 0x81, 0x80, 0, 1, 0, byte(len(answers)), 0, 0, 0, 0}, question...)
			for _, ip := range answers {
				response = append(response, 0xc0, header, 0, typeA, 0, 1, 0, 0, 0, 0, 0, 4)
				response = append(response, ip[:]...)
			}
			_, _ = server.WriteTo(response, from)
		}
	}()
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", server.LocalAddr().String())
	}
}
