package postgres_test

import (
	"fmt"
	"slices"
	"strings"
)

func init() { catalogueParts = append(catalogueParts, checkoutCatalogue) }

// The rows have four checkouts of others, so that a rule that reads the steps of another tenant or of another checkout
// refuses what it must accept, or accepts what it must refuse: steps of them that are all done, or all running.
var checkoutCatalogue = cataloguePart{
	rows: `
ALTER TABLE stock ALTER tenant_id SET DEFAULT 'ten', ALTER sku SET DEFAULT 'new', ALTER available SET DEFAULT 8;
INSERT INTO stock (sku, reserved) VALUES ('tea', 2);

ALTER TABLE reservations ALTER tenant_id SET DEFAULT 'ten', ALTER checkout_id SET DEFAULT 'new',
	ALTER sku SET DEFAULT 'tea', ALTER quantity SET DEFAULT 2;
INSERT INTO reservations (checkout_id, expires_at) VALUES ('held', now()), ('pinned', NULL);

ALTER TABLE checkouts ALTER tenant_id SET DEFAULT 'ten', ALTER id SET DEFAULT 'new',
	ALTER idempotency_key SET DEFAULT 'new', ALTER created_at SET DEFAULT now();
ALTER TABLE checkout_steps ALTER tenant_id SET DEFAULT 'ten', ALTER checkout_id SET DEFAULT 'new',
	ALTER step SET DEFAULT 'pay';
INSERT INTO checkouts (tenant_id, id, idempotency_key) VALUES ('other1', 'chk', 'k1'), ('other2', 'chk', 'k2'),
	('ten', 'done', 'k3'), ('ten', 'running', 'k4');
INSERT INTO checkout_steps (tenant_id, checkout_id, step, status, attempts, updated_at)
	SELECT c.tenant_id, c.id, s.step, CASE WHEN c.idempotency_key IN ('k1', 'k3') THEN 'done' ELSE 'running'
		END::saga_step_status, 1, now()
	FROM checkouts c, unnest('{` + automaticSteps + `}'::saga_step[]) AS s (step)`,
	entries: slices.Concat(stockEntries, checkoutEntries, stepEntries),
}

var stockEntries = []entry{
	{
		table: "stock", name: "stock_pkey", rule: "a tenant has one row for a SKU",
		refused: []string{`INSERT INTO stock (sku) VALUES ('tea')`},
		accepted: []string{
			`INSERT INTO stock (sku) VALUES ('milk')`,
			`INSERT INTO stock (tenant_id, sku) VALUES ('other', 'tea')`,
		},
	},
	{
		table: "stock", name: "reserved_is_never_negative", rule: "nothing or more is reserved",
		refused:  []string{`UPDATE stock SET reserved = reserved - 3`},
		accepted: []string{`UPDATE stock SET reserved = reserved - 2`},
	},
	{
		table: "stock", name: "sku_fits", rule: "a SKU has 1 to 64 characters",
		refused: []string{
			`INSERT INTO stock (sku) VALUES ('')`,
			`INSERT INTO stock (sku) VALUES (repeat('s', 65))`,
		},
		accepted: []string{
			`INSERT INTO stock (sku) VALUES ('s')`,
			`INSERT INTO stock (sku) VALUES (repeat('s', 64))`,
		},
	},
	{
		table: "stock", name: "stock_is_never_oversold", rule: "no more is sold than there is",
		refused:  []string{`UPDATE stock SET available = available - 9`},
		accepted: []string{`UPDATE stock SET available = available - 8`},
	},
	{
		table: "reservations", name: "reservations_pkey", rule: "a checkout reserves a SKU once",
		refused: []string{`INSERT INTO reservations (checkout_id) VALUES ('held')`},
		accepted: []string{
			`INSERT INTO reservations (checkout_id) VALUES ('other')`,
			`INSERT INTO reservations (checkout_id, sku) VALUES ('held', 'milk')`,
			`INSERT INTO reservations (tenant_id, checkout_id) VALUES ('other', 'held')`,
		},
	},
	{
		table: "reservations", name: "reservation_quantity_is_positive", rule: "a reservation is of one or more",
		refused:  []string{`INSERT INTO reservations (quantity) VALUES (0)`},
		accepted: []string{`INSERT INTO reservations (quantity) VALUES (1)`},
	},
	{
		table: "reservations", name: "pinned_reservation_never_expires",
		rule:    "a reservation whose payment has begun does not expire",
		refused: []string{`UPDATE reservations SET expires_at = now() WHERE checkout_id = 'pinned'`},
		accepted: []string{
			`UPDATE reservations SET expires_at = now() + interval '1 hour' WHERE checkout_id = 'held'`,
			`UPDATE reservations SET expires_at = NULL WHERE checkout_id = 'held'`,
			`UPDATE reservations SET status = 'consumed' WHERE checkout_id = 'pinned'`,
		},
	},
	{
		table: "reservations", name: "reservation_ends_once", rule: "a reservation that was consumed or released stays so",
		refused: []string{
			`UPDATE reservations SET status = 'consumed'; UPDATE reservations SET status = 'released'`,
			`UPDATE reservations SET status = 'consumed'; UPDATE reservations SET status = 'held'`,
			`UPDATE reservations SET status = 'released'; UPDATE reservations SET status = 'consumed'`,
			`UPDATE reservations SET status = 'released'; UPDATE reservations SET quantity = 3`,
		},
		accepted: []string{
			`UPDATE reservations SET status = 'consumed'`,
			`UPDATE reservations SET status = 'released'`,
		},
	},
}

