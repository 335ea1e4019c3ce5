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
	Button    string `json:"button"`
	Note      string `json:"note"`   // under it, in a few words
	Breaks    bool   `json:"breaks"` // something: the others are what customers do
	Exclusive bool   `json:"alone"`  // what it breaks others need, or what it needs others break: one of these at a time
	Title     string `json:"title"`
	Why       string `json:"why"`   // what happens
	Reason    string `json:"moral"` // why the number does not move
	do        func(*actionRun) error
}

var actions = []action{
	{
		Name: "pay", Button: "Pay", Note: "one click",
		Title:  "One click",
		Why:    "The shop asks for one payment, under a key that names the customer's intent.",
		Reason: "Whoever asks again under this key gets this very answer, and nothing else happens.",
		do:     payOnce,
	},
	{
		Name: "double", Button: "Double click", Note: "two requests at once",
		Title:  "A double click",
		Why:    "The same request reaches both processes at the same moment, while Stripe is slow.",
		Reason: "The first to insert the key does the work. The other was told to wait, and then got the same answer.",
		do:     payConcurrently(2, "The same request twice"),
	},
	{
		Name: "fifty", Button: "Pay 50 times at once", Note: "at the same moment",
		Title:  "Fifty clicks at once",
		Why:    "Fifty copies of one request, spread over both processes. Every dot is an answer.",
		Reason: "One claim, one charge. Forty-nine were told to wait, and then got the stored answer.",
		do:     payConcurrently(50, "The same request, 50 times"),
	},
	{
		Name: "lose", Button: "Lose Stripe's answer", Note: "after it took the money", Breaks: true,
		Title:  "Stripe's answer is lost",
		Why:    "Stripe takes the money, and then the connection breaks. Nobody here can know whether it did.",
		Reason: "The service admits that it does not know, asks Stripe instead of charging again, and then answers.",
		do:     loseStripeResponse,
	},
	{
		Name: "webhook", Button: "Send the webhook 3 times", Note: "Stripe repeats itself", Breaks: true, Exclusive: true,
		Title:  "The webhook comes three times",
		Why:    "Stripe reports the payment three times, as it may: it delivers at least once.",
		Reason: "The inbox keeps an event's id with its effect, in one commit. The second and third found it there.",
		do:     sendWebhookThrice,
	},
	{
		Name: "kill", Button: "Kill an API process", Note: "kill -9, mid-payment", Breaks: true, Exclusive: true,
		Title:  "kill -9 at the worst moment",
		Why:    "Stripe has taken the money. The process that asked for it is killed before it can write that down.",
		Reason: "Its lease ran out, the other process took over where it stood, and learned from Stripe that the money was there.",
		do:     killProcess,
	},
	{
		Name: "pause", Button: "Pause it past its lease", Note: "and wake it up again", Breaks: true, Exclusive: true,
		Title:  "A process that wakes up too late",
		Why:    "Stripe has taken the money. The process is frozen until its lease is over and another one has finished its work; then it wakes up and goes on.",
		Reason: "Each claim has a token, and each write checks it. The sleeper's is an old one: it can change nothing.",
		do:     pauseProcess,
	},
	{
		Name: "cut", Button: "Cut PostgreSQL", Note: "for three seconds", Breaks: true, Exclusive: true,
		Title:  "PostgreSQL is gone",
		Why:    "Stripe has taken the money. Before that can be written down, every connection to the database is cut, for three seconds.",
		Reason: "Without its database the service does nothing and says so. The claim was still there when the database was back.",
		do:     cutPostgres,
	},
	{
		Name: "again", Button: "Ask again", Note: "the last request, at both processes",
		Title:  "The same request again",
		Why:    "The shop has forgotten that it was answered, and repeats its last request to each process.",
		Reason: "Both answers are the stored one.",
		do:     retryLastRequest,
	},
}

