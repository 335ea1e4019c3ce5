package ts

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/proof/internal/gateway"
	"example.com/payonce/proof/internal/tsclient"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/port"
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
	at, err := port.Loopback(t.Context())
	require.NoError(t, err)
	address := at.String()
	before := gateway.New(t, address, uint64(time.Now().UnixNano()))
	api := w.Process(world.ShortTimes("HTTP_ADDR=" + address)...)
	for kind, probability := range map[string]float64{stripesim.Drop: 0.05, stripesim.EffectError: 0.03, stripesim.Delay: 0.2} {
		w.Sim.Inject(stripesim.Fault{Op: "intent.confirm", Kind: kind, Times: -1, Probability: probability, Seed: 18, Delay: 200 * time.Millisecond})
	}

	journal := filepath.Join(t.TempDir(), "journal")
	told := map[string]line{} // by order
	// run kills the process once it has printed that many new orders, or after that long.
	run := func(news int, life time.Duration) (killed bool) {
		ctx, kill := context.WithTimeout(t.Context(), life)
		defer kill()
		node := exec.CommandContext(ctx, "node", "shop.mjs", modules, journal, "http://"+before.Addr, fmt.Sprint(orders)) // which kills with SIGKILL
		node.Env = append(node.Environ(), "API_KEY="+w.Tenant.APIKey)
		var stderr bytes.Buffer
		node.Stderr = &stderr
		stdout, err := node.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, node.Start())
		known := len(told)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			var one line
			if json.Unmarshal(lines.Bytes(), &one) != nil {
				continue // killed while it printed
			}
			if before, ok := told[one.Order]; ok {
				require.Equal(t, before, one, "two processes were told different things")
			}
			told[one.Order] = one
			if len(told) == known+news {
				time.AfterFunc(rand.N(20*time.Millisecond), kill)
			}
		}
		err = node.Wait()
		killed = ctx.Err() != nil && err != nil
		require.True(t, err == nil || killed, "%v\n%s", err, &stderr)
		return killed
	}
	kills := 0
	for {
		news, life := 1+rand.N(8), 30*time.Second
		if kills%2 == 1 { // also while it starts
			news, life = orders, 50*time.Millisecond+rand.N(300*time.Millisecond)
		}
		if !run(news, life) {
			break
		}
		if kills++; kills%3 == 0 {
			api.Kill()
			api = w.Process(world.ShortTimes("HTTP_ADDR=" + address)...)
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
	mistreated := before.Behave()
	require.Len(t, mistreated, 4, "the gateway did not do everything")
	t.Logf("%d orders, %d charges, %d processes killed, faults at Stripe: %v, at the gateway: %v", orders, charges, kills,
		w.Sim.FaultsFired(), mistreated)
}
