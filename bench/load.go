package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"example.com/payonce/db"
	httpapi "example.com/payonce/internal/http"
	"example.com/payonce/internal/payments"
)

// ordersMax is how many fresh orders one measurement may use up.
const ordersMax = 150_000

// bench is a migrated database with a tenant, and the service on it.
type bench struct {
	url, apiKey, tenant string
	pool                *db.Pool
	addr                string
	child               *exec.Cmd
	dir                 string
	batch               int // of orders: each measurement gets its own
}

func prepare(ctx context.Context, serverURL string) (*bench, error) {
	admin, err := db.Open(ctx, serverURL, db.Options{MaxConn: 2})
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("bench_%d", os.Getpid())
	_, err = admin.Raw().Exec(ctx, "CREATE DATABASE "+name)
	admin.Close()
	if err != nil {
		return nil, fmt.Errorf("create the database: %w", err)
	}
	b := &bench{url: withDatabase(serverURL, name), tenant: payments.NewTenantID()}
	if b.pool, err = db.Open(ctx, b.url, db.Options{MaxConn: 4}); err != nil {
		return nil, err
	}
	if _, err := b.pool.Migrate(ctx); err != nil {
		return nil, err
	}
	key, hash, hint := httpapi.NewAPIKey(b.tenant)
	b.apiKey = key
	if err := b.pool.TenantCreate(ctx, db.TenantCreateParams{ID: b.tenant, Name: "bench", FingerprintSecret: make([]byte, 32)}); err != nil {
		return nil, err
	}
	if err := b.pool.APIKeyCreate(ctx, db.APIKeyCreateParams{TenantID: b.tenant, KeyHash: hash, Hint: hint}); err != nil {
		return nil, err
	}
	if b.dir, err = os.MkdirTemp("", "payonce-bench"); err != nil {
		return nil, err
	}
	return b, b.startService(ctx)
}

var databaseName = regexp.MustCompile(`^(postgres(?:ql)?://[^/]+/)[^?]*`)

func withDatabase(url, name string) string { return databaseName.ReplaceAllString(url, "${1}"+name) }