func payOnce(s *actionRun) error {
	if err := s.createOrder(); err != nil {
		return err
	}
	return s.payUntilFinal(s.upEndpoint())
}

// paysTogether is slow at Stripe, so that the requests really meet.
func payConcurrently(n int, text string) func(*actionRun) error {
	return func(s *actionRun) error {
		if err := s.createOrder(); err != nil {
			return err
		}
		if err := s.stripe.injectFault(s.ctx, stripesim.Fault{Op: "intent.confirm", OrderID: s.order, Kind: stripesim.Delay, Delay: 300 * time.Millisecond}); err != nil {
			return err
		}
		waiting, done := 0, false
		for _, a := range s.sendPayments(n, text+" (key "+s.pay.key+")") {
			done = done || a.final()
			if !a.final() {
				waiting++
			}
		}
		if !done {
			if err := s.payUntilFinal(s.upEndpoint()); err != nil {
				return err
			}
		}
		if waiting == 0 {
			return nil
		}
		for _, a := range s.sendPayments(waiting, "Who was told to wait asks again") {
			if !a.replayed() {
				return fmt.Errorf("one who came back was answered %s", a)
			}
		}
		return nil
	}
}

func loseStripeResponse(s *actionRun) error {
	if err := s.createOrder(); err != nil {
		return err
	}
	if err := s.stripe.injectFault(s.ctx, stripesim.Fault{Op: "intent.confirm", OrderID: s.order, Kind: stripesim.Drop}); err != nil {
		return err
	}
	return s.payUntilFinal(s.upEndpoint())
}

func sendWebhookThrice(s *actionRun) error {
	if err := s.createOrder(); err != nil {
		return err
	}
	const copies = 3
	began := time.Now()
	if err := s.stripe.injectWebhookFault(s.ctx, stripesim.WebhookFault{OrderID: s.order, Type: "payment_intent.succeeded", Kind: stripesim.WebhookDuplicate, Count: copies}); err != nil {
		return err
	}
	if err := s.payUntilFinal(s.upEndpoint()); err != nil {
		return err
	}
	came, err := s.waitForDeliveries(began, "payment_intent.succeeded", copies)
	if err != nil {
		return err
	}
	for i, d := range came {
		e := entry{Kind: kindWebhook, Who: "Stripe → " + s.b.name, At: d.At, Text: d.Type, Answer: fmt.Sprintf("%d, stored", d.Status), Tone: toneGood}
		if i > 0 {
			e.Answer = fmt.Sprintf("%d, known already", d.Status)
		}
		s.add(e)
	}
	for {
		rows, err := s.rows(s.ctx, `SELECT status::text FROM inbox_events WHERE event_id = $1`, came[0].EventID)
		switch {
		case err != nil:
			return err
		case len(rows) == 1 && rows[0] == "done":
			s.board.countRequests(s.order, 0, copies-1)
			s.add(entry{Kind: kindClaim, Text: "The inbox has the event once, and applied it once", Answer: "1 row"})
			return nil
		case len(rows) > 1:
			return fmt.Errorf("the inbox has the event %d times", len(rows))
		}
		select {
		case <-time.After(pollInterval):
		case <-s.ctx.Done():
			return s.ctx.Err()
		}
	}
}

// delivered waits until an event of a type has been delivered so often. Others of
// the type, which other buttons caused, are delivered once.
func (s *actionRun) waitForDeliveries(since time.Time, eventType string, times int) ([]stripesim.Delivery, error) {
	for {
		all, err := s.stripe.deliveriesSince(s.ctx, since)
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
		case <-s.ctx.Done():
			return nil, s.ctx.Err()
		}
	}
}

