package starter_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/port"
	"example.com/payonce/testkit/process"
)

// ours is the module that services are made from, and shopModule the module of every service that is made here.
const (
	ours       = "example.com/payonce"
	shopModule = "github.com/acme/shop"
)

// made makes a service in a folder, as docs/starter.md says it.
func made(t *testing.T, dir, with string) {
	t.Helper()
	root, err := process.Root()
	require.NoError(t, err)
	in(t, root, "go", "run", "./cmd/new", "-module", shopModule, "-with", with, dir)
}

// smallest is the folder of the service without any part. It is made once, for all tests of this process.
func smallest(t *testing.T) (dir string) {
	t.Helper()
	compiling.Lock()
	defer compiling.Unlock()
	if none == "" {
		var err error
		none, err = os.MkdirTemp("", "payonce-starter-")
		require.NoError(t, err)
		made(t, filepath.Join(none, "shop"), "none")
	}
	return filepath.Join(none, "shop")
}

// none is the folder that smallest has made; TestMain removes it.
var none string

// linesMax is how much of what a command printed a failed test shows.
const linesMax = 40

// passed are the lines that go test prints of packages that did not fail.
var passed = regexp.MustCompile(`(?m)^(ok|\?) .*\n`)

// in runs a command that must succeed, with the flags of this environment: what this checkout has compiled of the standard
// library and of other modules is in Go's cache.
func in(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	began := time.Now()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("in %s, %s %s: %s\n%s", dir, name, strings.Join(args, " "), err,
			process.LastLines(passed.ReplaceAllString(string(out), ""), linesMax))
	}
	t.Logf("%s %s took %s", name, strings.Join(args, " "), time.Since(began).Round(time.Second))
}

// TestNoneTakesMoneyOnce makes the smallest service and plays what it promises against it, as processes: one payment
// asked for twenty times at once, and one whose process is killed while Stripe confirms.
func TestNoneTakesMoneyOnce(t *testing.T) {
	dir := smallest(t)
	text, err := exec.CommandContext(t.Context(), "git", "-C", dir, "grep", "-l", ours, "--", ":!README.md").Output()
	require.Error(t, err, "the old module's name is still in %s", text)
	for _, gone := range []string{"internal/checkout", "internal/operator", "internal/ledger", "internal/notifier",
		"internal/keyhistory", "proof", "cmd/new", "cmd/demo"} {
		require.NoDirExists(t, filepath.Join(dir, gone))
	}
	s := newShop(t, dir)
	began := time.Now()

	paid := s.order()
	status, first := s.pay("first", paid)
	require.Equal(t, http.StatusCreated, status, first)
	t.Logf("a paid order %s after the first process was started", time.Since(began).Round(time.Millisecond))
	require.Equal(t, 1, s.charges(paid))

	order := s.order()
	var all sync.WaitGroup
	bodies := make([]string, 20)
	for i := range bodies {
		all.Go(func() {
			for range 50 { // 409: another has the key at this moment
				var status int
				if status, bodies[i] = s.pay("same", order); status == http.StatusCreated {
					return
				}
				time.Sleep(100 * time.Millisecond)
			}
		})
	}
	all.Wait()
	for _, body := range bodies {
		require.Equal(t, bodies[0], body)
	}
	require.Contains(t, bodies[0], `"status":"succeeded"`)
	require.Equal(t, 1, s.charges(order))

	// Stripe has charged and has not responded: the moment at which nobody but Stripe knows.
	order = s.order()
	var hold struct{ ID string }
	s.simulator(http.MethodPost, "/holds", `{"op":"intent.confirm","order_id":"`+order+`","point":"after_effect"}`, &hold)
	go s.pay("killed", order)
	var held struct{ Waiting []any }
	s.simulator(http.MethodGet, "/holds/"+hold.ID+"?wait=20s", "", &held)
	require.Len(t, held.Waiting, 1, "the confirm did not reach Stripe")
	require.NoError(t, s.api.Process.Kill())
	_ = s.api.Wait()
	s.simulator(http.MethodDelete, "/holds/"+hold.ID, "", nil)
	require.Equal(t, 1, s.charges(order), "Stripe had charged")

	s.start()
	deadline := time.Now().Add(time.Minute)
	for {
		status, body := s.pay("killed", order)
		if status == http.StatusCreated {
			require.Contains(t, body, `"status":"succeeded"`)
			break
		}
		require.True(t, time.Now().Before(deadline), "the payment is not finished: %d %s", status, body)
		time.Sleep(250 * time.Millisecond)
	}
	require.Equal(t, 1, s.charges(order), "and charges once")
	s.command("audit")
}

