package main

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"example.com/payonce/stripesim"
)

const (
	refreshTimeout = 2 * time.Second
	refreshBusy    = 80 * time.Millisecond // while an action runs
	refreshIdle    = 500 * time.Millisecond
)

// watch reads Stripe's records and the database's keys until the console closes.
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

// refresh brings the timeline up to date. What cannot be read now, for example
// while PostgreSQL is cut off, is read the next time: nothing is skipped.
func (c *console) refresh() {
	c.refreshing.Lock()
	defer c.refreshing.Unlock()
	ctx, cancel := context.WithTimeout(c.ctx, refreshTimeout)
	defer cancel()
	c.readEffects(ctx)
	c.readKeyHistories(ctx)
}

// readEffects counts new charges. They come from Stripe and not from the service,
// whose own view may be what is wrong.
func (c *console) readEffects(ctx context.Context) {
	var effects []stripesim.Effect
	path := "/effects?since=" + strconv.FormatInt(c.effects, 10)
	if c.stripe.call(ctx, http.MethodGet, path, nil, &effects) != nil {
		return
	}
	for _, e := range effects {
		c.effects = e.Seq
		order := e.Metadata["order_id"]
		run := c.runOf(order)
		if what, ok := holdTexts[e.Kind]; ok && run != nil {
			run.add(entry{
				Kind: kindStripe, At: e.At, Tone: toneWait, Code: codeOf[e.Kind],
				Text: fmt.Sprintf(what, money(e.Amount, e.Currency)),
			})
		}
		if e.Kind != stripesim.EffectCharge || !c.board.countCharge(order) || run == nil {
			continue
		}
		line := entry{
			Kind: kindStripe, At: e.At, Tone: toneGood, Code: codeOf["charge"],
			Text: "takes " + money(e.Amount, e.Currency) + " from the customer's card",
		}
		if e.Authorized > 0 {
			line.Code = codeOf["captured"]
		}
		if n := c.board.chargesOf(order); n > 1 {
			line.Text, line.Tone = line.Text+" AGAIN", toneBad
		}
		run.add(line)
		run.updateResult()
	}
}

// holdTexts are the lines about an authorization. They are no charges, and count as none.
var holdTexts = map[string]string{
	stripesim.EffectAuthorized: "reserves %s on the customer's card. Nothing is taken",
	stripesim.EffectReleased:   "releases %s, which was never taken",
}

// readKeyHistories adds what is new in the history of the active keys. The database has one only for keys with a second
// holder. What came before that, the times of the key and its payment say.
func (c *console) readKeyHistories(ctx context.Context) {
	keys := c.activeKeys()
	if len(keys) == 0 {
		return
	}
	histories, err := c.rows(ctx, `SELECT concat_ws(E'\n', k.key, '1 ' || CASE k.operation
				WHEN 'capture_payment' THEN 'capture_recorded' WHEN 'cancel_payment' THEN 'cancel_begun'
				ELSE 'payment_recorded' END || ' ' || k.created_at,
			CASE WHEN k.operation = 'create_payment' AND array_to_string(k.history, E'\n') NOT LIKE '% intent_recorded %'
				THEN '1 intent_recorded ' || p.confirm_sent_at END,
			CASE WHEN k.history = '{}' THEN '1 finished ' || k.finished_at
				ELSE array_to_string(k.history, E'\n') END)
		FROM idempotency_keys k
		JOIN payments p ON p.tenant_id = k.tenant_id AND p.id = k.resource_id
		WHERE k.tenant_id = $1 AND k.key = ANY($2)`, c.tenant.ID, keys)
	if err != nil {
		return
	}
	for _, history := range histories {
		lines := strings.Split(history, "\n")
		run := c.runOf(lines[0])
		for _, line := range lines[1:] {
			if run != nil && c.firstReading(lines[0], line) {
				run.add(keyHistoryEntry(line))
			}
		}
	}
}

// firstReading reports whether the timeline does not have a line of a key's history yet, and notes that it has it now.
func (c *console) firstReading(key, line string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	read := c.historyRead[key]
	if read == nil {
		read = map[string]bool{}
		c.historyRead[key] = read
	}
	token, rest, _ := strings.Cut(line, " ")
	point, _, _ := strings.Cut(rest, " ")
	known := read[token+" "+point]
	read[token+" "+point] = true
	return !known
}

// activeKeys are the keys of runs about which more facts can be expected.
func (c *console) activeKeys() (keys []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, run := range c.runs {
		if id != run.order && run.active() {
			keys = append(keys, id)
		}
	}
	return keys
}

// keyHistoryEntry turns a line of a key's history, "2 taken_over 2026-11-22 …", into
// an entry.
func keyHistoryEntry(line string) entry {
	token, rest, _ := strings.Cut(line, " ")
	point, at, _ := strings.Cut(rest, " ")
	e := entry{Kind: kindClaim, Text: point, Answer: "lease token " + token, Code: codeOf[point]}
	e.At, _ = time.Parse("2006-01-02 15:04:05.999999-07", at) // on an error, the time of reading it
	if text, ok := recoveryPointTexts[point]; ok {
		e.Text = text
	}
	if point == "taken_over" {
		e.Tone = toneWait
	}
	return e
}

var recoveryPointTexts = map[string]string{
	"payment_recorded": "The key is claimed and the payment is stored. Nothing is charged yet",
	"intent_recorded":  "PaymentIntent created, not charged; next: confirm",
	"capture_recorded": "The key is claimed and the capture is stored. Nothing is captured yet",
	"cancel_begun":     "The key is claimed. Nothing else can capture the money now",
	"taken_over":       "The lease has expired: the work is taken over",
	"resumed":          "The work is resumed at its last recovery point",
	"finished":         "Finished: outcome, event and response are stored in one commit",
}
