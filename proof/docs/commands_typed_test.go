//go:build unix

package docs_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/proof/internal/inventory"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/devpg"
	"example.com/payonce/testkit/port"
)

// TestTyped types what the documents say, as somebody at a terminal would: the
// service of the README, on a database of its own and with the simulator for
// Stripe, then the whole handbook, the restore drill and the load tests.
//
// It takes minutes, load tests included, and wants the tools that a person would
// have: psql and its like, curl, jq. So it has a step of its own in .ci/run.
func TestTyped(t *testing.T) {
	if os.Getenv("CI") != "true" {
		t.Skip("skipped: CI=true go test -C proof ./docs -run TestTyped types every command of the documents, " +
			"for minutes")
	}
	for _, tool := range []string{"bash", "curl", "jq", "psql", "pg_dump", "git", "make"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("the documents say %s, and there is none here", tool)
		}
	}
	s := openTerminal(t)
	for _, typed := range session {
		t.Run(strings.ReplaceAll(typed.command, "/", "∕"), func(t *testing.T) {
			s.t = t
			began := time.Now()
			line := typed.command
			if typed.as != nil {
				replace := typed.as(s)
				for i := 0; i < len(replace); i += 2 {
					require.Contains(t, line, replace[i])
				}
				line = strings.NewReplacer(replace...).Replace(line)
			}
			how := typed.how
			if how == nil {
				how = (*terminal).run
			}
			require.Regexp(t, typed.says, how(s, line))
			t.Logf("%.1f s: %s", time.Since(began).Seconds(), line)
		})
	}
}

// typed is a command as a document has it.
type typed struct {
	command string
	as      func(*terminal) []string       // old, new, old, new …: what is otherwise here
	how     func(*terminal, string) string // otherwise: run it, and it exits with 0
	says    string                         // matches what it prints
}

// patience is for one command, on a machine that builds at the same time.
const patience = 3 * time.Minute

