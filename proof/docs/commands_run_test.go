//go:build unix

package docs_test

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/proof/internal/inventory"
)

// Every command in every document is run in CI, in one of four ways, or is known not to be (atStripe, elsewhere):
//
//   - a step of .ci/run runs it, by day or by night, perhaps for less long (inStep);
//   - a test runs the same program to the same end (inTest);
//   - TestTyped types it, with real values in the place of the document's;
//   - it is what CI itself is started with (startsCI).
//
// A command is a line of a fence marked sh, or a piece of code type that begins
// with a program. One that is in no table, and an entry that no document has any
// more, turn TestEveryCommandIsRun red.

// inStep says which line of which step runs a command.
var inStep = map[string]struct{ step, line string }{
	"go run ./cmd/demo":                                {"commands", "go run ./cmd/demo -all\n"},
	"go run -C proof ./chaos":                          {"chaos", "go run -C proof ./chaos "},
	"go run -C proof ./chaos -prometheus":              {"chaos", "go run -C proof ./chaos -prometheus "},
	"go run -C proof ./failover":                       {"failover", "go run -C proof ./failover "},
	"go run -C proof ./failover -cluster":              {"cluster", "go run -C proof ./failover -cluster "},
	"go run -C proof ./failover -async 500ms":          {"cluster", "go run -C proof ./failover -async 500ms "},
	"go run -C proof ./mutants":                        {"all_mutants", "go run -C proof ./mutants -within"},
	"go run -C proof ./mutants -named":                 {"named_mutants", "go run -C proof ./mutants -named\n"},
	"go run -C proof ./mutants -only M2":               {"named_mutants", "go run -C proof ./mutants -named\n"}, // one of them
	"go run -C proof ./mutants -catalogue":             {"all_mutants", "go run -C proof ./mutants -within"},    // part of it
	"go run -C proof ./mutants -changed":               {"mutants", "go run -C proof ./mutants -changed -within 150s\n"},
	"go run -C proof ./attack":                         {"long_attack", "go run -C proof ./attack -long\n"}, // the same, and more
	"go run -C proof ./attack -long":                   {"long_attack", "go run -C proof ./attack -long\n"},
	"go run -C proof ./load":                           {"load", " go run -C proof ./load\n"},
	"go run -C proof ./load -scenario duplicate-storm": {"load", " go run -C proof ./load -scenario duplicate-storm\n"},
	"make versions":                                    {"versions", "go run -C proof ./versions -duration "},
	"go test -C stripesim ./...":                       {"modules", "go_test -C stripesim -count=1 ./...\n"},
	"go test -C client ./...":                          {"modules", "go_test -C client -count=1 ./...\n"},
	"go test ./...":                                    {"test", "go_test ./...\n"},
	"go test ./internal/payments/crashmatrix":          {"test", " ./..."},
	"go test -C proof ./night/crashmatrix":             {"enumerations", "go_test -C proof "},
	"go test -C proof ./night/payments":                {"enumerations", "go_test -C proof "},
	"go test -C proof ./night/crashmatrix -run 'TestCrashMatrix/refund/finished'": {"enumerations", "go_test -C proof "},
	"go test ./internal/payments/... ./cmd/api":                                   {"test", " ./..."},
	"go test -C proof ./night/payments ./night/crashmatrix":                       {"enumerations", "go_test -C proof "},
	"go test -tags brokers ./internal/broker/...":                                 {"modules", "go_test -count=1 -tags brokers "},
	"go test -C proof ./museum":                                                   {"proof", "go_test -C proof "},
	"go test -C proof ./client/ts":                                                {"proof", "go_test -C proof "},
	"go test -C proof -run TestClient ./browser":                                  {"proof", "go_test -C proof "},

	"docker compose up --build --wait": {"docker",
		"docker compose up --build --wait\n"},
	"docker compose build stripesim": {"docker",
		"docker compose up --build --wait\n"},
	"docker run --rm -p 127.0.0.1:12111:12111 -p 127.0.0.1:12112:12112 payonce-stripesim:local": {"docker",
		"stripesim_alone\n"},
	"docker compose run --rm demo": {"docker",
		"docker compose run --build --rm demo "},
	"docker compose logs --since 15m api | grep '\"status\":422'": {"docker",
		"docker compose logs --since 15m api | grep '\"status\":422'"},
	`docker compose logs --since 15m api | grep -e '"msg":"bug' -e '"level":"ERROR"'`: {"docker",
		`docker compose logs --since 15m api | grep -e '"msg":"bug' -e '"level":"ERROR"'`},
	"docker compose exec -T api api doctor": {"docker",
		"docker compose exec -T api api doctor\n"},
	`docker compose exec -e PGOPTIONS='-c payonce.tenants=*' postgres psql ` +
		`"postgres://payonce_service:…@127.0.0.1/payonce"`: {"docker",
		`docker compose exec -T -e PGOPTIONS='-c payonce.tenants=*' postgres psql "postgres://payonce_service:`},
	"docker compose port --index 1 api 8081": {"docker",
		"docker compose port --index 1 api 8081)\n"},
	"docker compose --profile load run --build --rm load": {"containers",
		"docker compose --profile load run --build --rm load\n"},
	"SCENARIO=duplicate-storm docker compose --profile load run --rm load": {"containers",
		"SCENARIO=duplicate-storm docker compose --profile load run --rm load\n"},
	"docker compose up --build chaos": {"containers",
		"docker compose up --build --exit-code-from chaos chaos\n"},
	"OTEL_SDK_DISABLED=false docker compose --profile observe up --wait": {"containers",
		"OTEL_SDK_DISABLED=false docker compose --profile observe up --wait "},

	"DURATION=10m SEED=7 make chaos": {"long_chaos",
		"go run -C proof ./chaos -prometheus -duration \"${DURATION:-10m}\" -seed "},
	"go run -C proof ./bench":             {"bench", "go run -C proof ./bench "},
	"go run -C proof ./bench -write docs": {"bench", " -write out/bench "},
	"go run -C proof ./bench -only 'stored keys' -stored 10000000 -write docs": {"bench",
		"go run -C proof ./bench -stored "},
	"go run -C proof ./bench -only memory -memory 10m": {"bench", " -memory 10m "},
	"go run -C proof ./bench -only 'another commit' -against HEAD~1": {"bench",
		"go run -C proof ./bench -only 'another commit' -against "},
	"go run -C proof ./bench -only 'a cache of responses'": {"bench", "go run -C proof ./bench -stored "},
	"go run -C proof ./bench/retention -partitions -keys 300000": {"retention",
		"go run -C proof ./bench/retention -partitions "},
	"go run -C proof ./bench/retention": {"retention",
		"go run -C proof ./bench/retention\n"},
}

