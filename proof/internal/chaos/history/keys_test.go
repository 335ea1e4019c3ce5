package history

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A checker that lets bad histories pass is worse than none, so it is shown
// some, made by hand.
func TestHistory(t *testing.T) {
	t.Parallel()
	op := func(request string, o Outcome, answer string, call, ret int64) Operation {
		if o == Unknown {
			ret = math.MaxInt64
		}
		return Operation{0, "k", request, o, answer, call, ret}
	}
	for name, c := range map[string]struct {
		list []Operation
		bad  bool
	}{
		"ReplayAfterTimeout": {[]Operation{op("a", Unknown, "", 0, 1), op("a", Final, "x", 2, 3),
			op("a", Final, "x", 4, 5)}, false},
		"TimeoutThatFinishedLater": {[]Operation{op("a", Unknown, "", 0, 1), op("a", InProgress, "", 2, 3),
			op("a", Final, "x", 4, 5)}, false},
		"DuplicatesAtOnce": {[]Operation{op("a", Final, "x", 0, 9), op("a", InProgress, "", 1, 2),
			op("a", InProgress, "", 3, 4)}, false},
		"OtherBodyIsRefused":    {[]Operation{op("a", Final, "x", 0, 1), op("b", Mismatch, "", 2, 3)}, false},
		"LostRequestTookTheKey": {[]Operation{op("b", Unknown, "", 0, 1), op("a", Mismatch, "", 2, 3)}, false},
		"OtherBodyMeetsTheFirst": {[]Operation{op("b", Final, "x", 0, 9), op("a", Mismatch, "", 1, 2),
			op("b", InProgress, "", 3, 4)}, false},
		"DatabaseAway": {[]Operation{op("a", Final, "x", 0, 1), op("a", Away, "", 2, 3),
			op("a", Final, "x", 4, 5)}, false},
		"TwoAnswers":       {[]Operation{op("a", Final, "x", 0, 1), op("a", Final, "y", 2, 3)}, true},
		"TwoAnswersAtOnce": {[]Operation{op("a", Final, "x", 0, 9), op("a", Final, "y", 1, 8)}, true},
		"AnswerThenAnotherLater": {[]Operation{op("a", Unknown, "", 0, 1), op("a", Final, "x", 2, 3),
			op("a", Unknown, "", 4, 5), op("a", Final, "y", 6, 7)}, true},
		"InProgressAfterTheEnd": {[]Operation{op("a", Final, "x", 0, 1), op("a", InProgress, "", 2, 3)}, true},
		"OtherBodyIsAnswered":   {[]Operation{op("a", Final, "x", 0, 1), op("b", Final, "x", 2, 3)}, true},
		"SameBodyIsRefused":     {[]Operation{op("a", Final, "x", 0, 1), op("a", Mismatch, "", 2, 3)}, true},
		"RefusedForNobody":      {[]Operation{op("a", Mismatch, "", 0, 1), op("a", Final, "x", 2, 3)}, true},
		"ForgottenAfterTheEnd":  {[]Operation{op("a", Final, "x", 0, 1), op("a", Refused, "", 2, 3)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := (&Log{list: c.list}).CheckKeys(context.Background(), 10*time.Second)
			require.Equal(t, len(c.list), v.Checked)
			require.Equal(t, 1, v.Of)
			if c.bad {
				require.Len(t, v.Violations, 1)
				require.Contains(t, v.Violations[0], "key 0/k is impossible")
				require.Contains(t, v.Violations[0], c.list[0].Outcome.String(), "the violation names the outcome")
			} else {
				require.Empty(t, v.Violations)
			}
		})
	}
}

// The same key of two tenants is two keys, and two answers.
func TestHistoryOfTwoTenants(t *testing.T) {
	t.Parallel()
	v := (&Log{list: []Operation{{0, "k", "a", Final, "x", 0, 1},
		{1, "k", "b", Final, "y", 2, 3}}}).CheckKeys(context.Background(), time.Second)
	require.Empty(t, v.Violations)
	require.Equal(t, 2, v.Of)
}

// A run of thousands of operations must not become "could not be checked".
func TestHistoryOfACrowd(t *testing.T) {
	t.Parallel()
	l := &Log{}
	for i := range int64(1000) {
		o := Operation{0, "k", "a", InProgress, "", i * 2, i*2 + 1}
		switch {
		case i >= 600:
			o.Outcome, o.Answer = Final, "x"
		case i%2 == 0:
			o.Outcome, o.Return = Unknown, math.MaxInt64
		}
		l.list = append(l.list, o)
	}
	require.Empty(t, l.CheckKeys(context.Background(), 20*time.Second).Violations)
}

// Where the checker gives up, the run is red: a history made to be hard, and no
// time for it.
func TestUnknownIsRed(t *testing.T) {
	t.Parallel()
	l := &Log{}
	for i := range int64(24) { // all at once, and each by another request, so that every order must be tried
		l.list = append(l.list, Operation{0, "k", string(rune('a' + i)), Unknown, "", 0, math.MaxInt64})
	}
	l.list = append(l.list, Operation{0, "k", "z", Final, "x", 1, 2}, Operation{0, "k", "z", Final, "y", 3, 4})
	v := l.CheckKeys(context.Background(), time.Millisecond)
	require.Len(t, v.Violations, 1)
	require.Contains(t, v.Violations[0], "could not be checked in time")
}
