package http

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
)

// heldLookups answer when they are let go. Keys of tenants that begin with "ten_real" are valid.
type heldLookups struct {
	*keyLookups
	t     *testing.T
	sent  chan []string // the tenants of each statement
	letGo chan struct{}
	fails error
}

func holdLookups(t *testing.T) *heldLookups {
	t.Helper()
	h := &heldLookups{t: t, sent: make(chan []string), letGo: make(chan struct{})}
	find := func(ctx context.Context, p db.APIKeyAuthenticateParams) (rows []db.APIKeyAuthenticateRow, err error) {
		select {
		case h.sent <- p.TenantIds:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		select {
		case <-h.letGo:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		for i, id := range p.TenantIds {
			if strings.HasPrefix(id, "ten_real") {
				rows = append(rows, db.APIKeyAuthenticateRow{Ordinal: int32(i + 1), ID: id})
			}
		}
		return rows, h.fails
	}
	h.keyLookups = newKeyLookups(find, time.Minute)
	return h
}

type keyResult struct {
	id  string
	err error
}

// ask looks a key up, and returns when it waits or is sent.
func (h *heldLookups) ask(id string, known bool, from string) <-chan keyResult {
	h.t.Helper()
	var hash keyDigest
	copy(hash[:], id)
	result := make(chan keyResult, 1)
	k, err := h.enter(id, hash, known, netip.MustParsePrefix(from))
	if err != nil {
		result <- keyResult{err: err}
		return result
	}
	go func() {
		<-k.done
		r := keyResult{err: k.err}
		if k.row != nil {
			r.id = k.row.ID
		}
		result <- r
	}()
	return result
}

const (
	attacker  = "192.0.2.1/32"
	attacker2 = "192.0.2.2/32"
	honest    = "198.51.100.7/32"
)

func TestKeyLookups(t *testing.T) {
	t.Parallel()

	t.Run("FloodOfMadeUpKeysShutsOutNobody", func(t *testing.T) {
		t.Parallel()
		h := holdLookups(t)
		refused := 0
		h.ask("made up, and sent", false, attacker)
		require.Len(t, <-h.sent, 1)
		for i := range 10 * keyQueueMax {
			select {
			case r := <-h.ask(fmt.Sprintf("made up %d", i), false, attacker):
				require.ErrorIs(t, r.err, errKeyQueueFull)
				refused++
			default:
			}
		}
		require.Equal(t, 9*keyQueueMax, refused, "the queue is bounded")

		known := h.ask("ten_real known", true, attacker)
		require.Equal(t, []string{"ten_real known"}, <-h.sent, "what was valid before has a lane at once")
		fresh := h.ask("ten_real new", false, honest)
		h.letGo <- struct{}{}
		h.letGo <- struct{}{}
		require.Equal(t, keyResult{id: "ten_real known"}, <-known)
		batch := <-h.sent
		require.Len(t, batch, keyBatch)
		require.Contains(t, batch[:2], "ten_real new", "its network has the next turn")
		h.letGo <- struct{}{}
		require.Equal(t, keyResult{id: "ten_real new"}, <-fresh)
		for range keyQueueMax/keyBatch - 1 {
			<-h.sent
			h.letGo <- struct{}{}
		}
	})

	t.Run("NetworkWithTheMostGivesWay", func(t *testing.T) {
		t.Parallel()
		h := holdLookups(t)
		h.ask("sent", false, attacker)
		<-h.sent
		var last <-chan keyResult
		for i := range keyQueueMax {
			last = h.ask(fmt.Sprintf("made up %d", i), false, attacker)
		}
		require.Empty(t, h.ask("another", false, attacker2), "it waits")
		require.ErrorIs(t, (<-last).err, errKeyQueueFull)
		require.Equal(t, keyQueueMax, h.waiting)
		require.Len(t, h.pending, keyQueueMax+1)
	})

	t.Run("KnownKeysAreBoundedToo", func(t *testing.T) {
		t.Parallel()
		h := holdLookups(t)
		for range keyLanes {
			h.ask(fmt.Sprint("ten_real sent ", h.busy), true, honest)
			<-h.sent
		}
		for i := range keyQueueMax {
			require.Empty(t, h.ask(fmt.Sprintf("ten_real %d", i), true, honest))
		}
		require.ErrorIs(t, (<-h.ask("ten_real one more", true, honest)).err, errOverloaded)
	})

	t.Run("RequestsWithOneKeyShareItsLookUp", func(t *testing.T) {
		t.Parallel()
		h := holdLookups(t)
		a, b := h.ask("ten_real", false, honest), h.ask("ten_real", false, attacker)
		require.Len(t, <-h.sent, 1)
		h.letGo <- struct{}{}
		require.Equal(t, keyResult{id: "ten_real"}, <-a)
		require.Equal(t, keyResult{id: "ten_real"}, <-b)
		h.mu.Lock()
		defer h.mu.Unlock()
		require.Empty(t, h.pending)
	})

	t.Run("ErrorIsOfAllThatShareTheStatement", func(t *testing.T) {
		t.Parallel()
		h := holdLookups(t)
		h.fails = errors.New("database")
		result := h.ask("ten_real", false, honest)
		<-h.sent
		h.letGo <- struct{}{}
		require.Error(t, (<-result).err)
		again := h.ask("ten_real", false, honest)
		<-h.sent
		h.letGo <- struct{}{}
		require.Error(t, (<-again).err, "its lane was given back")
	})
}
