package protocol

import (
	"crypto/sha256"
	stdflag "flag"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	service "example.com/payonce/internal/calls"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/stripe"
	"example.com/payonce/proof/internal/inventory"
)

// notModelled are the recovery points, operations and statuses of the code that the model has not, with the reason.
var notModelled = map[string]string{
	"started":             "an operation without a second phase passes it within one transaction",
	"orphan_refund_begun": "a repair that an operator asks for",
	"delivery_queued":     "no money moves: the webhook to a tenant is sent, or sent again",
	"checkout_recorded":   "a checkout", "order_created": "a checkout", "stock_reserved": "a checkout",
	"payment_refused": "a checkout", "payment_made": "a checkout", "refund_due": "a checkout",
	"refund_begun": "a checkout", "refund_owed": "a checkout", "release_due": "a checkout", "cancel_due": "a checkout",
	"payment_authorized": "a checkout", "capture_refused": "a checkout", "payment_release_due": "a checkout",
	"payment_release_begun": "a checkout", "payment_refund_begun": "a checkout", "payment_refund_owed": "a checkout",

	"requires_reauthorization": "it holds no money and nobody captures it: the service ends it as it ends a canceled one",

	payments.CreateOrder: "it has one phase, and the order of the model exists",
	"operator_refund":    "a repair that an operator asks for",
	"refund_orphan":      "a repair that an operator asks for",
}

// TestRecoveryPoints compares the model's with the constants whose comment says that they are recovery points. That
// every point has such a comment is checked where the glossary is.
func TestRecoveryPoints(t *testing.T) {
	t.Parallel()
	var code []string
	for _, file := range source(t, "internal") {
		for _, d := range file.Decls {
			code = append(code, pointsOf(d)...)
		}
	}
	requireModelled(t, code, slices.DeleteFunc(pointNames[:], func(s string) bool { return s == "" }))
}

// pointsOf are the values of constants that are called recovery points.
func pointsOf(d ast.Decl) (points []string) {
	block, ok := d.(*ast.GenDecl)
	if !ok || block.Tok != token.CONST {
		return nil
	}
	called := regexp.MustCompile(`(?i)\brecovery\s+points?\b`)
	for _, s := range block.Specs {
		spec := s.(*ast.ValueSpec)
		if !called.MatchString(block.Doc.Text()) && !called.MatchString(spec.Doc.Text()) {
			continue
		}
		for _, v := range spec.Values {
			if literal, ok := v.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				text, _ := strconv.Unquote(literal.Value)
				points = append(points, text)
			}
		}
	}
	return points
}

// TestOperations compares the model's operations with those that the service registers.
func TestOperations(t *testing.T) {
	t.Parallel()
	pool, err := postgres.Open(t.Context(), "postgres://127.0.0.1:1/nothing", postgres.Options{}) // never used
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	registered := payments.New(pool, nil, nil, nil, payments.Options{}).Operations()
	model := []string{string(Pay), string(CancelOrder), string(CancelPayment), string(Capture),
		string(RefundAll), string(sweep),
		payments.RefundOrder}
	requireModelled(t, slices.Collect(maps.Keys(registered)), model)
}

// requireModelled: the model has everything that the code has but what is listed, and nothing else.
func requireModelled(t *testing.T, code, model []string) {
	t.Helper()
	require.NotEmpty(t, code)
	for _, name := range code {
		if slices.Contains(model, name) {
			require.Empty(t, notModelled[name], "%s is in the model, and is listed as missing", name)
			continue
		}
		require.NotEmpty(t, notModelled[name], "the model does not have %s, and no reason is given", name)
	}
	for _, name := range model {
		require.Contains(t, code, name, "the code has no such recovery point, operation or status")
	}
}

// TestStatuses compares the model's statuses with the enums of the schema.
func TestStatuses(t *testing.T) {
	t.Parallel()
	schema, err := inventory.Read("db/schema.sql")
	require.NoError(t, err)
	requireEnum(t, schema, "payment_status", paymentStatuses[:])
	requireEnum(t, schema, "order_status", orderStatuses[:])
	requireEnum(t, schema, "refund_status", refundStatuses[:])
	requireEnum(t, schema, "stripe_outcome", outcomes[:])
}

func requireEnum[S ~string](t *testing.T, schema, name string, model []S) {
	t.Helper()
	found := regexp.MustCompile(`CREATE TYPE ` + name + ` AS ENUM \(([^)]*)\)`).FindStringSubmatch(schema)
	require.NotNil(t, found, "%s is not in the schema", name)
	var values []S
	for _, v := range regexp.MustCompile(`'(\w+)'`).FindAllStringSubmatch(found[1], -1) {
		values = append(values, S(v[1]))
	}
	requireModelled(t, texts(values), texts(model[1:]))
}

// TestIntentStatuses: the model has every status of an intent that the code knows.
func TestIntentStatuses(t *testing.T) {
	t.Parallel()
	var code []stripe.IntentStatus
	for _, file := range source(t, "internal/stripe") {
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if name, isName := typeName(spec, ok); isName && name == "IntentStatus" {
				text, _ := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
				code = append(code, stripe.IntentStatus(text))
			}
			return true
		})
	}
	requireModelled(t, texts(code), texts(intentStatuses[1:]))
}

