package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"example.com/payonce/db"
	"example.com/payonce/internal/postgres"
)

// batched is how the service sent the statements of fresh payments, and what one of its payments stores. The floor does
// the same: as many rows a statement, of the same size.
type batched struct {
	rows            int // a statement, on average
	connections     int
	answer, headers []byte
	requestID       string
	stored          float64 // bytes of a payment's rows
}

// lanes is how many batches the service has under way (internal/postgres/batched.go).
const lanes = 2

// observeBatches pays for a while before the first round, and looks at how that came to the database. Later rounds have
// as many rows a statement as the service had in the round before.
func (b *bench) observeBatches(ctx context.Context) error {
	next, prefix, err := b.freshOrders(ctx, timeOrdered)
	if err != nil {
		return err
	}
	got, rows, err := b.rowsAStatement(ctx, func() (sample, error) {
		return b.measured(ctx, b.addr, http.StatusCreated, next)
	})
	if err != nil {
		return err
	}
	if got.n == 0 {
		return errors.New("no payment was made")
	}
	b.batched = batched{rows: max(1, int(math.Round(rows))), connections: lanes}
	err = b.pool.Raw().QueryRow(ctx, "SELECT answer_body, answer_headers, request_id FROM idempotency_keys "+
		"WHERE tenant_id = $1 AND key LIKE $2 AND finished_at IS NOT NULL LIMIT 1", b.tenant, prefix+"%").
		Scan(&b.batched.answer, &b.batched.headers, &b.batched.requestID)
	if err == nil {
		b.batched.stored, err = b.storedBytes(ctx, prefix)
	}
	return err
}

// rowsAStatement is how many payments shared a statement: each of the three that write is one transaction.
func (b *bench) rowsAStatement(ctx context.Context, pay func() (sample, error)) (sample, float64, error) {
	before, err := b.transactions(ctx)
	if err != nil {
		return sample{}, 0, err
	}
	got, err := pay()
	if err != nil {
		return got, 0, err
	}
	after, err := b.transactions(ctx)
	return got, 3 * float64(got.n) / float64(max(1, after-before)), err
}

// transactions is how many have written since the server began.
func (b *bench) transactions(ctx context.Context) (n int64, err error) {
	err = b.pool.Raw().QueryRow(ctx, "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint").Scan(&n)
	return n, err
}

// storedBytes is the size of what a payment stores, on average of some.
func (b *bench) storedBytes(ctx context.Context, prefix string) (bytes float64, err error) {
	err = b.pool.Raw().QueryRow(ctx, `
		SELECT coalesce(avg(pg_column_size(p.*) + pg_column_size(k.*) + (
			SELECT sum(pg_column_size(e.*)) FROM outbox_events e
			WHERE e.tenant_id = p.tenant_id AND e.aggregate_id IN (p.id, p.order_id)) + (
			SELECT pg_column_size(o.*) FROM orders o WHERE o.tenant_id = p.tenant_id AND o.id = p.order_id)), 0)::float8
		FROM (SELECT * FROM payments WHERE tenant_id = $1 AND order_id LIKE $2 AND status = 'succeeded' LIMIT 100) p
		JOIN idempotency_keys k ON k.tenant_id = p.tenant_id AND k.key = p.idempotency_key`, b.tenant,
		prefix+"%").Scan(&bytes)
	return bytes, err
}

// freshFloor pays orders with the service's statements and without the service.
func (b *bench) freshFloor(ctx context.Context) (sample, error) {
	of := b.batched
	prefix, err := b.orders(ctx, b.ordersMax()/of.connections, of.connections)
	if err != nil {
		return sample{}, err
	}
	script, err := freshScript(b.tenant, prefix, of)
	if err != nil {
		return sample{}, err
	}
	ran, err := b.pgbench(ctx, of.connections, script)
	if err != nil {
		return sample{}, err
	}
	var paid int
	if err := b.pool.Raw().QueryRow(ctx, "SELECT count(*) FROM payments p JOIN idempotency_keys k ON k.tenant_id = "+
		"p.tenant_id AND k.key = p.idempotency_key WHERE p.tenant_id = $1 AND p.order_id LIKE $2 AND p.status = 'succeeded' "+
		"AND k.finished_at IS NOT NULL", b.tenant, prefix+"%").Scan(&paid); err != nil {
		return sample{}, err
	}
	if paid != ran.n*of.rows { // one that does nothing would be fast
		return sample{}, fmt.Errorf("%d payments were made, and %d asked for", paid, ran.n*of.rows)
	}
	stored, err := b.storedBytes(ctx, prefix)
	if err == nil && math.Abs(stored-of.stored) > storedDiffers*of.stored {
		err = fmt.Errorf("pgbench stores %.0f bytes a payment, and the service %.0f", stored, of.stored)
	}
	return sample{rate: ran.rate * float64(of.rows), note: fmt.Sprintf("%d rows a statement, %d connections, %.0f bytes "+
		"in the rows of a payment", of.rows, of.connections, stored)}, err
}

