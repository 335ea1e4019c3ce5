package payments

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Kinds of ids. An id is its kind and a UUIDv7 in base32hex, which sorts like
// the time it was made at; a refund's is made of its key, see keyedID.
const (
	orderID    = "ord_"
	paymentID  = "pay_"
	refundID   = "rfd_"
	checkoutID = "chk_"
	actionID   = "act_" // of an operator
)

var idEncoding = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

const idLength = 26 // 128 bits, five a character

func newID(kind string) string {
	id := uuid.Must(uuid.NewV7())
	return kind + idEncoding.EncodeToString(id[:])
}

// keyedID is the id of what a key makes: the same on every attempt, even after the
// database was restored from a copy that does not know the key. Stripe still does, and
// has the id in its metadata.
func keyedID(kind, tenantID, key string) string {
	id := uuid.NewHash(sha256.New(), uuid.Nil, []byte(kind+tenantID+":"+key), 8)
	return kind + idEncoding.EncodeToString(id[:])
}

// idFloor is what follows the kind in the smallest id that could have been made
// at t: ids between two floors were made between those times.
func idFloor(t time.Time) string {
	var id uuid.UUID
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(max(t.UnixMilli(), 0)))
	copy(id[:6], ms[2:])
	return idEncoding.EncodeToString(id[:])
}

// NewTenantID makes the id of a new tenant.
func NewTenantID() string { return newID("ten_") }

// NewActionID makes the id of an operator's action. It is made with the form, so that
// a form that is submitted twice is recognised.
func NewActionID() string { return newID(actionID) }

// IsActionID reports whether id could be an action's.
func IsActionID(id string) bool { return isID(actionID, id) }

// isID reports whether id could be of the kind. If not, there is no need to ask the
// database.
func isID(kind, id string) bool {
	rest, ok := strings.CutPrefix(id, kind)
	if !ok || len(rest) != idLength {
		return false
	}
	for _, r := range rest {
		if !(r >= '0' && r <= '9' || r >= 'a' && r <= 'v') {
			return false
		}
	}
	return true
}