func typeName(spec *ast.ValueSpec, ok bool) (string, bool) {
	if !ok || len(spec.Values) == 0 {
		return "", false
	}
	name, ok := spec.Type.(*ast.Ident)
	if !ok {
		return "", false
	}
	return name.Name, true
}

// TestOutcomes: what is stored of a response is what calls.Stored stores.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	for effect, o := range stored {
		want := service.Stored(stripe.Outcome{Effect: stripe.Effect(effect)})
		require.Equal(t, want, outcomes[o], "%s", stripe.Effect(effect))
	}
	require.Equal(t, db.StripeOutcomeSent, outcomes[callSent])
}

// TestLimits: limits that a package does not export are those of the model.
func TestLimits(t *testing.T) {
	t.Parallel()
	for place, want := range map[string]string{
		"internal/payments/refund.go#refundLostAfter":         "calls.KeyLifetime + 12*time.Hour",
		"internal/payments/repair_find_intent.go#searchUntil": "calls.KeyLifetime + repairLate + clocksApart",
		"internal/payments/repair_find_intent.go#repairLate":  "time.Hour",
		"internal/payments/repair_find_intent.go#clocksApart": "2 * time.Minute",
		"internal/calls/calls.go#attemptsMax":                 strconv.Itoa(attemptsMax),
	} {
		file, name, _ := strings.Cut(place, "#")
		value := ""
		ast.Inspect(source(t, file)[file], func(n ast.Node) bool {
			if spec, ok := n.(*ast.ValueSpec); ok && spec.Names[0].Name == name {
				value = types.ExprString(spec.Values[0])
			}
			return true
		})
		require.Equal(t, strings.ReplaceAll(want, " ", ""), strings.ReplaceAll(value, " ", ""), place)
	}
	config, err := inventory.Read("cmd/api/config.go")
	require.NoError(t, err)
	require.Contains(t, config, `e.duration("ACTION_TIMEOUT", time.Hour)`, "actionTimeout is its default")
}

var update = stdflag.Bool("update", false, "write places.txt: the model says what the code does now")

// TestPlaces: what the steps and rules stand for is in the code, and is what it was when the model was last compared with
// it. A change of a function or statement makes no step of the model wrong by itself; this makes its author look.
func TestPlaces(t *testing.T) {
	t.Parallel()
	const file = "places.txt"
	for step := range StepReplayed {
		require.NotEmpty(t, descriptions[step].places, "the step %q stands for nothing", descriptions[step].says)
	}
	sums := map[string]string{}
	add := func(places []string) {
		for _, place := range places {
			sums[place] = fmt.Sprintf("%.6x", sha256.Sum256([]byte(codeOf(t, place))))
		}
	}
	for step, d := range descriptions {
		require.NotEmpty(t, d.says, "step %d", step)
		add(d.places)
	}
	for _, rule := range Rules {
		require.NotEmpty(t, rule.Places, rule.Name)
		add(rule.Places)
	}
	var lines []string
	for _, place := range slices.Sorted(maps.Keys(sums)) {
		lines = append(lines, sums[place]+" "+place+"\n")
	}
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(strings.Join(lines, "")), 0o600))
	}
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	was := slices.Collect(strings.Lines(string(text)))
	changed := slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return slices.Contains(was, line) })
	require.Empty(t, changed, "this code has changed. Once the model says the same: "+
		"go test -C proof ./internal/protocol -run TestPlaces -update")
	require.Len(t, was, len(lines), "places.txt has lines of places that are gone: -update")
}

// codeOf is the code of a place, without comments: functions or values of a name, a query, or an object of the schema.
func codeOf(t *testing.T, place string) string {
	t.Helper()
	file, name, ok := strings.Cut(place, "#")
	require.True(t, ok, place)
	if path.Ext(file) != ".go" {
		text, err := inventory.Read(file)
		require.NoError(t, err)
		declared := regexp.MustCompile(`(?ms)^(-- name: |CREATE (UNIQUE INDEX|(CONSTRAINT )?TRIGGER) )` + name + `\b.*?;$`)
		found := declared.FindString(text)
		require.NotEmpty(t, found, place)
		return regexp.MustCompile(`(?m)^--.*\n|\s+`).ReplaceAllString(found, " ")
	}
	var code strings.Builder
	for _, d := range source(t, file)[file].Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Name.Name == name {
				d.Doc = nil
				require.NoError(t, format.Node(&code, token.NewFileSet(), d))
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if value, ok := spec.(*ast.ValueSpec); ok && value.Names[0].Name == name {
					value.Doc, value.Comment = nil, nil
					require.NoError(t, format.Node(&code, token.NewFileSet(), value))
				}
			}
		}
	}
	require.NotEmpty(t, code.String(), "%s is not in the code", place)
	return code.String()
}

// source parses the Go files below a folder, or one file. Tests are left out.
func source(t *testing.T, below string) map[string]*ast.File {
	t.Helper()
	root, err := inventory.Root()
	require.NoError(t, err)
	files, err := inventory.Files(".go")
	require.NoError(t, err)
	parsed := map[string]*ast.File{}
	for _, file := range files {
		if file != below && !strings.HasPrefix(file, below+"/") || strings.HasSuffix(file, "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, filepath.FromSlash(file)), nil,
			parser.ParseComments|parser.SkipObjectResolution)
		require.NoError(t, err)
		parsed[file] = tree
	}
	require.NotEmpty(t, parsed, below)
	return parsed
}
