package operator

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/postgres"
)

const (
	// Connections is how many the page takes at most, whoever opens it.
	Connections = 2
	// Statement is how long one of its statements may take: a panel that needs
	// longer says so.
	Statement = 2 * time.Second

	pageWithin       = 10 * time.Second // all panels of a page, on two connections
	stripeWithin     = 10 * time.Second // one look at Stripe
	invariantWithin  = 5 * time.Second  // each
	invariantsWithin = time.Minute      // all
	formMax          = 16 << 10
)

const _ = uint(pageWithin - 4*Statement) // some slow panels must not cost the others their turn

// The pages are plain HTML, so the policy allows a style sheet, an icon and forms
// that come back here, and nothing else. The referrer stays within: without any, a
// browser hides where a form came from, from us too.
const policy = "default-src 'none'; style-src 'self'; img-src 'self' data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

//go:embed assets/operator.css
var styles []byte

//go:embed pages
var pageFiles embed.FS

// Options of New. All are required but Token and Log.
type Options struct {
	Pool      *postgres.Pool // of the page's own, see Connections and Statement
	Payments  *payments.Service
	Token     string        // lets people in, and lets them act; empty: the page is read-only
	Retention time.Duration // how long answers are kept, for the story of a key
	Log       *slog.Logger
}

// Server is the operator's page.
type Server struct {
	o          Options
	keys       keys
	styles     string // path with the content's hash, so that a browser may keep it
	handler    http.Handler
	invariants sync.Mutex // one asking at a time
	now        func() time.Time
}

// New returns the page. It starts nothing.
func New(o Options) *Server {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	sum := sha256.Sum256(styles)
	s := &Server{o: o, keys: newKeys(o.Token), styles: "/operator/assets/" + hex.EncodeToString(sum[:8]) + ".css", now: time.Now}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+s.styles, s.serveStyles)
	mux.HandleFunc("GET /operator/login", s.loginForm)
	mux.HandleFunc("POST /operator/login", s.login)
	mux.HandleFunc("POST /operator/logout", s.reading(s.logout))
	mux.HandleFunc("GET /operator", s.reading(s.overview))
	mux.HandleFunc("GET /operator/{$}", s.reading(s.overview))
	mux.HandleFunc("POST /operator/find", s.reading(s.find))
	mux.HandleFunc("GET /operator/objects/{tenant}/{id}", s.reading(s.object))
	mux.HandleFunc("GET /operator/intents/{id}", s.reading(s.intent))
	mux.HandleFunc("POST /operator/invariants", s.reading(s.askInvariants))
	mux.HandleFunc("GET /operator/actions", s.reading(s.actions))
	mux.HandleFunc("GET /operator/actions/{id}", s.reading(s.action))
	mux.HandleFunc("GET /operator/act", s.acting(s.confirm))
	mux.HandleFunc("POST /operator/act", s.acting(s.act))
	// First of all guards: what another site's page had a browser send is refused,
	// whoever is signed in.
	sameOrigin := http.NewCrossOriginProtection()
	sameOrigin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.sorry(w, r, http.StatusForbidden, "This form is of another site.", "Nothing was done.")
	}))
	s.handler = s.guarded(sameOrigin.Handler(mux))
	return s
}

// ServeHTTP serves everything below /operator.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

func (s *Server) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		r.Body = http.MaxBytesReader(w, r.Body, formMax)
		defer func() {
			if bug := recover(); bug != nil {
				s.o.Log.Error("bug: the operator's page panicked", "panic", fmt.Sprint(bug), "stack", string(debug.Stack()))
				s.sorry(w, r, http.StatusInternalServerError, "This page has a bug.", "The log has its stack. Nothing was done that the audit trail does not show.")
			}
		}()
		if !s.keys.configured() && !byAddress(r.Host) {
			s.sorry(w, r, http.StatusForbidden, "Not by this name.",
				"Without ADMIN_TOKEN this page answers to an address only, such as 127.0.0.1, because a site on the Internet can have its own name lead here. Use the address, or set ADMIN_TOKEN.")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// byAddress reports whether a request names its host as an address, or as this
// machine, which no other can claim to be.
func byAddress(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil || host == "localhost"
}

type sessionKey struct{}

// sessionOf is whoever is signed in.
func sessionOf(r *http.Request) (session, bool) {
	s, ok := r.Context().Value(sessionKey{}).(session)
	return s, ok
}

// reading is for what changes nothing: open to all without a token, and to those
// who gave it with one.
func (s *Server) reading(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !s.keys.configured() {
			next(w, r)
			return
		}
		s.signedIn(w, r, next)
	}
}