// The steps of both kinds of checkout, in their order.
const (
	automaticSteps = "create_order,reserve_stock,pay,notify,refund,release_stock,cancel_order"
	manualSteps    = "create_order,authorize,reserve_stock,capture,notify,refund,release_stock,release_payment,cancel_order"
)

// newCheckout makes a checkout of which each step has a status: seven of automaticSteps, or nine of manualSteps.
func newCheckout(statuses string) string {
	steps := automaticSteps
	if len(strings.Fields(statuses)) > strings.Count(automaticSteps, ",")+1 {
		steps = manualSteps
	}
	return fmt.Sprintf(`INSERT INTO checkouts (id, failure_code) VALUES ('chk', 'card_declined');
		INSERT INTO checkout_steps (checkout_id, step, status, attempts, updated_at)
			SELECT 'chk', step, status, CASE WHEN status IN ('pending', 'skipped') THEN 0 ELSE 1 END,
				CASE WHEN status IN ('pending', 'skipped') THEN NULL ELSE now() END
			FROM unnest('{%s}'::saga_step[], '{%s}'::saga_step_status[]) AS s (step, status); `,
		steps, strings.ReplaceAll(statuses, " ", ","))
}

// step changes the status of a step of the new checkout.
func step(name, status string) string {
	attempts, updated := "1", "now()"
	if status == "pending" || status == "skipped" {
		attempts, updated = "0", "NULL"
	}
	return fmt.Sprintf(`UPDATE checkout_steps SET status = '%s', attempts = %s, updated_at = %s
		WHERE tenant_id = 'ten' AND checkout_id = 'chk' AND step = '%s'`, status, attempts, updated, name)
}

// again changes another column of a step of the new checkout.
func again(name string) string {
	return fmt.Sprintf(`UPDATE checkout_steps SET attempts = 2 WHERE tenant_id = 'ten' AND checkout_id = 'chk'
		AND step = '%s'`, name)
}

const (
	complete = `UPDATE checkouts SET status = 'completed', version = 1, failure_code = NULL, order_id = 'ord',
		payment_id = 'pay' WHERE tenant_id = 'ten' AND id = 'chk'`
	compensate = `UPDATE checkouts SET status = 'compensated', version = 1 WHERE tenant_id = 'ten' AND id = 'chk'`
)

// compensateWith ends a checkout as compensated whose payment is new.
func compensateWith(payment string) string {
	return newCheckout("compensated compensated failed skipped skipped done done") + payment + `;
		UPDATE checkouts SET status = 'compensated', version = 1, payment_id = 'new' WHERE tenant_id = 'ten' AND id = 'chk'`
}

