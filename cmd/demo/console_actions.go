package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"example.com/payonce/stripesim"
)

// action is a button.
type action struct {
	Name      string `json:"name"`
	Button    string `json:"button"` // also the title of the action's card
	Note      string `json:"note"`   // under the button
	Breaks    bool   `json:"breaks"` // whether it breaks something; the others are what customers do
	Exclusive bool   `json:"alone"`  // whether it breaks or needs what other exclusive actions break
	Why       string `json:"why"`    // what happens
	Reason    string `json:"reason"` // why the order is charged once all the same
	do        func(*actionRun) error
}

var actions = []action{
	{
		Name: "pay", Button: "Pay", Note: "one click",
		Why:    "The shop sends one payment request. Its Idempotency-Key identifies what the customer wants.",
		Reason: "A retry with this key gets this response again, and charges nothing.",
		do:     payOnce,
	},
	{
		Name: "double", Button: "Double click", Note: "two requests at once",
		Why: "The same request is sent to both processes at the same moment, while Stripe is slow.",
		Reason: "The first to insert the key executes the request. The other gets 409, retries, and " +
			"gets the same response.",
		do: payConcurrently(2, "The same request twice"),
	},
	{
		Name: "fifty", Button: "Pay 50 times at once", Note: "at the same moment",
		Why:    "Fifty copies of one request, sent to both processes. Every dot is a response.",
		Reason: "One claim, one charge. The requests that got 409 retried, and got the stored response.",
		do:     payConcurrently(50, "The same request, 50 times"),
	},
	{
		Name: "capture", Button: "Authorize and capture", Note: "in part, twice at once",
		Why: "The shop reserves 12.50 USD on the card. When it ships for 9.00 USD, it captures that, with the same " +
			"request to both processes at once, while Stripe is slow.",
		Reason: "An authorization is no charge. It was captured once, and Stripe released the rest.",
		do:     authorizeAndCapture,
	},
	{
		Name: "release", Button: "Authorize and release", Note: "then another card",
		Why: "The shop reserves the money, and cancels the payment instead of capturing it. Then the customer pays with " +
			"another card.",
		Reason: "The authorization was released and never taken, so the order was open again. The other card was charged.",
		do:     releaseAuthorization,
	},
	{
		Name: "lose", Button: "Lose Stripe's response", Note: "after the charge", Breaks: true,
		Why: "Stripe charges the card, then the connection breaks. The API cannot know whether the charge was made.",
		Reason: "The API responds 202, looks the payment up at Stripe instead of charging again, and " +
			"then completes it.",
		do: loseStripeResponse,
	},
	{
		Name: "webhook", Button: "Send the webhook 3 times", Note: "Stripe may repeat it",
		Breaks: true, Exclusive: true,
		Why: "Stripe delivers every webhook at least once. Here it delivers one three times.",
		Reason: "The inbox stores the event's id together with its effect, in one commit. The second " +
			"and third find it there.",
		do: sendWebhookThrice,
	},
	{
		Name: "kill", Button: "Kill an API process", Note: "kill -9, after the charge", Breaks: true, Exclusive: true,
		Why: "Stripe has charged the card. The API process is killed before it can record that.",
		Reason: "When its lease had expired, the other process took over, looked the payment up at " +
			"Stripe and found the charge.",
		do: killProcess,
	},
	{
		Name: "pause", Button: "Pause an API process", Note: "longer than its lease", Breaks: true, Exclusive: true,
		Why: "Stripe has charged the card. The API process is paused until its lease has expired and the other " +
			"process has completed the payment. Then it continues.",
		Reason: "Each claim has a token, and each write checks it. The paused process had an old token: " +
			"its write changed nothing.",
		do: pauseProcess,
	},
	{
		Name: "cut", Button: "Disconnect PostgreSQL", Note: "for three seconds", Breaks: true, Exclusive: true,
		Why: "Stripe has charged the card. Before the API can record that, all connections to PostgreSQL are " +
			"closed, and new ones are refused for three seconds.",
		Reason: "Without PostgreSQL a new request does not reach Stripe: it gets 503. The claim had been stored " +
			"before the charge, so afterwards the payment was looked up at Stripe and completed.",
		do: cutPostgres,
	},
	{
		Name: "again", Button: "Retry with the same key", Note: "the last request, at both processes",
		Why:    "The shop repeats its last request, to each process.",
		Reason: "Both responses are the stored one.",
		do:     retryLastRequest,
	},
}