// inTest says which test runs a command's program, with what the command asks for.
var inTest = map[string]struct{ dir, test string }{
	`DATABASE_URL="$RESTORED_OWNER_URL" go run ./cmd/api restored -at 2026-11-29T03:00:00Z`: {"proof/restore", "TestRestoreOfTheHandbook"},
	`DATABASE_URL="$RESTORED_URL" go run ./cmd/api tenant create "lost shop" -id ten_…`:     {"proof/restore", "TestRestoreOfTheHandbook"},
	`DATABASE_URL="$RESTORED_URL" go run ./cmd/api tenant key revoke ten_… HINT`:            {"proof/restore", "TestRestoreOfTheHandbook"},
	`DATABASE_URL="$RESTORED_URL" go run ./cmd/api serve`:                                   {"proof/restore", "TestRestoreOfTheHandbook"},
	`DATABASE_URL="$RESTORED_URL" go run ./cmd/api relay replay -since 48h`:                 {"proof/restore", "TestRestoreOfTheHandbook"},
	"go run ./cmd/demo -serve":         {"proof/night/demo", "TestServe"},
	"go run -C proof ./museum":         {"proof/museum", "TestExhibits"},
	"go build -tags brokers ./cmd/api": {"cmd/api", "TestEveryBrokerIsLinked"},
	"make observe":                     {"proof/deploy", "TestObserve"},
	"go run -C proof ./mutants -write": {"proof/internal/mutants", "TestWrite"}, // step mutants does the rest
	"go run -C proof ./protocol":       {"proof/internal/protocol", "TestNothingBreaksTheInvariants"},
	"go run -C proof ./protocol -without close-first,adoption -only I24": {"proof/internal/protocol",
		"TestWhatWasFoundIsFoundAgain"},
	"go run -C proof ./protocol -write": {"proof/internal/protocol", "TestWrite"},
	"go test -C proof ./night/crashmatrix -run TestCrashMatrixIsOnItsPage -update": {"proof/night/crashmatrix",
		"TestCrashMatrixIsOnItsPage"}, // is red where -update would write something

	`docker compose logs --since 15m api | grep -e '"status":429' -e '"status":503' | grep -o '"tenant_id":"[^"]*"' | sort | uniq -c | sort -rn`: {"internal/http", "TestHandbookFindsTheFlood"},
	`docker compose logs --since 15m api | grep '"log lines left out"'`:                                                                          {"internal/http", "TestHandbookFindsTheFlood"},

	`curl "http://HOST:8222/connz?auth=true"`: {"internal/broker", "TestNATSConfiguration"},

	"go run ./cmd/idemcheck -profile profile.yaml http://127.0.0.1:8080": {"cmd/idemcheck", "TestRun"},
	"go test -C proof ./idemcheck -run TestForeignLibraries":             {"proof/idemcheck", "TestForeignLibraries"},
	"go test -C proof ./idemcheck -run TestPayonceIsClean":               {"proof/idemcheck", "TestPayonceIsClean"},

	// docs/starter.md
	`go run ./cmd/new -module github.com/acme/shop -with webhooks,operator ../shop`: {"proof/night/starter", "TestEachPart"},
	`cd ../shop && go test ./...`:                                            {"proof/night/starter", "TestEachPart"},
	`go run ./cmd/new -module github.com/acme/shop -with none ../shop-small`: {"proof/night/starter", "TestNoneTakesMoneyOnce"},
	"createdb -h 127.0.0.1 -U postgres shop":                                 {"proof/night/starter", "TestNoneTakesMoneyOnce"},
	"until curl -fs 127.0.0.1:8080/readyz; do sleep 1; done":                 {"proof/night/starter", "TestNoneTakesMoneyOnce"},
	"cd ../shop-small":                   {"proof/night/starter", "TestNoneTakesMoneyOnce"},
	`go run ./cmd/stripesim -keys '*' &`: {"proof/night/starter", "TestNoneTakesMoneyOnce"},
	`export DATABASE_URL=postgres://postgres@127.0.0.1:5432/shop STRIPE_SECRET_KEY=sk_test_local`: {"proof/night/starter",
		"TestNoneTakesMoneyOnce"},
	`export STRIPE_API_BASE=http://127.0.0.1:12111`:               {"proof/night/starter", "TestNoneTakesMoneyOnce"},
	`KEY=$(go run ./cmd/api tenant create acme | jq -r .api_key)`: {"proof/night/starter", "TestNoneTakesMoneyOnce"},
	`go run ./cmd/api &`: {"proof/night/starter", "TestNoneTakesMoneyOnce"},
	`ORDER=$(curl -s 127.0.0.1:8080/v1/orders -H "Authorization: Bearer $KEY" -H 'Idempotency-Key: order-1' -H ` +
		`'Content-Type: application/json' -d ` +
		`'{"currency":"eur","items":[{"sku":"tea","quantity":1,"unit_amount":1250}]}' | jq -r .id)`: {"proof/night/starter",
		"TestNoneTakesMoneyOnce"},
	`curl -s 127.0.0.1:8080/v1/payments -H "Authorization: Bearer $KEY" -H 'Idempotency-Key: pay-1' -H ` +
		`'Content-Type: application/json' -d "{\"order_id\":\"$ORDER\",\"payment_method\":\"pm_card_visa\"}"`: {"proof/night/starter",
		"TestNoneTakesMoneyOnce"},

	// docs/cells.md
	"CELL=eu1 DATABASE_URL=postgres://payonce_owner:…@eu1-db:5432/payonce go run ./cmd/api migrate": {"cmd/api",
		"TestMigrateNamesTheCell"},
	"go run ./cmd/api setup stripe -url https://eu1.api.example.com/v1/webhooks/stripe": {"cmd/api",
		"TestSetupStripeAtTheSimulator"},
	`go run ./cmd/api tenant create "my shop" -cell eu1`: {"cmd/api", "TestTenantCreateAgreesWithTheDatabase"},
	"SOURCE=postgres://payonce_audit:…@eu1-db/payonce TARGET=postgres://payonce_owner:…@eu2-db/payonce " +
		"./deploy/copy-tenant.sh ten_…": {"proof/cells", "TestMoveTenant"},
	"go run ./cmd/api tenant key create ten_… -name checkout": {"proof/cells", "TestMoveTenant"},

	// docs/webhooks-from-stripe.md, with the simulator
	"go run ./cmd/stripesim -store /tmp/stripesim.journal &":   {"cmd/stripesim", "TestRun"},
	"until curl -fs 127.0.0.1:12112/healthz; do sleep 1; done": {"cmd/stripesim", "TestRun"},
	"export STRIPE_API_BASE=http://127.0.0.1:12111 STRIPE_SECRET_KEY=sk_test_payonce": {"cmd/api",
		"TestSetupStripeAtTheSimulator"},
	"go run ./cmd/api setup stripe -url http://127.0.0.1:8080/v1/webhooks/stripe >> /tmp/stripesim.env": {"cmd/api",
		"TestSetupStripeAtTheSimulator"},
	"export $(cat /tmp/stripesim.env)": {"cmd/api", "TestSetupStripeAtTheSimulator"},

	// stripesim/README.md and COVERAGE.md
	"go test -C proof ./stripesim -run TestShapes -update":            {"proof/stripesim", "TestShapes"},            // is red where it would write
	"go test -C proof ./versions -run TestReleasedMigrations -update": {"proof/versions", "TestReleasedMigrations"}, // likewise
	"go run example.com/payonce/cmd/stripesim":                        {"cmd/stripesim", "TestRun"},
	`curl -s 127.0.0.1:12111/v1/payment_intents -u sk_test_payonce: -H "Idempotency-Key: cart-45" -d amount=1250 -d currency=eur -d confirm=true -d payment_method=pm_card_visa -d "payment_method_types[]=card" -d "metadata[order_id]=order_1"`: {"proof/stripesim", "TestReadme"},
	`curl -s 127.0.0.1:12112/settings -d '{"requests_per_connection":1000}'`:                                         {"proof/stripesim", "TestReadme"},
	`curl -s 127.0.0.1:12112/faults -d '{"op":"charge.get","kind":"silence"}'`:                                       {"proof/stripesim", "TestReadme"},
	`curl -s "127.0.0.1:12112/charges?order_id=order_1"`:                                                             {"proof/stripesim", "TestReadme"},
	`curl -s "127.0.0.1:12112/effects?kind=charge"`:                                                                  {"proof/stripesim", "TestReadme"},
	`curl -s 127.0.0.1:12112/faults -d '{"op":"intent.create","kind":"drop"}'`:                                       {"proof/stripesim", "TestReadme"},
	`curl -s 127.0.0.1:12112/faults -d '{"op":"*.post","kind":"delay","delay":"2s","times":3,"order_id":"order_1"}'`: {"proof/stripesim", "TestReadme"},
	`curl -s 127.0.0.1:12112/faults`:                                                                                 {"proof/stripesim", "TestReadme"},
	`curl -s -X DELETE 127.0.0.1:12112/faults/fault_2`:                                                               {"proof/stripesim", "TestReadme"},
	`curl -s -X DELETE 127.0.0.1:12112/faults`:                                                                       {"proof/stripesim", "TestReadme"},
	`curl -s 127.0.0.1:12112/holds -d '{"op":"intent.create","point":"after_effect"}'`:                               {"proof/stripesim", "TestReadme"},
	`curl -s "127.0.0.1:12112/holds/hold_1?wait=1s"`:                                                                 {"proof/stripesim", "TestReadme"},
	`curl -s -X DELETE 127.0.0.1:12112/holds/hold_1`:                                                                 {"proof/stripesim", "TestReadme"},
	`curl -s 127.0.0.1:12112/clock -d '{"advance":"25h"}'`:                                                           {"proof/stripesim", "TestReadme"},
	`curl -s 127.0.0.1:12112/webhook-endpoints -d '{"url":"http://127.0.0.1:8080/webhooks","secret":"whsec_test"}'`:  {"proof/stripesim", "TestReadme"},
	`curl -s 127.0.0.1:12112/webhook-faults -d '{"kind":"duplicate","type":"payment_intent.succeeded"}'`:             {"proof/stripesim", "TestReadme"},
	`curl -s 127.0.0.1:12112/webhooks`:                                                                               {"proof/stripesim", "TestReadme"},

	"SCREENSHOT_DIR=out go test -C proof ./browser -run InABrowser": {"proof/browser", "TestDocs_InABrowser"},
}

