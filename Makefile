# Short names for commands. Nothing needs make: each recipe is one line.
.DEFAULT_GOAL := help

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)$$/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

# part: proof {
run: ## run the demo, then keep the system running with a console in the browser
	go run ./cmd/demo -serve
# part: proof }

test: ## test the service, on the PostgreSQL this machine has
	go test ./...

simulator: ## test the simulator of Stripe, a module of its own
	go test -C stripesim ./...

client: ## test the client library, a module of its own
	go test -C client ./...

# part: proof {
proof: ## test the module proof: chaos, mutants, museum, bench, browser and document tests
	go test -C proof -tags brokers -timeout 60m ./...
# part: proof }

race: ## test the service under the race detector
	go test -race ./...

# part: proof {
chaos: ## inject faults into a running system for a minute, then check every invariant (DURATION=10m SEED=7)
	go run -C proof ./chaos

versions: ## run the former version and this one side by side, under traffic
	go run -C proof ./versions

failover: ## kill, freeze and cut off PostgreSQL's primary under clients, promote its standby, count what they lost
	go run -C proof ./failover

museum: ## run the designs that do not charge once, and count what each one does wrong
	go run -C proof ./museum

observe: ## inject faults while a real Prometheus watches: alerts must fire, then resolve
	go test -C proof -count=1 -v -run TestObserve ./deploy

load: ## load test with k6, then count the charges (SCENARIO=smoke DURATION=10s VUS=10)
	go run -C proof ./load

attack: ## attack the service: authorization, tenancy, webhooks, input, endpoints, outages, operator, secrets
	go run -C proof ./attack

mutants: ## mutation tests: remove each guard, expect its test to fail
	go run -C proof ./mutants -named

bench: ## measure payments and replays, against pgbench in the same run
	go run -C proof ./bench
# part: proof }

lint: ## run golangci-lint, as pinned in tools/lint.mod
	go tool -modfile=tools/lint.mod golangci-lint run ./...

generate: ## generate Go from db/queries
	CGO_ENABLED=0 go tool -modfile=tools/sqlc.mod sqlc generate

verify: ## check that generated code is current
	CGO_ENABLED=0 go tool -modfile=tools/sqlc.mod sqlc diff

up: ## start the system as containers, at http://127.0.0.1:18080
	docker compose up --build --wait

down: ## stop the containers and delete their data
	docker compose --profile '*' down --volumes

ci: ## run the gate (.ci/run STEP… for some of it)
	.ci/run

.PHONY: help test simulator client race lint generate verify up down ci
.PHONY: run proof attack chaos failover versions mutants museum observe load bench # part: proof
