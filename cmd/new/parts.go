package main

// part is something that a service can be made without. Everything of a part that has files of its own is named here.
// The lines of a part in shared files carry a mark (see cut.go). TestManifest checks both.
type part struct {
	name  string
	gives string   // what a service with it can do
	needs []string // parts that it does not build without
	// paths are the folders and files that go with the part, tests included. A file that belongs to two
	// parts stands in both lists and is left out when either is. A path that ends in * names every path
	// that begins so.
	paths []string
	// instead are files that take the place of some that go, because what stays calls them: a file of this checkout,
	// and its text in the folder instead.
	instead map[string]string
}

// parts is the manifest.
var parts = []part{
	{
		name:  "history",
		gives: "GET /v1/idempotency-keys/{key}: what happened under a key, for the person who is asked about a charge",
		paths: []string{
			"internal/keyhistory/", "internal/http/keys.go", "internal/operations/history.go",
			"internal/checkout/history.go", "internal/checkout/history_test.go", "internal/notifier/history.go",
			"internal/postgres/queries_key_history_test.go",
			"cmd/api/part_history.go", "db/queries/key_history.sql", "internal/money/format.go",
			"cmd/api/secrets_test.go",
		},
	},
	{
		name:  "docs",
		gives: "the API's documentation on the API's address: a reference, /openapi.json, and a page for each problem",
		paths: []string{
			"internal/http/docs.go", "internal/http/docs_test.go", "internal/http/assets/", "internal/http/pages/",
			"internal/http/problem_texts.go", "internal/http/problem_texts_checkouts.go", "internal/http/problem_texts_webhook_endpoints.go",
			"cmd/api/part_docs.go", "THIRD_PARTY_NOTICES.md",
			"cmd/api/secrets_test.go",
		},
	},
	{
		name:  "events",
		gives: "GET /v1/events: the events of a tenant, for one that cannot receive them from the broker or a webhook",
		paths: []string{
			"internal/http/events.go", "internal/http/events_test.go", "internal/outbox/feed.go", "internal/outbox/feed_test.go",
			"internal/outbox/feed_standby_test.go", "internal/payments/feed_damaged_test.go",
			"internal/lives/lives_events_test.go", "testkit/histories/cursors.go",
			"cmd/api/part_events.go",
			"cmd/api/secrets_test.go",
		},
	},
	{
		name:  "consumers",
		gives: "a consumer in the service reads its events from the broker, and applies each once",
		paths: []string{
			"internal/subscriber/",
			"internal/inbox/consumer.go", "internal/inbox/consumer_test.go", "internal/inbox/wrong_test.go",
			"internal/broker/consume.go", "internal/broker/consume_test.go", "internal/broker/jetstream_consume.go",
			"internal/broker/contract_test.go", "internal/broker/ack_wait_test.go", "internal/broker/nats_conf_test.go",
			"testkit/brokertest/exceptions.go", "testkit/brokertest/reader.go", "testkit/brokertest/relay.go",
			"testkit/brokertest/rules.go", "testkit/brokertest/suite.go",
			"cmd/api/consume.go", "db/queries/inbox_consumers.sql", "internal/postgres/queries_consumers_test.go",
			"cmd/api/secrets_test.go",
		},
	},
	{
		name:  "checkouts",
		gives: "POST /v1/checkouts: an order, its stock and its payment as one saga, with compensation; /v1/stock",
		paths: []string{
			"internal/checkout/",
			"internal/http/checkouts.go", "internal/http/stock.go", "internal/http/problem_texts_checkouts.go",
			"cmd/api/part_checkouts.go",
			"db/migrations/00011_checkouts.sql", "db/queries/checkouts.sql", "db/queries/stock.sql",
			"db/queries/invariants_checkouts.sql", "db/queries/operator_checkouts.sql",
			"internal/postgres/invariants_checkouts.go", "internal/postgres/catalogue_checkouts_test.go",
			"internal/postgres/queries_checkouts_test.go", "internal/postgres/queries_invariants_checkouts_test.go",
			"internal/postgres/queries_operator_checkouts_test.go",
			"internal/http/lists_checkouts_test.go", "internal/http/waits_checkouts_test.go",
			"internal/payments/invariants_checkouts_test.go", "internal/lives/lives_checkouts_test.go", "internal/lives/lost_checkouts.go", "internal/keyhistory/history_checkouts_test.go",
			"testkit/world/checkouts.go", "testkit/histories/checkouts.go", "testkit/shop/", "testkit/openapi/apitest_test.go",
			"cmd/api/secrets_test.go",
		},
	},
	{
		name:  "disputes",
		gives: "what banks take back: every dispute with its movements, fee and deadline; GET /v1/disputes",
		paths: []string{
			"internal/disputes/", "internal/stripe/disputes.go",
			"internal/compare/dispute.go", "internal/compare/dispute_test.go",
			"internal/http/disputes.go", "internal/ledger/disputes.go",
			"cmd/api/part_disputes.go", "internal/audit/disputes.go",
			"db/migrations/00013_disputes.sql", "db/queries/disputes.sql", "db/queries/ledger_disputes.sql",
			"db/queries/invariants_disputes.sql", "internal/postgres/invariants_disputes.go",
			"internal/postgres/catalogue_disputes_test.go",
			"testkit/world/disputes.go", "testkit/histories/disputes.go", "internal/payments/invariants_disputes_test.go",
			"internal/reconcile/lost_dispute_test.go",
			"internal/postgres/queries_disputes_test.go", "internal/postgres/queries_invariants_disputes_test.go",
			"internal/postgres/queries_operator_disputes_test.go",
			"internal/postgres/queries_ledger_disputes_test.go",
			"internal/payments/others_in_any_order_test.go", "internal/payments/authorizations_in_any_order_test.go",
			"internal/payments/lost_dispute_test.go", "testkit/paycases/disputes.go", "testkit/paycases/any_order.go",
			"internal/operator/disputes.go", "internal/operator/disputes_test.go", "db/queries/operator_disputes.sql",
			"cmd/api/secrets_test.go",
		},
	},
	{
		name:  "webhooks",
		gives: "events are sent to endpoints that tenants make, signed, with filters, retries and a log",
		needs: []string{"consumers"},
		paths: []string{
			"internal/notifier/",
			"cmd/api/part_webhooks.go", "internal/lives/lost_webhooks.go",
			"internal/http/webhook_endpoints.go", "internal/http/problem_texts_webhook_endpoints.go",
			"internal/http/contract_webhooks_test.go", "docs/receive-webhooks.md",
			"db/migrations/00010_webhooks.sql", "db/queries/deliveries.sql", "db/queries/webhook_endpoints.sql",
			"db/queries/invariants_webhooks.sql", "db/queries/operator_webhooks.sql",
			"internal/postgres/invariants_webhooks.go", "internal/payments/invariants_webhooks_test.go",
			"internal/postgres/catalogue_webhooks_test.go",
			"internal/postgres/queries_deliveries_test.go", "internal/postgres/queries_invariants_webhooks_test.go",
			"internal/postgres/queries_operator_webhooks_test.go",
			"cmd/api/secrets_test.go", "cmd/api/traces_test.go",
		},
	},
	{
		name:  "ledger",
		gives: "double-entry books of what moved, made from the events; the example of a consumer",
		needs: []string{"consumers"},
		paths: []string{
			"internal/ledger/",
			"cmd/api/part_ledger.go",
			"db/migrations/00009_ledger.sql", "db/queries/ledger.sql", "db/queries/invariants_ledger.sql",
			"internal/postgres/invariants_ledger.go", "internal/postgres/catalogue_ledger_test.go",
			"db/queries/ledger_disputes.sql", "internal/disputes/ledger_test.go",
			"internal/postgres/queries_ledger_test.go", "internal/postgres/queries_ledger_disputes_test.go",
			"internal/postgres/queries_invariants_ledger_test.go",
			"internal/payments/invariants_ledger_test.go", "internal/reconcile/restore_ledger_test.go",
			"cmd/api/traces_test.go",
			"cmd/api/secrets_test.go",
		},
	},
	{
		name:  "operator",
		gives: "the operator's page on the admin address: what is unfinished, unknown or parked, and the actions for it",
		needs: []string{"history"},
		paths: []string{
			"internal/operator/",
			"internal/payments/owed_settled_test.go",
			"internal/payments/decisions_operator_test.go",
			"internal/payments/repair_manual.go", "internal/payments/repair_refund_orphan.go",
			"internal/compare/orphan.go", "internal/compare/orphan_test.go", "internal/keyhistory/orphan.go",
			"db/queries/orphan_refunds.sql",
			"cmd/api/part_operator.go",
			"internal/postgres/catalogue_operator_test.go", "internal/postgres/queries_operator*",
			"db/migrations/00012_operator.sql", "db/queries/operator.sql", "db/queries/operator_checkouts.sql",
			"db/queries/operator_webhooks.sql",
			"testkit/world/desk.go",
			"internal/operator/disputes.go", "internal/operator/disputes_test.go",
			"db/queries/operator_disputes.sql",
			"cmd/api/secrets_test.go",
		},
	},
	{
		name:  "tracing",
		gives: "OpenTelemetry traces, exported to a collector",
		paths: []string{
			"internal/tracing/", "internal/idempotency/traces_test.go", "internal/inbox/traces_test.go",
			"internal/outbox/traces_test.go",
			"cmd/api/part_tracing.go", "cmd/api/tracing_exported.go", "cmd/api/tracing_left_out.go",
			"cmd/api/tracing_sampler_test.go",
			"cmd/api/traces_test.go", "cmd/api/secrets_test.go",
			"internal/reconcile/traced_test.go",
		},
		// Everything calls it, and here it does nothing.
		instead: map[string]string{"internal/tracing/tracing.go": "tracing.go.txt"},
	},
	{
		name:  "kafka",
		gives: "Kafka as the broker",
		needs: []string{"consumers"}, // publishing and consuming are one package
		paths: []string{"internal/broker/kafka/", "cmd/api/broker_kafka.go", "cmd/api/broker_tagged_test.go"},
	},
	{
		name:  "sqs",
		gives: "Amazon SQS as the broker",
		needs: []string{"consumers"},
		paths: []string{"internal/broker/sqs/", "cmd/api/broker_sqs.go", "cmd/api/broker_tagged_test.go"},
	},
	{
		name:  "rabbitmq",
		gives: "RabbitMQ as the broker",
		needs: []string{"consumers"},
		paths: []string{"internal/broker/rabbitmq/", "cmd/api/broker_rabbitmq.go", "cmd/api/broker_tagged_test.go"},
	},
	{
		name:  "kinesis",
		gives: "Amazon Kinesis as the broker",
		needs: []string{"consumers"},
		paths: []string{"internal/broker/kinesis/", "cmd/api/broker_kinesis.go", "cmd/api/broker_tagged_test.go"},
	},
	{
		name:  "cdc",
		gives: "events through PostgreSQL's log, for Debezium and others that capture changes, in the place of a broker",
		needs: []string{"consumers"},
		paths: []string{
			"internal/broker/cdc.go", "internal/broker/cdc_test.go", "cmd/api/doctor_cdc.go", "internal/postgres/cdc.go",
			"db/migrations/00015_cdc.sql", "db/queries/cdc.sql",
			"internal/postgres/catalogue_cdc_test.go", "internal/postgres/queries_cdc_test.go",
		},
	},
	{
		name: "proof",
		gives: "the demo and its console, the chaos harness, mutants, museum, benchmarks, load tests, the documents " +
			"and their tests",
		// They play, break and measure every part, so they build with all of them only.
		needs: []string{
			"history", "docs", "events", "consumers", "checkouts", "disputes", "webhooks", "ledger",
			"operator", "tracing", "kafka", "sqs", "rabbitmq", "kinesis", "cdc",
		},
		paths: []string{
			"proof/", ".ci/night.sh", ".ci/times", "stripesim/COVERAGE.md", "cmd/idemcheck/", "internal/idemcheck/", "docs/idemcheck.md", "cmd/demo/", "testkit/demo/", "loadtest/", "tools/k6.mod", "tools/k6.sum",
			"tools/sbom.mod", "tools/sbom.sum", "tools/release.mod", "tools/release.sum", ".goreleaser.yaml",
			".github/workflows/release.yml", "docs/releases.md", "tools/vuln.mod", "tools/vuln.sum",
			"deploy/doc.go", "deploy/files.go",
			// Every service keeps docs/operations.md, docs/add-an-operation.md and its skeleton.
			"docs/adr/", "docs/change-data-capture.md", "docs/checklist.md", "docs/glossary.md", "docs/guarantees.md", "docs/img/",
			"docs/performance.json", "docs/performance.md", "docs/security.md", "docs/use-your-own-provider.md",
			"testkit/crashmatrix/page.go", ".github/workflows/nightly.yml",
			"deploy/prometheus/rules_test.yml",
			"CONTRIBUTING.md", "SECURITY.md", ".devcontainer/",
		},
	},
}

// never is left out of every starter: what makes starters, and this project's own history, owners and forms.
var never = []string{
	"cmd/new/", "proof/night/starter/", "docs/starter.md", "CHANGELOG.md", ".github/CODEOWNERS", ".github/ISSUE_TEMPLATE/",
	".github/pull_request_template.md",
}
