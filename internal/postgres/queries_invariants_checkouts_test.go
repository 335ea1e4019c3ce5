package postgres_test

import (
	"testing"

	"example.com/payonce/db"
)

func TestQueriesOfInvariantsOfCheckouts(t *testing.T) {
	t.Parallel()
	checkInvariants(t, []queryCase{
		{rule: "ComparesTheSteps", query: q.InvariantEndedCheckoutIsConsistent, any: true, given: `
			checkouts
			  id           status
			  compensated  compensated
			  completed    completed
			  open         completed
			  open_2       compensated
			  processing   processing
			  undone       compensated
			  unpaid       completed

			checkouts
			  tenant_id  id          status
			  acme       processing  completed

			checkout_steps
			  checkout_id  step           status
			  compensated  create_order   compensated
			  compensated  pay            failed
			  compensated  refund         skipped
			  compensated  cancel_order   done
			  completed    create_order   done
			  completed    pay            done
			  completed    refund         skipped
			  open         pay            done
			  open         refund         running
			  open_2       refund         unknown
			  open_2       cancel_order   pending
			  processing   pay            unknown
			  undone       create_order   done
			  undone       reserve_stock  done
			  undone       pay            done
			  undone       notify         done
			  undone       refund         done
			  unpaid       create_order   failed
			  unpaid       reserve_stock  failed
			  unpaid       pay            failed
			  unpaid       notify         failed`, want: `
			row Subject=acme:eu open Detail=completed, but refund is running
			row Subject=acme:eu open_2 Detail=compensated, but cancel_order is pending
			row Subject=acme:eu open_2 Detail=compensated, but refund is unknown
			row Subject=acme:eu undone Detail=compensated, but create_order is done
			row Subject=acme:eu undone Detail=compensated, but notify is done
			row Subject=acme:eu undone Detail=compensated, but pay is done
			row Subject=acme:eu undone Detail=compensated, but reserve_stock is done
			row Subject=acme:eu unpaid Detail=completed, but create_order is failed
			row Subject=acme:eu unpaid Detail=completed, but notify is failed
			row Subject=acme:eu unpaid Detail=completed, but pay is failed
			row Subject=acme:eu unpaid Detail=completed, but reserve_stock is failed`},
		{rule: "ComparesTheReservations", query: q.InvariantEndedCheckoutIsConsistent, any: true, given: `
			stock
			  sku      available  reserved
			  coffee   9          2
			  none     9          0
			  nothing  9          1
			  tea      9          3

			stock
			  tenant_id  sku  available  reserved
			  acme       tea  9          0

			reservations
			  checkout_id  sku     quantity  status
			  chk_1        coffee  2         held
			  chk_1        tea     2         held
			  chk_2        tea     1         held
			  chk_3        tea     5         released`, want: `
			row Subject=acme:eu nothing Detail=reserved 1, held 0`},
		{rule: "FindsTwoCheckouts", query: q.InvariantOneEffectPerKey, any: true, given: `
			checkouts
			  id     idempotency_key
			  both   both
			  two_1  two
			  two_2  two

			payments
			  id      idempotency_key
			  both_p  both`, want: `
			row Subject=acme:eu b8a9f715dbb64fd5c56e7783c6820a61 Detail=one key made two_1, two_2`},
		{rule: "ComparesTheCheckout", query: q.InvariantResponseAgrees, with: db.InvariantResponseAgreesParams{}, any: true, given: `
			idempotency_keys
			  key              operation        answer_status  answer_body             resource_id
			  completed        create_checkout  201            {"status":"completed"}  completed
			  completed_402    create_checkout  402            {"status":402}          completed_402
			  compensated      create_checkout  402            {"status":402}          compensated
			  compensated_201  create_checkout  201            {"status":"completed"}  compensated_201
			  missing          create_checkout  201            {"status":"completed"}  missing

			checkouts
			  id               status
			  completed        completed
			  completed_402    completed
			  compensated      compensated
			  compensated_201  compensated

			checkouts
			  tenant_id  id
			  acme       completed`, want: `
			row Subject=acme:eu compensated_201 Detail=create_checkout responded 201, body says completed,
				checkout is compensated
			row Subject=acme:eu completed_402 Detail=create_checkout responded 402, body says 402, checkout is
				completed
			row Subject=acme:eu missing Detail=create_checkout responded 201, body says completed, nothing
				exists`},
		{rule: "CountsTheEventsOfCheckouts", query: q.InvariantVersionsHaveEvents, any: true, given: `
			checkouts
			  id          status      version
			  completed   completed   1
			  missing     completed   1
			  processing  processing  0

			outbox_events
			  aggregate_id  version
			  completed     1`, want: `
			row Subject=acme:eu missing Detail=version 1, 0 events from  to`},
		{rule: "ComparesTheStatusOfACheckout", query: q.InvariantLastEventAgrees, any: true, given: `
			checkouts
			  id           status
			  compensated  compensated
			  completed    completed

			outbox_events
			  aggregate_id  version  type
			  compensated   1        checkout.completed
			  completed     1        checkout.completed`, want: `
			row Subject=acme:eu compensated Detail=is compensated, and its last event is checkout.completed`},
		{rule: "FindsAnOrderOfAnotherTenant", query: q.InvariantReferencesStayInTheTenant, any: true, given: `
			checkouts
			  id       order_id
			  ours     ours
			  strange  theirs
			  without  .

			orders
			  tenant_id  id
			  acme       theirs
			  acme:eu    ours`, want: `
			row Subject=acme:eu strange Detail=refers to theirs, which the tenant does not have`},
		{rule: "BeginsWithItsEnd", query: q.InvariantTransitionsAreLegal, any: true, given: `
			outbox_events
			  aggregate_id  version  type
			  first         1        checkout.completed
			  second        2        checkout.completed`, want: `
			row Subject=acme:eu second Detail=checkout.completed as version 2 after nothing`},
		{rule: "FindsACompensationTooEarly", query: q.InvariantNoFailureWhileUnknown, any: true, given: `
			checkout_steps
			  checkout_id  step           status
			  undone       pay            unknown
			  undone       refund         skipped
			  undone       release_stock  done
			  undone       cancel_order   pending
			  undone_2     reserve_stock  unknown
			  undone_2     refund         running
			  undone_2     cancel_order   failed
			  refunded     pay            done
			  refunded     refund         done
			  refunding    pay            done
			  refunding    refund         unknown
			  refunding    cancel_order   running
			  waits        create_order   done
			  waits        pay            unknown
			  waits        refund         pending

			checkout_steps
			  tenant_id  checkout_id  step  status
			  acme       refunded     pay   unknown`, want: `
			row Subject=acme:eu undone Detail=release_stock is done while pay is unknown
			row Subject=acme:eu undone_2 Detail=cancel_order is failed while reserve_stock is unknown
			row Subject=acme:eu undone_2 Detail=refund is running while reserve_stock is unknown`},
		{rule: "FindsALostKeyOfACheckout", query: q.InvariantKeyIsRetained, any: true, given: `
			checkouts
			  id
			  kept
			  lost

			idempotency_keys
			  key
			  kept`, want: `
			row Subject=acme:eu lost Detail=its key was deleted`},
		{rule: "FindsACheckoutThatNothingEnds", query: q.InvariantUnfinishedHasKey, any: true, given: `
			checkouts
			  id          status
			  completed   completed
			  continues   processing
			  processing  processing

			idempotency_keys
			  key
			  continues`, want: `
			row Subject=acme:eu processing Detail=processing, without an unfinished key`},
	})
}