func (b *bench) startService(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	b.child = exec.CommandContext(ctx, self, "service", "-database", b.url)
	b.child.Cancel = func() error { return b.child.Process.Signal(os.Interrupt) }
	b.child.Stderr = os.Stderr
	b.child.Env = append(os.Environ(), "GOGC=400") // as cmd/api sets it
	out, err := b.child.StdoutPipe()
	if err != nil {
		return err
	}
	if err := b.child.Start(); err != nil {
		return err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	b.addr = strings.TrimSpace(line)
	return err
}

func (b *bench) close() {
	_ = b.child.Process.Signal(os.Interrupt)
	_ = b.child.Wait()
	b.pool.Close()
	_ = os.RemoveAll(b.dir)
}

// orders makes fresh orders: ord_ and 26 digits, the last of which count.
func (b *bench) orders(ctx context.Context, each, clients int) (prefix string, err error) {
	b.batch++
	prefix = fmt.Sprintf("ord_%04d", b.batch)
	_, err = b.pool.Raw().Exec(ctx, `
		INSERT INTO orders (tenant_id, id, currency, amount_minor, items, created_at)
		SELECT $1, $2 || lpad(c::text, 4, '0') || lpad(i::text, 18, '0'), 'usd', 1000, '[{"sku":"a","quantity":2,"unit_amount":500}]', clock_timestamp()
		FROM generate_series(0, $4::int - 1) c, generate_series(1, $3::int) i`, b.tenant, prefix, each, clients)
	if err == nil {
		_, err = b.pool.Raw().Exec(ctx, "VACUUM (ANALYZE) orders")
	}
	return prefix, err
}

// fresh pays fresh orders over HTTP.
func (b *bench) fresh(ctx context.Context, s settings) (float64, error) {
	each := ordersMax / s.connections
	prefix, err := b.orders(ctx, each, s.connections)
	if err != nil {
		return 0, err
	}
	before := cpuOf(b.child.Process.Pid)
	rate, n, err := b.drive(ctx, s, http.StatusCreated, func(conn, i int) ([]byte, bool) {
		order := fmt.Sprintf("%s%04d%018d", prefix, conn, i)
		return b.request("/v1/payments", order, `{"order_id":"`+order+`","payment_method":"pm_card_visa"}`), i <= each
	})
	if cpu := cpuOf(b.child.Process.Pid) - before; n > 0 && cpu > 0 {
		fmt.Printf("         service CPU per payment: %d µs\n", cpu.Microseconds()/int64(n))
	}
	return rate, err
}

// replays asks again for what the service has answered; pgbench's keys have
// answers of another form.
func (b *bench) replays(ctx context.Context, s settings) (float64, error) {
	var keys []string
	rows, err := b.pool.Raw().Query(ctx, "SELECT key FROM idempotency_keys WHERE tenant_id = $1 AND key LIKE 'ord\\_%' AND answer_headers <> 'Content-Type: application/json'::bytea LIMIT 10000", b.tenant)
	if err != nil {
		return 0, err
	}
	for rows.Next() {
		var key string
		if err := rows.Scan(&key); err != nil {
			return 0, err
		}
		keys = append(keys, key)
	}
	if rows.Err() != nil || len(keys) == 0 {
		return 0, errors.Join(rows.Err(), errors.New("nothing to replay"))
	}
	var wal0, wal1 int64
	_ = b.pool.Raw().QueryRow(ctx, "SELECT pg_current_wal_lsn() - '0/0'").Scan(&wal0)
	before := cpuOf(b.child.Process.Pid)
	rate, n, err := b.drive(ctx, s, http.StatusCreated, func(conn, i int) ([]byte, bool) {
		order := keys[(conn*7919+i)%len(keys)]
		return b.request("/v1/payments", order, `{"order_id":"`+order+`","payment_method":"pm_card_visa"}`), true
	})
	_ = b.pool.Raw().QueryRow(ctx, "SELECT pg_current_wal_lsn() - '0/0'").Scan(&wal1)
	if cpu := cpuOf(b.child.Process.Pid) - before; n > 0 {
		fmt.Printf("         service CPU per replay: %d µs, WAL per replay: %.2f bytes\n", cpu.Microseconds()/int64(n), float64(wal1-wal0)/float64(n))
	}
	return rate, err
}

// conflicts asks for a key that somebody else holds.
func (b *bench) conflicts(ctx context.Context, s settings) (float64, error) {
	prefix, err := b.orders(ctx, 1, 1)
	if err != nil {
		return 0, err
	}
	order := prefix + fmt.Sprintf("%04d%018d", 0, 1)
	body := `{"order_id":"` + order + `","payment_method":"pm_card_visa"}`
	if _, _, err := b.drive(ctx, settings{seconds: 1, connections: 1}, http.StatusCreated, func(_, i int) ([]byte, bool) {
		return b.request("/v1/payments", order, body), i == 1
	}); err != nil {
		return 0, err
	}
	// A held twin of that key: same fingerprint, not finished.
	_, err = b.pool.Raw().Exec(ctx, `
		INSERT INTO idempotency_keys (tenant_id, key, operation, fingerprint, fingerprint_version, request, request_id, resource_id, recovery_point, claim_token, leased_until, resume_at, trail)
		SELECT tenant_id, key || '-held', operation, fingerprint, fingerprint_version, request, request_id, resource_id, 'payment_recorded', claim_token,
			clock_timestamp() + interval '1 hour', clock_timestamp() + interval '1 hour', trail
		FROM idempotency_keys WHERE tenant_id = $1 AND key = $2`, b.tenant, order)
	if err != nil {
		return 0, err
	}
	rate, _, err := b.drive(ctx, s, http.StatusConflict, func(_, _ int) ([]byte, bool) {
		return b.request("/v1/payments", order+"-held", body), true
	})
	return rate, err
}

func (b *bench) request(path, key, body string) []byte {
	return []byte("POST " + path + " HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer " + b.apiKey + "\r\nContent-Type: application/json\r\nIdempotency-Key: " +
		key + "\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body)
}

// drive sends requests over so many connections, one at a time on each, and
// demands one status of every answer.
func (b *bench) drive(ctx context.Context, s settings, status int, next func(conn, i int) ([]byte, bool)) (rate float64, n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, seconds(s))
	defer cancel()
	var (
		all   sync.WaitGroup
		count atomic.Int64
		errs  = make(chan error, s.connections)
		began = time.Now()
	)
	for conn := range s.connections {
		all.Go(func() {
			c, err := (&net.Dialer{}).DialContext(ctx, "tcp", b.addr)
			if err != nil {
				errs <- err
				return
			}
			defer func() { _ = c.Close() }()
			answers := bufio.NewReaderSize(c, 8192)
			for i := 1; ctx.Err() == nil; i++ {
				request, more := next(conn, i)
				if !more {
					return
				}
				if _, err := c.Write(request); err != nil {
					errs <- err
					return
				}
				if err := readAnswer(answers, status); err != nil {
					errs <- err
					return
				}
				count.Add(1)
			}
		})
	}
	all.Wait()
	took := time.Since(began)
	select {
	case err = <-errs:
	default:
	}
	return float64(count.Load()) / took.Seconds(), int(count.Load()), err
}

// readAnswer reads one answer as cheaply as can be: the driver shares the cores.
func readAnswer(r *bufio.Reader, status int) error {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return err
	}
	got := string(line[9:12])
	length := 0
	for {
		line, err = r.ReadSlice('\n')
		if err != nil {
			return err
		}
		if len(line) <= 2 {
			break
		}
		if n, ok := strings.CutPrefix(string(line), "Content-Length: "); ok {
			length, _ = strconv.Atoi(strings.TrimSpace(n))
		}
	}
	body, err := r.Peek(min(length, 400))
	if err != nil {
		return err
	}
	if got != strconv.Itoa(status) {
		return fmt.Errorf("status %s, expected %d: %s", got, status, body)
	}
	_, err = r.Discard(length)
	return err
}

