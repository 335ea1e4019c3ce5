// Package gateway is what stands between a client and the API in many houses: it answers by itself while it is maintained,
// lets pass only the headers that it knows, and rewrites addresses.
package gateway

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Gateway passes requests on, and mistreats some of them while it is told to.
type Gateway struct {
	Addr string
	mu   sync.Mutex
	rand *rand.Rand // nil: it behaves
	done map[string]int
}

// What it does to a request or its response.
const (
	Maintains    = "maintains"  // answers by itself, with a 2xx in JSON
	Forgets      = "forgets"    // the same, after the API has done what was asked
	DropsTheMark = "drops_mark" // of a replay
	Rewrites     = "rewrites"   // Location becomes absolute
	share        = 12           // of so many requests one is mistreated in each way
	maintenance  = `{"message":"maintenance"}`
)

// New is a gateway before an API.
func New(t testing.TB, upstream string, seed uint64) *Gateway {
	t.Helper()
	g := &Gateway{rand: rand.New(rand.NewPCG(seed, 7)), done: map[string]int{}}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: upstream})
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	proxy.ModifyResponse = func(r *http.Response) error { g.change(r); return nil }
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if g.does(Maintains) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status())
			_, _ = io.WriteString(w, maintenance)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	g.Addr = server.Listener.Addr().(*net.TCPAddr).String()
	return g
}

// Behave has it mistreat nothing more, and returns how often it has done what.
func (g *Gateway) Behave() map[string]int {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.rand = nil
	return g.done
}

func (g *Gateway) does(what string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.rand == nil || g.rand.IntN(share) > 0 {
		return false
	}
	g.done[what]++
	return true
}

// status is that of an answer of its own: 200, 201 or 202.
func status() int { return http.StatusOK + rand.IntN(3) }

func (g *Gateway) change(r *http.Response) {
	if r.Header.Get("Idempotent-Replayed") != "" && g.does(DropsTheMark) {
		r.Header.Del("Idempotent-Replayed")
	}
	if at := r.Header.Get("Location"); at != "" && g.does(Rewrites) {
		r.Header.Set("Location", fmt.Sprintf("http://%s%s", r.Request.URL.Host, at))
	}
	if g.does(Forgets) {
		_ = r.Body.Close()
		r.StatusCode = status()
		r.Status = strconv.Itoa(r.StatusCode)
		r.Header = http.Header{"Content-Type": {"application/json"}, "Content-Length": {strconv.Itoa(len(maintenance))}}
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(maintenance)), int64(len(maintenance))
	}
}
