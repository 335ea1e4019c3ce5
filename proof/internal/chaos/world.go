package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"example.com/payonce/internal/postgres"
	"example.com/payonce/proof/internal/prometheus"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/devpg"
	"example.com/payonce/testkit/pgproxy"
	"example.com/payonce/testkit/port"
	"example.com/payonce/testkit/process"
)

// Times of the system under test. They are short so that a minute of chaos is
// days of production; their relations are those of the defaults.
const (
	stripeTimeout = 400 * time.Millisecond
	lease         = 1500 * time.Millisecond
	actionTimeout = 30 * time.Second
	completion    = 5 * time.Second // beyond the lease: the promise to a client whose process was killed
)

const (
	webhookSecret = "whsec_chaos"
	stripeKey     = "sk_test_chaos"
	dataKey       = "a2V5IG9mIHRoZSBjaGFvcywgbm8gc2VjcmV0IGhlcmU="
)

// world is the system under test and everything around it.
type world struct {
	dir      string
	program  string // the API
	group    *process.Group
	log      *process.Log
	keepLog  bool
	pg       *devpg.Server // nil if there is a cluster
	cluster  cluster       // nil if there is one server
	roles    devpg.Roles
	service  string         // of a cluster: the service's role at its first primary
	pool     *postgres.Pool // the harness's own, for the checks
	sim      *stripesim.Sim
	stripe   *httptest.Server
	replays  atomic.Int64 // answers that Stripe gave a second time
	events   *events
	network  *network
	nodes    []*node
	tenants  []tenant
	notified *httptest.Server // the first tenant's, for its webhooks

	clocks     []time.Duration // of the nodes, over and over
	former     string          // the program of the former version, if there is one
	drainDelay time.Duration

	prometheus *prometheus.Prometheus // nil: the run is not watched
}

type tenant struct {
	ID  string `json:"tenant_id"`
	Key string `json:"api_key"`
}

func start(ctx context.Context, c Config) (w *world, err error) {
	w = &world{network: newNetwork(), clocks: clocks}
	if c.Former != "" {
		w.clocks, w.drainDelay = clocks[:1], time.Second
	}
	defer func() {
		if err != nil {
			w.stop()
		}
	}()
	if w.dir, err = os.MkdirTemp("", "payonce-chaos"); err != nil {
		return w, err
	}
	if w.group, err = process.NewGroup(w.dir); err != nil {
		return w, err
	}
	if w.log, err = process.NewLog("payonce-chaos-*.log"); err != nil {
		return w, err
	}
	if w.cluster = c.database; w.cluster != nil && c.Program == "" {
		c.Program = filepath.Join(w.dir, "api")
		if err := process.Build(ctx, "cmd/api", c.Program); err != nil {
			return w, err
		}
	}
	if w.program = c.Program; c.Former != "" {
		w.program, w.former = c.Former, c.Former
	}
	if w.program == "" {
		w.program = filepath.Join(w.dir, "api")
		c.Log("building the API with a clock that can be wrong (a minute or two, the first time)")
		if err := Build(ctx, w.program); err != nil {
			return w, err
		}
	}
	if err := w.startDatabase(ctx, c); err != nil {
		return w, err
	}
	if err := w.startStripe(c); err != nil {
		return w, err
	}
	self, err := os.Executable()
	if err != nil {
		return w, err
	}
	if w.events, err = newEvents(ctx, self, w.dir, w.group, w.log); err != nil {
		return w, fmt.Errorf("start the broker: %w", err)
	}
	for i := range c.Processes {
		n, err := w.newNode(ctx, i)
		if err != nil {
			return w, err
		}
		w.nodes = append(w.nodes, n)
		n.run(ctx)
	}
	for range c.Tenants {
		var t tenant
		if err := w.command(ctx, &t, "tenant", "create", "chaos"); err != nil {
			return w, err
		}
		w.tenants = append(w.tenants, t)
	}
	if err := w.notify(ctx); err != nil {
		return w, err
	}
	if err := w.webhooks(); err != nil {
		return w, err
	}
	if err := w.ready(ctx, process.ReadyWithin); err != nil {
		return w, err
	}
	return w, w.startPrometheus(ctx, c)
}

