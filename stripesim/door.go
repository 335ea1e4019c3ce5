package stripesim

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// admit does what comes before the key: the door, the limiter, the address.
func (s *Sim) admit(c *call, r *http.Request) *apiError {
	account, err := s.authenticate(c, r)
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
	if err := s.permit(c); err != nil {
		return err
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
func (s *Sim) authenticate(c *call, r *http.Request) (string, *apiError) {
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
	c.secret = key
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

const restrictedPrefix = "rk_test_"

// permissionOf is what a restricted key needs for an operation. Refunds count as
// charges, and each endpoint that is not here has a permission of its own name.
var permissionOf = map[string]string{
	"intent": "payment_intent", "refund": "charge", "webhook_endpoint": "webhook",
	"balance_transaction": "balance_transaction_source", "account": "accounts_kyc_basic",
}

// permit refuses a restricted key what it may not do, before anything is looked up.
func (s *Sim) permit(c *call) *apiError {
	if !strings.HasPrefix(c.secret, restrictedPrefix) {
		return nil
	}
	resource, _, _ := strings.Cut(c.op.name, ".")
	resource = cmp.Or(permissionOf[resource], resource)
	needs := resource + "_read"
	if c.method != http.MethodGet {
		needs = resource + "_write"
	}
	granted, limited := s.opts.Restricted[c.secret]
	if !limited && c.op.name != "account.get" ||
		slices.Contains(granted, needs) || slices.Contains(granted, resource+"_write") {
		return nil
	}
	return refuse(403, typeInvalid, "", "", "The provided key '%s' does not have the required permissions for this "+
		"endpoint on account '%s'. Having the 'rak_%s' permission would allow this request to continue.",
		mask(c.secret), c.account, needs)
}

// accountName is the part of a test key that names its account.
func accountName(key string) (string, error) {
	name, isTest := strings.CutPrefix(key, "sk_test_")
	if !isTest {
		name, isTest = strings.CutPrefix(key, restrictedPrefix)
	}
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
