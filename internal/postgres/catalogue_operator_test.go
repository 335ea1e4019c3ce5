package postgres_test

import "slices"

func init() { catalogueParts = append(catalogueParts, operatorCatalogue) }

var operatorCatalogue = cataloguePart{
	rows: `
ALTER TABLE operator_actions ALTER id SET DEFAULT 'act_' || repeat('n', 26), ALTER actor SET DEFAULT 'ann',
	ALTER kind SET DEFAULT 'try_now', ALTER subject SET DEFAULT 'pay', ALTER reason SET DEFAULT 'the customer called';
INSERT INTO operator_actions (id, outcome, result)
	VALUES ('act_' || repeat('0', 26), NULL, NULL), ('act_' || repeat('1', 26), 'done', 'resumed')`,
	entries: []entry{
		{
			table: "operator_actions", name: "operator_actions_pkey", rule: "an action has one row",
			refused:  []string{`INSERT INTO operator_actions (id) VALUES ('act_' || repeat('0', 26))`},
			accepted: []string{`INSERT INTO operator_actions (id) VALUES ('act_' || repeat('2', 26))`},
		},
		{
			table: "operator_actions", name: "action_has_reason", rule: "an action has a reason of 1 to 500 characters",
			refused: []string{
				`INSERT INTO operator_actions (reason) VALUES ('')`,
				`INSERT INTO operator_actions (reason) VALUES (repeat('r', 501))`,
			},
			accepted: []string{
				`INSERT INTO operator_actions (reason) VALUES ('r')`,
				`INSERT INTO operator_actions (reason) VALUES (repeat('r', 500))`,
			},
		},
		{
			table: "operator_actions", name: "action_id_is_well_formed",
			rule: "the id of an action is act_ and 26 characters from 0 to v",
			refused: []string{
				`INSERT INTO operator_actions (id) VALUES ('act_' || repeat('0', 25))`,
				`INSERT INTO operator_actions (id) VALUES ('act_' || repeat('0', 27))`,
				`INSERT INTO operator_actions (id) VALUES ('act_' || repeat('w', 26))`,
				`INSERT INTO operator_actions (id) VALUES ('act_' || repeat('A', 26))`,
				`INSERT INTO operator_actions (id) VALUES ('pay_' || repeat('0', 26))`,
				`INSERT INTO operator_actions (id) VALUES ('fact_' || repeat('0', 26))`,
			},
			accepted: []string{
				`INSERT INTO operator_actions (id) VALUES ('act_' || repeat('9', 26))`,
				`INSERT INTO operator_actions (id) VALUES ('act_' || repeat('a', 26))`,
				`INSERT INTO operator_actions (id) VALUES ('act_' || repeat('v', 26))`,
			},
		},
		{
			table: "operator_actions", name: "actor_is_named", rule: "an action names its actor in 1 to 80 characters",
			refused: []string{
				`INSERT INTO operator_actions (actor) VALUES ('')`,
				`INSERT INTO operator_actions (actor) VALUES (repeat('a', 81))`,
			},
			accepted: []string{
				`INSERT INTO operator_actions (actor) VALUES ('a')`,
				`INSERT INTO operator_actions (actor) VALUES (repeat('a', 80))`,
			},
		},
		{
			table: "operator_actions", name: "ended_action_has_result",
			rule: "an action has an outcome and a result, or neither",
			refused: []string{
				`INSERT INTO operator_actions (outcome) VALUES ('done')`,
				`INSERT INTO operator_actions (result) VALUES ('resumed')`,
			},
		},
		{
			table: "operator_actions", name: "action_is_final",
			rule: "an action never changes, except that its outcome is recorded once",
			refused: slices.Concat(
				setEach("UPDATE operator_actions", "outcome IS NULL", "id = 'act_' || repeat('2', 26)", "actor = 'bob'",
					"kind = 'refund'", "tenant_id = 'ten'", "subject = 'other'", "reason = 'other'",
					"created_at = '2026-01-01'"),
				setEach("UPDATE operator_actions", "outcome IS NOT NULL", "result = 'refused'",
					"outcome = NULL, result = NULL")),
			accepted: []string{`UPDATE operator_actions SET outcome = 'done', result = 'resumed' WHERE outcome IS NULL`},
		},
		{
			table: "operator_sessions_ended", name: "operator_sessions_ended_pkey", rule: "a session ends once",
			refused:  []string{`INSERT INTO operator_sessions_ended VALUES ('n', now()), ('n', now())`},
			accepted: []string{`INSERT INTO operator_sessions_ended VALUES ('n', now()), ('o', now())`},
		},
		{
			table: "operator_actions", name: "action_is_never_deleted", rule: "an action is never deleted",
			refused: []string{
				`DELETE FROM operator_actions WHERE outcome IS NULL`,
				`DELETE FROM operator_actions WHERE outcome IS NOT NULL`,
			},
		},
	},
}
