package admin

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// A client must not be able to hold a connection for ever by sending or reading slowly.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 20 * time.Second // the largest form is a few kilobytes
	writeTimeout      = 2 * time.Minute  // longer than any page takes; pprof adds the seconds of a profile
	idleTimeout       = 2 * time.Minute
	headerMax         = 64 << 10
)

// Options of NewServer. All are required but Pages and Log.
type Options struct {
	Metrics prometheus.Gatherer
	Pages   map[string]http.Handler // by pattern; each decides for itself whom it shows what
	Token   *Token
	Log     *slog.Logger
}

// NewServer returns the server of the admin address. It opens no listener.
func NewServer(o Options) *http.Server {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	mux := http.NewServeMux()
	for pattern, page := range o.Pages {
		mux.Handle(pattern, page)
	}
	mux.Handle("GET /metrics", promhttp.HandlerFor(o.Metrics, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	mux.HandleFunc("GET /debug/pprof/", o.profile(pprof.Index))
	mux.HandleFunc("GET /debug/pprof/cmdline", o.profile(pprof.Cmdline))
	mux.HandleFunc("GET /debug/pprof/profile", o.profile(pprof.Profile))
	mux.HandleFunc("GET /debug/pprof/symbol", o.profile(pprof.Symbol))
	mux.HandleFunc("GET /debug/pprof/trace", o.profile(pprof.Trace))
	return &http.Server{
		Handler: mux, ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: headerMax, ErrorLog: slog.NewLogLogger(o.Log.Handler(), slog.LevelWarn),
	}
}

// profile admits those who have the token, or without one those on this machine.
func (o Options) profile(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		if site := r.Header.Get("Sec-Fetch-Site"); site == "cross-site" || site == "same-site" {
			// A browser sends the password of Basic authentication with requests of other sites' pages as well.
			http.Error(w, "This request came from another site.", http.StatusForbidden)
			return
		}
		if !o.Token.Configured() {
			if !FromThisMachine(r) {
				http.Error(w, "Without ADMIN_TOKEN profiles are for this machine only, by the address 127.0.0.1 or "+
					"localhost. Use an SSH tunnel, or set ADMIN_TOKEN.", http.StatusForbidden)
				return
			}
			next(w, r)
			return
		}
		switch err := o.Token.Admits(r.RemoteAddr, tokenOf(r)); {
		case errors.Is(err, ErrTooManyTries):
			w.Header().Set("Retry-After", strconv.Itoa(int(RetryAfter.Seconds())))
			http.Error(w, "Too many wrong tokens from this address.", http.StatusTooManyRequests)
		case err != nil:
			if errors.Is(err, ErrWrongToken) {
				o.Token.LogWrong(o.Log, "profiles", r.RemoteAddr)
			}
			w.Header().Set("WWW-Authenticate", `Basic realm="ADMIN_TOKEN as the password"`)
			http.Error(w, "Profiles need ADMIN_TOKEN, as a bearer token or as the password of Basic authentication.",
				http.StatusUnauthorized)
		default:
			next(w, r)
		}
	}
}

// tokenOf returns what was given as the token, empty if nothing was.
func tokenOf(r *http.Request) string {
	if _, password, ok := r.BasicAuth(); ok {
		return password
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// FromThisMachine reports whether a request was made on this machine, and not for a remote client: over loopback, to a
// name that another site cannot have, and not through a proxy that says so.
func FromThisMachine(r *http.Request) bool {
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip", "Via"} {
		if r.Header.Get(name) != "" {
			return false
		}
	}
	return loopback(r.RemoteAddr) && loopback(r.Host)
}

// loopback reports whether an address, with a port or without, can only be this machine.
func loopback(address string) bool {
	ip, name := hostOf(address)
	return ip.Unmap().IsLoopback() || name == "localhost"
}

// IsAddress reports whether a Host is an IP address or localhost. Another site cannot have a browser send either of
// them as its own name.
func IsAddress(host string) bool {
	ip, name := hostOf(host)
	return ip.IsValid() || name == "localhost"
}

// hostOf returns the IP address of host or host:port, and the name if it is none.
func hostOf(address string) (ip netip.Addr, name string) {
	name = address
	if h, _, err := net.SplitHostPort(address); err == nil {
		name = h
	}
	ip, _ = netip.ParseAddr(strings.Trim(name, "[]"))
	return ip, strings.ToLower(strings.TrimSuffix(name, "."))
}

// OverTLS reports whether the client's connection is encrypted: ours, or one that a proxy in front of us says it
// ended. The proxy's word is taken from anybody, because it is used only to be stricter: a cookie that is Secure
// by mistake is not sent, and one that is not Secure is never the result of a header.
func OverTLS(r *http.Request) bool {
	if r.TLS != nil {
		return true
	}
	// With several proxies the first value is that of the one in front.
	first, _, _ := strings.Cut(r.Header.Get("X-Forwarded-Proto"), ",")
	if strings.EqualFold(strings.TrimSpace(first), "https") {
		return true
	}
	nearest, _, _ := strings.Cut(r.Header.Get("Forwarded"), ",")
	for pair := range strings.SplitSeq(nearest, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(pair), "=")
		if strings.EqualFold(name, "proto") && strings.EqualFold(strings.Trim(value, `"`), "https") {
			return true
		}
	}
	return false
}