// session is in the order in which it can be typed.
var session = []typed{
	// The roles of the handbook, and the README: as a service of your own.
	{command: `psql "$ADMIN_URL" -v ON_ERROR_STOP=1 -f deploy/roles.sql`, says: `(?m)^DO\n\z`},
	{command: `export DATABASE_URL=postgres://… STRIPE_SECRET_KEY=sk_test_…`,
		how: (*terminal).export, as: func(s *terminal) []string {
			return []string{"postgres://…", "'" + s.roles.Service + "'", "sk_test_…", stripesim.DefaultKey}
		}},
	// The database of a test is empty, and not made to be durable.
	{command: `go run ./cmd/api doctor`, as: func(*terminal) []string {
		return []string{"doctor", "doctor || test $? = 1"}
	}, says: `(?m)^bad +database.schema +the database is empty; run .api migrate.$`},
	{command: `go run ./cmd/api setup stripe -url https://HOST/v1/webhooks/stripe`,
		as:   func(*terminal) []string { return []string{"HOST", "pay.example.com"} },
		says: `(?m)^STRIPE_WEBHOOK_SECRET=whsec_\w+$`},
	{command: `export STRIPE_WEBHOOK_SECRET=whsec_new,whsec_old`, how: (*terminal).export},
	{command: `go run ./cmd/api doctor | grep settings.webhook_secret`, as: func(*terminal) []string {
		return []string{"settings.webhook_secret", "settings.webhook_secret || test $? = 1"}
	}, says: `(?m)^ok +settings.webhook_secret +2 set$`},
	{command: `export STRIPE_WEBHOOK_SECRET=whsec_…`, how: (*terminal).export, as: func(*terminal) []string {
		return []string{"whsec_…", "whsec_typed"}
	}},
	{command: `go run -buildvcs=true ./cmd/api version`, says: `(?m)^schema +\d+$`},
	{command: `go run ./cmd/api migrate`, as: func(*terminal) []string {
		return []string{"go run", `DATABASE_URL="$OWNER_URL" go run`}
	}, says: `(?m)^applied 00001_`},
	{command: `go run ./cmd/api tenant create "my shop"`, how: (*terminal).createTenant, says: `"api_key"`},
	{command: `go run ./cmd/api`, how: (*terminal).serve},

	// README: what a caller writes.
	{
		command: `export API=http://127.0.0.1:8080 API_KEY=payonce_…`, how: (*terminal).export,
		as: func(s *terminal) []string { return []string{"127.0.0.1:8080", s.public, "payonce_…", s.apiKey} },
	},
	{
		command: `curl -sS "$API/v1/orders" -H "Authorization: Bearer $API_KEY" -H "Idempotency-Key: cart-42-order" ` +
			`-H "Content-Type: application/json" ` +
			`-d '{"currency":"usd","items":[{"sku":"tea","quantity":2,"unit_amount":650}]}'`,
		how: (*terminal).createOrder, says: `"status":"open"`,
	},
	{
		command: `curl -sSi "$API/v1/payments" -H "Authorization: Bearer $API_KEY" -H "Idempotency-Key: cart-42-pay" ` +
			`-H "Content-Type: application/json" -d '{"order_id":"ord_…","payment_method":"pm_card_visa"}'`,
		as:   func(s *terminal) []string { return []string{"ord_…", s.order} },
		says: `(?s)^HTTP/1.1 201 Created.*"status":"succeeded"`,
	},
	{
		command: `curl -sS "$API/v1/payments" -H "Authorization: Bearer $API_KEY" -H "Idempotency-Key: cart-43-pay" ` +
			`-H "Content-Type: application/json" ` +
			`-d '{"order_id":"ord_…","payment_method":"pm_card_visa","capture":"manual"}'`,
		how: (*terminal).reserve, says: `"status":"authorized"`,
	},
	{
		command: `curl -sS "$API/v1/payments/pay_…/capture" -H "Authorization: Bearer $API_KEY" ` +
			`-H "Idempotency-Key: cart-43-capture" -H "Content-Type: application/json" -d '{"amount":900}'`,
		as:   func(s *terminal) []string { return []string{"pay_…", s.payment} },
		says: `"status":"succeeded".*"amount_captured":900,`,
	},

	// The handbook, beside it.
	{command: `curl -sS http://127.0.0.1:8080/readyz; curl -sS http://127.0.0.1:8080/healthz`, as: public, says: `ok`},
	{command: `curl -sS -H "Authorization: Bearer $API_KEY" "http://127.0.0.1:8080/v1/idempotency-keys/THE_KEY" ` +
		`| jq '{state, verdict, resource, attempts, provider_calls, events}'`, how: (*terminal).payThenRun,
		as: public, says: `(?s)"state": "finished".*"verdict": "charged once, `},
	{command: `printf %s 'the key' | sha256sum | cut -c1-12`, how: (*terminal).hashIsInTheLog,
		as: func(*terminal) []string { return []string{"the key", "THE_KEY"} }, says: `^[0-9a-f]{12}\n$`},
	{command: `curl -s "http://127.0.0.1:8081/metrics" | grep ^payonce_`, as: admin,
		says: `(?m)^payonce_idempotent_requests_total\{operation="create_payment",result="fresh"\} 3$`},
	{command: `curl -s "http://127.0.0.1:8081/metrics" | grep -e ^payonce_webhook_unsigned -e webhooks/stripe`,
		as: admin, says: `(?m)^payonce_webhook_unsigned_bytes 0$`},
	{command: `curl -s "http://127.0.0.1:8081/metrics" | grep -e ^payonce_loop_idle -e ^payonce_loop_failures`,
		as: admin, says: `(?m)^payonce_loop_idle_seconds\{loop="completer"\} `},
	{command: `date -u; curl -sI https://api.stripe.com | grep -i ^date`, as: func(s *terminal) []string {
		return []string{"https://api.stripe.com", "http://" + s.public + "/healthz"}
	}, says: `(?m)^Date: .* GMT`},
	{command: `PGOPTIONS='-c payonce.tenants=*' psql "$DATABASE_URL"`, how: (*terminal).everyQuery,
		says: `(?s)^\s*tenants seen as payonce_service: 1\s.*BEGIN.*idempotency_keys.*ROLLBACK`},
	{command: `go run ./cmd/api audit`, says: auditIsClean},
	{command: `go run ./cmd/api audit -since 48h`, says: auditIsClean},
	{command: `go run ./cmd/api audit -since 720h`, says: auditIsClean},
	{command: `go run ./cmd/api relay replay -since 2h`, says: `^[1-9][0-9]* events will be sent again`},
	// None, if the relay has not yet sent again what the command before has asked for.
	{command: `go run ./cmd/api relay replay -since 48h`, says: `^[0-9]+ events will be sent again`},
	{command: `go run ./cmd/api relay replay -since 192h`, says: `^[0-9]+ events will be sent again`},
	{command: `go run ./cmd/api tenant list`, says: `"tenant_id":"ten_`},
	{command: `go run ./cmd/api tenant key create ten_… -name shop-2027 -expires 90d`, how: (*terminal).createKey,
		as: tenant, says: `"api_key"`},
	{command: `go run ./cmd/api tenant key list ten_…`, as: tenant, says: `"name":"shop-2027"`},
	{command: `go run ./cmd/api tenant key revoke ten_… HINT`,
		as: func(s *terminal) []string { return append(tenant(s), "HINT", s.hint) }},
	{command: `go run ./cmd/api tenant erase-customer ten_… 'REFERENCE' -by 'NAME'`, how: (*terminal).eraseCustomer,
		as: tenant, says: `"orders":1,"keys":1,"events":1,`},
	{command: `go run ./cmd/api tenant disable ten_…`, as: tenant},
	{command: `go run ./cmd/api tenant enable ten_…`, as: tenant},
	{command: `go run ./cmd/api tenant notify ten_… https://…`,
		as:   func(s *terminal) []string { return append(tenant(s), "https://…", "https://example.com/payonce") },
		says: `"secret":"whsec_`},

	// The restore drill.
	{command: `pg_dump --format=custom --file=payonce.dump "$OWNER_URL"`, as: dump},
	{command: `createdb --maintenance-db="$NEW_ADMIN_URL" payonce_restored`, as: restored},
	{command: `psql "$RESTORED_ADMIN_URL" -v ON_ERROR_STOP=1 -f deploy/roles.sql`, says: `(?m)^DO\n\z`},
	{command: `pg_restore --exit-on-error --dbname="$RESTORED_ADMIN_URL" payonce.dump`, as: dump},
	// The migrations are there; the rights are applied, which only the owner may.
	{command: `DATABASE_URL="$RESTORED_OWNER_URL" go run ./cmd/api migrate`},
	{command: `DATABASE_URL="$RESTORED_URL" go run ./cmd/api migrate status`, says: `(?m)^applied +00001_`},
	{command: `DATABASE_URL="$RESTORED_URL" go run ./cmd/api doctor | grep -e database.rights -e database.encryption`,
		as: func(*terminal) []string { // as above
			const command = `DATABASE_URL="$RESTORED_URL" go run ./cmd/api doctor`
			return []string{command, "(" + command + " || test $? = 1)"}
		}, says: `(?m)^ok +database.rights (?s:.*)^(ok|warn) +database.encryption `},
	{command: `DATABASE_URL="$RESTORED_URL" go run ./cmd/api audit -since 48h`, says: auditIsClean},

	// Load on what runs here, and for seconds where the page says minutes or hours.
	{command: `go run -C proof ./load -list`, says: `(?m)^duplicate-storm `},
	{command: `API_URL=http://127.0.0.1:18080 STRIPESIM_URL=http://127.0.0.1:12112 DATABASE_URL=postgres://… ` +
		`go run -C proof ./load`, says: `all \d+ thresholds held`, as: func(s *terminal) []string {
		return []string{"127.0.0.1:18080", s.public, "127.0.0.1:12112", s.simulator, "postgres://…", "'" + s.dsn + "'",
			"go run", "DURATION=3s P95_MS=20000 P99_MS=30000 go run"}
	}},
	{command: `export API_URL=http://127.0.0.1:8080 STRIPESIM_URL=http://127.0.0.1:12112 API_KEY=…`,
		how: (*terminal).export, as: func(s *terminal) []string {
			return []string{"127.0.0.1:8080", s.public, "127.0.0.1:12112", s.simulator, "…", s.apiKey}
		}},
	{command: `k6 run loadtest/smoke.js`, says: `charges`, as: func(*terminal) []string {
		return []string{"k6 run", "RUN_ID=typed DURATION=2s P95_MS=20000 P99_MS=30000 bin/k6 run"}
	}},
	{command: `make load SCENARIO=retry-storm DURATION=1m VUS=30`, says: `all \d+ thresholds held`,
		as: func(*terminal) []string {
			return []string{"make",
				"env -u API_URL -u STRIPESIM_URL -u API_KEY -u DATABASE_URL P95_MS=20000 P99_MS=30000 make",
				"DURATION=1m", "DURATION=3s", "VUS=30", "VUS=5"}
		}},
	{command: `DURATION=8h RATE=20 go run -C proof ./load -scenario soak`, says: `all \d+ thresholds held`,
		as: func(*terminal) []string {
			return []string{"DURATION=8h RATE=20",
				"env -u API_URL -u STRIPESIM_URL -u API_KEY -u DATABASE_URL " +
					"P95_MS=20000 P99_MS=30000 DURATION=3s RATE=5"}
		}},
	{command: `go run -C proof ./museum -only takeover`, says: `takeover`,
		as: func(*terminal) []string { return []string{"go run", "env -u DATABASE_URL go run"} }},

	{command: `make`, says: `(?m)^  make chaos  +inject faults into a running system`},

	// README: a service of one's own. What it makes must build.
	{
		command: `go run ./cmd/new -module github.com/acme/shop -with webhooks,ledger ../shop`,
		how:     (*terminal).makeService,
		as:      func(s *terminal) []string { return []string{"../shop", s.shop()} },
	},

	// docs/add-an-operation.md: the skeleton, moved and registered in a copy of the repository.
	{command: `git mv docs/skeleton/tips internal/tips`, how: (*terminal).inCopy},
	{command: `git mv internal/tips/10001_tips.sql db/migrations/`, how: (*terminal).inCopy},
	{command: `sed -i 's#\[db/migrations, docs/skeleton/tips/10001_tips.sql\]#db/migrations#' sqlc.yaml`,
		how: (*terminal).inCopy},
	{command: `sed -i "s#FROM (VALUES#&\n ('tips', 'INSERT, UPDATE'),#" db/rights.sql`, how: (*terminal).inCopy},
	{command: `sed -i 's#docs/skeleton/tips/10001#db/migrations/10001#; s#docs/skeleton/tips#internal/tips#; ` +
		`s#(skeleton/tips#(../internal/tips#' ` +
		`sqlc.yaml internal/tips/*.go docs/add-an-operation.md`, how: (*terminal).inCopy},
	{command: `make generate`, how: (*terminal).inCopy},
	{command: `go test ./internal/postgres -run TestSchemaFileIsCurrent -update`, how: (*terminal).inCopy, says: `ok`},
	{command: `go test ./internal/tips ./cmd/api`, how: (*terminal).registerThenRun, says: `ok .*/internal/tips`,
		as: func(*terminal) []string {
			return []string{"go test", "go test -run 'Tip|TestServiceWorksWithoutAnyPart|TestAudit'"} // for fewer minutes
		}},
}

