package main

import (
	"context"
)

// What the consumers have in common: the books, in which each message is to
// stand once, and how it gets there.

const booksTables = `
	CREATE TABLE IF NOT EXISTS books (event text, amount int);
	CREATE TABLE IF NOT EXISTS processed (id text PRIMARY KEY)`

const bookedQuery = `SELECT event, count(*) FROM books GROUP BY event`

// book is the work that a message asks for.
func (s *side) book(ctx context.Context, q querier, m message) {
	s.working(m.ID)
	exec(ctx, q, `INSERT INTO books VALUES ($1, $2)`, m.ID, m.Amount)
}

// noted notes that an id was processed, and reports whether it is the first time.
func noted(ctx context.Context, q querier, id string) bool {
	return exec(ctx, q, `INSERT INTO processed VALUES ($1) ON CONFLICT DO NOTHING`, id) == 1
}
