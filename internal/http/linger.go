package http

import (
	"io"
	"net/http"
	"time"
)

// A request may be refused before its body has been read, because it is too large or has no API key. If the
// connection is closed then, the kernel answers what is still coming with a reset, and the client's kernel throws
// away the response that it has not read yet. net/http reads a body of 256 KiB or less to its end, but not if the
// client wants the connection closed; and it reads before it sends the response, so a client that announces a body of
// unknown length and waits would get none. So here the response is sent, and then the rest of the body is read and
// dropped, within limits (RFC 9112, section 9.6).

const lingerBytes = 16 << 20

// lingerAfter arranges that a refusal reaches a client that is still sending. It must be called before the response
// is written.
func lingerAfter(w http.ResponseWriter, r *http.Request, tooLarge bool) {
	seen, ok := w.(*statusWriter)
	unread := tooLarge || r.Close || r.ContentLength > bodyMax || r.ContentLength < 0 && !visitOf(r).bodyRead
	if !ok || !unread || r.Body == http.NoBody || r.Header.Get("Expect") != "" { // It waits for our permission to send.
		return
	}
	// Without full duplex net/http may close the body with the first byte of the response.
	seen.lingering = http.NewResponseController(w).EnableFullDuplex() == nil
	if seen.lingering {
		w.Header().Set("Connection", "close") // What may be left of the body must not be read as the next request.
	}
}

// linger sends the response, and reads what the client still sends.
func (w *statusWriter) linger(r *http.Request) {
	if !w.lingering {
		return
	}
	control := http.NewResponseController(w.ResponseWriter)
	if control.Flush() != nil || control.SetReadDeadline(time.Now().Add(w.times.Linger)) != nil {
		return
	}
	_, _ = io.CopyN(io.Discard, r.Body, lingerBytes) // An error is the end of the client, or of our patience.
}
