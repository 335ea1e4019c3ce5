package stripesim

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// admit does what comes before the key: the door, the limiter, the address.
func (s *Sim) admit(c *call, r *http.Request) *apiError {
	account, err := s.authenticate(r)
	if err != nil {
		return err
	}
	c.account = account
	if v := r.Header.Get("Stripe-Version"); v != "" && v != apiVersion {
		return invalid("", "", "Invalid Stripe API version: %s", v)
	}
	if err := c.fault.atTheGate(c); err != nil {
		return err
	}
	if c.op == nil {
		return unrecognized(c.method, c.path)
	}
	if reason := s.limits.exceeded(c.op.name, time.Now()); reason != "" {
		return rateLimited(reason)
	}
	if c.bad != nil {
		return c.bad
	}
	return checkKey(c)
}

// authenticate reads the secret key and returns its account.
func (s *Sim) authenticate(r *http.Request) (string, *apiError) {
	header := r.Header.Get("Authorization")
	scheme, credentials, _ := strings.Cut(header, " ")
	key := ""
	switch strings.ToLower(scheme) {
	case "bearer":
		key = strings.TrimSpace(credentials)
	case "basic":
		if plain, err := base64.StdEncoding.DecodeString(credentials); err == nil {
			key, _, _ = strings.Cut(string(plain), ":")
		}
	}
	name, err := accountName(key)
	if err != nil || (s.opts.Keys != nil && !slices.Contains(s.opts.Keys, key)) {
		return "", unauthorized(header, key)
	}
	if connected := r.Header.Get("Stripe-Account"); connected != "" {
		if !strings.HasPrefix(connected, "acct_") {
			return "", refuse(
				403, typeInvalid, "account_invalid", "",
				"The provided key '%s' does not have access to account '%s' (or that account does not exist). "+
					"Application access may have been revoked.",
				mask(key),
				connected,
			)
		}
		return connected, nil
	}
	return accountOf(name), nil
}

// accountName is the part of a test key that names its account.
func accountName(key string) (string, error) {
	name, isTest := strings.CutPrefix(key, "sk_test_")
	if !isTest || name == "" {
		return "", fmt.Errorf("%s is not a test key", mask(key))
	}
	return name, nil
}

// accountOf names the account a key belongs to: everything up to the first
// underscore decides.
func accountOf(name string) string {
	owner, _, _ := strings.Cut(name, "_")
	var h uint64
	for _, b := range []byte(owner) {
		h = mix(h ^ uint64(b))
	}
	return "acct_1" + letters(h, 1, 15)
}
