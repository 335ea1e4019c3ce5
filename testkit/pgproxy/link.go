package pgproxy

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"net"
	"slices"
	"strings"
	"sync"
)

// link is one client's connection and the one to the server that belongs to it.
type link struct {
	proxy   *Proxy
	client  net.Conn
	pooling *Pooling // nil: it passes for the server itself

	mu     sync.Mutex
	server net.Conn
	dead   bool
	awaits *Cut // set off: the response that comes now is dropped

	// Of the goroutine that reads the client alone.
	statements  map[string]string // prepared, by name
	transaction []string          // the statements since BEGIN
}

func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		return
	}
	l.dead = true
	if tcp, ok := l.client.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // Close sends a reset, as a dying host does.
	}
	_ = l.client.Close()
	if l.server != nil {
		_ = l.server.Close()
	}
}

// startup passes the first messages, which have no type. Encryption is declined,
// because what is encrypted cannot be read.
func (l *link) startup() error {
	for {
		head, err := readFull(l.client, 8)
		if err != nil {
			return err
		}
		length, code := binary.BigEndian.Uint32(head), binary.BigEndian.Uint32(head[4:])
		if length < 8 || length > messageMax {
			return errTooLong
		}
		if code == sslRequest || code == gssEncRequest {
			if _, err := l.client.Write([]byte{'N'}); err != nil {
				return err
			}
			continue
		}
		rest, err := readFull(l.client, int(length)-8)
		if err != nil {
			return err
		}
		if l.pooling != nil {
			if head, rest, err = l.pooling.startup(head, rest); err != nil {
				_, _ = l.client.Write(refusal(err.Error()).bytes())
				return err
			}
		}
		_, err = l.server.Write(append(head, rest...))
		return err
	}
}

// startup leaves out of a first message what a pooler drops, or says what it refuses.
func (p *Pooling) startup(head, rest []byte) (newHead, newRest []byte, err error) {
	words := strings.Split(string(rest), "\x00") // name, value, …, and two empty ones for the end
	var kept []string
	for i := 0; i+1 < len(words) && words[i] != ""; i += 2 {
		if words[i] == p.Refuses {
			return nil, nil, unreadable("unsupported startup parameter: " + words[i])
		}
		if !slices.Contains(p.Drops, words[i]) {
			kept = append(kept, words[i], words[i+1])
		}
	}
	newRest = []byte(strings.Join(append(kept, "", ""), "\x00"))
	newHead = bytes.Clone(head)
	binary.BigEndian.PutUint32(newHead, uint32(len(newHead)+len(newRest)))
	return newHead, newRest, nil
}

// refusal is how a server, or a pooler, turns a client away.
func refusal(text string) message {
	return message{'E', []byte("SFATAL\x00VFATAL\x00C08P01\x00M" + text + "\x00\x00")}
}

// raise is a query that does nothing but fail.
func raise(text string) message {
	what := strings.ReplaceAll(FailureText(text), "'", "''")
	return message{'Q', []byte("DO $$ BEGIN RAISE EXCEPTION USING MESSAGE = '" + what + "', ERRCODE = '" + FailureCode +
		"'; END $$\x00")}
}

// message is one of the protocol, its type and all.
type message struct {
	kind byte
	body []byte
}

func read(r *bufio.Reader) (message, error) {
	head, err := readFull(r, 5)
	if err != nil {
		return message{}, err
	}
	length := binary.BigEndian.Uint32(head[1:])
	if length < 4 || length > messageMax {
		return message{}, errTooLong
	}
	body, err := readFull(r, int(length)-4)
	return message{head[0], body}, err
}

func (m message) bytes() []byte {
	b := make([]byte, 5, 5+len(m.body))
	b[0] = m.kind
	binary.BigEndian.PutUint32(b[1:], uint32(len(m.body)+4))
	return append(b, m.body...)
}

// passRequests passes what the client sends, in units that end with a Sync or
// are a simple query: the server answers each unit with one ReadyForQuery.
func (l *link) passRequests() {
	r := bufio.NewReader(l.client)
	var unit []byte
	var hit *Cut
	for {
		m, err := read(r)
		if err != nil {
			return
		}
		statement, executes := l.understand(&m)
		if executes && hit == nil {
			hit = l.consider(statement, rowsOf(m))
		}
		unit = append(unit, m.bytes()...)
		switch m.kind {
		case 'S', 'Q', 'X', 'H', 'p', 'd', 'c', 'f':
		default:
			continue
		}
		if m.kind == 'S' || m.kind == 'Q' {
			l.proxy.tripped()
		}
		if hit != nil && hit.fails {
			// The server answers a simple query that fails as it answers a unit that does: an error, and ReadyForQuery.
			close(hit.fired)
			unit, hit = raise(hit.text).bytes(), nil
		}
		if hit != nil && !hit.after {
			close(hit.fired) // first, so that the reason is known when the connection closes
			l.cut()
			return
		}
		l.mu.Lock()
		l.awaits = hit
		l.mu.Unlock()
		if _, err := l.server.Write(unit); err != nil {
			return
		}
		unit, hit = unit[:0], nil
	}
}

