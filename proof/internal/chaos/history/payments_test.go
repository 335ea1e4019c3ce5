package history

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPaymentsGoForward(t *testing.T) {
	t.Parallel()
	at := func(status string, call, ret int64) Sighting { return Sighting{"pay_1", status, call, ret} }
	for name, c := range map[string]struct {
		list []Sighting
		bad  bool
	}{
		"OnItsWay": {[]Sighting{at("processing", 0, 1), at("requires_action", 2, 3), at("processing", 4, 5),
			at("succeeded", 6, 7), at("succeeded", 8, 9)}, false},
		"NotThereYet":         {[]Sighting{at(Absent, 0, 1), at("processing", 2, 3)}, false},
		"ReadersAtOnce":       {[]Sighting{at("succeeded", 0, 9), at("processing", 1, 8)}, false},
		"BackToProcessing":    {[]Sighting{at("succeeded", 0, 1), at("processing", 2, 3)}, true},
		"FailedAndThenPaid":   {[]Sighting{at("failed", 0, 1), at("succeeded", 2, 3)}, true},
		"PaidAndThenCanceled": {[]Sighting{at("succeeded", 0, 1), at("canceled", 2, 3)}, true},
		"Gone":                {[]Sighting{at("processing", 0, 1), at(Absent, 2, 3)}, true},
		"NoSuchStatus":        {[]Sighting{at("paid", 0, 1)}, true},
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
