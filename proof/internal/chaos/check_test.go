package chaos

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/checkout"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// A check that finds nothing is only worth something if there is something that
// he finds.
func TestTheBooks(t *testing.T) {
	t.Parallel()
	at := time.Now()
	const key = "ten_1:k:confirm"
	charge := stripesim.Effect{Kind: stripesim.EffectCharge, IntentID: "pi_1", Key: key, Amount: 500, At: at,
		Metadata: map[string]string{"order_id": "ord_1"}}
	refund := stripesim.Effect{Kind: stripesim.EffectRefund, IntentID: "pi_1", Key: "ten_1:r:refund", Amount: 200,
		At: at}
	back := stripesim.Effect{Kind: stripesim.EffectRefundFailed, IntentID: "pi_1", Amount: 200, At: at}
	ours := map[string]paid{"pi_1": {tenant: "ten_1", key: "k", order: "ord_1", status: succeeded, amount: 500,
		refunded: 200}}
	sent := map[string]time.Time{key: at.Add(-time.Second), "ten_1:r:refund": at.Add(-time.Second)}
	with := func(e stripesim.Effect, change func(*stripesim.Effect)) stripesim.Effect { change(&e); return e }

	b := compareBooks([]stripesim.Effect{charge, refund}, ours, sent)
	require.Equal(t, books{effects: 2, money: 2}, b, "nothing is wrong")
	captured := compareBooks([]stripesim.Effect{
		{Kind: stripesim.EffectAuthorized, IntentID: "pi_1", Key: key, Amount: 500, At: at},
		with(charge, func(e *stripesim.Effect) { e.Key, e.Amount = "ten_1:c:capture", 300 }),
		{Kind: stripesim.EffectReleased, IntentID: "pi_1", Key: "ten_1:c:capture", Amount: 200, At: at},
	}, map[string]paid{"pi_1": {tenant: "ten_1", key: "k", order: "ord_1", status: succeeded, amount: 300,
		captures: []string{"ten_1:c:capture"}}}, map[string]time.Time{key: at.Add(-time.Second),
		"ten_1:c:capture": at.Add(-time.Second)})
	require.Equal(t, books{effects: 3, money: 1, holds: 1}, captured, "nothing is wrong with a capture")

	held := stripesim.Effect{Kind: stripesim.EffectAuthorized, IntentID: "pi_2", Key: key, Amount: 500, At: at}
	taken := with(held, func(e *stripesim.Effect) { e.Kind, e.Amount = stripesim.EffectCharge, 300 })
	let := with(held, func(e *stripesim.Effect) { e.Kind, e.Amount = stripesim.EffectReleased, 200 })
	expired := with(held, func(e *stripesim.Effect) { e.Kind = stripesim.EffectExpired })
	for name, c := range map[string]struct {
		effects []stripesim.Effect
		status  string
		bad     int
	}{
		"Waits": {[]stripesim.Effect{held}, authorizedStatus, 0}, "Expires": {[]stripesim.Effect{held, expired}, "canceled", 0},
		"Captured":             {[]stripesim.Effect{held, taken, let}, succeeded, 0},
		"CapturedTwice":        {[]stripesim.Effect{held, taken, let, taken}, succeeded, 1},
		"TheRestIsKept":        {[]stripesim.Effect{held, taken}, succeeded, 1},
		"CapturedAndExpired":   {[]stripesim.Effect{held, taken, let, expired}, succeeded, 1},
		"ReservedTwice":        {[]stripesim.Effect{held, held, taken, let}, succeeded, 1},
		"EndedWithoutOurRow":   {[]stripesim.Effect{held, expired}, authorizedStatus, 1},
		"OurRowEndsTooEarly":   {[]stripesim.Effect{held}, canceled, 1},
		"OurRowHasTakenItOnce": {[]stripesim.Effect{held}, succeeded, 1},
	} {
		t.Run("OfAHold/"+name, func(t *testing.T) {
			t.Parallel()
			b := compareBooks(c.effects, map[string]paid{"pi_2": {status: c.status}}, sent)
			require.Len(t, b.badHolds, c.bad)
		})
	}

	for name, c := range map[string]struct {
		effects                            []stripesim.Effect
		twice, apart, unannounced, foreign int
	}{
		"ChargedTwiceUnderOneKey": {[]stripesim.Effect{charge, refund, charge}, 2, 1, 0, 0}, // the key, and the order
		"ChargedTwiceUnderTwoKeys": {[]stripesim.Effect{charge, refund,
			with(charge, func(e *stripesim.Effect) { e.Key, e.IntentID = "other", "pi_2" })}, 1, 1, 1, 0},
		"RefundedTwice": {[]stripesim.Effect{charge, refund, refund}, 1, 1, 0, 0},
		"NeverCharged":  {[]stripesim.Effect{refund}, 0, 1, 0, 0},
		"RefundFailed":  {[]stripesim.Effect{charge, refund, back}, 0, 1, 0, 0},
		"NotAnnounced": {[]stripesim.Effect{charge,
			with(refund, func(e *stripesim.Effect) { e.Key = "nobody's" })}, 0, 0, 1, 0},
		"AnnouncedTooLate": {[]stripesim.Effect{with(charge,
			func(e *stripesim.Effect) { e.At = at.Add(-time.Minute) }), refund}, 0, 0, 1, 0},
		"CapturedUnderAKeyOfNoCapture": {[]stripesim.Effect{
			with(charge, func(e *stripesim.Effect) { e.Key = "ten_1:r:refund" }),
			with(refund, func(e *stripesim.Effect) { e.Key = "" })}, 0, 0, 0, 1},
		"AuthorizedAndNotAnnounced": {[]stripesim.Effect{charge, refund,
			{Kind: stripesim.EffectAuthorized, IntentID: "pi_2", Key: "nobody's", At: at}}, 0, 0, 1, 0},
		"UnderAnothersKey": {[]stripesim.Effect{with(charge,
			func(e *stripesim.Effect) { e.Key = "ten_1:r:refund" }),
			with(refund, func(e *stripesim.Effect) { e.Key = "" })}, 0, 0, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := compareBooks(c.effects, ours, sent)
			require.Len(t, b.twice, c.twice)
			require.Len(t, b.apart, c.apart)
			require.Len(t, b.unannounced, c.unannounced)
			require.Len(t, b.foreign, c.foreign)
		})
	}
}

