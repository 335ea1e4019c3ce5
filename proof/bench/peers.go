package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/payonce/db"
	"example.com/payonce/internal/postgres"
)

// The ways to charge once that articles teach, as they are taught and as fast as
// they go: on the same server and pool, without tenants, fingerprints, outcomes
// or events. What they get wrong is in museum/; here is what they cost.

const peerTables = `
	CREATE TABLE IF NOT EXISTS peer_keys (key text PRIMARY KEY, response bytea, seen_at timestamptz);
	CREATE TABLE IF NOT EXISTS peer_payments (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
		order_id text NOT NULL, payment_method text NOT NULL)`

const (
	peerRead    = "SELECT response FROM peer_keys WHERE key = $1"
	peerPay     = "INSERT INTO peer_payments (order_id, payment_method) VALUES ($1, $2) RETURNING id"
	peerStore   = "INSERT INTO peer_keys (key, response) VALUES ($1, $2)"
	peerInsert  = "INSERT INTO peer_keys (key) VALUES ($1) ON CONFLICT DO NOTHING"
	peerAnswer  = "UPDATE peer_keys SET response = $2 WHERE key = $1"
	peerSeeOnce = "INSERT INTO peer_keys (key, seen_at) VALUES ($1, now()) ON CONFLICT (key) DO UPDATE SET seen_at " +
		"= now() RETURNING response"
)

// peers serves each of them under a path of its own, and bare handlers. The
// gateway is called where it says so, and only there does it take its time.
func peers(open *postgres.Pool, tenant string, gateway time.Duration) *chi.Mux {
	mux, pool := chi.NewRouter(), open.Raw()
	mux.Post("/bare/nothing", bare(func(context.Context, string) ([]byte, error) { return nothing, nil }))
	mux.Post("/bare/read", bare(func(ctx context.Context, key string) ([]byte, error) {
		rows, err := open.KeyLookup(ctx, db.KeyLookupParams{TenantIds: []string{tenant}, Keys: []string{key}})
		if err != nil || len(rows) != 1 {
			return nil, fmt.Errorf("%d rows: %w", len(rows), err)
		}
		return rows[0].AnswerBody, nil
	}))
	for name, pay := range map[string]func(*http.Request, *pgxpool.Pool, string, peerPayment) ([]byte, error){
		"look-work-store": lookWorkStore, "around-the-gateway": aroundTheGateway(gateway),
		"one-transaction": oneTransaction,
	} {
		mux.Post("/peers/"+name, func(w http.ResponseWriter, r *http.Request) {
			var p peerPayment
			if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			response, err := pay(r, pool, r.Header.Get("Idempotency-Key"), p)
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write(response)
		})
	}
	return mux
}

// nothing is about as long as an answer of ours.
var nothing = []byte(`{"pad":"` + strings.Repeat("x", 420) + `"}`)

// bare is as little as a handler can do: it reads the body as JSON, and sends
// what read found under the key. What it costs is net/http's, chi's and pgx's.
func bare(read func(ctx context.Context, key string) ([]byte, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var p peerPayment
		if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		answer, err := read(r.Context(), r.Header.Get("Idempotency-Key"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(answer)
	}
}

type peerPayment struct {
	OrderID       string `json:"order_id"`
	PaymentMethod string `json:"payment_method"`
}

// response is about as long as one of ours.
func (p peerPayment) response(id int64) []byte {
	b, _ := json.Marshal(map[string]any{"id": id, "order_id": p.OrderID, "status": "succeeded",
		"pad": strings.Repeat("x", 300)})
	return b
}

// lookWorkStore looks, works and stores, each by itself.
func lookWorkStore(r *http.Request, pool *pgxpool.Pool, key string, p peerPayment) (response []byte, err error) {
	ctx := r.Context()
	err = pool.QueryRow(ctx, peerRead, key).Scan(&response)
	if !errors.Is(err, pgx.ErrNoRows) {
		return response, err
	}
	var id int64
	if err := pool.QueryRow(ctx, peerPay, p.OrderID, p.PaymentMethod).Scan(&id); err != nil {
		return nil, err
	}
	_, err = pool.Exec(ctx, peerStore, key, p.response(id))
	return p.response(id), err
}

// aroundTheGateway claims, charges and stores in one transaction, which waits
// for the gateway.
func aroundTheGateway(takes time.Duration) func(*http.Request, *pgxpool.Pool, string, peerPayment) ([]byte, error) {
	return func(r *http.Request, pool *pgxpool.Pool, key string, p peerPayment) (response []byte, err error) {
		ctx := r.Context()
		err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			tag, err := tx.Exec(ctx, peerInsert, key)
			if err != nil {
				return err
			}
			if tag.RowsAffected() == 0 {
				return tx.QueryRow(ctx, peerRead+" FOR UPDATE", key).Scan(&response)
			}
			var id int64
			if err := tx.QueryRow(ctx, peerPay, p.OrderID, p.PaymentMethod).Scan(&id); err != nil {
				return err
			}
			time.Sleep(takes)
			response = p.response(id)
			_, err = tx.Exec(ctx, peerAnswer, key, response)
			return err
		})
		return response, err
	}
}

// oneTransaction claims with an upsert, so that a replay writes, too.
func oneTransaction(r *http.Request, pool *pgxpool.Pool, key string, p peerPayment) (response []byte, err error) {
	ctx := r.Context()
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, peerSeeOnce, key).Scan(&response); err != nil || response != nil {
			return err
		}
		var id int64
		if err := tx.QueryRow(ctx, peerPay, p.OrderID, p.PaymentMethod).Scan(&id); err != nil {
			return err
		}
		response = p.response(id)
		_, err := tx.Exec(ctx, peerAnswer, key, response)
		return err
	})
	return response, err
}
