# Thin names for commands worth typing. Nothing needs make: each recipe is one line.
.DEFAULT_GOAL := help

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)$$/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

run: ## play the demo, then keep everything running, with a console in the browser
	go run ./cmd/demo -serve

test: ## every test, on whatever PostgreSQL this machine has
	go test ./...

race: ## the same under the race detector
	go test -race ./...

chaos: ## break a running system for a minute and judge it (DURATION=10m SEED=7)
	go run ./cmd/chaos

museum: ## the wrong ways to charge once, each with the damage it does
	go run ./museum

observe: ## break the service under the eyes of a real Prometheus, and see the alerts fire and go
	go test -count=1 -v -run TestObserve ./deploy

load: ## k6, and the charges counted at the end (SCENARIO=smoke DURATION=10s VUS=10)
	go run ./loadtest

mutants: ## take each guard away, and see that its test complains
	go run ./cmd/mutants

bench: ## what a payment and a replay cost, against pgbench in the same run
	go run ./bench

lint: ## golangci-lint, as pinned in tools/lint.mod
	go tool -modfile=tools/lint.mod golangci-lint run ./...

generate: ## write the Go of db/queries
	go tool -modfile=tools/sqlc.mod sqlc generate

verify: ## is what was generated what would be generated?
	go tool -modfile=tools/sqlc.mod sqlc diff

up: ## the system as containers, behind http://127.0.0.1:18080
	docker compose up --build --wait

down: ## and away with it, data included
	docker compose --profile demo down --volumes

ci: ## everything that CI runs (.ci/run STEP… for some of it)
	.ci/run

.PHONY: help run test race chaos mutants museum observe load bench lint generate verify up down ci
