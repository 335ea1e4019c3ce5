package sealed

import (
	"bytes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/crypto/chacha20poly1305"
)

const (
	mark = "\x00PO\x01" // with which every sealed value begins, and no other

	// KeyIDSize is the length of a key's id.
	KeyIDSize = 4
	// Overhead is by how many bytes a sealed value is longer than what is in it.
	Overhead = len(mark) + KeyIDSize + chacha20poly1305.NonceSizeX + chacha20poly1305.Overhead

	// NoKey stands in place of the first key, if values are opened and none is sealed.
	NoKey = "none"
)

// String names the place in errors and logs, without the id, which may be a client's key.
func (p Place) String() string { return p.Table + "." + p.Column + " of " + p.Owner }

// bytes is the place as the cipher authenticates it: no two places have the same.
func (p Place) bytes() []byte {
	var b []byte
	for _, part := range []string{p.Table, p.Column, p.Owner, p.ID} {
		b = binary.AppendUvarint(b, uint64(len(part)))
		b = append(b, part...)
	}
	return b
}

// ErrChanged means that a sealed value was changed, or copied from another place.
var ErrChanged = errors.New("the value was changed after it was encrypted, or belongs to another row")

// ErrPlain means that a value is not sealed, although it was stored when all values were.
var ErrPlain = errors.New("the value is not encrypted, although it was stored after DATA_KEY was introduced")

// MissingKeyError means that a value was sealed with a key that the Box does not have. The value may be right.
type MissingKeyError struct {
	KeyID string // as Box.KeyIDs prints it
}

func (e *MissingKeyError) Error() string {
	return "DATA_KEY has no key with the id " + e.KeyID + ", which the value was encrypted with"
}

// Box seals and opens values. The nil Box seals nothing, and opens what is not sealed.
type Box struct {
	keys  []key
	seals bool // with the first key
}

type key struct {
	id   [KeyIDSize]byte
	aead cipher.AEAD
}

// New reads keys from the form that DATA_KEY has: one or several keys of 32 bytes in base64, separated by commas. The
// first seals; with "none" in its place nothing is sealed. Empty: no Box. An error does not contain the text.
func New(text string) (*Box, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	b := &Box{seals: true}
	for i, part := range strings.Split(text, ",") {
		if part = strings.TrimSpace(part); i == 0 && part == NoKey {
			b.seals = false
			continue
		}
		k, err := newKey(part)
		if err != nil {
			return nil, fmt.Errorf("must be keys of 32 bytes in base64, separated by commas (openssl rand -base64 32); "+
				"number %d: %w", i+1, err)
		}
		if b.find(k.id[:]) != nil {
			return nil, fmt.Errorf("has a key twice: number %d", i+1)
		}
		b.keys = append(b.keys, k)
	}
	if len(b.keys) == 0 {
		return nil, errors.New("has no key after none; unset it to encrypt nothing")
	}
	return b, nil
}

func newKey(text string) (key, error) {
	secret, err := base64.StdEncoding.DecodeString(text)
	switch {
	case text == "":
		return key{}, errors.New("it is empty")
	case err != nil: // whose text contains some of the key
		return key{}, errors.New("it is not base64")
	case len(secret) != chacha20poly1305.KeySize:
		return key{}, fmt.Errorf("it has %d bytes", len(secret))
	case bytes.Count(secret, secret[:1]) == len(secret):
		return key{}, errors.New("all its bytes are the same")
	}
	k := key{}
	sum := sha256.Sum256(append([]byte("payonce data key id\x00"), secret...))
	copy(k.id[:], sum[:])
	k.aead, err = chacha20poly1305.NewX(secret)
	return k, err
}

func (b *Box) find(id []byte) *key {
	for i := range b.keys {
		if bytes.Equal(b.keys[i].id[:], id) {
			return &b.keys[i]
		}
	}
	return nil
}

// Seals reports whether the Box seals, and does not only open.
func (b *Box) Seals() bool { return b != nil && b.seals }

// KeyIDs are the ids of the keys, the one that seals first. They reveal nothing of the keys.
func (b *Box) KeyIDs() (ids []string) {
	if b == nil {
		return nil
	}
	for _, k := range b.keys {
		ids = append(ids, hex.EncodeToString(k.id[:]))
	}
	return ids
}

// Seal returns the value as it is stored. Nil stays nil, so that a column without a value has none.
func (b *Box) Seal(p Place, value []byte) []byte {
	if !b.Seals() || value == nil {
		return value
	}
	k := b.keys[0]
	const head = len(mark) + KeyIDSize
	out := make([]byte, head+chacha20poly1305.NonceSizeX, Overhead+len(value))
	copy(out, mark)
	copy(out[len(mark):], k.id[:])
	nonce := out[head:]
	_, _ = rand.Read(nonce) // never fails
	return k.aead.Seal(out, nonce, value, p.bytes())
}

// Open returns what is in a stored value: the value itself, if it is not sealed. An error is a *MissingKeyError or
// ErrChanged, with the place.
func (b *Box) Open(p Place, stored []byte) ([]byte, error) {
	id := KeyID(stored)
	if id == nil {
		return stored, nil
	}
	var k *key
	if b != nil {
		k = b.find(id)
	}
	if k == nil {
		return nil, fmt.Errorf("open %s: %w", p, &MissingKeyError{hex.EncodeToString(id)})
	}
	rest := stored[len(mark)+KeyIDSize:]
	nonce, ciphertext := rest[:chacha20poly1305.NonceSizeX], rest[chacha20poly1305.NonceSizeX:]
	value, err := k.aead.Open(make([]byte, 0, len(ciphertext)), nonce, ciphertext, p.bytes())
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", p, ErrChanged)
	}
	return value, nil
}

// KeyID is the id of the key that a stored value was sealed with; nil if it is not sealed.
func KeyID(stored []byte) []byte {
	if len(stored) < Overhead || string(stored[:len(mark)]) != mark {
		return nil
	}
	return slices.Clip(stored[len(mark) : len(mark)+KeyIDSize])
}

// SealedBy is KeyID as the function sealed_by of the database returns it for values of the Box: what to compare it
// with to find those that are sealed otherwise. Nil: the Box does not seal.
func (b *Box) SealedBy() []byte {
	if !b.Seals() {
		return nil
	}
	return slices.Clone(b.keys[0].id[:])
}
