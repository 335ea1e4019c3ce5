package client

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"strings"
	"time"
)

// Journal stores intents: their keys, their requests and how they ended. [OpenFile] is one in a file and [SQL] one in
// the caller's own database; any other must keep the same promises. Its methods are called by several goroutines.
type Journal interface {
	// ID is a random name that the journal was given when it was made, and that never changes. Keys are derived from
	// it and from the intent, so an intent has the same key even if its record is lost.
	ID() string

	// Begin stores an intent durably, so that it survives a crash of the machine, and returns nil. If there is a record
	// of that intent, Begin stores nothing and returns the record, except one that is Refused, which is replaced. Of two
	// callers with the same intent, in one process or in two, only one gets nil.
	Begin(ctx context.Context, r Record) (stored *Record, err error)

	// Continue returns the record of an intent that is Sent, and nil for any other. Like a caller of Begin, its caller may
	// send the request from then on.
	Continue(ctx context.Context, intent string) (*Record, error)

	// Note stores what is now known of an intent. A record that is Sent or Final may be lost in a crash: the request is
	// then sent again. One that is Refused or Broken must be durable.
	Note(ctx context.Context, r Record) error

	// Open lists the records that are Sent, oldest first.
	Open(ctx context.Context) ([]Record, error)
}

// Record is what a journal holds of an intent: the request as it was first sent, and the response.
type Record struct {
	Intent   string    `json:"intent"`
	Key      string    `json:"key"`
	Base     string    `json:"base"` // the server to which it was first sent: scheme, host, port and path
	Request  Request   `json:"request"`
	State    State     `json:"state"`
	Seen     Seen      `json:"seen,omitzero"`
	Response *Response `json:"response,omitempty"` // once State is Final or Broken
	Broken   string    `json:"broken,omitempty"`   // what contradicts what, once State is Broken
	BegunAt  time.Time `json:"begun_at"`           // by this machine's clock
}

// State is the state of an intent.
type State string

// The states of an intent.
const (
	Sent    State = "sent"    // the request may have reached the server; there is no final response
	Final   State = "final"   // the response is final
	Refused State = "refused" // the server did nothing and holds nothing under the key, or nothing was sent
	Broken  State = "broken"  // the server contradicted itself; nothing more is sent
)

// Seen is what earlier responses said; later ones are compared with it.
type Seen struct {
	Done     bool   `json:"done,omitempty"` // a 2xx other than 202, of which the body was lost
	Location string `json:"location,omitempty"`
	ID       string `json:"id,omitempty"`
}

// keyFor derives the key of an intent. It is no secret. 160 bits of a hash are enough that no other intent has it.
func keyFor(journal, intent string) string {
	sum := sha256.Sum256([]byte("payonce client key 1\n" + journal + "\n" + intent))
	return "pk1-" + strings.ToLower(base32.HexEncoding.EncodeToString(sum[:20]))
}

var (
	// ErrNotSent is wrapped by every error of a call that sent nothing. An earlier call for the same intent may have
	// sent it; and if it was the journal that failed, the record may be in it all the same, and Resume sends it.
	ErrNotSent = errors.New("nothing was sent")

	// ErrIntentChanged: the intent was begun with another request. Another request is another intent, with another name.
	ErrIntentChanged = errors.New("the intent was begun with another request")

	// ErrOtherServer: the intent was begun at another base. The journal is that of another server, such as the one for
	// tests, or the server has moved ([Options.FormerBases]).
	ErrOtherServer = errors.New("the intent was begun at another server")

	// ErrJournalInUse: another process has the file open, or this one has it open already.
	ErrJournalInUse = errors.New("the journal is open already, in this process or another")

	// ErrJournalForeign: the file is not a journal, or one of a later version, or its first line is damaged. It was
	// left as it is. A new journal has another id, and with it the same intents have other keys: restore the first line.
	ErrJournalForeign = errors.New("the file is not a journal")

	// ErrJournalDamaged: a record cannot be read and others follow it. A crash of the process leaves no such file; a disk
	// that loses writes may. To go on, cut the file at the byte that the error names: the intents after it keep their
	// keys, but Resume no longer finds them, so send them again.
	ErrJournalDamaged = errors.New("the journal is damaged")

	// ErrJournalFailed: the journal could not store a record, so nothing was sent. Free some space, and call Do again;
	// if an fsync failed, which is not retried, close the journal and open it again first.
	ErrJournalFailed = errors.New("the journal could not be written")
)