// startsCI is what the workflows run, as TestWorkflows sees to.
var startsCI = []string{
	".ci/run",
	".ci/run lint race",
	".ci/run night all",
	`CHAOS_SEEDS="7 11 13" DURATION=10m .ci/run long_chaos`,
	"KILLS=20 .ci/run brokers",
	"DURATION=10m .ci/run client_chaos",
	"ROUNDS=10 .ci/run cells",
	".ci/run long_attack",
	".ci/run cluster",
	".ci/run each_part",
	".ci/run all_mutants",
	"DEPTH=24 .ci/run protocol",
	"FUZZTIME=10m .ci/run fuzz",
	"DURATION=60m .ci/run soak",
	"STORED=1000000 .ci/run bench retention",
	".ci/run release",
	".ci/run migration",
	".ci/run races sequential_races",
	".ci/run night",
	".ci/run touched",
	".ci/run enumerations",
	".ci/run other_readings",
	".ci/run supply",
}

// atStripe is what CI cannot run: Stripe's command line, logged in to an account in a browser.
var atStripe = []string{
	"stripe login",
	"export STRIPE_WEBHOOK_SECRET=$(stripe listen --print-secret)",
	"stripe listen --forward-to localhost:8080/v1/webhooks/stripe &",
}

// elsewhere is what needs a cluster of Kubernetes, or a release at GitHub. What kubectl applies is validated by
// TestKubernetesIsValid.
var elsewhere = []string{
	"kubectl create namespace payonce",
	"kubectl -n payonce create secret generic payonce --from-env-file=payonce.env",
	"kubectl -n payonce create secret generic payonce-owner --from-env-file=owner.env",
	"kubectl -n payonce delete job payonce-migrate --ignore-not-found",
	"kubectl apply -k deploy/kubernetes/example",
	"kubectl -n payonce wait --for=condition=complete job/payonce-migrate --timeout=60m",
	"kubectl -n payonce rollout status deployment payonce-api --timeout=10m",
	"kubectl -n payonce exec deployment/payonce-api -- api doctor",
	`kubectl -n payonce exec deployment/payonce-api -- api tenant create "my shop"`,
	"docker buildx imagetools inspect ghcr.io/OWNER/payonce:0.1.0",
	"gh attestation verify payonce_0.1.0_linux_amd64.tar.gz --repo OWNER/payonce",
	"gh attestation verify oci://ghcr.io/OWNER/payonce:0.1.0 --repo OWNER/payonce",
	"sha256sum --check --ignore-missing checksums.txt",
}

