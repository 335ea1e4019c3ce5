package client

import (
	"errors"
	"fmt"
)

// RefusedError: the server did nothing, and holds nothing under the key. Call Do again under the same name once the
// cause is fixed, with another body if need be.
type RefusedError struct {
	Intent, Key string
	Response    *Response
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("the server refused %q and did nothing: %s", e.Intent, summary(e.Response))
}

// UnknownError: the request may have taken effect, or still may. Call Do again with the same request; never give it
// another name, which has another key.
type UnknownError struct {
	Intent, Key string
	Response    *Response // the last one, or nil
	Err         error     // why the call stopped, or nil
}

func (e *UnknownError) Error() string {
	text := fmt.Sprintf("the outcome of %q is unknown: retry it under the same name (key %s)", e.Intent, e.Key)
	if e.Response != nil {
		text += ": last response " + summary(e.Response)
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

func (e *UnknownError) Unwrap() error { return e.Err }

// MismatchError: the server holds another request under the key. Two programs use copies of one journal, or the
// request under this name was changed after its record was lost.
type MismatchError struct {
	Intent, Key string
	Response    *Response
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("the server holds another request than that of %q under the key %s", e.Intent, e.Key)
}

// ExpiredError: the request was executed, and the server has deleted the response. Href is the path of the object, if
// the server names it.
type ExpiredError struct {
	Intent, Key, Href string
	Response          *Response
}

func (e *ExpiredError) Error() string {
	text := fmt.Sprintf("%q was executed; the server no longer stores the response under the key %s", e.Intent, e.Key)
	if e.Href != "" {
		text += ": read " + e.Href
	}
	return text
}

// BrokenPromiseError: the server's responses contradict each other, or the request: another object than before, the
// response to another request, a second execution under the same key. It is kept in the journal: the client sends
// nothing more for the intent. Compare What and Response with the server's own records.
type BrokenPromiseError struct {
	Intent, Key, What string
	Response          *Response
	Err               error // of the journal, if it could not be kept
}

func (e *BrokenPromiseError) Error() string {
	text := fmt.Sprintf("the server contradicts itself about %q (key %s): %s", e.Intent, e.Key, e.What)
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

func (e *BrokenPromiseError) Unwrap() error { return e.Err }

// ErrKeyTooOld: the server may have deleted the key, and would take the request for a new one. Look for what it made.
var ErrKeyTooOld = errors.New("the key is older than the server keeps keys, so the request is not sent again")

// summary is a response in an error message.
func summary(r *Response) string {
	if r == nil {
		return "no response"
	}
	return fmt.Sprintf("%d %.300s", r.Status, r.Body)
}
