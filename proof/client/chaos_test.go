package client

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"example.com/payonce/client"
	"example.com/payonce/proof/internal/gateway"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/port"
	"example.com/payonce/testkit/tcplink"
	"example.com/payonce/testkit/world"
)

func TestMain(m *testing.M) { world.Main(m) }

// usual is how long clients are killed where CLIENT_CHAOS does not say.
const usual = 15 * time.Second

// window is how many orders a process of a shop is given. It does them all again after each kill.
const window = 20

// TestKilledClients kills shops, with a journal in a file or in PostgreSQL, and the API's processes beside them; cuts the
// journals of some anywhere, and connections in the middle. In the end all is resumed, and each order that is paid was
// charged once, each other never.
func TestKilledClients(t *testing.T) {
	duration := usual
	if set := os.Getenv("CLIENT_CHAOS"); set != "" {
		var err error
		duration, err = time.ParseDuration(set)
		require.NoError(t, err)
	}
	c := newChaos(t)
	shops := []*shop{
		c.shop("cut", filepath.Join(t.TempDir(), "journal"), anyCut),
		c.shop("whole", filepath.Join(t.TempDir(), "journal"), nil),
		c.shop("sql", c.journalInPostgres(), nil),
	}
	twin := c.shop("sql", shops[2].journal, nil) // a second process that does the same orders at the same time
	all := append([]*shop{twin}, shops...)

	c.breakThings()
	var killing sync.WaitGroup
	ctx, cancel := context.WithTimeout(t.Context(), duration)
	defer cancel()
	for _, s := range all {
		killing.Go(func() { s.liveAndDie(ctx) })
	}
	c.killAPIs(ctx)
	killing.Wait()
	c.mend()
	shops[2].upTo = max(shops[2].upTo, twin.upTo)

	// What was begun is finished by Resume alone, where nothing was cut off.
	for _, s := range shops[1:] {
		require.NoError(t, s.run(t.Context(), "-resume"))
		require.Zero(t, s.open(), "%s: intents are left open", s.name)
	}
	orders, charges, kills, cuts := 0, 0, 0, 0
	for _, s := range shops {
		s.lines = map[string]line{}
		require.NoError(t, s.run(t.Context(), "-last", fmt.Sprint(s.upTo)))
		require.Len(t, s.lines, s.upTo, "%s: orders without an outcome", s.name)
		require.Zero(t, s.open())
		c.check(s)
		orders += s.upTo
	}
	for _, s := range all {
		kills += int(s.kills.Load())
		cuts += s.cuts
		require.Empty(t, s.changed, s.name)
		for name, told := range s.told {
			require.Equal(t, told, shops[0].sameShop(shops, name).lines[name], "what a process was told is not what is true in the end")
		}
	}
	for _, e := range c.w.Sim.Effects() {
		if e.Kind == stripesim.EffectCharge {
			charges++
		}
	}
	paid := c.paid(shops)
	t.Logf("seed %d: %d orders, %d paid and %d charges; %d clients killed, %d journals cut, %d API processes killed, %d connections cut, faults at Stripe: %v, at the gateway: %v",
		c.seed, orders, paid, charges, kills, cuts, c.apiKills, c.connectionCuts.Load(), c.faults, c.mistreated)
	require.Equal(t, paid, charges)
	require.Greater(t, orders, 50, "too little happened")
	require.Greater(t, kills, 10, "too little was killed")
	require.Greater(t, cuts, 2, "too little was cut")
	require.Positive(t, c.apiKills)
	require.Positive(t, c.connectionCuts.Load())
	require.Len(t, c.faults, 3, "Stripe did not have every fault")
	require.Len(t, c.mistreated, 4, "the gateway did not do everything")
}

// TestLostJournal shows what the journal is for: without it the same shop places orders twice, and TestKilledClients would
// fail.
func TestLostJournal(t *testing.T) {
	c := newChaos(t)
	s := c.shop("lost", filepath.Join(t.TempDir(), "journal"), func(*rand.Rand, []byte) int { return 0 })
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	s.liveAndDie(ctx)
	require.NoError(t, s.run(t.Context(), "-last", fmt.Sprint(window)))
	twice := c.w.Count(`SELECT count(*) FROM (SELECT FROM orders WHERE customer_reference LIKE 'lost, %'
		GROUP BY customer_reference HAVING count(*) > 1) AS twice`)
	require.Positive(t, twice)
	require.NotEmpty(t, s.changed)
	t.Logf("%d orders were placed more than once", twice)
}