// shop is a generated service that runs, beside the generated simulator.
type shop struct {
	t                *testing.T
	bin, base, admin string
	env              []string
	key              string
	api              *exec.Cmd
}

func newShop(t *testing.T, dir string) *shop {
	t.Helper()
	s := &shop{t: t, bin: t.TempDir()}
	in(t, dir, "go", "build", "-o", s.bin, "./cmd/api", "./cmd/stripesim")
	stripe := free(t)
	s.admin = "http://" + free(t)
	sim := exec.Command(filepath.Join(s.bin, "stripesim"), "-keys", "*", "-addr", stripe, "-admin",
		strings.TrimPrefix(s.admin, "http://"))
	s.run(sim)
	s.await(s.admin + "/healthz")
	public := free(t)
	s.base = "http://" + public
	s.env = append(os.Environ(), "DATABASE_URL="+dbtest.Empty(t), "STRIPE_SECRET_KEY=sk_test_shop",
		"STRIPE_API_BASE=http://"+stripe, "HTTP_ADDR="+public, "ADMIN_ADDR="+free(t),
		"STRIPE_TIMEOUT=1s", "IDEMPOTENCY_LEASE=4s", "BROKER_URL=embedded:"+filepath.Join(s.bin, "broker"))
	s.command("migrate")
	var tenant struct {
		Key string `json:"api_key"`
	}
	require.NoError(t, json.Unmarshal(s.command("tenant", "create", "acme"), &tenant))
	s.key = tenant.Key
	s.start()
	return s
}

func free(t *testing.T) string {
	t.Helper()
	addr, err := port.Loopback(t.Context())
	require.NoError(t, err)
	return addr.String()
}

// start starts a process of the service.
func (s *shop) start() {
	s.t.Helper()
	s.api = exec.Command(filepath.Join(s.bin, "api"))
	s.api.Env = s.env
	s.run(s.api)
	s.await(s.base + "/readyz")
}

// run starts a process that is killed when the test ends.
func (s *shop) run(cmd *exec.Cmd) {
	s.t.Helper()
	out, err := os.CreateTemp(s.bin, "log")
	require.NoError(s.t, err)
	cmd.Stdout, cmd.Stderr = out, out
	require.NoError(s.t, cmd.Start())
	s.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if text, err := os.ReadFile(out.Name()); err == nil && s.t.Failed() {
			s.t.Logf("%s\n%s", cmd.Path, process.LastLines(string(text), linesMax))
		}
	})
}

func (s *shop) await(address string) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		res, err := http.Get(address)
		if err != nil {
			return false
		}
		_ = res.Body.Close()
		return res.StatusCode == http.StatusOK
	}, time.Minute, 50*time.Millisecond, address)
}

// command runs a command of the service, which must succeed.
func (s *shop) command(args ...string) []byte {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), filepath.Join(s.bin, "api"), args...)
	cmd.Env = s.env
	out, err := cmd.Output()
	require.NoError(s.t, err, "%s\n%s", args, out)
	return out
}

func (s *shop) order() string {
	s.t.Helper()
	status, body := s.post("/v1/orders", fmt.Sprint("order-", time.Now().UnixNano()),
		`{"currency":"usd","items":[{"sku":"tea","quantity":1,"unit_amount":1000}]}`)
	require.Equal(s.t, http.StatusCreated, status, body)
	var order struct{ ID string }
	require.NoError(s.t, json.Unmarshal([]byte(body), &order))
	return order.ID
}