// storedDiffers is how much the rows of the floor may differ in size from the service's, as a part of them: a digit more
// in three ids of a stored event is a hundredth.
const storedDiffers = 0.03

func (b *bench) replayFloor(ctx context.Context) (sample, error) {
	ran, err := b.pgbench(ctx, b.s.clients, replayScript(b.tenant))
	return sample{rate: ran.rate}, err
}

// ran is how often pgbench ran a script.
type ran struct {
	rate float64
	n    int
}

var (
	pgbenchRate = regexp.MustCompile(`tps = ([0-9.]+) \(without`)
	pgbenchRuns = regexp.MustCompile(`number of transactions actually processed: ([0-9]+)`)
)

// pgbench runs a script's statements without us.
func (b *bench) pgbench(ctx context.Context, connections int, text string) (ran, error) {
	binary, err := findPgbench()
	if err != nil {
		return ran{}, err
	}
	script := filepath.Join(b.dir, "pgbench.sql")
	if err := os.WriteFile(script, []byte(text), 0o600); err != nil {
		return ran{}, err
	}
	cmd := exec.CommandContext(ctx, binary, "-n", "-M", "prepared", "-c", strconv.Itoa(connections), "-j", "2", "-T",
		strconv.Itoa(b.s.seconds), "-D", "i=0", "-D", "rows="+strconv.Itoa(max(1, b.batched.rows)), "-f", script, b.url)
	cmd.Env = append(os.Environ(), "PGOPTIONS=-c plan_cache_mode=force_generic_plan -c jit=off "+
		"-c enable_seqscan=off -c enable_bitmapscan=off -c enable_hashjoin=off -c enable_mergejoin=off") // as batches
	out, err := cmd.CombinedOutput()
	if err != nil {
		return ran{}, fmt.Errorf("%w: %s", err, out)
	}
	rate, runs := pgbenchRate.FindSubmatch(out), pgbenchRuns.FindSubmatch(out)
	if rate == nil || runs == nil {
		return ran{}, fmt.Errorf("pgbench printed no rate: %s", out)
	}
	var got ran
	if got.rate, err = strconv.ParseFloat(string(rate[1]), 64); err == nil {
		got.n, err = strconv.Atoi(string(runs[1]))
	}
	return got, err
}

func replayScript(tenant string) string {
	lookup := substitute(postgres.HotPath()[0], []string{"ARRAY[:key]", "ARRAY['" + tenant + "']"})
	return fmt.Sprintf("\\set key random(%d, %d)\n%s;\n", answeredFirst, answeredFirst+answered-1, lookup)
}