const auditIsClean = `(?m)^I1a +an order is paid once +ok$`

func public(s *terminal) []string { return []string{"127.0.0.1:8080", s.public} }
func admin(s *terminal) []string  { return []string{"127.0.0.1:8081", s.admin} }
func tenant(s *terminal) []string { return []string{"ten_…", s.tenant} }
func dump(s *terminal) []string {
	return []string{"payonce.dump", filepath.Join(s.dir, "payonce.dump")}
}
func restored(s *terminal) []string { return []string{"payonce_restored", s.restored} }

// terminal is where it is typed: in the root of the repository.
type terminal struct {
	t             *testing.T // of the command being typed
	root, dir     string     // the repository, and a folder for what is written
	dsn, restored string     // the service's database, for a superuser, and the name of the restored one
	roles         devpg.Roles
	public, admin string // where the service listens
	simulator     string // the admin port of its Stripe
	env           []string
	exported      string // what has been exported so far
	tenant        string
	apiKey, hint  string
	order         string // that the README creates
	payment       string // that the README authorizes
	stop          func() // the service
}

func openTerminal(t *testing.T) *terminal {
	t.Helper()
	root, err := inventory.Root()
	require.NoError(t, err)
	public, err := port.Loopback(t.Context())
	require.NoError(t, err)
	admin, err := port.Loopback(t.Context())
	require.NoError(t, err)
	s := &terminal{t: t, root: root, dir: t.TempDir(), dsn: dbtest.Empty(t), public: public.String(),
		admin: admin.String()}
	s.roles, err = devpg.MakeRoles(t.Context(), s.dsn) // with passwords, which the document leaves to its reader
	require.NoError(t, err)
	sim, err := stripesim.New(stripesim.Options{})
	require.NoError(t, err)
	stripe, books := httptest.NewServer(sim.Handler()), httptest.NewServer(sim.AdminHandler())
	t.Cleanup(func() {
		_ = sim.Close()
		stripe.Close()
		books.Close()
	})
	s.simulator = strings.TrimPrefix(books.URL, "http://")
	u, err := url.Parse(s.dsn)
	require.NoError(t, err)
	password, _ := u.User.Password()
	s.restored = strings.TrimPrefix(u.Path, "/") + "_restored"
	u.Path = "/" + s.restored
	restored := u.String()
	s.env = append(os.Environ(), "DATABASE_URL=", "PGHOST="+u.Hostname(), "PGPORT="+u.Port(),
		"PGUSER="+u.User.Username(), "PGPASSWORD="+password,
		"PGDATABASE=postgres", "ADMIN_URL="+s.dsn, "OWNER_URL="+s.roles.Owner, "NEW_ADMIN_URL="+s.dsn,
		"RESTORED_ADMIN_URL="+restored, "RESTORED_OWNER_URL="+devpg.As(restored, "payonce_owner"),
		"RESTORED_URL="+devpg.As(restored, "payonce_service"), "PSQL_PAGER=cat", "PAGER=cat",
		"STRIPE_API_BASE="+stripe.URL, "HTTP_ADDR="+s.public, "ADMIN_ADDR="+s.admin,
		"BROKER_URL=embedded:"+filepath.Join(s.dir, "broker"))
	t.Cleanup(func() { // before the database goes
		if s.stop != nil {
			s.stop()
		}
		drop := exec.Command("dropdb", "--if-exists", "--force", s.restored)
		drop.Env = s.env
		_ = drop.Run()
	})
	return s
}

