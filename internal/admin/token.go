package admin

import (
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	triesAtOnce = 10               // wrong tokens from one address: a person with three tokens to try
	triesEvery  = 10 * time.Second // after that, one in this time
	triersMax   = 1000             // addresses that are told apart; all others share one limit

	linesPerSecond = 20               // about wrong tokens, of all addresses together; the burst is five seconds' worth
	leftOutEvery   = 10 * time.Second // how often the number of lines that were left out is logged
)

// Errors of Admits.
var (
	// ErrNoToken is returned for an empty token, at any time: it guesses nothing, so it uses up no try.
	ErrNoToken    = errors.New("no token")
	ErrWrongToken = errors.New("wrong token")
	// ErrTooManyTries is returned for the right token, too: what it says about one token it must not say about others.
	ErrTooManyTries = errors.New("too many wrong tokens from this address")
)

// RetryAfter is how long an address that got ErrTooManyTries has to wait.
const RetryAfter = triesEvery

// Token is ADMIN_TOKEN, and the tries that are left to each address. The value itself is not kept.
type Token struct {
	key []byte // nil: no token is set

	mu    sync.Mutex
	tries map[string]*rate.Limiter
	rest  *rate.Limiter // of the addresses beyond triersMax

	lines   *rate.Limiter // of the log
	leftOut int           // lines since they were last counted in the log; a timer will do so, unless it is 0
}

// NewToken returns the token with this value; of the empty one, that none is set.
func NewToken(value string) *Token {
	t := &Token{
		tries: map[string]*rate.Limiter{}, rest: newTries(), lines: rate.NewLimiter(linesPerSecond, 5*linesPerSecond),
	}
	if value != "" {
		t.key = sign([]byte(value), "payonce operator token")
	}
	return t
}

func newTries() *rate.Limiter { return rate.NewLimiter(rate.Every(triesEvery), triesAtOnce) }

// Configured reports whether a token is set.
func (t *Token) Configured() bool { return t.key != nil }

// Derive returns a key for one use, such as signing sessions. Another token is another key, so a change of the token
// ends what was signed with the old one. Nil without a token.
func (t *Token) Derive(use string) []byte {
	if !t.Configured() {
		return nil
	}
	return sign(t.key, "payonce operator "+use)
}

// Admits compares in constant time, so that the response time does not reveal how much of a guess was right. Only wrong
// tokens use up the tries of an address, which is host:port as in http.Request.RemoteAddr.
func (t *Token) Admits(remote, given string) error {
	if given == "" {
		return ErrNoToken
	}
	limit, now := t.triesOf(remote), time.Now()
	// Taken before the comparison, or guesses at the same time would all find the last try.
	try := limit.ReserveN(now, 1)
	if try.DelayFrom(now) > 0 {
		try.CancelAt(now)
		return ErrTooManyTries
	}
	if !t.Configured() || !hmac.Equal(sign([]byte(given), "payonce operator token"), t.key) {
		return ErrWrongToken
	}
	try.CancelAt(now)
	return nil
}

// LogWrong logs that ErrWrongToken was returned, and where: the guesses at one place are seen beside those at the other,
// with which they share a limit. The token is not in the line, because a person may have mistyped the right one. One
// client may have a line for each of many addresses, so beyond a rate they are only counted.
func (t *Token) LogWrong(log *slog.Logger, where, remote string) {
	const message = "wrong admin token"
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lines.Allow() {
		log.Warn(message, "at", where, "remote", remote)
		return
	}
	if t.leftOut == 0 {
		time.AfterFunc(leftOutEvery, func() {
			t.mu.Lock()
			n := t.leftOut
			t.leftOut = 0
			t.mu.Unlock()
			log.Info("log lines left out", "message", message, "lines", n)
		})
	}
	t.leftOut++
}

// triesOf returns the limit of an address. A network of IPv6 that one customer of a provider gets is one address.
func (t *Token) triesOf(remote string) *rate.Limiter {
	host := remote
	if h, _, err := net.SplitHostPort(remote); err == nil {
		host = h
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		if ip = ip.Unmap().WithZone(""); ip.Is6() {
			network, _ := ip.Prefix(64) // never fails: 64 is less than the bits of an IPv6 address
			ip = network.Addr()
		}
		host = ip.String()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if limit, ok := t.tries[host]; ok {
		return limit
	}
	if len(t.tries) >= triersMax {
		now := time.Now()
		for other, limit := range t.tries {
			if limit.TokensAt(now) >= triesAtOnce { // as if it had never tried
				delete(t.tries, other)
			}
		}
		if len(t.tries) >= triersMax {
			return t.rest
		}
	}
	limit := newTries()
	t.tries[host] = limit
	return limit
}

func sign(key []byte, text string) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	return mac.Sum(nil)
}