func TestTheBrokersLog(t *testing.T) {
	t.Parallel()
	written := map[string]event{}
	at := func(subject string, version int64) message {
		data := json.RawMessage(fmt.Sprintf(`{"n":%d}`, version))
		id := outbox.EventID(subject, version)
		body, err := json.Marshal(outbox.Envelope{ID: id, Type: "order.created", Subject: subject, TenantID: "ten_1",
			Version: version, Data: data})
		require.NoError(t, err)
		written[id] = event{"order.created", data}
		return message{id: id, body: body}
	}
	a1, a2, a3, b1 := at("a", 1), at("a", 2), at("a", 3), at("b", 1)
	another := a2
	another.body = append([]byte{}, another.body...)
	copy(another.body[len(another.body)-len(`"n":2}}`):], `"n":7}}`)
	renamed := a3
	renamed.id = "another"

	require.Equal(t, walked{objects: 2}, walk([]message{a1, b1, a2, a3}, written), "nothing is wrong")
	for name, c := range map[string]struct {
		log                           []message
		missing, repeated, disordered int
	}{
		"Missing":        {[]message{a1, b1, a2}, 1, 0, 0},
		"MissingBetween": {[]message{a1, b1, a3}, 1, 0, 1},
		"Twice":          {[]message{a1, b1, a2, a2, a3}, 0, 1, 0},
		"OutOfOrder":     {[]message{a1, b1, a3, a2}, 0, 0, 2},
		"OtherBytes":     {[]message{a1, b1, another, a3}, 0, 1, 0},
		"OtherMessageID": {[]message{a1, b1, a2, renamed}, 0, 1, 0},
		"NotAnEvent":     {[]message{a1, b1, a2, a3, {id: "x", body: []byte("x")}}, 0, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := walk(c.log, written)
			require.Len(t, w.missing, c.missing)
			require.Len(t, w.repeated, c.repeated)
			require.Len(t, w.disordered, c.disordered)
		})
	}
}

