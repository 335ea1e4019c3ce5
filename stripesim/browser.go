package stripesim

import (
	"fmt"
	"strings"
)

// PayInBrowser is Stripe.js in a customer's browser: whoever has an intent's client
// secret may confirm it with a card, as long as it waits for one, also long after the
// server that made it has given it up. The customer passes 3-D Secure. No request of
// the server's is behind it, so the events and effects that it causes have no key.
func (s *Sim) PayInBrowser(clientSecret, method string) error {
	intentID, _, _ := strings.Cut(clientSecret, "_secret_")
	s.mu.Lock()
	position, err := s.payInBrowser(intentID, clientSecret, method)
	s.mu.Unlock()
	s.durable(position)
	return err
}

func (s *Sim) payInBrowser(intentID, clientSecret, method string) (int64, error) {
	pi := s.st.intents.byID[intentID]
	if pi == nil || pi.ClientSecret != clientSecret {
		return 0, fmt.Errorf("no intent has the client secret of %s", intentID)
	}
	if refused := pi.awaitsConfirmation(); refused != nil {
		return 0, fmt.Errorf("intent %s cannot be paid: it is %s", intentID, pi.Status)
	}
	card := cardsByName[method]
	if card == nil || !strings.HasPrefix(method, "pm_card_") {
		return 0, fmt.Errorf("no test card is called %q", method)
	}
	t := s.begin(pi.Account, origin{})
	m := t.methodOf(card)
	t.keep(m)
	pi = edit(t, pi)
	pi.Authenticated = true
	_, declined := t.attempt(pi, m, wishes{})
	position := t.commit()
	if declined != nil {
		return position, fmt.Errorf("the card was declined: %s", declined.Code)
	}
	return position, nil
}
