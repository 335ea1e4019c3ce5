package operator

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/admin"
)

// loginPage is the sign-in form. Next is where the operator wanted to go.
type loginPage struct{ Next, Actor, Error string }

// loginForm is not needed without a token: then the page is open and read-only.
func (s *Server) loginForm(w http.ResponseWriter, r *http.Request) {
	if !s.keys.configured() {
		http.Redirect(w, r, "/operator", http.StatusSeeOther)
		return
	}
	s.render(w, r, http.StatusOK, "login", "Sign in", loginPage{Next: nextOf(r.FormValue("next"))})
}

func (s *Server) login(w http.ResponseWriter, r *http.Request) {
	page := loginPage{Next: nextOf(r.PostFormValue("next")), Actor: actorOf(r.PostFormValue("actor"))}
	status := http.StatusUnauthorized
	switch err := s.o.Token.Admits(r.RemoteAddr, r.PostFormValue("token")); {
	case errors.Is(err, admin.ErrTooManyTries): // Not logged: the wrong tokens before it were, here or at the profiles.
		status = http.StatusTooManyRequests
		w.Header().Set("Retry-After", strconv.Itoa(int(admin.RetryAfter.Seconds())))
		page.Error = fmt.Sprintf("Too many wrong tokens from this address. Wait %s. Sessions that exist are not affected.",
			span(admin.RetryAfter))
	case errors.Is(err, admin.ErrNoToken):
		page.Error = "Enter the token: the value of ADMIN_TOKEN."
	case err != nil:
		s.o.Token.LogWrong(s.o.Log, "sign-in", r.RemoteAddr)
		page.Error = "Wrong token: it is not the one in ADMIN_TOKEN."
	case page.Actor == "": // Without a name it would be unknown whom to ask about an action.
		page.Error = fmt.Sprintf("Enter your name for the audit trail, at most %d characters.", actorMax)
	default:
		s.o.Log.Info("operator: signed in", "actor", page.Actor, "remote", r.RemoteAddr)
		http.SetCookie(w, cookie(r, s.keys.seal(newSession(page.Actor, s.now()))))
		http.Redirect(w, r, page.Next, http.StatusSeeOther)
		return
	}
	s.render(w, r, status, "login", "Sign in", page)
}

// logout ends the session in the database first: a cookie that was copied is worth nothing
// then. Without a session there is none to end.
func (s *Server) logout(w http.ResponseWriter, r *http.Request) {
	if current, ok := sessionOf(r); ok {
		err := s.o.Pool.OperatorSessionEnd(r.Context(), db.OperatorSessionEndParams{
			Nonce: current.Nonce, Until: time.Unix(current.Until, 0),
		})
		if err != nil {
			s.renderError(w, r, http.StatusServiceUnavailable, "You are still signed in.",
				"The end of the session could not be recorded. Try again, or change ADMIN_TOKEN. "+errorText(err))
			return
		}
		s.o.Log.Info("operator: signed out", "actor", current.Actor, "remote", r.RemoteAddr)
	}
	http.SetCookie(w, cookie(r, ""))
	http.Redirect(w, r, "/operator/login", http.StatusSeeOther)
}

// nextOf returns the page to show after sign-in. Only pages of the operator are
// accepted: any other value could make the sign-in an open redirect.
func nextOf(path string) string {
	if path == "/operator" || strings.HasPrefix(path, "/operator/") && !strings.ContainsAny(path, "\\\r\n") {
		return path
	}
	return "/operator"
}
