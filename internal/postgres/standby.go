package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"

	"example.com/payonce/db"
)

// With a synchronous standby a COMMIT is written here, waits until the standby has it, and only then is seen by others.
// A wait that is canceled, by an operator, by a client that disconnects or by a server that is restarted, rolls nothing
// back: the server says COMMIT as always, behind a warning, and others see what a failover takes away. So there are two
// rules. A COMMIT with that warning is in doubt, as one whose response was lost. And what was read, and was perhaps
// committed that way, is passed on only after AwaitStandby.

// errLocalCommit is how a connection ends on which a wait for the standby was canceled.
var errLocalCommit = errors.New("the wait for the synchronous standby was canceled: the transaction is committed on the " +
	"primary alone, and a failover may lose it")

// localCommitRoutine is the function of PostgreSQL that warns (syncrep.c). The text is translated, the SQLSTATE is that
// of every warning (01000) or of a shutdown (57P01), and only this warning comes from there.
const localCommitRoutine = "SyncRepWaitForLSN"

// loseLocalCommits closes each connection at that warning, before the response to the COMMIT behind it is read. It is a
// lost response for all that send statements: transactions, single statements, batches.
func loseLocalCommits(cfg *pgx.ConnConfig) {
	setDefault(cfg.RuntimeParams, "client_min_messages", "warning") // error would hide it (Check)
	next := cfg.BuildFrontend
	cfg.BuildFrontend = func(r io.Reader, w io.Writer) *pgproto3.Frontend {
		return next(&warned{r: r}, w)
	}
}

// warned passes a server's messages on until the wait for a standby was canceled.
type warned struct {
	r      io.Reader
	head   []byte // of the message that has begun: type and length
	left   int    // bytes of its body to come
	notice []byte // its body, of a notice
	ended  bool
}

const (
	headBytes = 5   // a type, and a length that counts itself
	notice    = 'N' // NoticeResponse
)

// Read implements io.Reader.
func (w *warned) Read(p []byte) (int, error) {
	if w.ended {
		return 0, errLocalCommit
	}
	n, err := w.r.Read(p)
	if end, found := w.scan(p[:n]); found {
		w.ended = true
		return end, nil
	}
	return n, err
}

// scan goes through bytes that have arrived, message by message. It returns where the warning ends.
func (w *warned) scan(b []byte) (end int, found bool) {
	for end < len(b) {
		if w.left == 0 {
			n := min(headBytes-len(w.head), len(b)-end)
			w.head = append(w.head, b[end:end+n]...)
			end += n
			if len(w.head) < headBytes {
				return end, false
			}
			w.left = max(0, int(binary.BigEndian.Uint32(w.head[1:]))-4)
		}
		n := min(w.left, len(b)-end)
		if w.head[0] == notice {
			w.notice = append(w.notice, b[end:end+n]...)
		}
		w.left -= n
		end += n
		if w.left > 0 {
			return end, false
		}
		if w.head[0] == notice && isLocalCommit(w.notice) {
			return end, true
		}
		w.head, w.notice = w.head[:0], w.notice[:0]
	}
	return end, false
}

// isLocalCommit reads a notice: fields of a type and a text, each ended by a zero.
func isLocalCommit(body []byte) bool {
	for _, field := range strings.Split(string(body), "\x00") {
		if field == "R"+localCommitRoutine {
			return true
		}
	}
	return false
}

// ErrStandbyAway means that the synchronous standby may not have what was read.
var ErrStandbyAway = errors.New("the synchronous standby may not have what was read")

// AwaitStandby returns once the synchronous standby has everything that was committed before the call, which includes
// what the caller has read. It is for a caller that passes on what it has read, as a replay, without a COMMIT of its own
// behind the read: a COMMIT that is not in doubt says the same. Without a synchronous standby it is a round trip that
// writes nothing. Its only error is ErrStandbyAway, after three seconds or what ctx leaves of them.
func (p *Pool) AwaitStandby(ctx context.Context, tenant string) error {
	ctx, cancel := context.WithTimeout(ctx, standbyTimeout)
	defer cancel()
	if _, err := p.standby.Do(ctx, tenant); err != nil { // Not ErrInDoubt: nothing was to be written.
		return fmt.Errorf("%w: %s", ErrStandbyAway, err.Error())
	}
	return nil
}

// awaitStandby is one commit for all that wait at the same time.
var awaitStandby = Statement[string, struct{}]{
	Run: func(ctx context.Context, q *db.Queries, rows []string, done func(int32, struct{})) error {
		if err := q.StandbyAwait(ctx); err != nil {
			return err
		}
		for i := range rows {
			done(int32(i)+1, struct{}{})
		}
		return nil
	},
	Tenant: func(tenant *string) string { return *tenant },
	Locks:  func(*string) string { return "" },
}