// understand reads which statement a message is about, and rewrites the text of
// one that is being prepared.
func (l *link) understand(m *message) (statement string, executes bool) {
	switch m.kind {
	case 'P': // Parse: name, text, types
		name, rest, _ := bytes.Cut(m.body, []byte{0})
		text, types, _ := bytes.Cut(rest, []byte{0})
		statement = l.proxy.rewritten(string(text))
		l.statements[string(name)] = statement
		m.body = bytes.Join([][]byte{name, []byte(statement), types}, []byte{0})
	case 'B': // Bind: portal, name, parameters. What is bound here is executed in the same unit.
		_, rest, _ := bytes.Cut(m.body, []byte{0})
		name, _, _ := bytes.Cut(rest, []byte{0})
		statement = l.statements[string(name)]
		return statement, !strings.HasPrefix(statement, "SELECT set_config(") // the scope of the one behind it
	case 'Q':
		text, _, _ := bytes.Cut(m.body, []byte{0})
		statement, _, _ = strings.Cut(string(text), "; SET LOCAL ") // a BEGIN brings its scope along
		return statement, true
	}
	return statement, false
}

// rowsOf is the length of the array that is the first parameter of what is bound; 1 if there is none.
func rowsOf(m message) int {
	if m.kind != 'B' {
		return 1
	}
	_, rest, _ := bytes.Cut(m.body, []byte{0}) // portal
	_, rest, _ = bytes.Cut(rest, []byte{0})    // statement
	next := func(n int) []byte {
		if len(rest) < n {
			rest = make([]byte, n) // a message that ends too soon, which the server will refuse
		}
		head := rest[:n]
		rest = rest[n:]
		return head
	}
	formats := int(binary.BigEndian.Uint16(next(2)))
	isBinary := formats > 0 && binary.BigEndian.Uint16(next(2*formats)) == 1 // one of all, or the first one's
	if binary.BigEndian.Uint16(next(2)) == 0 || !isBinary {
		return 1
	}
	// An array: dimensions, whether there are nulls, the type of its elements; then the length and the lower bound of
	// each dimension. An empty one has no dimension.
	length := binary.BigEndian.Uint32(next(4))
	if array := next(20); length >= 20 && binary.BigEndian.Uint32(array) == 1 && binary.BigEndian.Uint32(array[4:]) <= 1 {
		return int(binary.BigEndian.Uint32(array[12:]))
	}
	return 1
}

func (l *link) consider(statement string, rows int) *Cut {
	word := strings.ToLower(strings.TrimSpace(statement))
	isCommit := strings.HasPrefix(word, "commit")
	hit := l.proxy.take(statement, rows, isCommit, l.transaction)
	switch {
	case strings.HasPrefix(word, "begin"), isCommit, strings.HasPrefix(word, "rollback"):
		l.transaction = nil
	default:
		l.transaction = append(l.transaction, statement)
	}
	return hit
}

// passAnswers passes what the server says, until a statement was set off whose
// answer must not arrive, or not yet.
func (l *link) passAnswers() {
	r := bufio.NewReader(l.server)
	defer l.cut()
	var held []byte
	for {
		m, err := read(r)
		if err != nil {
			return
		}
		if m.kind == 'K' && l.pooling != nil { // BackendKeyData: process number and secret
			m.body[3] ^= 1
		}
		l.mu.Lock()
		awaits := l.awaits
		l.mu.Unlock()
		if awaits != nil {
			held = append(held, m.bytes()...)
			if m.kind != 'Z' {
				continue
			}
			close(awaits.fired) // Ready for the next: this one is done, its commit included.
			if awaits.release == nil {
				l.cut()
				return
			}
			<-awaits.release
			l.mu.Lock()
			l.awaits = nil
			l.mu.Unlock()
			if _, err := l.client.Write(held); err != nil {
				return
			}
			held = nil
			continue
		}
		if _, err := l.client.Write(m.bytes()); err != nil {
			return
		}
	}
}
