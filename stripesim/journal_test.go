package stripesim

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v76"
)

func TestJournal(t *testing.T) {
	t.Parallel()

	t.Run("BringsEverythingBack", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(t.TempDir(), "journal")
		store := func(o *Options) { o.Store = file }
		var before []Effect
		var paid, declined, action, held *stripe.PaymentIntent
		var refundID, eventsBefore, confirmBody string
		var idsUsed uint64
		t.Run("first life", func(t *testing.T) {
			b := setup(t, store)
			paid = b.paid("o1")
			confirmBody = string(b.shapes.body)
			declined = b.create("o2")
			_, err := b.confirm(declined.ID, "k2", "pm_card_chargeDeclined")
			refused(t, err, 402, stripe.ErrorCodeCardDeclined)
			action, err = b.confirm(b.create("o3").ID, "k3", "pm_card_threeDSecure2Required")
			require.NoError(t, err)
			held, err = b.confirm(
				b.create("o4", func(p *stripe.PaymentIntentParams) { p.CaptureMethod = stripe.String("manual") }).ID,
				"k4", "pm_card_visa",
			)
			require.NoError(t, err)
			re, err := b.api.Refunds.New(
				&stripe.RefundParams{
					Params: keyed("r"), PaymentIntent: stripe.String(paid.ID), Amount: stripe.Int64(200),
				},
			)
			require.NoError(t, err)
			refundID = re.ID
			b.paid("o5", "pm_card_createDispute")
			b.sim.Advance(time.Hour)
			before = b.sim.Effects()
			eventsBefore = b.eventTypes()
			idsUsed = b.sim.st.ids
		})
		t.Run("second life", func(t *testing.T) {
			b := setup(t, store)
			require.Equal(t, before, b.sim.Effects())
			require.GreaterOrEqual(t, b.sim.st.ids, idsUsed, "or ids would come again")
			require.Equal(t, eventsBefore, b.eventTypes())
			require.Equal(t, 1, b.sim.ChargeCount("o1"))
			_, err := b.confirm(paid.ID, "confirm-o1", "pm_card_visa")
			require.NoError(t, err)
			require.Equal(t, "true", b.header("Idempotent-Replayed"))
			require.Equal(t, confirmBody, string(b.shapes.body))
			_, err = b.confirm(declined.ID, "k2", "pm_card_chargeDeclined")
			refused(t, err, 402, stripe.ErrorCodeCardDeclined)
			require.NoError(t, b.sim.CompleteAuthentication(action.ID, true))
			list := b.api.Refunds.List(&stripe.RefundListParams{PaymentIntent: stripe.String(paid.ID)})
			require.True(t, list.Next())
			require.Equal(t, refundID, list.Refund().ID)
			fresh := b.paid("o6")
			require.NotEqual(t, paid.ID, fresh.ID)
			require.WithinDuration(t, time.Now().Add(time.Hour), b.sim.Now(), 10*time.Minute)
			b.sim.Advance(authorizationLifetime) // the agenda survived as well
			require.Equal(t, stripe.PaymentIntentStatusCanceled, b.get(held.ID).Status)
		})
	})

	t.Run("DropsALineCutShort", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(t.TempDir(), "journal")
		store := func(o *Options) { o.Store = file }
		t.Run("first life", func(t *testing.T) { b := setup(t, store); b.paid("o1"); b.paid("o2") })
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		// A long rest of a line, so that the next life's first line would not
		// cover it if it were left lying there.
		torn := append(data[:len(data)-5:len(data)-5], bytes.Repeat([]byte("x"), 100_000)...)
		require.NoError(t, os.WriteFile(file, torn, 0o600))
		t.Run("second life", func(t *testing.T) {
			b := setup(t, store)
			require.Equal(t, 1, b.sim.ChargeCount("o1"))
			require.Zero(t, b.sim.ChargeCount("o2")) // its last transaction never was
			b.paid("o2")
		})
		t.Run("third life", func(t *testing.T) { require.Equal(t, 2, setup(t, store).sim.ChargeCount("")) })
	})

	t.Run("RefusesWhatIsNoJournal", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(t.TempDir(), "journal")
		require.NoError(t, os.WriteFile(file, []byte("{}\nnot json\n{}\n"), 0o600))
		_, err := New(Options{Store: file})
		require.ErrorContains(t, err, "line 2")
	})

	t.Run("BelongsToOneSimulator", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(t.TempDir(), "journal")
		setup(t, func(o *Options) { o.Store = file })
		_, err := New(Options{Store: file})
		require.ErrorContains(t, err, "in use")
	})

	// The promise itself: a process killed at any moment has kept what it said.
	t.Run("KeepsAnsweredRequestsThroughAKill", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(t.TempDir(), "journal")
		for round := range 3 {
			child := exec.Command(os.Args[0], "-test.run=^TestChild$")
			child.Env = append(os.Environ(), "STRIPESIM_CHILD="+file)
			out, err := child.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, child.Start())
			lines := bufio.NewScanner(out)
			require.True(t, lines.Scan())
			url, ok := strings.CutPrefix(lines.Text(), "child: ")
			require.True(t, ok, lines.Text())

			api := newClient(DefaultKey, url, nil, 5*time.Second)
			confirmed := make(chan string, 10_000)
			var workers []chan struct{}
			for w := range 4 {
				done := make(chan struct{})
				workers = append(workers, done)
				go func() {
					defer close(done)
					for i := 0; ; i++ {
						order := fmt.Sprintf("r%d-w%d-%d", round, w, i)
						pi, err := api.PaymentIntents.New(&stripe.PaymentIntentParams{
							Amount: stripe.Int64(
								1000,
							), Currency: stripe.String("usd"), Confirm: stripe.Bool(true),
							PaymentMethod: stripe.String("pm_card_visa"),
							PaymentMethodTypes: stripe.StringSlice(
								[]string{"card"},
							), Metadata: map[string]string{"order_id": order},
						})
						if err != nil {
							return
						}
						confirmed <- pi.ID + " " + order
					}
				}()
			}
			require.Eventually(
				t,
				func() bool { return len(confirmed) > 20*(round+1) },
				30*time.Second, time.Millisecond,
			)
			require.NoError(t, child.Process.Kill())
			_ = child.Wait()
			for _, done := range workers {
				<-done
			}
			close(confirmed)

			sim, err := New(Options{Store: file})
			require.NoError(t, err)
			n := 0
			for line := range confirmed {
				_, order, _ := strings.Cut(line, " ")
				require.Equal(t, 1, sim.ChargeCount(order), "answered and lost: %s", line)
				n++
			}
			require.Positive(t, n)
			require.NoError(t, sim.Close())
		}
	})

	// The same promise without luck: while the write is stuck, nobody is told.
	t.Run("IsWrittenBeforeTheResponse", func(t *testing.T) {
		t.Parallel()
		b, hooked := listening(t)
		r, w, err := os.Pipe()
		require.NoError(t, err)
		var drain sync.Once
		drained := func() { drain.Do(func() { go func() { _, _ = io.Copy(io.Discard, r) }() }) }
		defer drained()
		j := newJournal(w)
		stuck := strings.Repeat("x", 1<<20) // more than a pipe holds
		j.append(1, []byte(stuck))
		b.sim.mu.Lock()
		b.sim.journal, b.sim.st.epoch = j, 1
		b.sim.mu.Unlock()
		answered := make(chan error, 1)
		go func() {
			_, err := b.api.PaymentIntents.New(
				&stripe.PaymentIntentParams{Amount: stripe.Int64(1000), Currency: stripe.String("usd")},
			)
			answered <- err
		}()
		require.Eventually(t, func() bool { return len(b.sim.Effects()) == 1 }, 30*time.Second, time.Millisecond)
		select {
		case <-answered:
			t.Fatal("answered before it was written")
		case <-time.After(50 * time.Millisecond):
		}
		require.Empty(t, hooked.all(), "nor by a webhook")
		drained()
		require.NoError(t, <-answered)
		b.settle()
		require.Len(t, hooked.all(), 1)
	})

	t.Run("IsEmptyAfterAReset", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(t.TempDir(), "journal")
		store := func(o *Options) { o.Store = file }
		t.Run("first life", func(t *testing.T) {
			b := setup(t, store)
			b.paid("o1")
			require.NoError(t, b.sim.Reset())
			require.Empty(t, b.sim.Effects())
			b.paid("o2")
		})
		t.Run("second life", func(t *testing.T) {
			b := setup(t, store)
			require.Equal(t, 1, b.sim.ChargeCount(""))
			require.Equal(t, 1, b.sim.ChargeCount("o2"))
		})
	})
}

// TestChild is the process that is killed; on its own it tests nothing.
func TestChild(t *testing.T) {
	file := os.Getenv("STRIPESIM_CHILD")
	if file == "" {
		t.Skip("only runs as the child of KeepsAnsweredRequestsThroughAKill")
	}
	sim, err := New(Options{Store: file})
	require.NoError(t, err)
	fmt.Println("child:", httptest.NewServer(sim.Handler()).URL)
	select {}
}

// eventTypes is the whole event log, oldest first.
func (b *bench) eventTypes() string {
	var all []string
	for i := b.api.Events.List(&stripe.EventListParams{}); i.Next(); {
		all = append([]string{string(i.Event().Type)}, all...)
	}
	return strings.Join(all, " ")
}
