package main

// wordings are the sentences of shared files that name a part, by the part. Without it they are replaced. A mark ties
// whole lines, and a line of prose has more in it; TestManifest checks that each sentence is still there.
var wordings = map[string][]wording{
	"docs": {
		{
			"internal/http/openapi.yaml",
			"\n" +
				"    See [How idempotency keys work](/docs/idempotency).\n",
			"\n",
		},
		{
			"internal/http/openapi.yaml",
			" See [How idempotency keys\n" +
				"        work](/docs/idempotency).",
			"",
		},
		{
			"internal/http/openapi.yaml",
			" See [How idempotency keys work](/docs/idempotency).",
			"",
		},
		{
			"internal/http/openapi.yaml",
			"`type` is the path of a page of this service that explains\n" +
				"      the problem; `code` is for programs; `retryable` says whether to retry with the same " +
				"key.\n" +
				"      [All problems](/problems).",
			"`type` identifies the problem; `code` is for\n" +
				"      programs; `retryable` says whether to retry with the same key.",
		},
		{
			"internal/http/openapi.yaml",
			"description: The path of a page that explains the problem.",
			"description: Identifies the problem.",
		},
		{
			"internal/http/openapi.yaml",
			"see the problem's page; use a **new key**",
			"use a **new key**",
		},
		{
			"internal/http/openapi.yaml",
			"# tests validate every response against this file. Served as JSON at /openapi.json,\n" +
				"# in the order of this file.\n",
			"# tests validate every response against this file.\n",
		},
		{
			"internal/http/openapi.go",
			"is the API's contract as JSON, the bytes of /openapi.json. The document is",
			"is the API's contract as JSON; tests compare every response with it. The document is",
		},
		{
			"internal/http/openapi.go",
			" Members keep the order of\n" +
				"// the file, because the reference shows them in that order.",
			"",
		},
		{
			"internal/http/problem_types.go",
			", problem_texts.go explains them, and the OpenAPI\n" +
				"// document lists the same codes; tests compare the three.",
			", and the OpenAPI document lists the same codes;\n" +
				"// tests compare the two.",
		},
	},
	"events": {
		{
			"internal/outbox/doc.go",
			"// Readers of GET /v1/events need",
			"// A reader of all events needs",
		},
		{
			"db/queries/events.sql",
			"(GET /v1/events)",
			"(no route reads it here)",
		},
		{
			"internal/notifier/doc.go",
			"in every attempt, at the broker and in GET\n" +
				"// /v1/events, so",
			"in every attempt and at the broker, so",
		},
	},
	"consumers": {
		{
			"cmd/api/boundary_faults.go",
			" A consumer has a boundary, too, after the\n" +
				"// effect of an event and before its acknowledgement: \"CONSUMER/payment.succeeded=kill\".",
			"",
		},
	},
	"kafka": {
		{
			".env.example",
			", kafka://…",
			"",
		},
		{
			"docs/operations.md",
			", `kafka://…`",
			"",
		},
		{
			"internal/broker/broker.go",
			"//	kafka://[user:password@]host[:port],…[/topic][?tls=true&sasl=plain|scram-sha-256|scram-sha-512&" +
				"partitions=n…]\n",
			"",
		},
		{
			"internal/broker/doc.go",
			"; Kafka",
			"",
		},
		{
			"internal/broker/doc.go",
			"//	Kafka       a partition, none across       holds the process's          1 MB (topic's    a " +
				"producer's retries are\n" +
				"//	            by record    restarts          partitions; tried in place,  max.message.     not " +
				"repeated\n" +
				"//	            key                            without a limit              bytes)\n",
			"",
		},
		{
			"internal/broker/doc.go",
			"(JetStream, Kafka)",
			"(JetStream)",
		},
	},
	"sqs": {
		{
			".env.example",
			", sqs://…",
			"",
		},
		{
			"docs/operations.md",
			", `sqs://…`",
			"",
		},
		{
			"internal/broker/broker.go",
			"//	sqs://host/account/prefix?consumers=a,b[&region=r][&endpoint=url]   FIFO queues prefix-a.fifo, " +
				"prefix-b.fifo\n",
			"",
		},
		{
			"internal/broker/doc.go",
			"; SQS FIFO queues",
			"",
		},
		{
			"internal/broker/doc.go",
			"//	SQS FIFO    a message    5 minutes, by     holds the aggregate; visible 256 KiB          the window, " +
				"per queue\n" +
				"//	            group        deduplication id  again after a pause; without\n" +
				"//	                                           a limit unless the queue has\n" +
				"//	                                           a redrive policy: give it none\n",
			"",
		},
		{
			"internal/broker/doc.go",
			" or after the visibility timeout of 30\n" +
				"// seconds (SQS). If our",
			".\n" +
				"// If our",
		},
	},
	"rabbitmq": {
		{
			".env.example",
			", amqp://…",
			"",
		},
		{
			"docs/operations.md",
			", `amqp://…`",
			"",
		},
		{
			"internal/broker/broker.go",
			"//	amqp://[user:password@]host[:port],…[/vhost][?consumers=a,b&exchange=x&replicas=n]   RabbitMQ; " +
				"amqps:// for TLS\n",
			"",
		},
		{
			"internal/broker/doc.go",
			"; RabbitMQ",
			"",
		},
		{
			"internal/broker/doc.go",
			"//	RabbitMQ    the queue    none              holds the consumer; tried in  128 MiB, 16 of  none\n" +
				"//	                                           place, without a limit but    RabbitMQ 4\n" +
				"//	                                           that of RabbitMQ 4: lift it   (max_message_size)\n",
			"",
		},
	},
	"kinesis": {
		{
			".env.example",
			", kinesis://…",
			"",
		},
		{
			"docs/operations.md",
			", `kinesis://…`",
			"",
		},
		{
			"internal/broker/broker.go",
			"//	kinesis://region/stream[?endpoint=url]   Kinesis, which only publishes\n",
			"",
		},
		{
			"internal/broker/doc.go",
			"; Kinesis",
			"",
		},
		{
			"internal/broker/doc.go",
			"//	Kinesis     a shard, by  none              nothing is delivered: the    1 MiB            none\n" +
				"//	            partition                      consumers read the outbox\n" +
				"//	            key\n",
			"",
		},
	},
	"cdc": {
		{
			".env.example",
			", cdc:",
			"",
		},
		{
			"docs/operations.md",
			", `cdc:`",
			"",
		},
		{
			"internal/broker/broker.go",
			"//	cdc:                                               the write-ahead log of Options.Pool's database, and " +
				"no broker\n",
			"",
		},
		{
			"internal/broker/doc.go",
			"; the log of the database",
			"",
		},
		{
			"internal/broker/doc.go",
			"//	cdc         none across  none              not delivered again: the     none             the " +
				"transaction\n" +
				"//	            aggregates                     consumer's feed has it\n",
			"",
		},
	},
	"disputes": {
		{
			"db/queries/invariants.sql",
			"a late failure\n-- of a refund follows. A dispute moves as Stripe says.",
			"a late failure\n-- of a refund follows.",
		},
	},
	"checkouts": {
		{
			"docs/add-an-operation.md",
			"- The checkout, several steps under one key: [steps.go](../internal/checkout/steps.go). Its plan is rows. " +
				"A local step and its\n" +
				"  row are one commit. A definite failure compensates the steps before it, and an unknown outcome does " +
				"not\n" +
				"  (`no_compensation_before_outcome_is_known`).\n",
			"",
		},
		{
			"db/queries/invariants.sql",
			"one payment, one refund, one checkout.",
			"one payment, one refund.",
		},
		{
			"db/queries/invariants.sql",
			"a payment, refund or checkout still has",
			"a payment or refund still has",
		},
		{
			"db/queries/invariants.sql",
			"a payment, refund or checkout that has not ended",
			"a payment or refund that has not ended",
		},
		{
			"db/queries/invariants.sql",
			"(h.type IN ('order.created', 'payment.created', 'refund.created') OR h.type LIKE 'checkout.%')",
			"h.type IN ('order.created', 'payment.created', 'refund.created')",
		},
		{
			"internal/http/orders.go",
			"// check is shared with checkouts, whose body contains an order.\n",
			"// check validates the body.\n",
		},
		{
			"internal/http/openapi.yaml",
			"An order, a payment, a refund or a checkout.",
			"An order, a payment or a refund.",
		},
		{
			"internal/http/problem_texts.go",
			"order is open again; in a checkout, the completed steps were compensated.",
			"order is open again.",
		},
		{
			"internal/broker/jetstream.go",
			"orders, payments, refunds and checkouts",
			"orders, payments and refunds",
		},
		{
			"internal/compare/compare.go",
			"only that one may: a checkout\n" +
				"\t// that has not ended.",
			"only that one may.",
		},
		{
			"internal/outbox/outbox.go",
			"an order, a payment, a refund, a\n" +
				"// checkout. Version",
			"an order, a payment, a\n" +
				"// refund. Version",
		},
		{
			"internal/payments/doc.go",
			"// A payment can be a step of another operation, such as a checkout. Then the other\n" +
				"// operation says",
			"// A payment can be a step of another operation. Then the other operation says",
		},
		{
			"internal/reconcile/reconciler.go",
			"none waits: a checkout or a cancel works",
			"none waits: a cancel works",
		},
	},
	"operator": {
		{
			"internal/keyhistory/doc.go",
			", the operator's page to the\n" +
				"// operator. It only reads.",
			". It only reads.",
		},
		{
			".env.example",
			", which have no password, profiles and the operator's page.",
			", which have no password, and profiles.",
		},
		{
			"internal/postgres/pool.go",
			"application_name, with which an operator finds our sessions",
			"application_name, with which our sessions are found",
		},
	},
	"proof": {
		{
			".ci/run",
			" ${beside[*]} ${nightly[*]} ${tagged[*]}",
			"",
		},
		{
			"docs/operations.md",
			" ([why](adr/0023-traces-through-the-rows.md))",
			"",
		},
		{
			"docs/operations.md",
			"([measured](adr/0053-two-roles-and-a-policy.md) together with",
			"(measured together with",
		},
		{
			"docs/operations.md",
			", on another server; CI runs the same commands.",
			", on another server.",
		},
		{
			"docs/add-an-operation.md",
			"The excerpts below are the code itself. A test compares each with its file.",
			"The excerpts below are the code itself.",
		},
		{
			".golangci.yml",
			"in the modules stripesim, client and proof too",
			"in the modules stripesim and client too",
		},
		{
			".golangci.yml",
			"^(proof|cmd/demo|cmd/new|testkit)/",
			"^testkit/",
		},
		{
			".golangci.yml",
			"\"**/cmd/api/**\", \"!**/proof/**\",",
			"\"**/cmd/api/**\",",
		},
		{
			"internal/operator/pages/invariants.html",
			" <code>docs/guarantees.md</code> explains each invariant under its number: what enforces it, and which test " +
				"fails without it.",
			"",
		},
		{
			"internal/operator/pages/overview.html",
			" <code>docs/guarantees.md</code> explains each invariant under its number (I1, I2, …).",
			"",
		},
		{
			"THIRD_PARTY_NOTICES.md",
			", and look at the page (`SCREENSHOT_DIR=out go test -C proof ./browser -run InABrowser`)",
			", and look at the page",
		},
		{
			"db/queries/payments.sql",
			" (docs/performance.md)",
			"",
		},
		{
			"internal/inbox/intake.go",
			" (docs/performance.md)",
			"",
		},
		{
			"internal/postgres/pool.go",
			" (docs/performance.md)",
			"",
		},
		{
			"internal/postgres/invariants.go",
			", in the order of their numbers, which are\n" +
				"// those of docs/guarantees.md; a number",
			", in the order of their numbers;\n" +
				"// a number",
		},
		{
			"internal/postgres/invariants.go",
			"in the order of docs/guarantees.md whatever",
			"in that order whatever",
		},
		{
			"internal/http/openapi.yaml",
			"`go run ./cmd/demo -serve` starts the service and prints its address and an API key. Set both, " +
				"then paste the rest:",
			"Set the address of the service and an API key (`api tenant create NAME` prints one), then " +
				"paste the rest:",
		},
		{
			"testkit/crashmatrix/doc.go",
			" The tests of payments run each place once. The night runs all cells, and the table in docs/guarantees.md is\n" +
				"// written from the same lists.\n",
			" The tests of payments run each place once.\n",
		},
		{
			"stripesim/README.md",
			"CI runs the first two as they stand here; of the third it checks the grammar. Or with curl:",
			"Or with curl:",
		},
		{
			"stripesim/README.md",
			"[COVERAGE.md](COVERAGE.md) lists each endpoint, parameter and property: checked against Stripe's own OpenAPI document, not " +
				"served, or\ndifferent. ",
			"",
		},
		{
			"stripesim/shapes_test.go",
			"The module proof runs them so, and validates each body against\n" +
				"// Stripe's own OpenAPI document, which this module does not depend on.",
			"They can be validated against\n" +
				"// Stripe's own OpenAPI document, which this module does not depend on.",
		},
		{
			"stripesim/doc.go",
			"Tests, the demo, chaos and the load test all count\n" +
				"// the same thing",
			"All tests count the same\n" +
				"// thing",
		},
		{
			"stripesim/admin_test.go",
			"a shell script or a chaos harness in",
			"a shell script or a test in",
		},
		{
			"internal/audit/audit.go",
			"Scripts and the chaos harness read it",
			"Scripts read it",
		},
		{
			"cmd/stripesim/main.go",
			"// for chaos tests, and for use with curl.",
			"// for tests, and for use with curl.",
		},
		{
			"testkit/process/build.go",
			", for a caller in that module or in\n" +
				"// one that replaces it with a folder, as proof does.",
			".",
		},
		{
			"testkit/devpg/devpg.go",
			"// write as in production: the demo, chaos, benchmarks",
			"// write as in production",
		},
	},
}

// wording is a text of a file, and what is written there without the part.
type wording struct{ file, with, without string }
