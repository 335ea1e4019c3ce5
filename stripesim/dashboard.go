package stripesim

import (
	"fmt"
	"slices"
	"strings"
)

// What others do to an authorisation: an employee in Stripe's dashboard, and the
// card network. They wait for no request that is being held.

// CaptureInDashboard captures an intent as an employee does in the dashboard: the events name a request, and it
// has no key. Amount 0 is all that was authorised.
func (s *Sim) CaptureInDashboard(intentID string, amount int64) error {
	return s.inDashboard(intentID, func(t *tx, pi *intent) *apiError {
		if err := t.awaitsCapture(pi); err != nil {
			return err
		}
		if amount == 0 {
			amount = pi.AmountCapturable
		}
		if err := pi.capturable(amount); err != nil {
			return err
		}
		t.capture(edit(t, pi), amount)
		return nil
	})
}

// CancelInDashboard cancels an intent as an employee does in the dashboard. The reason may be empty.
func (s *Sim) CancelInDashboard(intentID, reason string) error {
	return s.inDashboard(intentID, func(t *tx, pi *intent) *apiError {
		n := node{fields: map[string]*node{}}
		if reason != "" {
			n = node{fields: map[string]*node{"cancellation_reason": {value: reason}}, names: []string{"cancellation_reason"}}
		}
		if err := cancelIntentParams.validate(&n, ""); err != nil {
			return err
		}
		_, err := t.cancelIntent(&call{id: pi.ID, params: n})
		return err
	})
}

// LapseAuthorization is the issuer or the network dropping a hold before Stripe knows: the intent stays
// requires_capture, and a capture is refused with this code. Empty is charge_expired_for_capture.
func (s *Sim) LapseAuthorization(intentID, code string) error {
	if code == "" {
		code = expiredForCapture
	}
	if !slices.Contains(lapseCodes, code) {
		return fmt.Errorf("unknown code %q; there are %s", code, strings.Join(lapseCodes, ", "))
	}
	return s.inDashboard(intentID, func(t *tx, pi *intent) *apiError {
		if err := t.awaitsCapture(pi); err != nil {
			return err
		}
		edit(t, pi).Lapsed = code
		return nil
	})
}

// inDashboard changes an intent by a request without a key. act refuses before it changes anything.
func (s *Sim) inDashboard(intentID string, act func(*tx, *intent) *apiError) error {
	s.mu.Lock()
	pi := s.st.intents.byID[intentID]
	if pi == nil {
		s.mu.Unlock()
		return fmt.Errorf("no such intent: %s", intentID)
	}
	t := s.begin(pi.Account, origin{Request: s.newRequestID()})
	refused := act(t, pi)
	position := t.commit()
	s.mu.Unlock()
	s.durable(position)
	if refused != nil {
		return fmt.Errorf("intent %s: %s", intentID, refused.Message)
	}
	return nil
}