// chaos is a world with two processes of the API, which clients reach through links that can be cut.
type chaos struct {
	t     *testing.T
	w     *world.World
	seed  uint64
	rand  *rand.Rand
	shops string // the program

	apis           []*world.Process
	addresses      []string
	links          []*tcplink.Link
	gateway        *gateway.Gateway // before the second process
	mistreated     map[string]int   // by the gateway
	apiKills       int
	connectionCuts atomic.Int64
	faults         map[string]int // that Stripe had, by kind
}

func newChaos(t *testing.T) *chaos {
	seed := uint64(time.Now().UnixNano())
	if set := os.Getenv("CLIENT_CHAOS_SEED"); set != "" {
		var err error
		seed, err = strconv.ParseUint(set, 10, 64)
		require.NoError(t, err)
	}
	c := &chaos{t: t, w: world.New(t), seed: seed, rand: rand.New(rand.NewPCG(seed, 0)), shops: filepath.Join(t.TempDir(), "shop")}
	out, err := exec.Command("go", "build", "-o", c.shops, "./shop").CombinedOutput()
	require.NoError(t, err, string(out))
	for range 2 {
		at, err := port.Loopback(t.Context())
		require.NoError(t, err)
		c.addresses = append(c.addresses, at.String())
	}
	for i := range c.addresses {
		c.apis = append(c.apis, c.w.Process(world.ShortTimes("HTTP_ADDR="+c.addresses[i])...))
	}
	c.gateway = gateway.New(t, c.addresses[1], seed)
	for _, upstream := range []string{c.addresses[0], c.gateway.Addr} {
		c.links = append(c.links, tcplink.New(t, upstream))
	}
	return c
}

// breakThings cuts connections of clients, before and after what they carry, and has Stripe's responses lost, late or wrong.
func (c *chaos) breakThings() {
	cut := func(b []byte) ([]byte, bool) {
		if rand.N(30) > 0 {
			return b, false
		}
		c.connectionCuts.Add(1)
		return b[:rand.N(len(b)+1)], true
	}
	for _, l := range c.links {
		l.Set(cut, cut)
	}
	for kind, probability := range map[string]float64{stripesim.Drop: 0.03, stripesim.EffectError: 0.03, stripesim.Delay: 0.1} {
		c.w.Sim.Inject(stripesim.Fault{Op: "intent.confirm", Kind: kind, Times: -1, Probability: probability, Seed: c.seed, Delay: 300 * time.Millisecond})
	}
}

func (c *chaos) mend() {
	for _, l := range c.links {
		l.Set(nil, nil)
	}
	c.mistreated = c.gateway.Behave()
	c.faults = c.w.Sim.FaultsFired()
	c.w.Sim.ClearFaults()
}

// killAPIs kills a process of the API every few seconds, and starts it again.
func (c *chaos) killAPIs(ctx context.Context) {
	for pause(ctx, time.Second+rand.N(4*time.Second)) {
		i := c.rand.IntN(len(c.apis))
		c.apis[i].Kill()
		c.apiKills++
		pause(ctx, rand.N(time.Second))
		c.apis[i] = c.w.Process(world.ShortTimes("HTTP_ADDR=" + c.addresses[i])...)
	}
}

func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// journalInPostgres is a database with the table of a journal.
func (c *chaos) journalInPostgres() string {
	dsn := dbtest.Empty(c.t)
	db, err := sql.Open("pgx", dsn)
	require.NoError(c.t, err)
	defer func() { _ = db.Close() }()
	_, err = db.ExecContext(c.t.Context(), client.SQLSchema)
	require.NoError(c.t, err)
	return dsn
}

// line is what a shop prints of an order. It is the shop's Line.
type line struct{ Name, Outcome, Order, Payment string }

// shop is one that is killed again and again.
type shop struct {
	*chaos
	name, journal string
	cut           func(*rand.Rand, []byte) int // how many bytes are left of a journal

	upTo  int             // orders that were begun, or could have been
	lines map[string]line // of the process that runs
	told  map[string]line // of all of them
	kills atomic.Int64
	cuts  int

	changed []string // orders of which two processes were told different things
}

func (c *chaos) shop(name, journal string, cut func(*rand.Rand, []byte) int) *shop {
	return &shop{chaos: c, name: name, journal: journal, cut: cut, upTo: window, told: map[string]line{}}
}

