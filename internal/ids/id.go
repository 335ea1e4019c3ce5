// Package ids makes and reads the ids of objects, and the instants that people read.
package ids

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Kinds of ids. An id is its kind and a UUIDv7 in base32hex, which sorts like
// the time it was made at; a refund's is made of its key, see Keyed.
const (
	Tenant   = "ten_"
	Order    = "ord_"
	Payment  = "pay_"
	Refund   = "rfd_"
	Checkout = "chk_" // part: checkouts
	Dispute  = "dsp_" // made of Stripe's id // part: disputes
	Endpoint = "whe_" // part: webhooks
	Delivery = "whd_" // part: webhooks
	Action   = "act_" // an operator's; made with the form, so that a second submit is recognised // part: operator
)

var encoding = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

const length = 26 // 128 bits, five a character

// New makes an id of the kind.
func New(kind string) string {
	id := uuid.Must(uuid.NewV7())
	return kind + encoding.EncodeToString(id[:])
}

// At makes an id of the kind that sorts as if it had been made at t.
func At(kind string, t time.Time) string {
	id := uuid.Must(uuid.NewV7())
	putTime(&id, t)
	return kind + encoding.EncodeToString(id[:])
}

// Time is the time that an id made by New or At begins with, to the millisecond: what is made with the id has it as its
// created_at, so that what was created in an interval is a range of ids. Zero: it is no id.
func Time(id string) time.Time {
	_, encoded, _ := strings.Cut(id, "_")
	raw, err := encoding.DecodeString(encoded)
	if err != nil || len(raw) != len(uuid.UUID{}) {
		return time.Time{}
	}
	var ms [8]byte
	copy(ms[2:], raw[:6])
	return time.UnixMilli(int64(binary.BigEndian.Uint64(ms[:]))).UTC() //nolint:gosec // 48 bits
}

// Keyed is the id of the object that an idempotency key creates: the same on every
// attempt, even after the database was restored from a copy that does not have the
// key. Stripe still has it, with the id in its metadata.
func Keyed(kind, tenantID, key string) string {
	id := uuid.NewHash(sha256.New(), uuid.Nil, []byte(kind+tenantID+":"+key), 8)
	return kind + encoding.EncodeToString(id[:])
}

// Floor is what follows the kind in the smallest id that could have been made
// at t: ids between two floors were made between those times.
func Floor(t time.Time) string {
	var id uuid.UUID
	putTime(&id, t)
	return encoding.EncodeToString(id[:])
}

func putTime(id *uuid.UUID, t time.Time) {
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(max(t.UnixMilli(), 0)))
	copy(id[:6], ms[2:])
}

// Is reports whether id could be of the kind. If not, there is no need to query the
// database.
func Is(kind, id string) bool {
	rest, ok := strings.CutPrefix(id, kind)
	if !ok || len(rest) != length {
		return false
	}
	for _, r := range rest {
		if !(r >= '0' && r <= '9' || r >= 'a' && r <= 'v') {
			return false
		}
	}
	return true
}

// Kind is the kind of an id, its part up to and including the underscore; empty if
// there is none.
func Kind(id string) string {
	kind, _, ok := strings.Cut(id, "_")
	if !ok {
		return ""
	}
	return kind + "_"
}
