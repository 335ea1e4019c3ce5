package world

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/testkit/logs"
	"example.com/payonce/testkit/pgproxy"
)

// A Scene is an operation of which every statement and every request to Stripe is made to fail once, each in an
// attempt of its own (RequireNoErrorSwallowed). It is for the errors that no other test causes: those of the third
// statement of a phase, which a server that works does not raise.
type Scene struct {
	Name    string
	Options LocalOptions
	// Prepare makes what the operation starts from. Nothing fails meanwhile.
	Prepare func(a *Attempt)
	// Run does the operation, or resumes it: a request, a run of the completer, a call of a method. It passes every
	// answer to Answered and every error to Failed, and goes on after a failure as it would without.
	Run func(a *Attempt)
	// Check fails the test unless the operation has had its effect, once. By then no key and no event is unfinished.
	Check func(a *Attempt)
	// Only are the statements and requests that fail, by the names of their sub-tests; nil: all. The test fails for a name
	// that the scene does not reach.
	Only []string
	// Ignore are statements and requests whose failure is no failure of the operation, by their names.
	Ignore []string
	// Elsewhere says that somebody else makes or charges an intent of the order.
	Elsewhere bool
	// Webhooks says that Stripe sends them, for Deliver.
	Webhooks bool
}

// Attempt is one run of a Scene, from Prepare to Check. All attempts of a scene share a world and a server.
type Attempt struct {
	testing.TB
	*Books
	Mailbox *Mailbox

	Key, Order, Payment, Intent string
	Value                       any // what else Prepare passes on

	log     *logs.Buffer
	errs    []error
	answers []Answer
}

// Answered takes note of an answer. It returns it.
func (a *Attempt) Answered(answer Answer) Answer {
	a.answers = append(a.answers, answer)
	return answer
}

// Failed takes note of an error; nil is none.
func (a *Attempt) Failed(err error) {
	if err != nil {
		a.errs = append(a.errs, err)
	}
}

// Complete has the completer finish what is due, once all leases have run out.
func (a *Attempt) Complete() {
	a.ExpireLeases()
	_, err := a.API.Completer.RunOnce(context.Background())
	a.Failed(err)
}

// Deliver delivers what Stripe has sent, one at a time and in an order that is always the same, each again until it is
// accepted, and has it applied.
func (a *Attempt) Deliver() {
	hooks := a.Mailbox.Take()
	slices.SortStableFunc(hooks, func(x, y Webhook) int { return strings.Compare(x.Type, y.Type) })
	for _, hook := range hooks {
		for range 3 {
			if a.Answered(a.API.Receive(hook)).Status == http.StatusOK {
				break
			}
		}
		_, err := a.API.TryProcess()
		a.Failed(err)
	}
}

// InTx runs f in a transaction of the service's.
func (a *Attempt) InTx(f func(q *db.Queries) error) {
	a.Failed(a.API.Pool.InTx(context.Background(), f))
}

// ofOwnIntents are the promises that an intent breaks that somebody else has made or charged.
var ofOwnIntents = []string{ChargedUnderCallersKey, OneIntentPerNumber, OneChargePerOrder}

// alwaysIgnored are executed or not, because their results are kept for a second, or what they write for an hour.
var alwaysIgnored = []string{"APIKeyAuthenticate", "APIKeyNoteUse"}

// RequireNoErrorSwallowed runs each scene once for each statement that it executes and for each request that it sends to
// Stripe, with exactly that one failing. The error must be reported: its text is in an answer, in an error that was
// returned, or in the log. And the operation must end as it does without it, with nothing done twice.
//
// Scenes have statements in common. A statement that comes after the same five in several scenes fails in the first of the
// scenes. A statement at the beginning of a scene, after fewer than five, fails in each.
func RequireNoErrorSwallowed(t *testing.T, scenes []Scene) {
	t.Helper()
	failed := &placesFailed{seen: map[string]bool{}}
	for _, s := range scenes {
		t.Run(s.Name, func(t *testing.T) {
			var statements, requests []failing
			// The rehearsals run in the order of the scenes, so that each run of the test has the same statements fail in the same
			// scenes. A rehearsal has a server of its own: the scenes that wait for their attempts keep no connections.
			rehearsed := t.Run("Rehearsal", func(t *testing.T) {
				statements, requests = newStage(t, s).rehearse(t, failed.choose)
			})
			if !rehearsed {
				return
			}
			t.Parallel()
			newStage(t, s).run(t, statements, requests)
		})
	}
}

