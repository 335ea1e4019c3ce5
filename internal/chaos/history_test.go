package chaos

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A checker that lets bad histories pass is worse than none, so it is shown
// some, made by hand.
func TestHistory(t *testing.T) {
	t.Parallel()
	op := func(request string, o outcome, answer string, call, ret int64) operation {
		if o == unknown {
			ret = math.MaxInt64
		}
		return operation{0, "k", request, o, answer, call, ret}
	}
	for name, c := range map[string]struct {
		list []operation
		bad  bool
	}{
		"ReplayAfterTimeout":       {[]operation{op("a", unknown, "", 0, 1), op("a", finalAnswer, "x", 2, 3), op("a", finalAnswer, "x", 4, 5)}, false},
		"TimeoutThatFinishedLater": {[]operation{op("a", unknown, "", 0, 1), op("a", inProgress, "", 2, 3), op("a", finalAnswer, "x", 4, 5)}, false},
		"DuplicatesAtOnce":         {[]operation{op("a", finalAnswer, "x", 0, 9), op("a", inProgress, "", 1, 2), op("a", inProgress, "", 3, 4)}, false},
		"OtherBodyIsRefused":       {[]operation{op("a", finalAnswer, "x", 0, 1), op("b", mismatch, "", 2, 3)}, false},
		"LostRequestTookTheKey":    {[]operation{op("b", unknown, "", 0, 1), op("a", mismatch, "", 2, 3)}, false},
		"OtherBodyMeetsTheFirst":   {[]operation{op("b", finalAnswer, "x", 0, 9), op("a", mismatch, "", 1, 2), op("b", inProgress, "", 3, 4)}, false},
		"DatabaseAway":             {[]operation{op("a", finalAnswer, "x", 0, 1), op("a", away, "", 2, 3), op("a", finalAnswer, "x", 4, 5)}, false},
		"TwoAnswers":               {[]operation{op("a", finalAnswer, "x", 0, 1), op("a", finalAnswer, "y", 2, 3)}, true},
		"InProgressAfterTheEnd":    {[]operation{op("a", finalAnswer, "x", 0, 1), op("a", inProgress, "", 2, 3)}, true},
		"OtherBodyIsAnswered":      {[]operation{op("a", finalAnswer, "x", 0, 1), op("b", finalAnswer, "x", 2, 3)}, true},
		"SameBodyIsRefused":        {[]operation{op("a", finalAnswer, "x", 0, 1), op("a", mismatch, "", 2, 3)}, true},
		"ForgottenAfterTheEnd":     {[]operation{op("a", finalAnswer, "x", 0, 1), op("a", refused, "", 2, 3)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &history{list: c.list}
			checked, violations := h.judge(10 * time.Second)
			require.Equal(t, len(c.list), checked)
			if c.bad {
				require.Len(t, violations, 1)
			} else {
				require.Empty(t, violations)
			}
		})
	}
}

// A run of thousands of operations must not become "could not be judged".
func TestHistoryOfACrowd(t *testing.T) {
	t.Parallel()
	h := &history{}
	for i := range int64(1000) {
		o := operation{0, "k", "a", inProgress, "", i * 2, i*2 + 1}
		switch {
		case i >= 600:
			o.outcome, o.answer = finalAnswer, "x"
		case i%2 == 0:
			o.outcome, o.ret = unknown, math.MaxInt64
		}
		h.list = append(h.list, o)
	}
	_, violations := h.judge(20 * time.Second)
	require.Empty(t, violations)
}
