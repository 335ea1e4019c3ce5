package postgres_test

import "testing"

func TestQueriesOfInvariantsOfTheLedger(t *testing.T) {
	t.Parallel()
	checkInvariants(t, []queryCase{
		{rule: "ComparesTheInbox", query: q.InvariantEffectHasInboxRow, any: true, given: `
			payments
			  id
			  pay

			payments
			  tenant_id  id
			  acme       pay_theirs

			refunds
			  id
			  ref

			refunds
			  tenant_id  id
			  acme       ref_theirs

			inbox_events
			  consumer  event_id       status   type               tenant_id  subject     version
			  ledger    booked         done     payment.succeeded  acme:eu    pay         1
			  ledger    lost_payment   done     payment.succeeded  acme:eu    pay_theirs  1
			  ledger    lost_refund    done     refund.succeeded   acme:eu    ref_theirs  1
			  ledger    not_applied    pending  payment.succeeded  acme:eu    pay         1
			  ledger    not_booked     done     payment.succeeded  acme:eu    pay         1
			  ledger    other_type     done     order.paid         acme:eu    pay         1
			  ledger    pending        pending  payment.succeeded  acme:eu    pay         1
			  ledger    r_not_booked   done     refund.succeeded   acme:eu    ref         1
			  other     other_booked   done     payment.succeeded  acme:eu    pay         1
			  other     other_inbox    done     payment.succeeded  acme:eu    pay         1

			ledger_entries
			  event_id      line  amount_minor  booked_at
			  booked        1     1000          -9h
			  booked        2     -1000         -9h
			  not_applied   1     1000          -9h
			  not_received  1     1000          -9h
			  not_received  2     -1000         -9h
			  old           1     1000          -999h
			  other_inbox   1     1000          -9h

			ledger_entries
			  tenant_id  event_id    amount_minor
			  acme       not_booked  1000`, want: `
			row Subject=acme:eu not_booked Detail=received but not booked
			row Subject=acme:eu not_received Detail=booked but not received
			row Subject=acme:eu other_inbox Detail=booked but not received
			row Subject=acme:eu r_not_booked Detail=received but not booked`},
		{rule: "FindsWhatWasNotReceived", query: q.InvariantPublishedReachesLedger, any: true, given: `
			outbox_events
			  aggregate_id  version  type               published_at
			  ord           1        order.paid         -1h
			  pay           1        payment.succeeded  -1h
			  pay           2        payment.succeeded  .
			  pay           3        payment.succeeded  +1h
			  pay           4        payment.succeeded  -1h
			  ref           1        refund.succeeded   -1h
			  ref           2        refund.succeeded   -1h

			inbox_events
			  consumer  event_id  status
			  ledger    pay-1     done
			  ledger    ref-1     pending
			  other     pay-4     done`, want: `
			row Subject=acme:eu pay 4 Detail=payment.succeeded published -1h, never received by the ledger
			row Subject=acme:eu ref 2 Detail=refund.succeeded published -1h, never received by the ledger`},
		{rule: "SumsPerEventAndCurrency", query: q.InvariantLedgerSumsToZero, any: true, given: `
			ledger_entries
			  event_id  line  amount_minor  currency
			  mixed     1     1000          eur
			  mixed     2     -1000         usd
			  off       1     1000          eur
			  off       2     -999          eur
			  right     1     1000          eur
			  right     2     -600          eur
			  right     3     -400          eur`, want: `
			row Subject=acme:eu mixed Detail=off by -1000 usd
			row Subject=acme:eu mixed Detail=off by 1000 eur
			row Subject=acme:eu off Detail=off by 1 eur`},
		{rule: "ComparesWhatMoved", query: q.InvariantLedgerAgrees, any: true, given: `
			payments
			  id          status     amount_minor
			  p_amount    succeeded  1000
			  p_currency  succeeded  1000
			  p_failed    failed     1000
			  p_right     succeeded  1000

			payments
			  tenant_id  id       status     amount_minor
			  acme       p_right  succeeded  900

			refunds
			  id          status     amount_minor
			  r_amount    succeeded  300
			  r_canceled  canceled   300
			  r_currency  succeeded  300
			  r_failed    failed     300
			  r_other     failed     300
			  r_pending   pending    300
			  r_received  failed     300
			  r_reversed  failed     300
			  r_right     succeeded  300
			  r_waits     failed     300

			refunds
			  tenant_id  id       status     amount_minor
			  acme       r_right  succeeded  200

			ledger_entries
			  event_id  line  account  resource_id  amount_minor  currency
			  1         1     sales    p_amount     -900          eur
			  2         1     sales    p_currency   -1000         usd
			  3         1     sales    p_failed     -1000         eur
			  4         1     sales    p_right      -1000         eur
			  4         2     stripe   p_right      1000          eur
			  5         1     refunds  r_amount     200           eur
			  6         1     refunds  r_canceled   300           eur
			  7         1     refunds  r_currency   300           usd
			  8         1     refunds  r_failed     300           eur
			  9         1     refunds  r_other      300           eur
			  10        1     refunds  r_pending    300           eur
			  11        1     refunds  r_received   300           eur
			  12        1     refunds  r_reversed   300           eur
			  13        1     refunds  r_reversed   -300          eur
			  14        1     refunds  r_right      100           eur
			  15        1     refunds  r_right      200           eur
			  16        1     refunds  r_waits      300           eur
			  17        1     sales    nothing      -300          eur
			  18        1     sales    reversed     -300          eur
			  19        1     sales    reversed     300           eur

			inbox_events
			  consumer  event_id      subject     version  type              status
			  ledger    r_failed-2    r_failed    2        refund.succeeded  done
			  ledger    r_received-3  r_received  3        refund.failed     done
			  ledger    r_reversed-3  r_reversed  3        refund.failed     done
			  ledger    r_waits-3     r_waits     3        refund.failed     pending
			  other     r_other-3     r_other     3        refund.failed     done`, want: `
			row Subject=acme:eu nothing Detail=booked -300 eur, moved 0
			row Subject=acme:eu p_amount Detail=booked -900 eur, moved 1000 eur
			row Subject=acme:eu p_currency Detail=booked -1000 usd, moved 1000 eur
			row Subject=acme:eu p_failed Detail=booked -1000 eur, moved 0
			row Subject=acme:eu r_amount Detail=booked 200 eur, moved 300 eur
			row Subject=acme:eu r_currency Detail=booked 300 usd, moved 300 eur
			row Subject=acme:eu r_pending Detail=booked 300 eur, moved 300 eur
			row Subject=acme:eu r_received Detail=booked 300 eur, moved 300 eur`},
	})
}
