package client

import (
	"errors"
	"fmt"
)

// RefusedError: the server did nothing, and holds nothing under the key. The same intent may be sent again once what
// is wrong is mended, with another body if need be.
type RefusedError struct {
	Intent, Key string
	Response    *Response
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("the server refused %q, and did nothing: %d %.300s", e.Intent, e.Response.Status, e.Response.Body)
}

// UnknownError: it may have been done, or may still be. Call Do again with the same request; never make another
// intent of it.
type UnknownError struct {
	Intent, Key string
	Response    *Response // the last one, if there is one
	Err         error
}

func (e *UnknownError) Error() string {
	text := fmt.Sprintf("what became of %q is not known; send it again under the same name (its key is %s)", e.Intent, e.Key)
	if e.Response != nil {
		text += fmt.Sprintf(": the last answer is %d %.300s", e.Response.Status, e.Response.Body)
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

func (e *UnknownError) Unwrap() error { return e.Err }

// MismatchError: the server holds another request under the key. Somebody else made the same key, or the journal is
// another's, or lost its records.
type MismatchError struct {
	Intent, Key string
	Response    *Response
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("the server holds another request than that of %q under the key %s", e.Intent, e.Key)
}

// ExpiredError: it was done once, and the answer is no longer kept. Href is the path of what was made, if the server
// says it.
type ExpiredError struct {
	Intent, Key, Href string
	Response          *Response
}

func (e *ExpiredError) Error() string {
	return fmt.Sprintf("%q was done, and its answer is no longer kept under the key %s: read %s", e.Intent, e.Key, e.Href)
}

// BrokenPromiseError: the server answered what cannot be true if it keeps its promises about keys: another request's
// answer, another object than before, the same work twice. Nothing more is sent for the intent by this call.
type BrokenPromiseError struct {
	Intent, Key, What string
	Response          *Response
}

func (e *BrokenPromiseError) Error() string {
	return fmt.Sprintf("the server broke its promise about the key %s of %q: %s", e.Key, e.Intent, e.What)
}

// ErrKeyTooOld: the server may have forgotten the key, and would take the request for a new one. Look for what it made.
var ErrKeyTooOld = errors.New("the key is older than the server is known to keep keys")
