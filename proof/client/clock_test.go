package client

import (
	"context"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/client"
	"example.com/payonce/stripesim"
)

// TestClocksThatJump begins payments at Stripe on machines whose clocks are ahead or behind, and sends them again days
// later. Stripe forgets a key after a day by its own clock, and then charges again. A clock that was ahead by less than the
// time that has passed cannot be told from a right one, so none of them is.
func TestClocksThatJump(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 0))
	sent := 0
	for range 60 {
		passed := time.Duration(r.Int64N(int64(30 * time.Hour)))
		ahead := -time.Duration(r.Int64N(int64(30 * time.Hour)))
		if r.IntN(2) == 0 {
			ahead = passed + time.Hour + time.Duration(r.Int64N(int64(72*time.Hour)))
		}
		sim, err := stripesim.New(stripesim.Options{})
		require.NoError(t, err)
		server := httptest.NewServer(sim.Handler())
		j, err := client.OpenFile(filepath.Join(t.TempDir(), "journal"))
		require.NoError(t, err)
		c, err := client.New(client.Options{Base: server.URL, Journal: begunAt{j, ahead - passed}, Profile: &client.Stripe,
			Timeout: time.Minute, Header: http.Header{"Authorization": {"Bearer " + stripesim.DefaultKey}}})
		require.NoError(t, err)
		request := client.Request{Intent: "a", Path: "/v1/payment_intents", Body: []byte(url.Values{
			"amount": {"1000"}, "currency": {"usd"}, "confirm": {"true"}, "payment_method": {"pm_card_visa"},
			"payment_method_types[]": {"card"}, "metadata[order_id]": {"ord_1"},
		}.Encode())}
		sim.Inject(stripesim.Fault{Kind: stripesim.Drop})
		sim.Inject(stripesim.Fault{Kind: stripesim.Unauthorized})
		_, err = c.Do(t.Context(), request)
		require.ErrorAs(t, err, new(*client.UnknownError))
		sim.Advance(passed)
		res, err := c.Do(t.Context(), request)
		if err == nil {
			require.True(t, res.OK())
			sent++
		} else {
			require.ErrorIs(t, err, client.ErrKeyTooOld)
		}
		require.Equal(t, 1, sim.ChargeCount("ord_1"), "seed %d: %s have passed, the clock was %s ahead", seed, passed, ahead)
		require.NoError(t, sim.Close())
		server.Close()
		require.NoError(t, j.Close())
	}
	require.Positive(t, sent, "nothing was sent again")
}

// begunAt is a journal of a machine whose clock was wrong when it began its intents, seen by a later one.
type begunAt struct {
	client.Journal
	by time.Duration
}

func (j begunAt) Continue(ctx context.Context, intent string) (*client.Record, error) {
	return j.moved(j.Journal.Continue(ctx, intent))
}

func (j begunAt) Begin(ctx context.Context, r client.Record) (*client.Record, error) {
	return j.moved(j.Journal.Begin(ctx, r))
}

func (j begunAt) moved(r *client.Record, err error) (*client.Record, error) {
	if r == nil || err != nil {
		return r, err
	}
	moved := *r
	moved.BegunAt = r.BegunAt.Add(j.by)
	return &moved, nil
}