var checkoutEntries = []entry{
	{
		table: "checkouts", name: "checkouts_pkey", rule: "a checkout has one row",
		refused: []string{`INSERT INTO checkouts (id) VALUES ('done')`},
		accepted: []string{
			`INSERT INTO checkouts (id) VALUES ('other')`,
			`INSERT INTO checkouts (tenant_id, id) VALUES ('other', 'done')`,
		},
	},
	{
		table: "checkouts", name: "one_checkout_per_key", rule: "a key of a tenant makes one checkout",
		refused: []string{`INSERT INTO checkouts (idempotency_key) VALUES ('k3')`},
		accepted: []string{
			`INSERT INTO checkouts (idempotency_key) VALUES ('k5')`,
			`INSERT INTO checkouts (tenant_id, idempotency_key) VALUES ('other', 'k3')`,
		},
	},
	{
		table: "checkouts", name: "compensated_has_failure_code", rule: "a compensated checkout says why it failed",
		refused: []string{`INSERT INTO checkouts (status, version) VALUES ('compensated', 1)`},
		accepted: []string{
			`INSERT INTO checkouts (status, version, failure_code) VALUES ('compensated', 1, 'card_declined')`,
		},
	},
	{
		table: "checkouts", name: "completed_has_not_failed",
		rule: "a completed checkout has an order and a payment, and no failure",
		refused: []string{
			`INSERT INTO checkouts (status, version, order_id, payment_id) VALUES ('completed', 1, NULL, 'pay')`,
			`INSERT INTO checkouts (status, version, order_id, payment_id) VALUES ('completed', 1, 'ord', NULL)`,
			`INSERT INTO checkouts (status, version, order_id, payment_id, failure_code)
				VALUES ('completed', 1, 'ord', 'pay', 'card_declined')`,
		},
		accepted: []string{
			`INSERT INTO checkouts (status, version, order_id, payment_id) VALUES ('completed', 1, 'ord', 'pay')`,
			`INSERT INTO checkouts (status, version, order_id, payment_id, failure_code)
				VALUES ('compensated', 1, 'ord', NULL, 'card_declined')`,
		},
	},
	{
		table: "checkouts", name: "ended_checkout_has_event", rule: "a checkout has its event if and only if it has ended",
		refused: []string{
			`INSERT INTO checkouts (status, version) VALUES ('processing', 1)`,
			`INSERT INTO checkouts (status, version, failure_code) VALUES ('compensated', 0, 'card_declined')`,
			`INSERT INTO checkouts (status, version, order_id, payment_id) VALUES ('completed', 0, 'ord', 'pay')`,
		},
	},
	{
		table: "checkouts", name: "checkout_ends_once", rule: "a checkout that was completed or compensated stays so",
		refused: []string{
			`INSERT INTO checkouts (status, version, failure_code) VALUES ('compensated', 1, 'card_declined');
				UPDATE checkouts SET failure_code = 'expired_card' WHERE id = 'new'`,
			`INSERT INTO checkouts (status, version, failure_code, payment_id)
					VALUES ('compensated', 1, 'card_declined', 'pay');
				INSERT INTO checkout_steps (step, status, attempts, updated_at)
					VALUES ('pay', 'done', 1, now()), ('notify', 'pending', 0, NULL);
				UPDATE checkouts SET failure_code = 'expired_card' WHERE id = 'new'`,
			`INSERT INTO checkouts (status, version, failure_code) VALUES ('compensated', 1, 'card_declined');
				UPDATE checkouts SET status = 'processing', version = 0 WHERE id = 'new'`,
			`INSERT INTO checkouts (status, version, order_id, payment_id) VALUES ('completed', 1, 'ord', 'pay');
				UPDATE checkouts SET status = 'processing', version = 0 WHERE id = 'new'`,
		},
		accepted: []string{`UPDATE checkouts SET failure_code = 'card_declined' WHERE id = 'running'`},
	},
	{
		table: "checkouts", name: "checkout_order_and_payment_are_immutable",
		rule: "a checkout makes one order and one payment, for one key",
		refused: func() (writes []string) {
			const with = `INSERT INTO checkouts (order_id, payment_id) VALUES ('ord', 'pay'); `
			for _, write := range setEach("UPDATE checkouts", "id = 'new'", "idempotency_key = 'other'",
				"order_id = 'other'", "order_id = NULL", "payment_id = 'other'", "payment_id = NULL") {
				writes = append(writes, with+write)
			}
			return writes
		}(),
		accepted: append(setEach("UPDATE checkouts", "id = 'running'", "order_id = 'ord'", "payment_id = 'pay'"),
			`INSERT INTO checkouts (order_id, payment_id) VALUES ('ord', 'pay');
				UPDATE checkouts SET declined = true WHERE id = 'new'`),
	},
	{
		table: "checkouts", name: "compensated_owes_nothing",
		rule: "a checkout is compensated when its payment took no money or returned all of it",
		refused: []string{
			compensateWith(`INSERT INTO payments (status) VALUES ('processing')`),
			compensateWith(`INSERT INTO payments (status) VALUES ('requires_action')`),
			compensateWith(`INSERT INTO payments (status, intent_id) VALUES ('succeeded', 'pi_new')`),
			compensateWith(`INSERT INTO payments (status, intent_id, amount_refunding_minor, amount_refunded_minor)
				VALUES ('succeeded', 'pi_new', 1000, 999)`),
			compensateWith(`INSERT INTO payments (status, intent_id) VALUES ('succeeded', 'pi_new');
				INSERT INTO refunds_owed (payment_id) VALUES ('new')`),
			compensateWith(`INSERT INTO payments (status, intent_id) VALUES ('succeeded', 'pi_new');
				UPDATE refunds_owed SET settled_minor = 1000, ended_at = now(), ended_how = 'settled_outside'`),
			compensateWith(`INSERT INTO payments (tenant_id, id, status, intent_id, amount_refunding_minor,
					amount_refunded_minor)
				VALUES ('ten', 'new', 'succeeded', 'pi_new', 0, 0), ('other', 'new', 'succeeded', 'pi_new', 1000, 1000);
				INSERT INTO refunds_owed (tenant_id, payment_id, settled_minor, ended_at, ended_how)
				VALUES ('other', 'new', 0, now(), 'refunded')`),
		},
		accepted: []string{
			compensateWith(`INSERT INTO payments (status, failure_code) VALUES ('failed', 'card_declined')`),
			compensateWith(`INSERT INTO payments (status) VALUES ('canceled')`),
			compensateWith(`INSERT INTO payments (status, intent_id, amount_refunding_minor, amount_refunded_minor)
				VALUES ('succeeded', 'pi_new', 1000, 1000)`),
			compensateWith(`INSERT INTO payments (status, intent_id) VALUES ('succeeded', 'pi_new');
				INSERT INTO refunds_owed (payment_id, settled_minor, ended_at, ended_how)
				VALUES ('new', 1000, now(), 'settled_outside')`),
			compensateWith(`INSERT INTO payments (tenant_id, status) VALUES ('other', 'processing')`),
			newCheckout("done done pending pending pending pending pending") + `INSERT INTO payments (id) VALUES ('new');
				UPDATE checkouts SET payment_id = 'new' WHERE id = 'chk'`,
		},
	},
	{
		table: "checkouts", name: "ended_checkout_has_no_open_step", rule: "a checkout ends when every step has ended",
		refused: []string{
			newCheckout("compensated compensated failed pending skipped done done") + compensate,
			newCheckout("compensated compensated running skipped skipped done done") + compensate,
			newCheckout("compensated compensated unknown skipped skipped done done") + compensate,
			newCheckout("compensated compensated failed skipped skipped done pending") + compensate,
			newCheckout("compensated compensated failed skipped skipped done running") + compensate,
			newCheckout("compensated compensated failed skipped skipped done unknown") + compensate,
		},
		behind: []behind{
			{"status_agrees_with_steps", newCheckout("done done done running skipped skipped skipped") + complete},
		},
		accepted: []string{
			newCheckout("compensated compensated failed skipped skipped done done") + compensate,
			newCheckout("done done done done skipped skipped skipped") + complete,
			newCheckout("done done done running skipped skipped skipped") +
				`UPDATE checkouts SET declined = true WHERE id = 'chk'`,
		},
	},
	{
		table: "checkouts", name: "status_agrees_with_steps",
		rule: "completed means that every step is done, compensated that none is still done",
		refused: []string{
			newCheckout("done done done failed skipped skipped skipped") + complete,
			newCheckout("done done done skipped skipped skipped skipped") + complete,
			newCheckout("compensated done done done skipped skipped skipped") + complete,
			newCheckout("done done done done done skipped skipped") + complete,
			newCheckout("done done done done skipped failed skipped") + complete,
			newCheckout("done compensated failed skipped skipped done skipped") + compensate,
			newCheckout("compensated compensated failed skipped skipped done failed") + compensate,
		},
		accepted: []string{
			newCheckout("done done done done skipped skipped skipped") + complete,
			newCheckout("compensated compensated compensated failed done done done") + compensate,
			newCheckout("failed skipped skipped skipped skipped skipped skipped") + compensate,
		},
	},
}

