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
)

const (
	cookieName   = "payonce_operator"
	sessionLasts = 12 * time.Hour // a shift
	actorMax     = 80             // characters; the table says so too
)

// keys are made of the token, so that whoever changes the token ends every
// session, in every process, without any of them keeping a list.
type keys struct{ token, session, csrf []byte }

func newKeys(token string) keys {
	if token == "" {
		return keys{}
	}
	derive := func(what string) []byte { return sign([]byte(token), "payonce operator "+what) }
	return keys{token: derive("token"), session: derive("session"), csrf: derive("csrf")}
}

func sign(key []byte, text string) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	return mac.Sum(nil)
}

// configured: there is a token, so somebody may act.
func (k keys) configured() bool { return k.token != nil }

// admits compares without telling by its time how much of a guess was right.
func (k keys) admits(token string) bool {
	return k.configured() && hmac.Equal(sign([]byte(token), "payonce operator token"), k.token)
}

// session is somebody who gave the token.
type session struct {
	Actor string `json:"actor"`
	Until int64  `json:"until"` // Unix seconds
	Nonce string `json:"nonce"`
}

func newSession(actor string, now time.Time) session {
	return session{Actor: actor, Until: now.Add(sessionLasts).Unix(), Nonce: rand.Text()}
}

// seal is the session as its cookie holds it.
func (k keys) seal(s session) string {
	plain, _ := json.Marshal(s)
	text := base64.RawURLEncoding.EncodeToString(plain)
	return text + "." + base64.RawURLEncoding.EncodeToString(sign(k.session, text))
}

// open returns the session of a cookie that this token has signed and whose time
// is not over.
func (k keys) open(value string, now time.Time) (s session, ok bool) {
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

// csrf is what every form of a session carries. Another site can send a form with
// our cookie, if a browser lets it; it cannot read this.
func (k keys) csrfToken(s session) string {
	return base64.RawURLEncoding.EncodeToString(sign(k.csrf, s.Nonce))
}

func (k keys) csrfValid(s session, given string) bool {
	return hmac.Equal([]byte(k.csrfToken(s)), []byte(given))
}

// cookie for the session; without one, the cookie that ends it.
func cookie(value string) *http.Cookie {
	c := &http.Cookie{ //nolint:gosec // not Secure: the address is loopback, or behind a tunnel, and speaks HTTP
		Name: cookieName, Value: value, Path: "/operator", HttpOnly: true, SameSite: http.SameSiteStrictMode, MaxAge: int(sessionLasts.Seconds()),
	}
	if value == "" {
		c.MaxAge = -1
	}
	return c
}

// actorOf is a name fit for the audit trail; empty if it is none.
func actorOf(name string) string {
	name = strings.Join(strings.Fields(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(name, ""))), " ")
	if runes := []rune(name); len(runes) > actorMax {
		return ""
	}
	return name
}