const (
	oneTenant = `INSERT INTO tenants (id, name, fingerprint_secret) VALUES ('ten_1', 'x', decode(repeat('00', 32), 'hex'))`
	oneKey    = `INSERT INTO idempotency_keys (tenant_id, key, operation, fingerprint, fingerprint_version,
		request_id, resource_id, recovery_point, claim_token, leased_until, next_attempt_at, history)
		VALUES ('ten_1', 'k', 'create_payment', decode(repeat('00', 32), 'hex'), 1, 'r', 'pay_1', 'started',
			gen_random_uuid(), clock_timestamp() + interval '1 min', clock_timestamp(), '{}')`
)

// TestPatience: a refund that is owed, and waits for the end of a dispute, gets a minute more.
func TestPatience(t *testing.T) {
	t.Parallel()
	pool, err := postgres.Open(t.Context(), dbtest.URL(t), postgres.Options{Name: "judge", MaxConn: 1})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	w := &world{pool: pool}
	patience := func(fewer time.Duration) time.Duration {
		t.Helper()
		more, err := w.patience(t.Context(), fewer)
		require.NoError(t, err)
		return more
	}
	for _, sql := range []string{oneTenant, oneKey} {
		_, err := pool.Raw().Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	require.Equal(t, time.Second, patience(time.Second))
	require.Equal(t, time.Minute, patience(time.Hour))
	_, err = pool.Raw().Exec(t.Context(), `UPDATE idempotency_keys SET last_error = $1`, checkout.CustomerIsOwed+": 5.00 usd")
	require.NoError(t, err)
	require.Equal(t, time.Minute, patience(time.Second))
}

// The checks see a write by a process that does not hold the claim, and a lease
// that was taken before its time, both of which the schema would let pass.
func TestTheWitnesses(t *testing.T) {
	t.Parallel()
	url := dbtest.URL(t)
	as := func(name string) *postgres.Pool {
		pool, err := postgres.Open(t.Context(), url, postgres.Options{Name: name, MaxConn: 1})
		require.NoError(t, err)
		t.Cleanup(pool.Close)
		return pool
	}
	exec := func(pool *postgres.Pool, sql string) {
		t.Helper()
		_, err := pool.Raw().Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	w := &world{pool: as("judge")}
	holder, stranger := as("api-1.1"), as("api-2.1")
	exec(w.pool, witnesses)
	exec(w.pool, oneTenant)
	exec(holder, oneKey)
	exec(holder, `UPDATE idempotency_keys SET recovery_point = 'called'`)
	looked, stale, err := w.staleWrites(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, looked)
	require.Empty(t, stale)

	exec(stranger, `UPDATE idempotency_keys SET recovery_point = 'recorded'`)
	_, stale, err = w.staleWrites(t.Context())
	require.NoError(t, err)
	require.Len(t, stale, 1)
	require.Contains(t, stale[0], "api-2.1 moved it to recorded, and its token 1 was of api-1.1")

	j := &checks{world: w}
	violations := func() []string {
		require.NoError(t, j.clocks(t.Context()))
		return j.checks[len(j.checks)-1].Violations
	}
	exec(stranger, `UPDATE idempotency_keys SET lease_token = 2, claim_token = gen_random_uuid()`)
	require.Len(t, violations(), 1, "the lease had a minute to go")
	require.Equal(t, 1, j.checks[0].Looked)

	exec(stranger, `UPDATE idempotency_keys SET leased_until = '-infinity'`)
	exec(holder, `UPDATE idempotency_keys SET lease_token = 3, claim_token = gen_random_uuid(),
		leased_until = clock_timestamp() - interval '2 s'`)
	require.Len(t, violations(), 1, "what was given back may be taken at once, and a lease may have begun before a lock was waited for")

	for token, hour := range []string{"-1 hour", "1 hour"} {
		exec(holder, fmt.Sprintf(`UPDATE idempotency_keys SET lease_token = %d, claim_token = gen_random_uuid(),
			leased_until = clock_timestamp() + interval '%s'`, 4+token, hour))
		require.Len(t, violations(), 2+token, "the lease is of a clock that is off by %s", hour)
	}
}
