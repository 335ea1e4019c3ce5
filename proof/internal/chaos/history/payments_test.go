package history

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPaymentsGoForward(t *testing.T) {
	t.Parallel()
	at := func(status string, call, ret int64) Sighting {
		return Sighting{Payment: "pay_1", Status: status, Call: call, Return: ret}
	}
	captured := func(minor, call, ret int64) Sighting {
		return Sighting{Payment: "pay_1", Status: "succeeded", Captured: minor, Call: call, Return: ret}
	}
	not := func(status string, call, ret int64) Sighting {
		return Sighting{Payment: "pay_1", Not: []string{status}, Call: call, Return: ret}
	}
	for name, c := range map[string]struct {
		list []Sighting
		bad  bool
	}{
		"OnItsWay": {[]Sighting{at("processing", 0, 1), at("requires_action", 2, 3), at("processing", 4, 5),
			at("succeeded", 6, 7), at("succeeded", 8, 9)}, false},
		"NotThereYet":                {[]Sighting{at(Absent, 0, 1), at("processing", 2, 3)}, false},
		"ReadersAtOnce":              {[]Sighting{at("succeeded", 0, 9), at("processing", 1, 8)}, false},
		"BackToProcessing":           {[]Sighting{at("succeeded", 0, 1), at("processing", 2, 3)}, true},
		"FailedAndThenPaid":          {[]Sighting{at("failed", 0, 1), at("succeeded", 2, 3)}, true},
		"PaidAndThenCanceled":        {[]Sighting{at("succeeded", 0, 1), at("canceled", 2, 3)}, true},
		"Gone":                       {[]Sighting{at("processing", 0, 1), at(Absent, 2, 3)}, true},
		"NoSuchStatus":               {[]Sighting{at("paid", 0, 1)}, true},
		"Captured":                   {[]Sighting{at("authorized", 0, 1), captured(400, 2, 3), captured(400, 4, 5)}, false},
		"Released":                   {[]Sighting{at("authorized", 0, 1), at("canceled", 2, 3)}, false},
		"CapturedAndReleased":        {[]Sighting{at("authorized", 0, 1), captured(400, 2, 9), at("canceled", 3, 8)}, true},
		"CapturedTwice":              {[]Sighting{at("authorized", 0, 1), captured(400, 2, 9), captured(300, 3, 8)}, true},
		"ReleasedAndStillAuthorized": {[]Sighting{at("canceled", 0, 1), at("authorized", 2, 3)}, true},
		"AuthorizedAndThenFailed":    {[]Sighting{at("authorized", 0, 1), at("failed", 2, 3)}, true},
		"RefusedWhileAnotherCaptures": {[]Sighting{at("authorized", 0, 1), captured(400, 2, 9),
			not("authorized", 3, 8)}, false},
		"RefusedBeforeItEnds": {[]Sighting{at("authorized", 0, 1), not("authorized", 2, 3), at("authorized", 4, 5)}, true},
		"BetweenTwoReaders": {[]Sighting{at("processing", 0, 1), at("succeeded", 2, 20), at("succeeded", 3, 4),
			at("processing", 5, 6)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := (&Log{sightings: c.list}).CheckPayments(context.Background(), 10*time.Second)
			require.Equal(t, len(c.list), v.Checked)
			if c.bad {
				require.Len(t, v.Violations, 1)
			} else {
				require.Empty(t, v.Violations)
			}
		})
	}
}
