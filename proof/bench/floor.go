package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
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

func (b *bench) freshFloor(ctx context.Context) (sample, error) {
	prefix, err := b.orders(ctx, b.ordersMax()/b.s.clients, b.s.clients)
	if err != nil {
		return sample{}, err
	}
	script, err := freshScript(b.tenant, prefix)
	if err != nil {
		return sample{}, err
	}
	rate, err := b.pgbench(ctx, script)
	return sample{rate: rate}, err
}

func (b *bench) replayFloor(ctx context.Context) (sample, error) {
	rate, err := b.pgbench(ctx, replayScript(b.tenant))
	return sample{rate: rate}, err
}

// pgbench runs a script's statements without us.
func (b *bench) pgbench(ctx context.Context, text string) (float64, error) {
	binary, err := findPgbench()
	if err != nil {
		return 0, err
	}
	script := filepath.Join(b.dir, "pgbench.sql")
	if err := os.WriteFile(script, []byte(text), 0o600); err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, binary, "-n", "-M", "prepared", "-c", strconv.Itoa(b.s.clients), "-j", "2", "-T",
		strconv.Itoa(b.s.seconds),
		"-D", "i=0", "-f", script, b.url)
	cmd.Env = append(os.Environ(), "PGOPTIONS=-c plan_cache_mode=force_generic_plan -c jit=off "+
		"-c enable_seqscan=off -c enable_bitmapscan=off -c enable_hashjoin=off -c enable_mergejoin=off") // as batches
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
	lookup := substitute(postgres.HotPath()[0], []string{"ARRAY[:key]", "ARRAY['" + tenant + "']"})
	return fmt.Sprintf("\\set key random(%d, %d)\n%s;\n", answeredFirst, answeredFirst+answered-1, lookup)
}

// freshScript turns the hot path's statements into a script of pgbench's: each
// parameter becomes an expression, by the name it has in Go.
func freshScript(tenant, prefix string) (string, error) {
	order := "'" + prefix + "' || lpad((:client_id)::text, 4, '0') || lpad((:i)::text, 18, '0')"
	payment := "'pay' || substr(" + order + ", 4)"
	answer := strings.Repeat("x", 430)
	values := map[string]string{
		"TenantIds": "'" + tenant + "'", "Keys": order, "Ids": order, "OrderIds": order, "PaymentIds": payment,
		"Operations":   "'create_payment'",
		"Fingerprints": "sha256((" + order + ")::bytea)", "FingerprintVersions": "1::smallint",
		"RequestIds": "'req_00000000000000000000000000000000'", "RecoveryPoints": "'payment_recorded'",
		"ClaimTokens": "gen_random_uuid()", "Leases": "interval '60 s'",
		"AmountsMinor": "1000::bigint", "Currencies": "'usd'", "PaymentMethods": "'pm_card_visa'", "IntentNumbers": "1",
		"IntentIds": "''",
		"CreatedAt": "clock_timestamp()", "EventData": "NULL::bytea", "Traceparents": "''",
		"StripeKeys":       stripeKey(tenant, order, "confirm"),
		"StripeOperations": "'confirm'", "StripeResourceIds": payment, "ParamsSha256s": "sha256('x')",
		"LeaseTokens": "1::bigint", "StripeRequestIds": "'req_bench'", "CreateKeys": stripeKey(tenant, order, "intent:1"),
		"OrderVersions": "1::bigint", "PaymentVersions": "1::bigint", "PaysOrders": "true", "AnswerVersions": "1::smallint",
		"AnswerStatuses": "201::smallint",
		"AnswerHeaders":  "'Content-Type: application/json'::bytea", "AnswerBodies": "'" + answer + "'::bytea",
		"PaymentEvents": "NULL::bytea", "OrderEvents": "NULL::bytea", // as the service stores them (payments.RenderEvents)
		"StripeOutcomes": "'done'", "HttpStatuses": "200::smallint", "ErrorCodes": "''",
		"ObjectIds": "'pi_1'", "Statuses": "'succeeded'",
		"IntentsClosed": "false", "ChargeIds": "'ch_1'", "FailureCodes": "''", "FailureDeclineCodes": "''",
		"FailureMessages": "''",
	}
	type statement struct {
		params any
		change map[string]string
	}
	statements := []statement{
		{db.KeyLookupParams{}, nil},
		{db.OrderToPayParams{}, nil},
		{db.PaymentBeginParams{}, nil},
		{db.PaymentIntentRecordParams{}, map[string]string{"IntentIds": "'pi_1'", "RecoveryPoints": "'intent_recorded'"}},
		{db.PaymentFinishParams{}, nil},
	}
	script := "\\set i :i + 1\n"
	unused := maps.Clone(values)
	for n, sql := range postgres.HotPath() {
		text, err := filled(sql, statements[n].params, values, statements[n].change)
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

// filled puts values in the place of a statement's parameters.
func filled(sql string, params any, values, change map[string]string) (string, error) {
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
		args[i] = "(ARRAY[" + value + "])"
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
