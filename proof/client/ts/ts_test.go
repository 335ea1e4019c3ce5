package ts

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/proof/internal/tsclient"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

func TestMain(m *testing.M) { world.Main(m) }

type line struct{ Order, Payment, Status string }

// TestKilledNode kills Node processes while they place and pay orders, and the API beside them, while Stripe loses
// responses. Each order is placed once and charged once, and all processes are told the same.
func TestKilledNode(t *testing.T) {
	const orders = 60
	modules := tsclient.Build(t)
	w := world.New(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	require.NoError(t, l.Close())
	api := w.Process("HTTP_ADDR=" + address)
	for kind, probability := range map[string]float64{stripesim.Drop: 0.05, stripesim.EffectError: 0.03, stripesim.Delay: 0.2} {
		w.Sim.Inject(stripesim.Fault{Op: "intent.confirm", Kind: kind, Times: -1, Probability: probability, Seed: 18, Delay: 200 * time.Millisecond})
	}

	journal := filepath.Join(t.TempDir(), "journal")
	told := map[string]line{} // by order
	run := func(life time.Duration) (out string, killed bool) {
		ctx, cancel := context.WithTimeout(t.Context(), life)
		defer cancel()
		node := exec.CommandContext(ctx, "node", "shop.mjs", modules, journal, "http://"+address, fmt.Sprint(orders)) // which kills with SIGKILL
		node.Env = append(node.Environ(), "API_KEY="+w.Tenant.APIKey)
		var stdout, stderr bytes.Buffer
		node.Stdout, node.Stderr = &stdout, &stderr
		err := node.Run()
		killed = ctx.Err() != nil
		require.True(t, err == nil || killed, "%v\n%s", err, &stderr)
		return stdout.String(), killed
	}
	kills := 0
	for finished := false; !finished; {
		out, killed := run(200*time.Millisecond + rand.N(1200*time.Millisecond) + time.Duration(kills)*100*time.Millisecond)
		for _, text := range strings.Split(out, "\n") {
			var one line
			if json.Unmarshal([]byte(text), &one) != nil {
				continue // killed while it printed
			}
			if before, ok := told[one.Order]; ok {
				require.Equal(t, before, one, "two processes were told different things")
			}
			told[one.Order] = one
		}
		if finished = !killed; finished {
			continue
		}
		if kills++; kills%3 == 0 {
			api.Kill()
			api = w.Process("HTTP_ADDR=" + address)
		}
	}

	require.Len(t, told, orders)
	for order, one := range told {
		require.Equal(t, "succeeded", one.Status)
		require.Equal(t, 1, w.Sim.ChargeCount(order), "charges of %s at Stripe", order)
	}
	charges := 0
	for _, e := range w.Sim.Effects() {
		if e.Kind == stripesim.EffectCharge {
			charges++
		}
	}
	require.Equal(t, orders, charges)
	require.Equal(t, orders, w.Count(`SELECT count(*) FROM orders`), "orders were placed twice")
	require.GreaterOrEqual(t, kills, 3, "too little was killed")
	t.Logf("%d orders, %d charges, %d processes killed, faults at Stripe: %v", orders, charges, kills, w.Sim.FaultsFired())
}