// run types a line and returns what it printed, both streams.
func (s *terminal) run(line string) string {
	s.t.Helper()
	return s.within(s.root, line, "")
}

func (s *terminal) within(dir, line, stdin string) string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-o", "pipefail", "-c", s.exported+line)
	cmd.Dir, cmd.Env, cmd.Stdin = dir, s.env, strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	require.NoError(s.t, err, "%s\n%s", line, out)
	return string(out)
}

// export holds for every later command.
func (s *terminal) export(line string) string {
	s.exported += line + "\n"
	return ""
}

func (s *terminal) createTenant(line string) string {
	s.t.Helper()
	out := s.run(line)
	s.tenant, s.apiKey = s.read(out)
	s.exported += "export API_KEY=" + s.apiKey + "\n"
	return out
}

func (s *terminal) createOrder(line string) string {
	s.t.Helper()
	out := s.run(line)
	var order struct{ ID string }
	require.NoError(s.t, json.Unmarshal([]byte(out), &order), out)
	s.order = order.ID
	return out
}

// reserve authorizes a payment of another order, which it makes first.
func (s *terminal) reserve(line string) string {
	s.t.Helper()
	var order, payment struct{ ID string }
	require.NoError(s.t, json.Unmarshal([]byte(s.post("orders", "cart-43-order",
		`{"currency":"usd","items":[{"sku":"tea","quantity":2,"unit_amount":650}]}`)), &order))
	out := s.run(strings.ReplaceAll(line, "ord_…", order.ID))
	require.NoError(s.t, json.Unmarshal([]byte(out), &payment), out)
	s.payment = payment.ID
	return out
}