func TestEveryCommandIsRun(t *testing.T) {
	t.Parallel()
	documented := map[string]string{}
	for _, d := range readDocuments(t) {
		for _, command := range d.commands() {
			documented[command] = d.path
		}
	}
	require.Greater(t, len(documented), 60, "the commands were not found")
	makefile := makeRecipes(t)

	known := map[string]string{}
	enter := func(command, table string) {
		require.Empty(t, known[command], "%s stands in two tables", command)
		known[command] = table
	}
	for command := range inStep {
		enter(command, "inStep")
	}
	for command := range inTest {
		enter(command, "inTest")
	}
	for _, command := range startsCI {
		enter(command, "startsCI")
	}
	for _, command := range atStripe {
		enter(command, "atStripe")
	}
	for _, command := range elsewhere {
		enter(command, "elsewhere")
	}
	for _, typed := range session {
		enter(typed.command, "session")
	}

	var missing []string
	for _, command := range slices.Sorted(maps.Keys(documented)) {
		if known[command] == "" && known[makefile[command]] == "" {
			missing = append(missing, documented[command]+": "+command)
		}
	}
	require.Empty(t, missing, "run by nobody")
	for command, table := range known {
		require.NotEmpty(t, documented[command], "%s has %q, which no document has", table, command)
	}
}