// startDatabase starts a PostgreSQL that is ours to kill, with fsync on.
func (w *world) startDatabase(ctx context.Context, c Config) (err error) {
	if w.cluster != nil {
		return w.startCluster(ctx)
	}
	for _, source := range []string{devpg.FromLocal, devpg.FromDownload} {
		var failed error
		w.pg, failed = devpg.Start(ctx, devpg.Options{Durable: true, MaxConnections: 200, Log: c.Log, Only: source})
		if failed == nil {
			err = nil
			break
		}
		err = errors.Join(err, failed)
	}
	if err != nil {
		return err
	}
	if w.pool, err = postgres.Open(ctx, w.pg.URL, postgres.Options{Name: "chaos", MaxConn: 4}); err != nil {
		return err
	}
	if w.roles, err = devpg.MakeRoles(ctx, w.pg.URL); err != nil {
		return err
	}
	if err := w.migrate(ctx); err != nil {
		return err
	}
	_, err = w.pool.Raw().Exec(ctx, witnesses)
	return err
}

// migrate has the service's program migrate, as the owner of the tables.
func (w *world) migrate(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, w.program, "migrate")
	cmd.Env = []string{"DATABASE_URL=" + w.roles.Owner, "DATA_KEY=" + dataKey}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("api migrate: %w: %s", err, out)
	}
	return nil
}

// startCluster starts the cluster, and opens it as it is reached without the cables of a node.
func (w *world) startCluster(ctx context.Context) error {
	primary, err := w.cluster.start(ctx, w)
	if err != nil {
		return err
	}
	roles, err := devpg.Migrate(ctx, primary)
	if err != nil {
		return err
	}
	addresses := strings.Join(w.cluster.addresses(), ",")
	w.service, w.roles.Owner = roles.Service, roles.Owner
	if w.roles.Service, err = at(roles.Service, addresses); err != nil {
		return err
	}
	all, err := at(primary, addresses)
	if err != nil {
		return err
	}
	if w.pool, err = postgres.Open(ctx, all, postgres.Options{Name: "chaos", MaxConn: 4, Statement: time.Minute}); err != nil {
		return err
	}
	if err := w.migrate(ctx); err != nil { // which introduces the key
		return err
	}
	_, err = w.pool.Raw().Exec(ctx, witnesses)
	return err
}

// at is a connection string with other hosts, separated by commas.
func at(dsn, hosts string) (string, error) {
	u, err := url.Parse(dsn)
	if err != nil {
		return "", err
	}
	u.Host = hosts
	return u.String(), nil
}

// version is PostgreSQL's.
func (w *world) version() string {
	v := 0
	if w.pg != nil {
		v = w.pg.Version
	} else {
		v = w.cluster.version()
	}
	return fmt.Sprintf("%d.%d", v/10000, v%10000)
}

// startStripe runs the simulator here, where no kill reaches it.
func (w *world) startStripe(c Config) (err error) {
	w.sim, err = stripesim.New(stripesim.Options{Keys: []string{stripeKey},
		Store: filepath.Join(w.dir, "stripe.jsonl")})
	if err != nil {
		return err
	}
	w.sim.SetWebhookRetry(200 * time.Millisecond)
	w.sim.SetEvidenceTime(deadline)
	w.sim.SetAuthorizationLifetime(deadline)
	if c.Seed%2 == 1 { // What is released of an authorization shows as a refund, or does not.
		if err := w.sim.SetReleaseRegime(stripesim.RegimeBasil); err != nil {
			return err
		}
	}
	simulator := w.sim.Handler()
	w.stripe = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		simulator.ServeHTTP(rw, r)
		if rw.Header().Get("Idempotent-Replayed") == "true" {
			w.replays.Add(1)
		}
	}))
	return nil
}

// clocks of the nodes, over and over. Stripe's signatures are good for five
// minutes, so webhooks go to those that are right.
var clocks = []time.Duration{0, -time.Hour, time.Hour, 0}

