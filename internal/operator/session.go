package operator

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"time"
	"unicode"

	"example.com/payonce/internal/admin"
	"example.com/payonce/internal/cards"
)

const (
	cookieName   = "payonce_operator"
	sessionLasts = 12 * time.Hour // a working shift
	actorMax     = 80             // characters; a constraint of operator_actions has the same limit
)

// sessionKeys are derived from the token, so that changing the token ends every
// session in every process without a list of sessions.
type sessionKeys struct{ session, csrf []byte }

func newSessionKeys(token *admin.Token) sessionKeys {
	return sessionKeys{session: token.Derive("session"), csrf: token.Derive("csrf")}
}

func sign(key []byte, text string) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	return mac.Sum(nil)
}

// configured reports whether there is a token. Without one, actions are disabled.
func (k sessionKeys) configured() bool { return k.session != nil }

// session is what the cookie of a signed-in operator holds.
type session struct {
	Actor string `json:"actor"`
	Until int64  `json:"until"` // Unix seconds
	Nonce string `json:"nonce"`
}

func newSession(actor string, now time.Time) session {
	return session{Actor: actor, Until: now.Add(sessionLasts).Unix(), Nonce: rand.Text()}
}

// seal returns the value of the session's cookie: its JSON and a signature. It is not
// encrypted, because it holds nothing secret.
func (k sessionKeys) seal(s session) string {
	plain, _ := json.Marshal(s)
	text := base64.RawURLEncoding.EncodeToString(plain)
	return text + "." + base64.RawURLEncoding.EncodeToString(sign(k.session, text))
}

// open returns the session of a cookie that was signed with this token and has not
// expired.
func (k sessionKeys) open(value string, now time.Time) (s session, ok bool) {
	text, mac, _ := strings.Cut(value, ".")
	given, err := base64.RawURLEncoding.DecodeString(mac)
	if err != nil || !k.configured() || !hmac.Equal(given, sign(k.session, text)) {
		return session{}, false
	}
	plain, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || json.Unmarshal(plain, &s) != nil || now.Unix() >= s.Until {
		return session{}, false
	}
	return s, true
}

// csrfToken is in every form of a session. Another site may make a browser submit a
// form with our cookie, but it cannot read this value.
func (k sessionKeys) csrfToken(s session) string {
	return base64.RawURLEncoding.EncodeToString(sign(k.csrf, s.Nonce))
}

func (k sessionKeys) csrfValid(s session, given string) bool {
	return hmac.Equal([]byte(k.csrfToken(s)), []byte(given))
}

// cookie returns the session's cookie; with an empty value, one that deletes it. Behind
// TLS it is Secure, so that a browser never sends it over a connection that others
// can read. Without, on loopback or through a tunnel, a browser would not keep such a one.
func cookie(r *http.Request, value string) *http.Cookie {
	c := &http.Cookie{ //nolint:gosec // Secure says when
		Name: cookieName, Value: value, Path: "/operator", HttpOnly: true, Secure: admin.OverTLS(r),
		SameSite: http.SameSiteStrictMode, MaxAge: int(sessionLasts.Seconds()),
	}
	if value == "" {
		c.MaxAge = -1
	}
	return c
}

// actorOf returns the name for the audit trail, without control characters, which could
// make one line look like two; empty if it is too long or contains a card number.
func actorOf(name string) string {
	name = strings.Join(strings.Fields(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(name, ""))), " ")
	if len([]rune(name)) > actorMax || cards.NumberIn(name) {
		return ""
	}
	return name
}