// placesFailed are the statements that have failed, each with those before it.
type placesFailed struct {
	seen map[string]bool
}

// choose chooses a statement that has not failed after the same ones.
func (p *placesFailed) choose(statements []string, n int) bool {
	const before = 5
	if n < before {
		return true
	}
	place := strings.Join(statements[n-before:n+1], " ")
	defer func() { p.seen[place] = true }()
	return !p.seen[place]
}

// stage is where the attempts of a scene are made, one after the other.
type stage struct {
	Scene
	books   *Books
	mailbox *Mailbox
	proxy   *pgproxy.Proxy
	log     *logs.Buffer
	cases   []string // what failed, for each order
	reached []string // of Only
}

func newStage(t *testing.T, s Scene) *stage {
	w := New(t)
	proxy := w.Proxy()
	g := &stage{Scene: s, proxy: proxy, log: &logs.Buffer{}}
	if s.Webhooks {
		g.mailbox = w.Mailbox()
	}
	o := s.Options
	o.Database = proxy.URL()
	o.Log = g.log.Logger(slog.LevelInfo)
	g.books = BooksWith(w, o)
	return g
}

// choice reports whether the nth of the statements of a scene is to fail.
type choice func(statements []string, n int) bool

func (g *stage) run(t *testing.T, statements, requests []failing) {
	for _, f := range statements {
		if g.leaves(f) {
			continue
		}
		t.Run(f.String(), func(t *testing.T) {
			g.attempt(t, f, func() func() bool { return g.proxy.Fail("name: "+f.name+" ", f.nth).HasFired })
		})
	}
	for _, f := range requests {
		if g.leaves(f) {
			continue
		}
		for _, effect := range []bool{false, true} {
			if effect && !strings.HasPrefix(f.name, http.MethodPost) {
				continue // It has none.
			}
			name := f.String()
			if effect {
				name += " after its effect"
			}
			t.Run(name, func(t *testing.T) {
				g.attempt(t, f, func() func() bool { return g.books.stripe.fail(f.name, f.nth, effect) })
			})
		}
	}
	g.requireAllReached(t)
	if t.Failed() {
		return
	}
	broken := slices.DeleteFunc(g.books.Violations(), func(b string) bool {
		promise, _, _ := strings.Cut(b, ": ")
		return g.Elsewhere && slices.Contains(ofOwnIntents, promise)
	})
	checks, err := g.books.DB.Invariants(context.Background())
	require.NoError(t, err)
	for _, check := range checks {
		for _, row := range check.Rows {
			broken = append(broken, fmt.Sprintf("%s %s: %v", check.ID, check.Name, row))
		}
	}
	require.Empty(t, broken, "after these failures: %q", g.cases)
}

// failing is one statement, or one request to Stripe, of a scene: the nth with its name.
type failing struct {
	name string
	nth  int
}

func (f failing) String() string {
	name := strings.NewReplacer("/v1/", "", "/", " ").Replace(f.name)
	if f.nth == 1 {
		return name
	}
	return fmt.Sprintf("%s again %d", name, f.nth-1)
}

// toFail are those of a list that are to fail.
func toFail(names []string, fails func(n int) bool) (list []failing) {
	seen := map[string]int{}
	for n, name := range names {
		if seen[name]++; fails(n) {
			list = append(list, failing{name, seen[name]})
		}
	}
	return list
}

var statementName = regexp.MustCompile(`name: (\w+) `)

// rehearse runs the scene with nothing failing, and returns what is to fail in it.
func (g *stage) rehearse(t *testing.T, choose choice) (statements, requests []failing) {
	a := g.prepared(t, "nothing")
	g.proxy.Seen()
	g.books.stripe.since()
	g.Run(a)
	var names []string
	for _, statement := range g.proxy.Seen() {
		name, _, _ := strings.Cut(statement, " ") // begin, commit, rollback
		if m := statementName.FindStringSubmatch(statement); m != nil {
			name = m[1]
		}
		if !slices.Contains(alwaysIgnored, name) {
			names = append(names, name)
		}
	}
	sent := g.books.stripe.since()
	require.Empty(t, a.errs, "nothing fails")
	require.NotEmpty(t, names)
	g.finish(a)
	fails := func(name string) bool {
		return !slices.Contains(g.Ignore, name) && strings.ToLower(name) != name // begin, commit, rollback
	}
	return toFail(names, func(n int) bool { return fails(names[n]) && choose(names, n) }),
		toFail(sent, func(n int) bool { return fails(sent[n]) })
}

