package main

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/demo"
)

// TestTheAPISaysWhatItLacks: the demo's API is built without most brokers and without the exporter of traces. A setting
// that wants one of them stops it, with the reason.
func TestTheAPISaysWhatItLacks(t *testing.T) {
	t.Parallel()
	_, api := demo.Programs(t)
	say := func(env ...string) string {
		cmd := exec.CommandContext(t.Context(), api, "doctor")
		cmd.Env = append(env, "DATABASE_URL=postgres://127.0.0.1:1/none", "STRIPE_SECRET_KEY=sk_test_1",
			"STRIPE_API_BASE=http://127.0.0.1:1")
		out, err := cmd.CombinedOutput()
		require.Error(t, err, "it finds what is wrong")
		return string(out)
	}
	for _, missing := range []string{"kafka", "sqs", "amqp", "amqps", "kinesis"} {
		require.Contains(t, say("BROKER_URL="+missing+"://127.0.0.1/x/y"),
			`unsupported scheme "`+missing+`:"; this program has embedded:DIR, nats:// or cdc:`)
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"} {
		const lacks = "built with the tag notracing, and sends no traces"
		require.Contains(t, say(name+"=http://127.0.0.1:1"), lacks)
		require.NotContains(t, say(name+"=http://127.0.0.1:1", "OTEL_SDK_DISABLED=true"), lacks)
	}
}