func payOnce(run *actionRun) error {
	if err := run.createOrder(); err != nil {
		return err
	}
	return run.payUntilFinal(run.upEndpoint())
}

// payConcurrently makes Stripe slow, so that the requests overlap.
func payConcurrently(n int, text string) func(*actionRun) error {
	return func(run *actionRun) error {
		if err := run.createOrder(); err != nil {
			return err
		}
		slow := stripesim.Fault{
			Op: "intent.confirm", OrderID: run.order, Kind: stripesim.Delay, Delay: 300 * time.Millisecond,
		}
		if err := run.stripe.injectFault(run.ctx, slow); err != nil {
			return err
		}
		waiting, done := 0, false
		for _, a := range run.sendPayments(n, text) {
			done = done || a.final()
			if !a.final() {
				waiting++
			}
		}
		if !done {
			if err := run.payUntilFinal(run.upEndpoint()); err != nil {
				return err
			}
		}
		if waiting == 0 {
			return nil
		}
		for _, a := range run.sendPayments(waiting, retryText(waiting)) {
			if !a.replayed() {
				return fmt.Errorf("the response to a retry is %s", a)
			}
		}
		return nil
	}
}

func retryText(n int) string {
	if n == 1 {
		return "The request that got 409 retries"
	}
	return fmt.Sprintf("The %d requests that got 409 retry", n)
}

func loseStripeResponse(run *actionRun) error {
	if err := run.createOrder(); err != nil {
		return err
	}
	lost := stripesim.Fault{Op: "intent.confirm", OrderID: run.order, Kind: stripesim.Drop}
	if err := run.stripe.injectFault(run.ctx, lost); err != nil {
		return err
	}
	return run.payUntilFinal(run.upEndpoint())
}

func sendWebhookThrice(run *actionRun) error {
	if err := run.createOrder(); err != nil {
		return err
	}
	const copies = 3
	began := time.Now()
	repeated := stripesim.WebhookFault{
		OrderID: run.order, Type: "payment_intent.succeeded", Kind: stripesim.WebhookDuplicate, Count: copies,
	}
	if err := run.stripe.injectWebhookFault(run.ctx, repeated); err != nil {
		return err
	}
	if err := run.payUntilFinal(run.upEndpoint()); err != nil {
		return err
	}
	came, err := run.waitForDeliveries(began, "payment_intent.succeeded", copies)
	if err != nil {
		return err
	}
	for i, d := range came {
		e := entry{
			Kind: kindWebhook, Who: "Stripe → " + run.b.name, At: d.At, Text: d.Type,
			Answer: fmt.Sprintf("%d, stored", d.Status), Tone: toneGood, Code: codeOf["webhook"],
		}
		if i > 0 {
			e.Answer = fmt.Sprintf("%d, duplicate", d.Status)
		}
		run.add(e)
	}
	for {
		rows, err := run.rows(run.ctx, `SELECT status::text FROM inbox_events WHERE event_id = $1`, came[0].EventID)
		switch {
		case err != nil:
			return err
		case len(rows) == 1 && rows[0] == "done":
			run.board.countRequests(run.order, 0, copies-1)
			run.add(entry{
				Kind: kindClaim, Text: "The inbox has the event once, and applied it once", Answer: "1 row",
				Code: codeOf["inbox"],
			})
			return nil
		case len(rows) > 1:
			return fmt.Errorf("the inbox has the event %d times", len(rows))
		}
		select {
		case <-time.After(pollInterval):
		case <-run.ctx.Done():
			return run.ctx.Err()
		}
	}
}

// waitForDeliveries waits until one event of a type has been delivered so many times.
// Other events of the type, caused by other buttons, are delivered once.
func (run *actionRun) waitForDeliveries(
	since time.Time, eventType string, times int,
) ([]stripesim.Delivery, error) {
	for {
		all, err := run.stripe.deliveriesSince(run.ctx, since)
		if err != nil {
			return nil, err
		}
		byEvent := map[string][]stripesim.Delivery{}
		for _, d := range all {
			if d.Type != eventType || d.Status != http.StatusOK {
				continue
			}
			if byEvent[d.EventID] = append(byEvent[d.EventID], d); len(byEvent[d.EventID]) == times {
				return byEvent[d.EventID], nil
			}
		}
		select {
		case <-time.After(pollInterval):
		case <-run.ctx.Done():
			return nil, run.ctx.Err()
		}
	}
}

