package brokertest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/inbox"
	"example.com/payonce/internal/outbox"
)

// Broker is what is tested.
type Broker interface {
	outbox.Publisher
	Consume(ctx context.Context, name string, handle func(context.Context, inbox.Message) error) error
	Close() error
}

// Place is a server, or a part of one that a test has for itself. What cannot be done to it is nil, and [Exceptions] says
// why.
type Place struct {
	URL string // as BROKER_URL, with the consumers ledger and notifier where it has them

	Raw    func(t testing.TB, body string) // publishes a message that our relay did not send
	Stop   func()                          // it cannot be reached until Start; what it acknowledged stays
	Kill   func()                          // the same without a warning, as kill -9
	Start  func(t testing.TB)
	Freeze func(t testing.TB) (thaw func()) // it accepts connections, and says nothing

	// Consume reads what was published, if the adapter itself only publishes. nil: the adapter does.
	Consume Consume
}

// Suite is an adapter with a server.
type Suite struct {
	Server string // in Exceptions
	Place  func(testing.TB) Place
	Lasts  func(testing.TB) Place                // one that outlives a kill at once, for the rules that stop it. nil: Place
	Open   func(t testing.TB, url string) Broker // closed when the test has ended

	Deduplicates bool // a repetition is not delivered
	TooLarge     int  // bytes of a message that it rejects
	Failures     int  // of a handler, one after the other. Default 7; fewer where each is followed by a second
	Kills        int  // of the server, while it is published to. Default 2
	Shared       bool // places share a server: what stops it runs after the rest
}

// Run runs every rule that is not excepted.
func (s Suite) Run(t *testing.T) {
	if s.Failures == 0 {
		s.Failures = 7
	}
	if s.Kills == 0 {
		s.Kills = 2
	}
	if s.Lasts == nil {
		s.Lasts = s.Place
	}
	excepted := Exceptions[s.Server]
	known := map[string]bool{}
	for _, r := range Rules {
		known[r.Name] = true
	}
	for name := range excepted {
		require.True(t, known[name], "an exception of %s names no rule: %s", s.Server, name)
	}
	for _, stops := range []bool{false, true} {
		t.Run(map[bool]string{false: "Running", true: "Stopped"}[stops], func(t *testing.T) {
			for _, r := range Rules {
				if r.stops != stops {
					continue
				}
				if reason, ok := excepted[r.Name]; ok {
					t.Logf("%s is not run: %s", r.Name, reason)
					continue
				}
				t.Run(r.Name, func(t *testing.T) {
					if !stops || !s.Shared {
						t.Parallel()
					}
					r.check(t, s)
				})
			}
		})
	}
}

// read starts a consumer of a broker at a place.
func read(t testing.TB, at Place, b Broker, name string, fail func(inbox.Message) error) *Reader {
	t.Helper()
	if at.Consume != nil {
		return Read(t, at.Consume, name, fail)
	}
	return Read(t, b.Consume, name, fail)
}