// acting is for what changes something, or leads there.
func (s *Server) acting(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !s.keys.configured() {
			s.sorry(w, r, http.StatusForbidden, "Actions are switched off.", "Set ADMIN_TOKEN and restart a process to act from here. docs/operations.md has the statement for each action.")
			return
		}
		s.signedIn(w, r, next)
	}
}

func (s *Server) signedIn(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
	var who session
	c, err := r.Cookie(cookieName)
	ok := err == nil
	if ok {
		who, ok = s.keys.open(c.Value, s.now())
	}
	switch {
	case !ok && r.Method == http.MethodGet:
		http.Redirect(w, r, "/operator/login?next="+queryEscape(r.URL.RequestURI()), http.StatusSeeOther) //nolint:gosec // the path is ours; what it asks for is checked when it is used (nextOf)
		return
	case !ok:
		s.sorry(w, r, http.StatusUnauthorized, "You are not signed in.", "Nothing was done. Sign in, and send the form again.")
		return
	case r.Method == http.MethodPost && !s.keys.csrfValid(who, r.PostFormValue("csrf")):
		s.sorry(w, r, http.StatusForbidden, "This form is not of your session.", "Nothing was done. Go back, load the page again, and send the form it shows then.")
		return
	}
	next(w, r.WithContext(context.WithValue(r.Context(), sessionKey{}, who)))
}

func (s *Server) loginForm(w http.ResponseWriter, r *http.Request) {
	if !s.keys.configured() {
		http.Redirect(w, r, "/operator", http.StatusSeeOther)
		return
	}
	s.render(w, r, http.StatusOK, "login", "Sign in", loginPage{Next: nextOf(r.FormValue("next"))})
}

type loginPage struct{ Next, Actor, Wrong string }

func (s *Server) login(w http.ResponseWriter, r *http.Request) {
	page := loginPage{Next: nextOf(r.PostFormValue("next")), Actor: actorOf(r.PostFormValue("actor"))}
	switch {
	case !s.keys.admits(r.PostFormValue("token")):
		s.o.Log.Warn("operator: a login with a wrong token", "remote", r.RemoteAddr)
		page.Wrong = "That is not the token in ADMIN_TOKEN."
	case page.Actor == "":
		page.Wrong = fmt.Sprintf("The audit trail needs your name, of at most %d characters.", actorMax)
	default:
		s.o.Log.Info("operator: signed in", "actor", page.Actor, "remote", r.RemoteAddr)
		http.SetCookie(w, cookie(s.keys.seal(newSession(page.Actor, s.now()))))
		http.Redirect(w, r, page.Next, http.StatusSeeOther)
		return
	}
	s.render(w, r, http.StatusUnauthorized, "login", "Sign in", page)
}

func (s *Server) logout(w http.ResponseWriter, r *http.Request) {
	http.SetCookie(w, cookie(""))
	http.Redirect(w, r, "/operator/login", http.StatusSeeOther)
}

// nextOf is where to go after the login: to a page of ours.
func nextOf(path string) string {
	if path == "/operator" || strings.HasPrefix(path, "/operator/") && !strings.ContainsAny(path, "\\\r\n") {
		return path
	}
	return "/operator"
}

func (s *Server) serveStyles(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Cache-Control", "private, max-age=31536000, immutable")
	w.Header().Set("Content-Type", "text/css; charset=utf-8")
	_, _ = w.Write(styles)
}

// sorry is a page that says what did not happen.
func (s *Server) sorry(w http.ResponseWriter, r *http.Request, status int, what, why string) {
	s.render(w, r, status, "sorry", what, struct{ What, Why string }{what, why})
}

// troubled is for what could not be read: the database's trouble, not the asker's.
func (s *Server) troubled(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, postgres.ErrNoRows) || errors.Is(err, payments.ErrNotFound) {
		s.sorry(w, r, http.StatusNotFound, "There is no such thing here.", "Look at the id, or search for another.")
		return
	}
	s.sorry(w, r, http.StatusServiceUnavailable, "It could not be read.", inWords(err))
}

// inWords is an error in words for the page.
func inWords(err error) string {
	switch {
	case errors.Is(err, context.DeadlineExceeded), strings.Contains(err.Error(), "statement timeout"):
		return fmt.Sprintf("The database did not answer in time (%s a statement): %s", Statement, postgres.ErrorText(err))
	case postgres.Unavailable(err):
		return "The database cannot be asked: " + postgres.ErrorText(err)
	}
	return postgres.ErrorText(err)
}