func (w *world) newNode(ctx context.Context, i int) (n *node, err error) {
	n = &node{name: fmt.Sprintf("api-%d", i+1), offset: w.clocks[i%len(w.clocks)]}
	for _, addr := range []*string{&n.addr, &n.admin} {
		free, err := port.Loopback(ctx)
		if err != nil {
			return n, err
		}
		*addr = free.String()
	}
	upstreams := map[string]string{toBroker: w.events.addr, toStripe: w.stripe.Listener.Addr().String()}
	if w.cluster == nil {
		if n.wire, err = pgproxy.Start(w.roles.Service); err != nil {
			return n, err
		}
		if n.dsn, err = url.Parse(n.wire.URL()); err != nil {
			return n, err
		}
		upstreams[toPostgres] = n.dsn.Host
	} else {
		n.offset = 0
		if n.dsn, err = url.Parse(w.service); err != nil {
			return n, err
		}
		for i, address := range w.cluster.addresses() {
			upstreams[toServer(i)] = address
		}
	}
	for _, to := range slices.Sorted(maps.Keys(upstreams)) {
		l, err := w.network.lay(n.name, to, upstreams[to])
		if err != nil {
			return n, err
		}
		n.links = append(n.links, l)
	}
	var hosts []string
	for _, l := range n.links {
		if strings.HasPrefix(l.to, toPostgres) {
			hosts = append(hosts, l.addr())
		}
	}
	n.dsn.Host = strings.Join(hosts, ",")
	n.program = w.program
	n.child = process.Child{Name: n.name, Args: []string{"serve"}, Group: w.group, Log: w.log,
		Env: []string{
			"TMPDIR=" + w.dir, ClockOffset + "=" + n.offset.String(), "HTTP_ADDR=" + n.addr, "ADMIN_ADDR=" + n.admin,
			"STRIPE_SECRET_KEY=" + stripeKey, "STRIPE_API_BASE=http://" + n.link(toStripe).addr(),
			"STRIPE_WEBHOOK_SECRET=" + webhookSecret, "DATA_KEY=" + dataKey,
			"STRIPE_TIMEOUT=" + stripeTimeout.String(), "IDEMPOTENCY_LEASE=" + lease.String(),
			"ACTION_TIMEOUT=" + actionTimeout.String(),
			"DRAIN_DELAY=" + w.drainDelay.String(), "STRIPE_RPS=0", "RATE_LIMIT_RPS=0", "NOTIFY_PRIVATE_ADDRESSES=true",
			"BROKER_URL=nats://" + n.link(toBroker).addr(),
		}}
	return n, nil
}

// What a node depends on.
const (
	toPostgres = "postgres"
	toBroker   = "broker"
	toStripe   = "stripe"
)

// toServer is the cable to a server of a cluster, or to the proxy before it.
func toServer(i int) string { return fmt.Sprintf("%s-%d", toPostgres, i+1) }

func (n *node) link(to string) *link {
	for _, l := range n.links {
		if l.to == to {
			return l
		}
	}
	panic("bug: no link to " + to)
}

// webhooks delivers every event of Stripe's to every node whose clock is right,
// at the same time and in no order; one delivery of each counts.
func (w *world) webhooks() error {
	for _, n := range w.nodes {
		if n.offset != 0 {
			continue
		}
		if _, err := w.sim.AddWebhookEndpoint(stripeKey, "http://"+n.addr+"/v1/webhooks/stripe",
			webhookSecret); err != nil {
			return err
		}
	}
	return nil
}

// notify has the first tenant's events sent to an address of this machine.
func (w *world) notify(ctx context.Context) error {
	w.notified = httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	return w.command(ctx, nil, "tenant", "notify", w.tenants[0].ID, w.notified.URL)
}

// command runs one of the service's commands straight at the database and reads
// the line it prints.
func (w *world) command(ctx context.Context, into any, args ...string) error {
	cmd := exec.CommandContext(ctx, w.program, args...)
	cmd.Env = []string{"DATABASE_URL=" + w.roles.Service, "DATA_KEY=" + dataKey, "STRIPE_SECRET_KEY=" + stripeKey, "STRIPE_API_BASE=" + w.stripe.URL,
		"NOTIFY_PRIVATE_ADDRESSES=true", "BROKER_URL=nats://" + w.events.addr}
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if into != nil && len(out) > 0 { // audit has a verdict to give, and then a status to go with it
		return json.Unmarshal(out, into)
	}
	if err != nil {
		return fmt.Errorf("api %s: %w: %s", strings.Join(args, " "), err, said.String())
	}
	return nil
}

// ready waits until every node answers.
func (w *world) ready(ctx context.Context, within time.Duration) error {
	deadline := time.Now().Add(within)
	for _, n := range w.nodes {
		for !n.ready(ctx) {
			if time.Now().After(deadline) || ctx.Err() != nil {
				return fmt.Errorf("%s is not ready; the end of what it logged, which is in %s:\n%s", n.name, w.log.Name,
					w.log.Tail(n.name))
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	return nil
}

func (w *world) stop() {
	if w.prometheus != nil {
		_ = w.prometheus.Stop()
	}
	for _, n := range w.nodes {
		n.stop()
	}
	if w.events != nil {
		w.events.stop()
	}
	if w.notified != nil {
		w.notified.CloseClientConnections()
		w.notified.Close()
	}
	if w.stripe != nil {
		w.stripe.CloseClientConnections()
		w.stripe.Close()
	}
	if w.sim != nil {
		_ = w.sim.Close()
	}
	if w.pool != nil {
		w.pool.Close()
	}
	if w.pg != nil {
		_ = w.pg.Stop()
	}
	if w.cluster != nil {
		w.cluster.stop()
	}
	if w.log != nil {
		_ = w.log.Close(w.keepLog)
	}
	if w.group != nil {
		w.group.Dismiss()
	}
	if w.dir != "" {
		_ = os.RemoveAll(w.dir)
	}
}