// pgbench runs the same statements without us.
func (b *bench) pgbench(ctx context.Context, binary, kind string, s settings) (float64, error) {
	each := ordersMax / s.clients
	prefix, err := b.orders(ctx, each, s.clients)
	if err != nil {
		return 0, err
	}
	script := filepath.Join(b.dir, kind+".sql")
	text := replayScript(b.tenant)
	if kind == "fresh" {
		if text, err = freshScript(b.tenant, prefix); err != nil {
			return 0, err
		}
	}
	if err := os.WriteFile(script, []byte(text), 0o600); err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, binary, "-n", "-M", "prepared", "-c", strconv.Itoa(s.clients), "-j", "2", "-T", strconv.Itoa(s.seconds),
		"-D", "i=0", "-f", script, b.url)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("%w: %s", err, out)
	}
	m := regexp.MustCompile(`tps = ([0-9.]+) \(without`).FindSubmatch(out)
	if m == nil {
		return 0, fmt.Errorf("pgbench printed no rate: %s", out)
	}
	return strconv.ParseFloat(string(m[1]), 64)
}

func replayScript(tenant string) string {
	lookup := substitute(db.HotPath()[0], []string{"'" + tenant + "'", "(SELECT 'ord_0001' || lpad((:client_id)::text, 4, '0') || lpad((:n)::text, 18, '0'))"})
	return "\\set n random(1, 1000)\n" + lookup + ";\n"
}