// TestStepsRunThem: a step that is said to run a command does.
func TestStepsRunThem(t *testing.T) {
	t.Parallel()
	script := runnerOfCI(t)
	functions := map[string]string{}
	for _, f := range regexp.MustCompile(`(?ms)^(\w+)\(\) \{\n(.*?)^\}$`).FindAllStringSubmatch(script, -1) {
		functions[f[1]] = f[2]
	}
	steps := map[string]string{} // with what they have in common with another step
	for name, body := range functions {
		for line := range strings.Lines(body) {
			body += functions[strings.TrimSpace(line)]
		}
		steps[strings.TrimPrefix(name, "step_")] = body
	}
	var played []string
	for _, list := range listed.FindAllStringSubmatch(script, -1) {
		played = append(played, namesIn(list[2])...)
	}
	for command, at := range inStep {
		require.Contains(t, played, at.step, "%s is left to a step that .ci/run does not have", command)
		require.True(t, strings.Contains(steps[at.step], at.line), "%s: step %s does not have %q", command, at.step,
			at.line)
	}
	tests, err := inventory.FindTests()
	require.NoError(t, err)
	for command, at := range inTest {
		require.True(t, tests.Has(at.dir, at.test), "%s is left to %s, which %s does not have", command, at.test,
			at.dir)
	}
}