func killProcess(s *actionRun) error {
	if err := errors.Join(s.ensureAIsUp(s.ctx), s.createOrder()); err != nil {
		return err
	}
	return s.holdStripe(func(answered <-chan response, release func() error) error {
		p := s.processAt(s.a)
		s.showProcesses(stateDead)
		if err := p.Kill(); err != nil {
			return err
		}
		s.add(entry{Kind: kindFault, Text: fmt.Sprintf("Process A (%d) is killed with SIGKILL. What Stripe told it is lost.", p.PID()), Tone: toneBad})
		s.restartALater(s)
		<-answered
		if err := release(); err != nil {
			return err
		}
		return s.payUntilFinal(s.b)
	})
}

func pauseProcess(s *actionRun) error {
	if err := errors.Join(s.ensureAIsUp(s.ctx), s.createOrder()); err != nil {
		return err
	}
	const fenced = `payonce_fenced_writes_total{operation="create_payment"}`
	p := s.processAt(s.a)
	before, err := p.Sample(s.ctx, fenced)
	if err != nil {
		return err
	}
	return s.holdStripe(func(answered <-chan response, release func() error) error {
		s.showProcesses(statePaused)
		wake := func() error {
			err := p.Resume()
			s.showProcesses(stateUp)
			return err
		}
		if err := p.Pause(); err != nil {
			return errors.Join(err, wake())
		}
		s.add(entry{Kind: kindFault, Text: fmt.Sprintf("Process A (%d) is frozen with SIGSTOP. Its lease lasts %.1f s.", p.PID(), lease.Seconds()), Tone: toneBad})
		err := errors.Join(release(), s.payUntilFinal(s.b))
		if err := errors.Join(err, wake()); err != nil {
			return err
		}
		s.add(entry{Kind: kindFault, Text: "Process A wakes up with Stripe's answer in its hands, and believes that it still holds the key."})
		select {
		case <-answered:
		case <-s.ctx.Done():
			return s.ctx.Err()
		}
		after, err := p.Sample(s.ctx, fenced)
		if err != nil {
			return err
		}
		if after <= before { // a machine so busy that A had run out of patience with Stripe
			s.add(entry{Kind: kindClaim, Text: "A had given up before it was frozen, and writes nothing", Tone: toneWait})
			return nil
		}
		s.add(entry{Kind: kindClaim, Text: "A's late write is refused: its lease token is an old one", Answer: "fenced off", Tone: toneWait})
		return nil
	})
}

func cutPostgres(s *actionRun) error {
	if err := errors.Join(s.ensureAIsUp(s.ctx), s.createOrder()); err != nil {
		return err
	}
	return s.holdStripe(func(answered <-chan response, release func() error) error {
		back := make(chan error, 1)
		err := s.database.cutConnections(s.ctx)
		s.board.update(func(now *pageState) { now.Postgres = stateCut })
		s.add(entry{Kind: kindFault, Text: fmt.Sprintf("Every connection to PostgreSQL is cut, and it takes no new one for %.0f s.", outageDuration.Seconds()), Tone: toneBad})
		go func() {
			select {
			case <-time.After(outageDuration):
			case <-s.ctx.Done():
			}
			err := s.database.allowConnections(context.WithoutCancel(s.ctx))
			s.board.update(func(now *pageState) { now.Postgres = stateUp })
			s.add(entry{Kind: kindFault, Text: "PostgreSQL is there again."})
			back <- err
		}()
		s.sendPayment(s.b) // healthy, and just as unable to do anything
		err = errors.Join(err, release())
		<-answered
		return errors.Join(err, s.payUntilFinal(s.upEndpoint()), <-back)
	})
}

func retryLastRequest(s *actionRun) error {
	last := s.lastPurchase()
	if last == nil {
		return errors.New("nothing has been asked yet: press Pay")
	}
	s.order, s.pay = last.order, last.pay
	for _, to := range []*endpoint{s.upEndpoint(), s.b} {
		if a := s.sendPayment(to); !a.replayed() {
			return fmt.Errorf("the answer was not a replay: %s", a)
		}
	}
	return nil
}

// latest is the story that bought something last.
func (c *console) lastPurchase() *actionRun {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lastRun
}