// freshScript turns the hot path's statements into a script of pgbench's: each
// parameter becomes an expression, by the name it has in Go.
func freshScript(tenant, prefix string) (string, error) {
	order := "'" + prefix + "' || lpad((:client_id)::text, 4, '0') || lpad((:i)::text, 18, '0')"
	payment := "'pay' || substr(" + order + ", 4)"
	answer := strings.Repeat("x", 430)
	values := map[string]string{
		"TenantID": "'" + tenant + "'", "Key": order, "ID": order, "OrderID": order, "PaymentID": payment, "Operation": "'create_payment'",
		"Fingerprint": "sha256((" + order + ")::bytea)", "FingerprintVersion": "1::smallint", "Request": "'{\"order_id\":\"ord_00000000000000000000000000\",\"payment_method\":\"pm_card_visa\"}'::bytea",
		"RequestID": "'req_00000000000000000000000000000000'", "RecoveryPoint": "'payment_recorded'", "ClaimToken": "gen_random_uuid()", "Lease": "interval '60 s'",
		"AmountMinor": "1000::bigint", "Currency": "'usd'", "PaymentMethod": "'pm_card_visa'", "IntentNumber": "1", "IntentID": "NULL::text",
		"CreatedAt": "clock_timestamp()", "EventData": "'" + answer + "'::bytea", "Traceparent": "NULL::text", "StripeKey": stripeKey(tenant, order, "intent:1"),
		"StripeOperation": "'create_intent'", "StripeResourceID": order, "ParamsSha256": "sha256('x')",
		"LeaseToken": "1::bigint", "StripeRequestID": "'req_bench'", "CreateKey": stripeKey(tenant, order, "intent:1"),
		"ConfirmKey":   stripeKey(tenant, order, "confirm"),
		"OrderVersion": "1::bigint", "PaymentVersion": "1::bigint", "PaysOrder": "true", "AnswerVersion": "1", "AnswerStatus": "201",
		"AnswerHeaders": "'Content-Type: application/json'::bytea", "AnswerBody": "'" + answer + "'::bytea",
		"EventAggregateIds": "ARRAY[" + payment + ", " + order + "]", "EventVersions": "ARRAY[2, 2]::bigint[]", "EventTypes": "ARRAY['payment.succeeded', 'order.paid']",
		"StripeOutcome": "'done'::stripe_outcome", "HttpStatus": "200::smallint", "ErrorCode": "NULL::text", "ObjectID": "'pi_1'", "Status": "'succeeded'::payment_status",
		"IntentClosed": "false", "ChargeID": "'ch_1'", "FailureCode": "NULL::text", "FailureDeclineCode": "NULL::text", "FailureMessage": "NULL::text",
	}
	type statement struct {
		params any
		change map[string]string
	}
	statements := []statement{
		{db.KeyLookupParams{}, nil},
		{db.OrderToPayParams{}, nil},
		{db.PaymentBeginParams{}, nil},
		{db.PaymentIntentRecordParams{}, map[string]string{"IntentID": "'pi_1'", "RecoveryPoint": "'intent_recorded'"}},
		{db.PaymentFinishParams{}, map[string]string{
			"StripeKey": stripeKey(tenant, order, "confirm"), "EventData": "ARRAY['" + answer + "', '" + answer + "']::bytea[]",
		}},
	}
	script := "\\set i :i + 1\n"
	for n, sql := range db.HotPath() {
		fields := reflect.TypeOf(statements[n].params)
		args := make([]string, fields.NumField()) // sqlc numbers parameters as the struct has its fields
		for i := range args {
			name := fields.Field(i).Name
			value, ok := statements[n].change[name]
			if !ok {
				if value, ok = values[name]; !ok {
					return "", fmt.Errorf("no value for parameter %s of statement %d", name, n)
				}
			}
			args[i] = "(" + value + ")"
		}
		script += substitute(sql, args) + ";\n"
	}
	return script, nil
}

// stripeKey spells a key without a colon, which pgbench takes for a variable
// even inside quotes.
func stripeKey(tenant, order, operation string) string {
	parts := []string{"'" + tenant + "'", order}
	for part := range strings.SplitSeq(operation, ":") {
		parts = append(parts, "'"+part+"'")
	}
	return strings.Join(parts, " || chr(58) || ")
}

var placeholder = regexp.MustCompile(`\$([0-9]+)`)

func substitute(sql string, args []string) string {
	var lines []string
	for line := range strings.SplitSeq(sql, "\n") {
		if line, _, _ = strings.Cut(line, "--"); strings.TrimSpace(line) != "" {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return placeholder.ReplaceAllStringFunc(strings.Join(lines, " "), func(p string) string {
		n, _ := strconv.Atoi(p[1:])
		return args[n-1]
	})
}

// costs prints what a payment leaves behind.
func (b *bench) costs(ctx context.Context) error {
	var payments, bytes int64
	err := b.pool.Raw().QueryRow(ctx, `
		SELECT (SELECT count(*) FROM payments), (SELECT sum(pg_total_relation_size(c)) FROM unnest(ARRAY['idempotency_keys', 'payments', 'outbox_events', 'stripe_calls']::regclass[]) c)`).Scan(&payments, &bytes)
	if err == nil && payments > 0 {
		fmt.Printf("\n%d payments on disk, %d bytes each in keys, payments, events and calls\n", payments, bytes/payments)
	}
	return err
}

// cpuOf is the processor time a process has used, from /proc; zero elsewhere.
func cpuOf(pid int) time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseInt(fields[11], 10, 64)
	system, _ := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * 10 * time.Millisecond
}
