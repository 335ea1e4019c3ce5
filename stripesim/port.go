package stripesim

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"time"
)

// Port is Stripe's port on a socket. Where Handler is enough for most tests, a port can be what Stripe's is: TLS, with
// HTTP/2 on offer. A Silence on it is complete: not even a PING of HTTP/2 is answered.
type Port struct {
	Addr   string
	URL    string
	server *http.Server
}

// Listen opens a port. With TLS, clients must trust CA.
func (s *Sim) Listen(addr string, secure bool) (*Port, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	p := &Port{Addr: l.Addr().String(), URL: "http://" + l.Addr().String()}
	p.server = &http.Server{
		Addr: p.Addr, Handler: s.Handler(), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute,
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, connectionKey{}, conn)
		},
	}
	heard := audible{l, &s.conns}
	if !secure {
		go func() { _ = p.server.Serve(heard) }() // ends with Shutdown
		return p, nil
	}
	identity, err := s.identity()
	if err != nil {
		_ = l.Close()
		return nil, err
	}
	p.URL = "https://" + p.Addr
	p.server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{identity.certificate}, MinVersion: tls.VersionTLS12}
	go func() { _ = p.server.ServeTLS(heard, "", "") }()
	return p, nil
}

// Shutdown lets the answers leave until the context ends, and closes the port.
func (p *Port) Shutdown(ctx context.Context) error {
	if err := p.server.Shutdown(ctx); err != nil {
		return p.Close()
	}
	return nil
}

// Close ends all connections at once.
func (p *Port) Close() error { return p.server.Close() }

// SetRequestsPerConnection has each connection end after n requests, as Stripe does after 1000
// (https://github.com/stripe/stripe-php/issues/623): with Connection: close over HTTP/1.1, with a GOAWAY over HTTP/2. Zero
// is never.
func (s *Sim) SetRequestsPerConnection(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.perConnection = n
}

// manners are what Stripe does with the answers of each request: whether the connection ends, and whether a replay says
// that it is one.
func (s *Sim) manners(requests int) (last, unmarked bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.perConnection > 0 && requests >= s.perConnection, s.unmarkedReplays
}

// CA is the certificate that clients of a port with TLS must trust, as PEM. It is made anew in each process.
func (s *Sim) CA() ([]byte, error) {
	identity, err := s.identity()
	if err != nil {
		return nil, err
	}
	return identity.pem, nil
}

type identity struct {
	certificate tls.Certificate
	pem         []byte
}

// newIdentity makes a certificate that vouches for itself, for this machine and for the name that containers call it by.
func newIdentity() (*identity, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the key of the port: %w", err)
	}
	made := x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "stripesim"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true, IsCA: true,
		DNSNames: []string{"localhost", "stripesim"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	der, err := x509.CreateCertificate(rand.Reader, &made, &made, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make the certificate of the port: %w", err)
	}
	return &identity{
		certificate: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
		pem:         pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
	}, nil
}

// audible is a listener whose connections can fall silent.
type audible struct {
	net.Listener
	conns *connections
}

func (a audible) Accept() (net.Conn, error) {
	conn, err := a.Listener.Accept()
	if err != nil {
		return nil, err
	}
	a.conns.forget(conn.RemoteAddr().String()) // the port of an earlier one
	return audibleConn{conn, a.conns}, nil
}

type audibleConn struct {
	net.Conn
	conns *connections
}

// Write says nothing on a silent connection, and does not tell.
func (c audibleConn) Write(p []byte) (int, error) {
	if c.conns.isSilent(c.RemoteAddr().String()) {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// NetConn is the connection below, as that of a *tls.Conn.
func (c audibleConn) NetConn() net.Conn { return c.Conn }

// resets has the end of a connection be a reset.
func resets(conn net.Conn) {
	switch c := conn.(type) {
	case *net.TCPConn:
		_ = c.SetLinger(0) // makes Close send RST
	case interface{ NetConn() net.Conn }:
		resets(c.NetConn())
	}
}

type connectionKey struct{}