var (
	comment     = regexp.MustCompile(`(^|\s)#( .*|$)`)
	spaces      = regexp.MustCompile(`\s+`)
	inlineShell = regexp.MustCompile(`^([A-Z][A-Z0-9_]*=\S+ )*(go (run|test|build|vet|mod|get|tool)` +
		`|make|docker|curl|psql|pg_\w+|createdb|k6` +
		`|git (grep|clone)|ssh|openssl|\.ci/run|bin/\w+)( |$)`)
)

// commands are what a document tells somebody to type, without comments and in
// single spaces.
func (d document) commands() (list []string) {
	add := func(line string) {
		line = spaces.ReplaceAllString(strings.TrimSpace(comment.ReplaceAllString(line, "")), " ")
		if line != "" {
			list = append(list, line)
		}
	}
	for _, f := range d.fences {
		if f.language == "sh" {
			for line := range strings.SplitSeq(strings.ReplaceAll(f.text, "\\\n", " "), "\n") {
				add(line)
			}
		}
	}
	for _, c := range code.FindAllStringSubmatch(d.prose, -1) {
		if inlineShell.MatchString(c[1]) {
			add(c[1])
		}
	}
	return list
}

// makeRecipes are the commands behind the thin names: "make chaos" is "go run -C proof ./chaos".
func makeRecipes(t *testing.T) map[string]string {
	t.Helper()
	makefile, err := inventory.Read("Makefile")
	require.NoError(t, err)
	recipes := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^([a-z]+):.*\n\t(.+)$`).FindAllStringSubmatch(makefile, -1) {
		recipes["make "+m[1]] = m[2]
	}
	require.Greater(t, len(recipes), 10, "the recipes were not found")
	return recipes
}