// anyCut cuts a journal anywhere after its first line. A crash can only take what was not synced.
func anyCut(r *rand.Rand, journal []byte) int {
	head := bytes.IndexByte(journal, '\n') + 1
	return head + r.IntN(len(journal)-head+1)
}

// liveAndDie runs the shop's windows of orders, one after the other, in processes that are killed.
func (s *shop) liveAndDie(ctx context.Context) {
	for r := rand.New(rand.NewPCG(s.seed, uint64(len(s.name)))); ctx.Err() == nil; {
		life, end := context.WithTimeout(ctx, 20*time.Millisecond+rand.N(1500*time.Millisecond))
		err := s.run(life, "-first", fmt.Sprint(s.upTo-window), "-last", fmt.Sprint(s.upTo))
		killed := life.Err() != nil
		end()
		switch {
		case err == nil && !killed:
			s.upTo += window
		case !killed:
			s.t.Errorf("%s: %v", s.name, err)
			return
		default:
			s.kills.Add(1)
			s.cutJournal(r)
		}
	}
}

func (s *shop) cutJournal(r *rand.Rand) {
	text, err := os.ReadFile(s.journal)
	if s.cut == nil || err != nil { // in a database, or killed before it was made
		return
	}
	left := s.cut(r, text)
	switch {
	case left == 0:
		err = os.Remove(s.journal)
	case left < len(text):
		err = os.Truncate(s.journal, int64(left))
		s.cuts++
	}
	if err != nil {
		s.t.Error(err)
	}
}

// run runs a process of the shop until it exits, or kills it when the context ends.
func (s *shop) run(ctx context.Context, args ...string) error {
	var links []string
	for _, l := range s.links {
		links = append(links, "http://"+l.Addr())
	}
	cmd := exec.CommandContext(ctx, s.shops, append([]string{"-name", s.name, "-journal", s.journal, "-api", strings.Join(links, ",")}, args...)...) // which kills with SIGKILL
	cmd.Env = []string{"API_KEY=" + s.w.Tenant.APIKey}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	for lines := bufio.NewScanner(&stdout); lines.Scan(); {
		var l line
		if json.Unmarshal(lines.Bytes(), &l) != nil {
			continue // killed while it printed
		}
		if was, ok := s.told[l.Name]; ok && was != l {
			s.changed = append(s.changed, fmt.Sprintf("first %+v, then %+v", was, l))
		}
		s.told[l.Name] = l
		if s.lines != nil {
			s.lines[l.Name] = l
		}
	}
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("%w: %s", err, stderr.Bytes())
	}
	return nil
}

// open is how many intents of the journal have no final response.
func (s *shop) open() int {
	ctx := context.Background()
	var j client.Journal
	if strings.HasPrefix(s.journal, "postgres") {
		db, err := sql.Open("pgx", s.journal)
		require.NoError(s.t, err)
		defer func() { _ = db.Close() }()
		j, err = client.SQL(ctx, db)
		require.NoError(s.t, err)
	} else {
		f, err := client.OpenFile(s.journal)
		require.NoError(s.t, err)
		defer func() { _ = f.Close() }()
		j = f
	}
	open, err := j.Open(ctx)
	require.NoError(s.t, err)
	return len(open)
}

// check compares what the shop was told in the end with Stripe's effect log: an order that is paid was charged once, by
// one order of ours, and one that is not never.
func (c *chaos) check(s *shop) {
	for name, l := range s.lines {
		require.Equal(c.t, 1, c.w.Count("SELECT count(*) FROM orders WHERE customer_reference = $1", name), name)
		require.Equal(c.t, l.Order, c.w.Text("SELECT id FROM orders WHERE customer_reference = $1", name))
		want := 0
		if l.Outcome == "paid" {
			want = 1
		}
		require.Equal(c.t, want, c.w.Sim.ChargeCount(l.Order), "%+v", l)
	}
}

func (c *chaos) paid(shops []*shop) (n int) {
	for _, s := range shops {
		for _, l := range s.lines {
			if l.Outcome == "paid" {
				n++
			}
		}
	}
	return n
}

// sameShop is the one that has an order.
func (s *shop) sameShop(shops []*shop, order string) *shop {
	for _, other := range shops {
		if strings.HasPrefix(order, other.name+", ") {
			return other
		}
	}
	require.FailNow(s.t, "no shop has the order", order)
	return nil
}
