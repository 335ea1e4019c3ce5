package main

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"example.com/payonce/stripesim"
)

const (
	refreshTimeout = 2 * time.Second
	refreshBusy    = 80 * time.Millisecond
	refreshIdle    = 500 * time.Millisecond
)

// watch reads Stripe's books and the database's keys for as long as the console
// is open.
func (c *console) watch() {
	for {
		pause := refreshIdle
		if len(c.activeKeys()) > 0 {
			pause = refreshBusy
		}
		select {
		case <-time.After(pause):
			c.refresh()
		case <-c.ctx.Done():
			return
		}
	}
}

// look brings the timeline up to date. Who cannot be asked now is asked the next
// time: nothing is skipped.
func (c *console) refresh() {
	c.refreshing.Lock()
	defer c.refreshing.Unlock()
	ctx, cancel := context.WithTimeout(c.ctx, refreshTimeout)
	defer cancel()
	c.readEffects(ctx)
	c.readKeyHistories(ctx)
}

// lookAtStripe counts what Stripe did to money. Its books know nothing of what the
// service believes.
func (c *console) readEffects(ctx context.Context) {
	var news []stripesim.Effect
	if c.stripe.call(ctx, http.MethodGet, "/effects?since="+strconv.FormatInt(c.effects, 10), nil, &news) != nil {
		return
	}
	for _, e := range news {
		c.effects = e.Seq
		order := e.Metadata["order_id"]
		if e.Kind != stripesim.EffectCharge || !c.board.countCharge(order) {
			continue
		}
		if s := c.runOf(order); s != nil {
			line := entry{Kind: kindStripe, At: e.At, Text: "takes " + money(e.Amount, e.Currency) + " from the customer's card", Tone: toneGood}
			if n := c.board.chargesOf(order); n > 1 {
				line.Text, line.Tone = line.Text+" AGAIN", toneBad
			}
			s.add(line)
			s.updateResult()
		}
	}
}

// lookAtKeys reads who holds the keys, and how far the work under them is.
func (c *console) readKeyHistories(ctx context.Context) {
	keys := c.activeKeys()
	if len(keys) == 0 {
		return
	}
	trails, err := c.rows(ctx, `SELECT key || E'\n' || array_to_string(history, E'\n') FROM idempotency_keys WHERE tenant_id = $1 AND key = ANY($2)`, c.tenant.ID, keys)
	if err != nil {
		return
	}
	for _, trail := range trails {
		lines := strings.Split(trail, "\n")
		s := c.runOf(lines[0])
		c.mu.Lock()
		known := c.historyRead[lines[0]]
		c.historyRead[lines[0]] = len(lines)
		c.mu.Unlock()
		for _, line := range lines[max(known, 1):] {
			if s != nil {
				s.add(keyHistoryEntry(line))
			}
		}
	}
}

// freshKeys are those that something may still happen to.
func (c *console) activeKeys() (keys []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, s := range c.runs {
		if id == s.pay.key && s.active() {
			keys = append(keys, id)
		}
	}
	return keys
}

// claimed puts a line of a key's trail into words.
func keyHistoryEntry(line string) entry {
	token, rest, _ := strings.Cut(line, " ")
	point, at, _ := strings.Cut(rest, " ")
	e := entry{Kind: kindClaim, Text: point, Answer: "lease token " + token}
	e.At, _ = time.Parse("2006-01-02 15:04:05.999999-07", at) // otherwise: when we saw it
	if text, ok := recoveryPoints[point]; ok {
		e.Text = text
	}
	if point == "taken_over" {
		e.Tone = toneWait
	}
	return e
}

var recoveryPoints = map[string]string{
	"payment_recorded": "The key is claimed; the payment is on record, no money has moved",
	"intent_recorded":  "Stripe knows of it; the next step asks for the money",
	"taken_over":       "The lease has run out: the work is taken over",
	"resumed":          "The work is taken up where it was left",
	"finished":         "Finished: outcome, event and answer are stored in one commit",
}
