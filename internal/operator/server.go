package operator

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"example.com/payonce/internal/admin"
	"example.com/payonce/internal/checkout" // part: checkouts
	"example.com/payonce/internal/keyhistory"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/postgres"
)

const (
	// Connections is the size of the page's pool, however many people have it open.
	Connections = 2
	// Statement is the timeout of each statement. A panel that takes longer shows that
	// it timed out.
	Statement = 2 * time.Second

	pageWithin       = 10 * time.Second // all panels of a page, on two connections
	stripeWithin     = 10 * time.Second // one read from Stripe
	invariantWithin  = 5 * time.Second  // each
	invariantsWithin = time.Minute      // all
	formMax          = 16 << 10         // bytes; no form of the page is larger
)

// Does not compile if a few slow panels could use up the time of all others.
const _ = uint(pageWithin - 4*Statement)

// The pages are plain HTML, so the policy allows a style sheet, an icon and forms that
// post back here, and nothing else. The referrer is sent to this origin only: with
// no-referrer a browser sends "Origin: null" with forms, and the cross-origin check
// could not recognize its own.
const policy = "default-src 'none'; style-src 'self'; img-src 'self' data:; form-action 'self'; " +
	"base-uri 'none'; frame-ancestors 'none'"

//go:embed assets/operator.css
var styles []byte

//go:embed pages
var pageFiles embed.FS

// Options of New. All are required but Token and Log.
type Options struct {
	Pool      *postgres.Pool // used by the page only, see Connections and Statement
	Payments  *payments.Service
	Checkouts *checkout.Service // part: checkouts
	History   *keyhistory.Reader
	Token     *admin.Token // required to sign in and to act; without one the page is read-only
	Log       *slog.Logger
}

// Server serves the operator's page.
type Server struct {
	o          Options
	keys       sessionKeys
	styles     string // path that contains the content's hash, so that browsers may cache it
	handler    http.Handler
	invariants sync.Mutex // one check at a time, because a check reads whole tables
	now        func() time.Time
}

// New returns the page. It starts no goroutine.
func New(o Options) *Server {
	if o.Token == nil {
		o.Token = admin.NewToken("")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	sum := sha256.Sum256(styles)
	s := &Server{
		o: o, keys: newSessionKeys(o.Token), now: time.Now,
		styles: "/operator/assets/" + hex.EncodeToString(sum[:8]) + ".css",
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+s.styles, s.serveStyles)
	mux.HandleFunc("GET /operator/login", s.loginForm)
	mux.HandleFunc("POST /operator/login", s.login)
	mux.HandleFunc("POST /operator/logout", s.reading(s.logout))
	mux.HandleFunc("GET /operator", s.reading(s.overview))
	mux.HandleFunc("GET /operator/{$}", s.reading(s.overview))
	mux.HandleFunc("GET /operator/find", s.reading(s.findForm))
	mux.HandleFunc("POST /operator/find", s.reading(s.find))
	mux.HandleFunc("GET /operator/objects/{tenant}/{id}", s.reading(s.object))
	mux.HandleFunc("GET /operator/intents/{id}", s.reading(s.intent))
	mux.HandleFunc("POST /operator/invariants", s.reading(s.checkInvariants))
	mux.HandleFunc("GET /operator/actions", s.reading(s.actions))
	mux.HandleFunc("GET /operator/actions/{id}", s.reading(s.action))
	mux.HandleFunc("GET /operator/act", s.acting(s.confirm))
	mux.HandleFunc("POST /operator/act", s.acting(s.act))
	// Before every other check: a request that another site's page makes a browser send
	// is rejected even if the browser has a valid session.
	sameOrigin := http.NewCrossOriginProtection()
	sameOrigin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.renderError(w, r, http.StatusForbidden, "This form came from another site.", "No action was taken.")
	}))
	s.handler = s.guarded(sameOrigin.Handler(mux))
	return s
}

// ServeHTTP serves everything below /operator.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// guarded applies what holds for every response: security headers, the size limit, the
// host check and the recovery from panics.
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
				s.o.Log.Error("bug: the operator's page panicked",
					"panic", fmt.Sprint(bug), "stack", string(debug.Stack()))
				s.renderError(w, r, http.StatusInternalServerError, "Internal error.",
					"The log has the stack trace. Only the actions in the audit trail were carried out.")
			}
		}()
		if !s.keys.configured() && !admin.IsAddress(r.Host) {
			s.renderError(w, r, http.StatusForbidden, "Host name not accepted.",
				"Without ADMIN_TOKEN this page can be opened by IP address only, such as 127.0.0.1, because "+
					"another site could point its own host name here. Use the address, or set ADMIN_TOKEN.")
			return
		}
		next.ServeHTTP(w, r.WithContext(postgres.ForAllTenants(r.Context(), "the operator's page")))
	})
}