func (s *terminal) createKey(line string) string {
	s.t.Helper()
	out := s.run(line)
	_, key := s.read(out)
	s.hint = key[len(key)-4:]
	return out
}

// eraseCustomer makes an order of the customer first. Until its event is published, the command refuses.
func (s *terminal) eraseCustomer(line string) string {
	s.t.Helper()
	s.run(`curl -sSf "$API/v1/orders" -H "Authorization: Bearer $API_KEY" -H "Idempotency-Key: to-be-erased" ` +
		`-H "Content-Type: application/json" -d '{"currency":"usd","customer_reference":"REFERENCE",` +
		`"items":[{"sku":"tea","quantity":1,"unit_amount":650}]}'`)
	return s.run("until " + line + "; do sleep 1; done")
}

func (s *terminal) read(out string) (tenant, key string) {
	s.t.Helper()
	var created struct {
		TenantID string `json:"tenant_id"`
		APIKey   string `json:"api_key"`
	}
	require.NoError(s.t, json.Unmarshal([]byte(out[strings.Index(out, "{"):]), &created), out)
	return created.TenantID, created.APIKey
}

// serve leaves the service running until the end of the test.
func (s *terminal) serve(line string) string {
	s.t.Helper()
	log, err := os.Create(filepath.Join(s.dir, "service.log"))
	require.NoError(s.t, err)
	cmd := exec.Command("bash", "-c", s.exported+"exec "+line)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = s.root, s.env, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // the go command, and the service it runs
	require.NoError(s.t, cmd.Start())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		_ = cmd.Wait()
	}()
	s.stop = func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGINT)
		select {
		case <-stopped:
		case <-time.After(30 * time.Second):
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			<-stopped
		}
	}
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		res, err := http.Get("http://" + s.public + "/readyz")
		if err == nil {
			_ = res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return ""
			}
		}
		require.True(s.t, time.Now().Before(end), "the service is not ready:\n%s", s.serviceLog())
	}
}