func (s *shop) pay(key, order string) (status int, body string) {
	return s.post("/v1/payments", key, `{"order_id":"`+order+`","payment_method":"pm_card_visa"}`)
}

// post returns status 0 if the process was killed meanwhile.
func (s *shop) post(path, key, body string) (int, string) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.base+path, strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	req.Header.Set("Authorization", "Bearer "+s.key)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err.Error()
	}
	return res.StatusCode, string(text)
}

// simulator asks the simulator's admin port.
func (s *shop) simulator(method, path, body string, into any) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.admin+path, strings.NewReader(body))
	require.NoError(s.t, err)
	res, err := http.DefaultClient.Do(req)
	require.NoError(s.t, err)
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	require.NoError(s.t, err)
	require.Equal(s.t, http.StatusOK, res.StatusCode, "%s", text)
	if into != nil {
		require.NoError(s.t, json.Unmarshal(text, into), "%s", text)
	}
}

// charges counts in the simulator's effect log how often money was taken for an order.
func (s *shop) charges(order string) int {
	s.t.Helper()
	var counted struct{ Count int }
	s.simulator(http.MethodGet, "/charges?order_id="+order, "", &counted)
	return counted.Count
}

// compiling is held while a service is made and compiled. Two services at once would both compile what they have in
// common, and neither would be done earlier.
var compiling sync.Mutex

// compiled compiles and vets all of a service, tests included.
func compiled(t *testing.T, dir string, modules ...string) {
	t.Helper()
	for _, module := range append([]string{".", "stripesim", "client"}, modules...) {
		in(t, filepath.Join(dir, module), "go", "vet", "./...")
	}
}

// TestEachPart makes a service with each part alone, and one with all.
func TestEachPart(t *testing.T) {
	t.Parallel()
	for _, with := range []struct {
		parts string
		tests []string // of the part
	}{
		{"history", []string{"./internal/keyhistory", "./internal/operations"}},
		{"docs", []string{"./internal/http"}},
		{"events", []string{"./internal/outbox", "./internal/http"}},
		{"consumers", []string{"./internal/inbox", "./internal/broker"}},
		{"checkouts", []string{"./internal/checkout", "./internal/http"}},
		{"disputes", []string{"./internal/disputes", "./internal/http"}},
		{"webhooks", []string{"./internal/notifier"}},
		{"ledger", []string{"./internal/ledger"}},
		{"operator", []string{"./internal/operator"}},
		{"tracing", []string{"./internal/tracing"}},
		{"kafka", []string{"./internal/broker/kafka"}},
		{"sqs", []string{"./internal/broker/sqs"}},
		{"rabbitmq", []string{"./internal/broker/rabbitmq"}},
		{"kinesis", []string{"./internal/broker/kinesis"}},
		{"cdc", []string{"./internal/broker", "./internal/postgres"}},
		{"all", nil},
	} {
		t.Run(with.parts, func(t *testing.T) {
			t.Parallel() // one compiles while others wait for leases and databases
			dir := filepath.Join(t.TempDir(), "shop")
			func() {
				compiling.Lock()
				defer compiling.Unlock()
				made(t, dir, with.parts)
				if with.parts == "all" {
					compiled(t, dir, "proof")
				} else {
					compiled(t, dir)
				}
			}()
			if len(with.tests) > 0 {
				in(t, dir, "go", append([]string{"test", "-tags=brokers", "-count=1", "-vet=off"}, with.tests...)...)
			}
		})
	}
}

// TestNonePassesItsTests compiles the smallest service and runs its tests, which are those of the root that its parts
// leave: none is skipped.
func TestNonePassesItsTests(t *testing.T) {
	t.Parallel()
	dir := smallest(t)
	compiled(t, dir)
	in(t, dir, "go", "test", "-count=1", "-vet=off", "./internal/payments", "./...") // what takes longest is begun first
	for _, module := range []string{"stripesim", "client"} {
		in(t, filepath.Join(dir, module), "go", "test", "-count=1", "-vet=off", "./...")
	}
}
