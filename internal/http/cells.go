package http

import (
	"errors"
	"strings"
)

// A cell is a whole deployment with a database of its own, beside others (docs/cells.md). An API key of a cell names it,
// before the tenant, so that a router finds the cell in the Authorization header and needs no table of tenants:
//
//	payonce_<tenant>_<secret>         of a deployment without a name
//	payonce_<cell>_<tenant>_<secret>  of a cell
//
// A cell's name is shorter than a tenant's id, so the two forms cannot be confused.

const (
	cellNameMax   = 16
	tenantIDChars = 26 // without the prefix
)

// errCellName says what a cell's name may be.
var errCellName = errors.New("must be 1 to 16 characters of a-z, 0-9 and -, begin with a letter, and not end in -")

// CheckCell returns an error that says what is wrong with the name of a cell. deploy/haproxy.cfg and the table cell have
// the same rule.
func CheckCell(name string) error {
	if !isCell(name) {
		return errCellName
	}
	return nil
}

func isCell(name string) bool {
	if name == "" || len(name) > cellNameMax || name[0] < 'a' || name[0] > 'z' || name[len(name)-1] == '-' {
		return false
	}
	for _, c := range name {
		if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-') {
			return false
		}
	}
	return true
}

// errOtherCell is for a key that says itself that it cannot be valid here. It is a 401 like that of any key that is not
// valid, and says more than the others, because only what the key says is told: it was sent past the router, or the
// router is wrong.
var errOtherCell = &problem{
	code: codeUnauthenticated,
	detail: "The API key names another cell of this service than the one that the request has reached. " +
		"Send the request to the address that came with the key.",
}

// splitAPIKey returns the cell and the tenant that a key names, the tenant without its prefix. A key without a cell has
// an empty one. Not ok: it is no key.
func splitAPIKey(key string) (cell, tenant string, ok bool) {
	rest, ok := strings.CutPrefix(key, keyPrefix)
	if !ok {
		return "", "", false
	}
	first, rest, ok := strings.Cut(rest, "_")
	if second, _, more := strings.Cut(rest, "_"); more && len(second) == tenantIDChars && isCell(first) && isTenant(second) {
		return first, second, true
	}
	return "", first, ok
}

// isTenant reports whether these may be the characters of a tenant's id, without its prefix.
func isTenant(id string) bool {
	for _, c := range id {
		if !(c >= '0' && c <= '9' || c >= 'a' && c <= 'v') {
			return false
		}
	}
	return true
}
