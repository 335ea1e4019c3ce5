package postgres_test

import "testing"

// Nothing of these rows is due.
const loopRows = `
	idempotency_keys
	  key       leased_until  next_attempt_at  parked_at  finished_at  recovery_point
	  finished  -9h           -9h              .          -1h          finished
	  parked    -9h           -9h              -1h        .            started
	  held      +1h           -9h              .          .            started
	  waits     -9h           +1h              .          .            started

	outbox_events
	  aggregate_id  version  seq  published_at  position  parked_at  next_attempt_at
	  done          1        1    -8h           1         .          .
	  parked        1        2    .             .         -2h        .
	  pauses        1        3    .             .         .          +1h

	inbox_events
	  event_id  consumer  status   leased_until  done_at
	  leased    stripe    pending  +1h           .
	  parked    stripe    parked   .             .
	  done      stripe    done     .             -1h
	  theirs    other     pending  -1h           .
`

const ofStripe = "stripe"

func TestQueriesOfLoops(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ rows, want string }{
		"nothing": {"", `
			no row`},
		"a key that waits": {`
	idempotency_keys
	  key  leased_until  next_attempt_at  parked_at  finished_at  recovery_point
	  due  -1h           -1h              .          .            started
`, `
			row completer`},
		"an event that is not published": {`
	outbox_events
	  aggregate_id  version  seq  published_at  position  parked_at  next_attempt_at
	  due           1        9    .             .         .          -1h
`, `
			row relay`},
		"an event that is not applied": {`
	inbox_events
	  event_id  consumer  status   leased_until  done_at
	  due       stripe    pending  -1h           .
`, `
			row inbox`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkQueries(t, loopRows+c.rows, []queryCase{
				{rule: "FindsWhatIsDue", query: q.LoopsDue, with: []string{ofStripe}, want: c.want},
			})
		})
	}
}

// part: webhooks {

func TestQueriesOfLoopsFindDeliveries(t *testing.T) {
	t.Parallel()
	const notDue = `
	webhook_deliveries
	  tenant_id  endpoint_id  event_id  status     leased_until  attempts
	  quiet      whe_1        done      delivered  .             2
	  quiet      whe_1        later     pending    +1h           1
	  acme       whe_1        done      delivered  .             2
	  acme       whe_2        failed    failed     .             9
	  acme       whe_3        skipped   skipped    .             9
	  acme:eu    whe_1        later     pending    +1h           1
	  acme:eu    whe_2        later_2   pending    +2h           1
`
	due := map[string]string{"": `
			no row`, `
	webhook_deliveries
	  tenant_id  endpoint_id  event_id  status   leased_until  attempts
	  acme       whe_0        due       pending  -1h           1
`: `
			row notifier`, `
	webhook_deliveries
	  tenant_id  endpoint_id  event_id  status   leased_until  attempts
	  acme:eu    whe_2        due       pending  -1h           1
`: `
			row notifier`, `
	webhook_deliveries
	  tenant_id  endpoint_id  event_id  status   leased_until  attempts
	  busy       whe_1        due       pending  -1h           1
`: `
			row notifier`}
	for rows, want := range due {
		checkQueries(t, notDue+rows, []queryCase{
			{rule: "FindsTheHeadOfAQueue", query: q.LoopsDue, with: []string{ofStripe}, want: want},
		})
	}
}

// part: webhooks }
