package postgres_test

import "testing"

func TestQueriesOfInvariantsOfWebhooks(t *testing.T) {
	t.Parallel()
	checkInvariants(t, []queryCase{
		{rule: "FindsWhatWasNotReceived", query: q.InvariantPublishedReachesNotifier, any: true, given: `
			outbox_events
			  aggregate_id  version  published_at
			  before        1        -6h
			  elsewhere     1        -4h
			  first         1        -4h
			  missing       1        -4h
			  pending       1        -4h
			  recent        1        +1h
			  unpublished   1        .

			inbox_events
			  consumer  event_id     received_at  status
			  notifier  first-1      -5h          done
			  notifier  pending-1    -4h          pending
			  other     elsewhere-1  -7h          done`, want: `
			row Subject=acme:eu elsewhere 1 Detail=order.created published -4h, never received by the notifier
			row Subject=acme:eu missing 1 Detail=order.created published -4h, never received by the notifier`},
	})
}