type sessionContextKey struct{}

// sessionOf returns the session of a signed-in request.
func sessionOf(r *http.Request) (session, bool) {
	s, ok := r.Context().Value(sessionContextKey{}).(session)
	return s, ok
}

// reading is for pages that change nothing. Without a token anyone may read them.
func (s *Server) reading(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !s.keys.configured() {
			next(w, r)
			return
		}
		s.signedIn(w, r, next)
	}
}

// acting is for actions and their forms. Without a token there are none, because there
// would be no name for the audit trail.
func (s *Server) acting(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !s.keys.configured() {
			s.renderError(w, r, http.StatusForbidden, "Actions are disabled.",
				"Set ADMIN_TOKEN and restart the process to use them. docs/operations.md has the SQL statements.")
			return
		}
		s.signedIn(w, r, next)
	}
}

// signedIn requires a session, and for a form the CSRF token of that session.
func (s *Server) signedIn(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
	var current session
	c, err := r.Cookie(cookieName)
	ok := err == nil
	if ok {
		current, ok = s.keys.open(c.Value, s.now())
	}
	switch {
	case !ok && r.Method == http.MethodGet:
		//nolint:gosec // the path is ours, and nextOf checks the parameter before it is used
		http.Redirect(w, r, "/operator/login?next="+queryEscape(r.URL.RequestURI()), http.StatusSeeOther)
		return
	case !ok:
		s.renderError(w, r, http.StatusUnauthorized, "You are not signed in.",
			"No action was taken. Sign in and submit the form again.")
		return
	}
	// A session may have been signed out in another process. If that cannot be read, nothing may be shown or done.
	ended, err := s.o.Pool.OperatorSessionEnded(r.Context(), current.Nonce)
	switch {
	case err != nil:
		s.renderError(w, r, http.StatusServiceUnavailable, "Your session could not be checked.",
			"No action was taken. "+errorText(err))
		return
	case ended && r.Method == http.MethodGet:
		http.SetCookie(w, cookie(r, ""))
		http.Redirect(w, r, "/operator/login", http.StatusSeeOther)
		return
	case ended:
		s.renderError(w, r, http.StatusUnauthorized, "You are signed out.",
			"No action was taken. Sign in and submit the form again.")
		return
	case r.Method == http.MethodPost && !s.keys.csrfValid(current, r.PostFormValue("csrf")):
		s.renderError(w, r, http.StatusForbidden, "This form belongs to another session.",
			"No action was taken. Go back, reload the page and submit the form again.")
		return
	}
	next(w, r.WithContext(context.WithValue(r.Context(), sessionContextKey{}, current)))
}

func (s *Server) serveStyles(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Cache-Control", "private, max-age=31536000, immutable")
	w.Header().Set("Content-Type", "text/css; charset=utf-8")
	_, _ = w.Write(styles)
}

// renderError is a page that says what happened and what to do.
func (s *Server) renderError(w http.ResponseWriter, r *http.Request, status int, title, detail string) {
	s.render(w, r, status, "error", title, struct{ Title, Detail string }{title, detail})
}

// renderReadError is for a read that failed: the object does not exist, or the database
// cannot be read.
func (s *Server) renderReadError(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, postgres.ErrNoRows) || errors.Is(err, payments.ErrNotFound) {
		s.renderError(w, r, http.StatusNotFound, "Not found.", "Check the id, or search for another one.")
		return
	}
	s.renderError(w, r, http.StatusServiceUnavailable, "The database could not be read.", errorText(err))
}

// errorText is a database error as the page shows it.
func errorText(err error) string {
	switch {
	case errors.Is(err, context.DeadlineExceeded), strings.Contains(err.Error(), "statement timeout"):
		return fmt.Sprintf("The query timed out (limit %s per statement): %s", Statement, postgres.ErrorText(err))
	case strings.Contains(err.Error(), "lock timeout"): // Another session is the cause, not the connection.
		return "The query timed out waiting for a lock: " + postgres.ErrorText(err)
	case postgres.Unavailable(err):
		return "The database is unavailable: " + postgres.ErrorText(err)
	}
	return postgres.ErrorText(err)
}