func (g *stage) prepared(t *testing.T, fails string) *Attempt {
	a := &Attempt{TB: t, Books: g.books, Mailbox: g.mailbox, Key: "k-" + unique(), log: g.log}
	g.Prepare(a)
	g.cases = append(g.cases, a.Order+": "+fails)
	g.log.Take()
	return a
}

// attempt runs the scene with one thing failing.
func (g *stage) attempt(t *testing.T, f failing, arm func() (fired func() bool)) {
	a := g.prepared(t, f.String())
	fired := arm()
	g.Run(a)
	require.True(t, fired(), "it was not reached, so nothing was shown")
	log := g.log.Take()
	reported := fmt.Sprint(a.errs, a.answers, log)
	text := pgproxy.FailureText("name: " + f.name)
	require.Contains(t, reported, text, "the error was swallowed")
	a.errs = nil
	g.finish(a)
	require.Empty(t, a.errs, "the error came once")
}

// finish is what a client and the completer do until the operation has ended.
func (g *stage) finish(a *Attempt) {
	for range 8 {
		if g.books.unfinished() == "" {
			break
		}
		g.books.ExpireLeases()
		g.Run(a)
		a.Complete()
		g.books.API.Process()
	}
	require.Empty(a, g.books.unfinished(), "%v\n%s", a.answers, g.log.Take())
	g.books.ExpireLeases()
	g.Run(a)
	g.Check(a)
	finals := slices.DeleteFunc(slices.Clone(a.answers), func(x Answer) bool {
		return x.Err != nil || x.Status == http.StatusAccepted || x.Status >= 500 || x.Problem().Retryable
	})
	require.Empty(a, Disagreements(finals))
}

// unfinished are the keys and events that have not ended.
func (w *World) unfinished() string {
	w.T.Helper()
	return w.Text(`SELECT string_agg(what, ', ') FROM (
		SELECT concat_ws(' ', operation, recovery_point, last_error) FROM idempotency_keys WHERE finished_at IS NULL
		UNION ALL SELECT concat_ws(' ', type, last_error) FROM inbox_events WHERE status <> 'done') AS open (what)`)
}

// fail has the nth request of a kind fail, either instead of its effect or after it. The function that it returns
// reports whether it has.
func (r *recorder) fail(kind string, nth int, effect bool) (fired func() bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := &stripeFailure{kind: kind, left: nth, effect: effect}
	r.failure = f
	return func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return f.left == 0
	}
}

type stripeFailure struct {
	kind   string
	left   int // until it happens
	effect bool
}

// fails reports whether a request is to fail, and whether after its effect. The caller holds mu.
func (r *recorder) fails(kind string) (fails, effect bool) {
	if f := r.failure; f != nil && f.kind == kind && f.left > 0 {
		f.left--
		return f.left == 0, f.effect
	}
	return false, false
}

func failWith(w http.ResponseWriter, kind string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusBadGateway)
	_, _ = fmt.Fprintf(w, `{"error":{"type":"api_error","message":%q}}`, pgproxy.FailureText("name: "+kind))
}

func (r *recorder) discard(req *http.Request) {
	unseen := httptest.NewRecorder()
	r.next.ServeHTTP(unseen, req)
	_, _ = io.Copy(io.Discard, unseen.Result().Body)
}

var stripeID = regexp.MustCompile(`/(pi|ch|re|du|dp)_[^/]+`)

// kindOf is a request without the id in its path.
func kindOf(method, path string) string { return method + " " + stripeID.ReplaceAllString(path, "/id") }

// since are the kinds of the requests that arrived since it was last called.
func (r *recorder) since() (kinds []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sent[r.noted:] {
		kinds = append(kinds, kindOf(s.Method, s.Path))
	}
	r.noted = len(r.sent)
	return kinds
}