func (s *terminal) serviceLog() string {
	s.t.Helper()
	log, err := os.ReadFile(filepath.Join(s.dir, "service.log"))
	require.NoError(s.t, err)
	return string(log)
}

// payThenRun makes the story that the line asks for.
func (s *terminal) payThenRun(line string) string {
	s.t.Helper()
	var order struct{ ID string }
	require.NoError(s.t, json.Unmarshal([]byte(s.post("orders", "an-order",
		`{"currency":"usd","items":[{"sku":"tea","quantity":2,"unit_amount":650}]}`)), &order))
	s.post("payments", "THE_KEY", fmt.Sprintf(`{"order_id":%q,"payment_method":"pm_card_visa"}`, order.ID))
	return s.run(line)
}

func (s *terminal) post(what, key, body string) string {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, "http://"+s.public+"/v1/"+what,
		strings.NewReader(body))
	require.NoError(s.t, err)
	req.Header.Set("Authorization", "Bearer "+s.apiKey)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", key)
	res, err := http.DefaultClient.Do(req)
	require.NoError(s.t, err)
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(res.Body)
	require.NoError(s.t, err)
	require.Equal(s.t, http.StatusCreated, res.StatusCode, string(answer))
	return string(answer)
}

// hashIsInTheLog: what the line prints finds the lines about the key.
func (s *terminal) hashIsInTheLog(line string) string {
	s.t.Helper()
	hash := s.run(line)
	require.Contains(s.t, s.serviceLog(), `"key_hash":"`+strings.TrimSpace(hash)+`"`)
	return hash
}

// everyQuery gives psql all the SQL of all documents, in a transaction that is
// rolled back: some of it writes. Every block must be one that psql can run.
func (s *terminal) everyQuery(line string) string {
	s.t.Helper()
	stdin := strings.Builder{}
	stdin.WriteString("\\set ON_ERROR_STOP on\n\\t on\n" +
		"SELECT 'tenants seen as ' || current_user || ': ' || count(*) FROM tenants;\n\\t off\n")
	for _, d := range readDocuments(s.t) {
		for _, f := range d.fences {
			if f.language == "sql" {
				stdin.WriteString("BEGIN;\n" + f.text + "ROLLBACK;\n")
			}
		}
	}
	return s.within(s.root, line, stdin.String())
}

// inCopy types it in a copy of the repository, because it changes files.
func (s *terminal) inCopy(line string) string {
	s.t.Helper()
	dir := filepath.Join(s.dir, "copy")
	if _, err := os.Stat(dir); err != nil {
		s.within(s.root, `mkdir "`+dir+`" && git ls-files -z --cached --others --exclude-standard | `+
			`xargs -0 cp --parents -t "`+dir+`" && cd "`+dir+`" && git init -q && git add -A`, "")
	}
	return s.within(dir, "unset API_KEY API_URL STRIPESIM_URL DATABASE_URL STRIPE_API_BASE HTTP_ADDR ADMIN_ADDR "+
		"BROKER_URL PAGER; export GOWORK=off\n"+line, "")
}

// registerThenRun adds the line to the list as the document says, with its import.
func (s *terminal) registerThenRun(line string) string {
	s.t.Helper()
	s.inCopy(`sed -i 's#// tips.Operation(),#tips.Operation(),#; ` +
		`s#^import \(.*\)$#import (\n\t\1\n\t"example.com/payonce/internal/tips"\n)#' cmd/api/operations.go`)
	return s.inCopy(line)
}

// shop is the folder of the service that the README makes.
func (s *terminal) shop() string { return filepath.Join(s.dir, "shop") }

func (s *terminal) makeService(line string) string {
	s.t.Helper()
	out := s.run(line)
	s.within(s.shop(), "export GOFLAGS=-trimpath GOWORK=off; go build ./... && git log --oneline -1", "")
	return out
}