// freshScript turns the hot path's statements into a script of pgbench's: each parameter becomes an array, by the name
// it has in Go. What differs from row to row is made by one statement before, which takes some hundredths of the time
// of the others, and is sent with each of them as the service sends it. The rest is filled in.
func freshScript(tenant, prefix string, of batched) (string, error) {
	values := map[string]string{
		"TenantIds": "'" + tenant + "'", "Keys": ":orders", "OrderIds": ":orders",
		"PaymentIds": ":payments", "Operations": "'create_payment'",
		"Fingerprints": ":fingerprints", "FingerprintVersions": "1::smallint",
		"RequestIds": "'" + of.requestID + "'", "RecoveryPoints": "'payment_recorded'",
		"ClaimTokens": ":tokens", "Leases": "interval '60 s'",
		"PaymentMethods": "'pm_card_visa'", "IntentNumbers": "1",
		"IntentIds": "''", "ManualCaptures": "false",
		"CreatedAt": "clock_timestamp()", "EventData": "NULL::bytea", "Traceparents": "''",
		"StripeKeys":       ":confirm_keys",
		"StripeOperations": "'confirm'", "StripeResourceIds": ":payments", "ParamsSha256s": "sha256('x')",
		"LeaseTokens": "1::bigint", "StripeRequestIds": ":stripe_requests", "CreateKeys": ":create_keys",
		"OrderVersions": "1::bigint", "PaymentVersions": "1::bigint", "PaysOrders": "true", "AnswerVersions": "1::smallint",
		"AnswerStatuses": "201::smallint",
		"AnswerHeaders":  inHex(of.headers), "AnswerBodies": inHex(of.answer),
		"PaymentEvents": "NULL::bytea", "OrderEvents": "NULL::bytea", // as the service stores them (payments.RenderEvents)
		"StripeOutcomes": "'done'", "HttpStatuses": "200::smallint", "ErrorCodes": "''",
		"ObjectIds": ":intents", "Statuses": "'succeeded'",
		"IntentsClosed": "false", "ChargeIds": ":charges", "FailureCodes": "''", "FailureDeclineCodes": "''",
		"FailureMessages": "''",
	}
	type statement struct {
		params any
		change map[string]string
	}
	statements := []statement{
		{db.KeyLookupParams{}, nil},
		{db.PaymentBeginParams{}, nil},
		{db.PaymentIntentRecordParams{}, map[string]string{"IntentIds": ":intents",
			"RecoveryPoints": "'intent_recorded'"}},
		{db.PaymentFinishParams{}, nil},
	}
	// The ids are as service.go makes them.
	script := "\\set i :i + 1\nSELECT array_agg(o) AS orders, array_agg('pay' || substr(o, 4)) AS payments, " +
		"array_agg('pi_' || digits) AS intents, array_agg('ch_' || digits) AS charges, " +
		"array_agg('req_' || right(o, 14)) AS stripe_requests, " +
		"array_agg(" + stripeKey(tenant, "o", "confirm") + ") AS confirm_keys, " +
		"array_agg(" + stripeKey(tenant, "o", "intent:1") + ") AS create_keys, " +
		"array_agg(sha256(o::bytea)) AS fingerprints, array_agg(gen_random_uuid()) AS tokens " +
		"FROM (SELECT o, substr(o, 5, 8) || substr(o, 15) AS digits FROM (SELECT '" + prefix + "' || " +
		"lpad((:client_id)::text, 4, '0') || lpad(((:i - 1) * :rows + n)::text, 18, '0') AS o " +
		"FROM generate_series(1, :rows) n OFFSET 0) orders OFFSET 0) rows\n\\gset\n"
	unused := maps.Clone(values)
	for n, sql := range postgres.HotPath() {
		text, err := filled(sql, statements[n].params, values, statements[n].change, manyRows)
		if err != nil {
			return "", err
		}
		script += text + ";\n"
		for _, field := range reflect.VisibleFields(reflect.TypeOf(statements[n].params)) {
			delete(unused, field.Name)
		}
	}
	if len(unused) > 0 { // what the service no longer sends would make the floor slower, and the service look better
		return "", fmt.Errorf("no statement has the parameters %v", slices.Sorted(maps.Keys(unused)))
	}
	return script, nil
}

// oneRow and manyRows make the array of a value: of one element, or of as many as there are rows.
func oneRow(value string) string { return "(ARRAY[" + value + "])" }

func manyRows(value string) string {
	if strings.HasPrefix(value, ":") { // an array already
		return "(" + value + ")"
	}
	if strings.HasPrefix(value, "'") && !strings.Contains(value, "::") { // of no type yet, which array_fill needs
		value += "::text"
	}
	return "(array_fill(" + value + ", ARRAY[:rows::int]))"
}

// inHex spells bytes without a colon, which pgbench takes for a variable even inside quotes.
func inHex(b []byte) string { return fmt.Sprintf("'\\x%x'::bytea", b) }

// filled puts arrays of values in the place of a statement's parameters.
func filled(sql string, params any, values, change map[string]string, array func(value string) string) (string, error) {
	fields := reflect.TypeOf(params)
	args := make([]string, fields.NumField()) // sqlc numbers parameters as the struct has its fields
	for i := range args {
		name := fields.Field(i).Name
		value, ok := change[name]
		if !ok {
			if value, ok = values[name]; !ok {
				return "", fmt.Errorf("no value for parameter %s", name)
			}
		}
		args[i] = array(value)
	}
	return substitute(sql, args), nil
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

// findPgbench looks beside the newest PostgreSQL of this machine, and on the path.
func findPgbench() (string, error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/pgbench")
	slices.Sort(found)
	if len(found) > 0 {
		return found[len(found)-1], nil
	}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if path := filepath.Join(dir, "pgbench"); isFile(path) {
			return path, nil
		}
	}
	return "", errors.New("pgbench is not on this machine; it comes with PostgreSQL")
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
