package stripesim

import (
	"cmp"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// DefaultKey is the secret key the simulator's command accepts unless told
// otherwise. It is not a secret.
const DefaultKey = "sk_test_payonce"

// Options of a simulator. The zero value is a good one: in memory, current
// clock, any test key.
type Options struct {
	// Store is the file of the append-only journal. A simulator started again
	// on the same file has the same objects, keys and effects. Empty: memory only.
	Store string
	// Keys are the secret keys that are accepted. nil accepts every sk_test_…
	// and rk_test_… key. The account is the part of the key up to the next underscore, so
	// sk_test_shop and sk_test_shop_rolled are two keys of one account.
	Keys []string
	// Restricted are the permissions of restricted keys, by key: charge_read,
	// payment_intent_write and so on; to write is to read, too. A restricted key
	// that is not here may do everything but read its account.
	Restricted map[string][]string
	// Latency, if set, is asked before each answer how long Stripe takes. The
	// object and the key stay locked meanwhile, as they do at Stripe.
	Latency func() time.Duration
	// WebhookURL and WebhookSecret register a first webhook endpoint, for all
	// events of every account.
	WebhookURL, WebhookSecret string
	// Now is the clock under the movable offset. nil is the wall clock.
	Now func() time.Time
	// Seed makes ids repeatable. Zero draws one; a journal keeps its own.
	Seed uint64
	// LockWait is how long a request waits for an object that another request
	// is changing before it gets 429 lock_timeout. Zero is defaultLockWait.
	LockWait time.Duration
	// ReleaseRegime is what a release of authorised money leaves behind. Empty is RegimeRefunds, as in the
	// version that is spoken here.
	ReleaseRegime ReleaseRegime
	// Log gets what a webhook receiver would want to know. nil is silence.
	Log *slog.Logger
}

const (
	// Stripe promises to keep a key for at least a day and not more; we drop it
	// on the first second that we may.
	keyLifetime = 24 * time.Hour
	// Stripe does not publish its lock wait. Long enough for a neighbour that
	// answers normally, short enough that a held one is noticed.
	defaultLockWait = 2 * time.Second
	// The events list goes back thirty days.
	eventLifetime = 30 * 24 * time.Hour
	// Search is eventually consistent: under a minute normally, according to Stripe. A
	// client that reads its own writes there should notice at once.
	defaultSearchLag = 2 * time.Second
	// With automatic_async the balance transaction appears after the answer.
	asyncBalanceDelay = time.Second
)

// Sim is one simulated Stripe. Its methods may be called from anywhere.
type Sim struct {
	opts    Options
	log     *slog.Logger
	journal *journal // nil: memory only

	mu                sync.Mutex // guards everything in st, offset and agenda
	st                *store
	seed              uint64
	offset            time.Duration
	agenda            agenda
	searchLag         time.Duration
	listLag           time.Duration
	lockWait          time.Duration
	regime            ReleaseRegime
	keepRefunded      bool
	keyTime           time.Duration   // how long a key is kept
	unmarkedReplays   bool            // a replay does not say that it is one
	perConnection     int             // requests until a connection is ended; zero: never
	thin              map[string]bool // the endpoints that get thin events
	captureTime       time.Duration   // how long a capture is processing; zero: it succeeds at once
	authorizationTime time.Duration   // until an authorization expires; zero: as networks keep them
	evidenceTime      time.Duration   // until evidence is due; zero: nine days
	requestSeed       uint64
	pruned            time.Time // when old keys were last looked for
	pending           map[string]pendingRepair

	requests atomic.Uint64
	faults   faults
	holds    holds
	locks    objectLocks
	limits   limiter
	conns    connections
	outbox   deliveries

	identity func() (*identity, error) // the port's certificate, made when it is first needed

	wake    chan struct{}
	closed  chan struct{}
	ended   sync.WaitGroup // the loops
	serving sync.WaitGroup // the requests
}

// New opens the journal, if there is one, and starts the clock. It listens
// nowhere: see Handler and AdminHandler.
func New(opts Options) (*Sim, error) {
	s := &Sim{
		opts: opts, log: opts.Log, st: newStore(), pending: map[string]pendingRepair{}, wake: make(chan struct{}, 1),
		closed: make(chan struct{}),
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if err := s.SetReleaseRegime(opts.ReleaseRegime); err != nil {
		return nil, err
	}
	s.lockWait, s.searchLag, s.keyTime = defaultLockWait, defaultSearchLag, keyLifetime
	if opts.LockWait > 0 {
		s.lockWait = opts.LockWait
	}
	s.faults.sim, s.holds.sim = s, s
	s.identity = sync.OnceValues(newIdentity)
	if opts.Store != "" {
		j, err := openJournal(opts.Store, s.replay)
		if err != nil {
			return nil, err
		}
		s.journal = j
	}
	if s.seed == 0 {
		s.seed = opts.Seed
		if s.seed == 0 {
			s.seed = randomSeed()
		}
		s.note(entry{Seed: s.seed})
	}
	s.requestSeed = mix(s.seed ^ s.st.ids)
	s.rescheduleAll()
	s.startDeliveries()
	s.ended.Go(s.keepTime)
	return s, nil
}

// Close lets go of the journal. Requests that are being held, delayed or
// swallowed are let through first; new ones are refused.
func (s *Sim) Close() error {
	s.mu.Lock()
	if s.isClosed() {
		s.mu.Unlock()
		return nil
	}
	close(s.closed)
	s.mu.Unlock()
	s.serving.Wait()
	s.ended.Wait()
	if s.journal != nil {
		return s.journal.close()
	}
	return nil
}

func (s *Sim) isClosed() bool {
	select {
	case <-s.closed:
		return true
	default:
		return false
	}
}

// enter counts a request in, unless the simulator is closed.
func (s *Sim) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosed() {
		return false
	}
	s.serving.Add(1)
	return true
}

// Handler serves Stripe's port.
func (s *Sim) Handler() http.Handler { return http.HandlerFunc(s.serve) }

// Reset clears all state: objects, keys, effects, faults, holds, the clock.
func (s *Sim) Reset() error {
	s.ClearFaults()
	s.holds.releaseAll()
	s.outbox.clear()
	s.mu.Lock()
	defer s.mu.Unlock()
	epoch := s.st.epoch
	s.st = newStore()
	s.st.epoch = epoch
	s.offset, s.searchLag, s.listLag, s.agenda = 0, defaultSearchLag, 0, nil
	s.regime, s.captureTime, s.keepRefunded, s.thin = cmp.Or(s.opts.ReleaseRegime, RegimeRefunds), 0, false, nil
	s.authorizationTime, s.evidenceTime, s.perConnection = 0, 0, 0
	s.keyTime, s.unmarkedReplays = keyLifetime, false
	s.pending = map[string]pendingRepair{}
	if s.journal != nil {
		if err := s.journal.clear(); err != nil {
			return err
		}
	}
	s.noteLocked(entry{Seed: s.seed})
	return nil
}

// note writes a line to the journal that is no transaction.
func (s *Sim) note(e entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noteLocked(e)
}

func (s *Sim) noteLocked(e entry) {
	s.st.epoch++
	if s.journal != nil {
		e.At, e.IDs = s.now(), s.st.ids
		s.journal.append(s.st.epoch, append(render(e), '\n'))
	}
}

// durable returns when everything up to a position survives our death.
func (s *Sim) durable(position int64) {
	if s.journal == nil {
		return
	}
	if err := s.journal.wait(position); err != nil {
		panic("stripesim: cannot go on without its journal: " + err.Error())
	}
}
