package client

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"strings"
	"time"
)

// Journal remembers which key was made for an intent, and how the intent ended. [OpenFile] is one in a file and
// [SQL] one in the caller's own database; any other must keep the same promises.
type Journal interface {
	// ID is a random name that the journal was given when it was made, and keeps. Keys are derived from it, so that
	// a record that is lost all the same gets the key that it had.
	ID() string

	// Begin stores an intent so that it survives a crash of the machine, and returns nil. If there is a record of that
	// name already, it stores nothing and returns what is stored, unless that is Refused: such a one is replaced. Of two
	// callers with the same name, in one process or in two, only one is given nil.
	Begin(ctx context.Context, r Record) (stored *Record, err error)

	// Note stores what is known of an intent now. It may be lost in a crash, and the request is then sent again; one
	// that is Refused survives, as its caller is told that nothing will come of it.
	Note(ctx context.Context, r Record) error

	// Open lists the records that are Sent, oldest first.
	Open(ctx context.Context) ([]Record, error)
}

// Record is what a journal holds of an intent: the request as it was first sent, and what was answered.
type Record struct {
	Intent   string    `json:"intent"`
	Key      string    `json:"key"`
	Request  Request   `json:"request"`
	State    State     `json:"state"`
	Seen     Seen      `json:"seen,omitzero"`
	Response *Response `json:"response,omitempty"` // once State is Final
	BegunAt  time.Time `json:"begun_at"`
}

// State is how far an intent has come.
type State string

// The states of an intent.
const (
	Sent    State = "sent"    // its request may have arrived; what came of it is not known
	Final   State = "final"   // answered, for good
	Refused State = "refused" // the server did nothing, and holds nothing under the key
)

// Seen is what earlier attempts were told, to be held against what later ones are.
type Seen struct {
	Done     bool   `json:"done,omitempty"` // a status said so; the body was lost
	Location string `json:"location,omitempty"`
	ID       string `json:"id,omitempty"`
}

// keyFor derives the key of an intent. An intent has one, whatever becomes of its request. It is no secret, and is as
// long as 160 bits are, so that nobody makes it by chance.
func keyFor(journal, intent string) string {
	sum := sha256.Sum256([]byte("payonce client key 1\n" + journal + "\n" + intent))
	return "pk1-" + strings.ToLower(base32.HexEncoding.EncodeToString(sum[:20]))
}

var (
	// ErrNotSent is wrapped by every error after which nothing of this call has left the process.
	ErrNotSent = errors.New("nothing was sent")

	// ErrIntentChanged: the name stands for another request already. Give another thing another name.
	ErrIntentChanged = errors.New("the intent was begun with another request")

	// ErrJournalInUse: another process has it open.
	ErrJournalInUse = errors.New("the journal is in use by another process")

	// ErrJournalForeign: the file is no journal, or one of a later version, or its beginning is lost.
	ErrJournalForeign = errors.New("the file is not a journal")

	// ErrJournalDamaged: a record is unreadable and others follow it. A crash leaves no such file.
	ErrJournalDamaged = errors.New("the journal is damaged")

	// ErrJournalFailed: the disk did not take a record, so what is on it is not known. Close it and open it again.
	ErrJournalFailed = errors.New("the journal could not be written")
)