var stepEntries = []entry{
	{
		table: "checkout_steps", name: "checkout_steps_pkey",
		rule:    "a step of a checkout has one row, so nothing is compensated twice",
		refused: []string{`INSERT INTO checkout_steps (checkout_id, step) VALUES ('done', 'refund')`},
		accepted: []string{
			`INSERT INTO checkout_steps (checkout_id, step) VALUES ('new', 'refund'), ('new', 'pay')`,
			`INSERT INTO checkout_steps (tenant_id, checkout_id, step) VALUES ('other', 'done', 'refund')`,
		},
	},
	{
		table: "checkout_steps", name: "started_step_has_attempts",
		rule: "a step has attempts, and the time of its last change, if and only if it has started",
		refused: []string{
			`INSERT INTO checkout_steps (status, attempts, updated_at) VALUES ('pending', 1, now())`,
			`INSERT INTO checkout_steps (status, attempts, updated_at) VALUES ('skipped', 1, now())`,
			`INSERT INTO checkout_steps (status, attempts, updated_at) VALUES ('running', 0, NULL)`,
			`INSERT INTO checkout_steps (status, attempts, updated_at) VALUES ('unknown', 0, NULL)`,
			`INSERT INTO checkout_steps (status, attempts, updated_at) VALUES ('done', 0, NULL)`,
			`INSERT INTO checkout_steps (status, attempts, updated_at) VALUES ('failed', 0, NULL)`,
			`INSERT INTO checkout_steps (status, attempts, updated_at) VALUES ('compensated', 0, NULL)`,
			`INSERT INTO checkout_steps (status, attempts, updated_at) VALUES ('pending', 0, now())`,
			`INSERT INTO checkout_steps (status, attempts, updated_at) VALUES ('running', 1, NULL)`,
		},
	},
	{
		table: "checkout_steps", name: "checkout_is_processing", rule: "the steps of a checkout that has ended never change",
		refused: []string{
			`INSERT INTO checkouts (id, status, version, failure_code) VALUES ('chk', 'compensated', 1, 'card_declined');
				INSERT INTO checkout_steps (checkout_id, step) VALUES ('chk', 'notify'); ` + step("notify", "skipped"),
			`INSERT INTO checkouts (id, status, version, order_id, payment_id) VALUES ('chk', 'completed', 1, 'ord', 'pay');
				INSERT INTO checkout_steps (checkout_id, step) VALUES ('chk', 'notify'); ` + step("notify", "skipped"),
			`INSERT INTO checkout_steps (checkout_id, step) VALUES ('chk', 'notify'); ` + step("notify", "skipped"),
		},
		accepted: []string{
			newCheckout("done done failed pending pending pending pending") + step("notify", "skipped"),
			newCheckout("done done done done skipped skipped skipped") + complete +
				`; ` + again("pay"),
		},
	},
	{
		table: "checkout_steps", name: "compensated_once_compensation_is_done",
		rule: "a step is compensated when its compensation is done",
		refused: []string{
			newCheckout("done done failed skipped skipped pending pending") + step("reserve_stock", "compensated"),
			newCheckout("done done failed skipped skipped running pending") + step("reserve_stock", "compensated"),
			newCheckout("done done failed skipped skipped failed pending") + step("reserve_stock", "compensated"),
			newCheckout("done done done failed done pending pending") + step("reserve_stock", "compensated"),
			newCheckout("done done done failed running done done") + step("pay", "compensated"),
			newCheckout("done done done failed done done running") + step("create_order", "compensated"),
		},
		accepted: []string{
			newCheckout("done done failed skipped skipped done pending") + step("reserve_stock", "compensated"),
			newCheckout("done done done failed done pending pending") + step("pay", "compensated"),
			newCheckout("done compensated failed skipped skipped done done") + step("create_order", "compensated"),
			newCheckout("done compensated failed skipped skipped running pending") + again("reserve_stock"),
		},
	},
	{
		table: "checkout_steps", name: "no_compensation_before_outcome_is_known",
		rule: "nothing is compensated while a step may still turn out to be done",
		refused: []string{
			newCheckout("done done unknown pending skipped pending pending") + step("release_stock", "running"),
			newCheckout("done done running pending skipped pending pending") + step("release_stock", "running"),
			newCheckout("done done unknown pending skipped pending pending") + step("release_stock", "done"),
			newCheckout("done done unknown pending skipped pending pending") + step("release_stock", "failed"),
			newCheckout("done done unknown pending skipped running pending") + step("release_stock", "unknown"),
			newCheckout("done done done unknown pending pending pending") + step("refund", "running"),
		},
		accepted: []string{
			newCheckout("done done failed skipped skipped pending pending") + step("release_stock", "running"),
			newCheckout("done done unknown pending skipped pending pending") + step("release_stock", "skipped"),
			newCheckout("done done failed skipped skipped running pending") + step("release_stock", "unknown"),
			newCheckout("done done unknown pending skipped running pending") + again("release_stock"),
		},
	},
	{
		table: "checkout_steps", name: "no_compensation_of_step_not_done",
		rule: "a step that is not done has nothing to compensate",
		refused: []string{
			newCheckout("done done failed skipped pending pending pending") + step("refund", "running"),
			newCheckout("done done failed skipped pending pending pending") + step("refund", "done"),
			newCheckout("done done failed skipped pending pending pending") + step("refund", "failed"),
			newCheckout("done done failed skipped running pending pending") + step("refund", "unknown"),
			newCheckout("done done pending pending pending pending pending") + step("refund", "running"),
			newCheckout("done done skipped skipped pending pending pending") + step("refund", "running"),
			newCheckout("done done compensated failed pending pending pending") + step("refund", "running"),
			newCheckout("done failed skipped skipped skipped pending pending") + step("release_stock", "running"),
			newCheckout("failed skipped skipped skipped skipped skipped pending") + step("cancel_order", "running"),
		},
		accepted: []string{
			newCheckout("done done done failed pending pending pending") + step("refund", "running"),
			newCheckout("done done failed skipped pending pending pending") + step("refund", "skipped"),
			newCheckout("done done failed skipped skipped pending pending") + step("release_stock", "running"),
			newCheckout("done compensated failed skipped skipped done pending") + step("cancel_order", "running"),
			newCheckout("done done failed skipped running pending pending") + again("refund"),
		},
	},
	{
		table: "checkout_steps", name: "no_compensation_out_of_order",
		rule: "a step is compensated when all steps after it are",
		refused: []string{
			newCheckout("done done failed skipped skipped pending pending") + step("cancel_order", "running"),
			newCheckout("done done failed skipped skipped running pending") + step("cancel_order", "done"),
			newCheckout("done done failed skipped skipped failed pending") + step("cancel_order", "failed"),
			newCheckout("done done failed skipped skipped unknown running") + step("cancel_order", "unknown"),
			newCheckout("done done done failed running pending pending") + step("release_stock", "running"),
		},
		accepted: []string{
			newCheckout("done compensated failed skipped skipped done pending") + step("cancel_order", "running"),
			newCheckout("done done done failed done pending pending") + step("release_stock", "running"),
			newCheckout("done done failed skipped skipped pending pending") + step("cancel_order", "skipped"),
			newCheckout("done done failed skipped skipped pending running") + again("cancel_order"),
		},
	},
	{
		table: "checkout_steps", name: "no_step_after_compensation",
		rule: "once a compensation has begun no step begins or succeeds",
		refused: []string{
			newCheckout("done done pending pending pending running pending") + step("pay", "running"),
			newCheckout("done done pending pending pending done pending") + step("pay", "running"),
			newCheckout("done done pending pending pending failed pending") + step("pay", "running"),
			newCheckout("done done pending pending pending unknown pending") + step("pay", "running"),
			newCheckout("done done done pending running pending pending") + step("notify", "done"),
			newCheckout("done done running pending pending running pending") + step("pay", "unknown"),
		},
		accepted: []string{
			newCheckout("done done pending pending pending pending pending") + step("pay", "running"),
			newCheckout("done done pending pending skipped skipped skipped") + step("pay", "running"),
			newCheckout("done done running pending pending running pending") + step("pay", "failed"),
			newCheckout("done done done pending running pending pending") + step("notify", "skipped"),
			newCheckout("done done running pending pending running pending") + again("pay"),
		},
	},
	{
		table: "checkout_steps", name: "no_step_out_of_order", rule: "a step begins when all steps before it are done",
		refused: []string{
			newCheckout("done pending pending pending pending pending pending") + step("pay", "running"),
			newCheckout("done running pending pending pending pending pending") + step("pay", "running"),
			newCheckout("done unknown pending pending pending pending pending") + step("pay", "running"),
			newCheckout("done failed pending pending pending pending pending") + step("pay", "running"),
			newCheckout("done skipped pending pending pending pending pending") + step("pay", "running"),
			newCheckout("done compensated pending pending pending pending pending") + step("pay", "running"),
			newCheckout("pending done pending pending pending pending pending") + step("pay", "running"),
			newCheckout("done done pending pending pending pending pending") + step("notify", "done"),
			newCheckout("done pending running pending pending pending pending") + step("pay", "unknown"),
		},
		accepted: []string{
			newCheckout("done done pending pending pending pending pending") + step("pay", "running"),
			newCheckout("done done failed pending pending pending pending") + step("notify", "skipped"),
			newCheckout("done pending running pending pending pending pending") + step("pay", "failed"),
			newCheckout("done pending running pending pending pending pending") + again("pay"),
		},
	},
	{
		table: "checkout_steps", name: "step_transition_is_legal",
		rule: "a step moves from pending over running to its end, and only what was done is compensated",
		moves: []moves{
			{
				legal: map[string][]string{
					"pending":     {"running", "done", "failed", "skipped"},
					"running":     {"unknown", "done", "failed"},
					"unknown":     {"running", "done", "failed"},
					"done":        {"compensated"},
					"failed":      {},
					"compensated": {},
					"skipped":     {},
				},
				write: moveStep("create_order", `'create_order', '$from'), ('cancel_order',
					CASE '$to' WHEN 'compensated' THEN 'done' ELSE 'pending' END`),
			},
			{ // a compensation is tried again after it failed, and is not itself compensated
				legal: map[string][]string{
					"pending":     {"running", "done", "failed", "skipped"},
					"running":     {"unknown", "done", "failed"},
					"unknown":     {"running", "done", "failed"},
					"done":        {},
					"failed":      {"running", "done"},
					"compensated": {},
					"skipped":     {},
				},
				write:  moveStep("cancel_order", `'create_order', 'done'), ('cancel_order', '$from'`),
				others: map[string]string{"compensated": "compensated_once_compensation_is_done"},
			},
		},
	},
}

// moveStep changes the status of a step, in a checkout with some steps.
func moveStep(name, steps string) string {
	return fmt.Sprintf(`INSERT INTO checkouts (id) VALUES ('chk');
		INSERT INTO checkout_steps (checkout_id, step, status, attempts, updated_at)
			SELECT 'chk', step::saga_step, status::saga_step_status,
				CASE WHEN status IN ('pending', 'skipped') THEN 0 ELSE 1 END,
				CASE WHEN status IN ('pending', 'skipped') THEN NULL ELSE now() END
			FROM (VALUES (%s)) AS s (step, status);
		UPDATE checkout_steps SET status = '$to', attempts = CASE WHEN '$to' IN ('pending', 'skipped') THEN 0 ELSE 1 END,
			updated_at = CASE WHEN '$to' IN ('pending', 'skipped') THEN NULL ELSE now() END
			WHERE tenant_id = 'ten' AND checkout_id = 'chk' AND step = '%s'`, steps, name)
}