func killProcess(run *actionRun) error {
	if err := errors.Join(run.ensureAIsUp(run.ctx), run.createOrder()); err != nil {
		return err
	}
	return run.holdStripe(func(pending <-chan response, release func() error) error {
		p := run.processAt(run.a)
		run.showProcesses(stateDead)
		killedAt := time.Now() // before the connections break: that is what the shop notices first
		if err := p.Kill(); err != nil {
			return err
		}
		text := fmt.Sprintf("Process A (%d) is killed with SIGKILL. It never gets Stripe's response.", p.PID())
		run.add(entry{Kind: kindFault, At: killedAt, Text: text, Tone: toneBad, Code: codeOf["kill"]})
		run.restartALater(run)
		<-pending
		if err := release(); err != nil {
			return err
		}
		return run.payUntilFinal(run.b)
	})
}

func pauseProcess(run *actionRun) error {
	if err := errors.Join(run.ensureAIsUp(run.ctx), run.createOrder()); err != nil {
		return err
	}
	const fenced = `payonce_fenced_writes_total{operation="create_payment"}`
	p := run.processAt(run.a)
	before, err := p.Sample(run.ctx, fenced)
	if err != nil {
		return err
	}
	return run.holdStripe(func(pending <-chan response, release func() error) error {
		run.showProcesses(statePaused)
		resume := func() error {
			err := p.Resume()
			run.showProcesses(stateUp)
			return err
		}
		if err := p.Pause(); err != nil {
			return errors.Join(err, resume())
		}
		text := fmt.Sprintf("Process A (%d) is paused with SIGSTOP. Its lease lasts %.1f s.", p.PID(), lease.Seconds())
		run.add(entry{Kind: kindFault, Text: text, Tone: toneBad, Code: codeOf["pause"]})
		err := errors.Join(release(), run.payUntilFinal(run.b))
		if err := errors.Join(err, resume()); err != nil {
			return err
		}
		run.add(entry{
			Kind: kindFault, Code: codeOf["pause"],
			Text: "Process A continues. It has Stripe's response, and has not noticed that its lease has expired.",
		})
		select {
		case <-pending:
		case <-run.ctx.Done():
			return run.ctx.Err()
		}
		after, err := p.Sample(run.ctx, fenced)
		if err != nil {
			return err
		}
		if after <= before { // on a busy machine A's call to Stripe can time out before A is paused
			text := "A's call to Stripe had timed out before A was paused. A writes nothing"
			run.add(entry{Kind: kindClaim, Text: text, Tone: toneWait})
			return nil
		}
		run.add(entry{
			Kind: kindClaim, Text: "A's late write is rejected: its lease token is old", Answer: "fenced off",
			Tone: toneWait, Code: codeOf["fenced"],
		})
		return nil
	})
}

func cutPostgres(run *actionRun) error {
	if err := errors.Join(run.ensureAIsUp(run.ctx), run.createOrder()); err != nil {
		return err
	}
	return run.holdStripe(func(pending <-chan response, release func() error) error {
		back := make(chan error, 1)
		err := run.database.cutConnections(run.ctx)
		run.board.update(func(now *pageState) { now.Postgres = stateCut })
		text := fmt.Sprintf("All connections to PostgreSQL are closed, and new ones are refused for %.0f s.",
			outageDuration.Seconds())
		run.add(entry{Kind: kindFault, Text: text, Tone: toneBad, Code: codeOf["cut"]})
		go func() {
			select {
			case <-time.After(outageDuration):
			case <-run.ctx.Done():
			}
			err := run.database.allowConnections(context.WithoutCancel(run.ctx))
			run.board.update(func(now *pageState) { now.Postgres = stateUp })
			run.add(entry{Kind: kindFault, Text: "PostgreSQL is available again."})
			back <- err
		}()
		run.sendPayment(run.b) // B runs, but has no database either
		err = errors.Join(err, release())
		<-pending
		return errors.Join(err, run.payUntilFinal(run.upEndpoint()), <-back)
	})
}

func retryLastRequest(run *actionRun) error {
	last := run.lastPurchase()
	if last == nil {
		return errors.New("there is no request yet: press Pay")
	}
	run.order, run.pay = last.order, last.pay
	for _, to := range []*endpoint{run.upEndpoint(), run.b} {
		if a := run.sendPayment(to); !a.replayed() {
			return fmt.Errorf("the response is not a replay: %s", a)
		}
	}
	return nil
}

// lastPurchase returns the last run that created an order, or nil.
func (c *console) lastPurchase() *actionRun {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lastRun
}
