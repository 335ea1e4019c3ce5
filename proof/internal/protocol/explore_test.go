package protocol

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// notTaken are the steps that no scope takes, with the reason.
var notTaken = map[Step]string{
	StepLookupTooLate:      "only without the rule outcome-lookup",
	StepAnswersUncommitted: "only without the rule commit-known",
	StepReconcileExpedites: "a key is parked after two days, which pass only in the fair end",
	StepFinishLate:         "a cancel closes the intent before the order, so no payment succeeds after it",
}

// TestNothingBreaksTheInvariants visits every state of every scope.
func TestNothingBreaksTheInvariants(t *testing.T) {
	depth, states := 0, 5_000_000
	if underRace {
		depth, states = 16, 10_000
	}
	var taken [stepCount]bool
	var made changes
	total := 0
	for _, s := range Scopes {
		m, err := New(s, 0)
		require.NoError(t, err)
		r := Explore(m, depth)
		t.Log(r)
		require.Zero(t, r.Broken, "%s", r)
		require.Equal(t, depth == 0, r.Complete && depth == 0)
		total += r.States
		made.add(&r.Changed)
		for step := range taken {
			taken[step] = taken[step] || r.Taken[step]
		}
	}
	require.Greater(t, total, states, "less was explored than there was")
	if underRace {
		return
	}
	var wrong []string
	for step, was := range taken {
		if was == (notTaken[Step(step)] != "") {
			wrong = append(wrong, descriptions[step].says)
		}
	}
	require.Empty(t, wrong, "steps that no history takes without a reason, or that one takes in spite of it")
	requireMade(t, &made)
}

// TestEachRuleIsMissed: without a rule its invariant is broken, and the history that shows it is the shortest.
func TestEachRuleIsMissed(t *testing.T) {
	t.Parallel()
	missed := map[Invariant]bool{}
	for _, rule := range Rules {
		r, err := rule.Without()
		require.NoError(t, err)
		require.Equal(t, rule.Breaks, r.Broken, "without %s: %s", rule.Name, r)
		requireReadable(t, r)
		missed[r.Broken] = true
		for _, s := range Scopes {
			if s.Name == rule.Scope && r.Depth > 1 {
				m, err := New(s, rule.Rule)
				require.NoError(t, err)
				require.Zero(t, Explore(m, r.Depth-1).Broken, "without %s there is a shorter history", rule.Name)
			}
		}
	}
	for i := range invariants {
		if invariants[i].name != "" {
			require.True(t, missed[Invariant(i)], "no rule is missed by %s", invariants[i].name)
		}
	}
}

// requireReadable: each line is a numbered sentence of somebody who does something.
func requireReadable(t *testing.T, r Result) {
	t.Helper()
	require.NotEmpty(t, r.History)
	for _, line := range r.History {
		require.Regexp(t, `^( *\d+ (process [AB]|Stripe|client|browser|dashboard|another program|bank|webhook|`+
			`reconciler|operator|clock) \S.*|   and without further faults:)$`, line)
	}
}

// TestWhatWasFoundIsFoundAgain: the mistakes that this protocol had, as they were.
func TestWhatWasFoundIsFoundAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		scope   string
		without Rule
		breaks  Invariant
		steps   []string // of the history, in this order
	}{
		"FalseUnavailable": {"a payment", OutcomeLookup, I23, []string{
			"is paused past its lease", "process B (completer) takes over", "answers 503",
		}},
		"BrowserPaysAfterAFailedAuthentication": {"a payment", CloseFirst | Adoption, I24, []string{
			"commits requires_action", "browser fails the authentication", "commits T2, failed",
			"browser pays with another card",
		}},
		"CaptureIsRefusedWhileItIsOnItsWay": {"a capture", CaptureDoubt, I26, []string{
			"exits, and its request is still under way: capture", "refuses before it looks up the key (404) capture",
			"commits that the capture took nothing", "Stripe captures for capture",
		}},
		"CancelTakesTheHoldOfACapture": {"a cancel before a capture", CancelDefers, I26, []string{
			"commits that a cancel has begun", "commits T2, authorized", "sends its request, capture_payment",
			"commits the end of the payment's cancel",
		}},
		"AutomaticRefundIsForgotten": {"late money", OwedIsRetried, I28, []string{
			"reconciler adopts", "Stripe refuses, because less is left, automatic refund 1",
			"commits that the refund was refused",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := 0
			for Scopes[i].Name != c.scope {
				i++
			}
			m, err := New(Scopes[i], c.without)
			require.NoError(t, err)
			m.Only = c.breaks
			r := Explore(m, 0)
			require.Equal(t, c.breaks, r.Broken)
			rest := strings.Join(r.History, "\n")
			for _, step := range c.steps {
				_, after, ok := strings.Cut(rest, step)
				require.True(t, ok, "%q is not in the history, or not in its place:\n%s", step, r)
				rest = after
			}
		})
	}
}

// TestTwoRunsFindTheSame: the numbers of states and transitions do not depend on what runs first.
func TestTwoRunsFindTheSame(t *testing.T) {
	t.Parallel()
	explore := func() Result {
		m, err := New(Scopes[0], 0)
		require.NoError(t, err)
		return Explore(m, 24)
	}
	a, b := explore(), explore()
	require.Equal(t, a.States, b.States)
	require.Equal(t, a.Transitions, b.Transitions)
	require.InEpsilon(t, a.Histories, b.Histories, 1e-9)
}

// TestCanonical: a state and its mirror image, with the processes exchanged, are one.
func TestCanonical(t *testing.T) {
	t.Parallel()
	var s state
	s.work[0] = worker{at: atRead, key: secondKey}
	s.work[1] = worker{at: atAwait, key: firstKey}
	s.wire[1] = request{state: underWay, call: confirms}
	s.key[firstKey].holder, s.key[secondKey].holder = 2, 1
	mirror := s
	mirror.work[0], mirror.work[1] = s.work[1], s.work[0]
	mirror.wire[0], mirror.wire[1] = s.wire[1], s.wire[0]
	mirror.key[firstKey].holder, mirror.key[secondKey].holder = 1, 2
	require.NotEqual(t, s, mirror)
	require.Equal(t, canonical(s), canonical(mirror))
	require.Equal(t, canonical(s), canonical(canonical(s)))
}
