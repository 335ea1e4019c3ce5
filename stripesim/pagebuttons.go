package stripesim

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// The buttons of the page. Each is a form that is posted and leads back to its section; what a script in another
// language would send as JSON (admin.go) does the same.

// button is a section of the page, and what a form does.
type button struct {
	section string
	press   func(*Sim, url.Values) error
}

var buttons = map[string]button{
	"clock": {"clock", func(s *Sim, f url.Values) error {
		d, err := time.ParseDuration(f.Get("advance"))
		if err != nil || d <= 0 {
			return fmt.Errorf("the clock goes forward by a duration such as 90s, 15m or 25h, not by %q", f.Get("advance"))
		}
		s.Advance(d)
		return nil
	}},
	"prune": {"clock", func(s *Sim, _ url.Values) error { s.PruneKeys(""); return nil }},
	"fault": {"faults", pressFault},
	"disarm": {"faults", func(s *Sim, f url.Values) error {
		if f.Get("id") == "" {
			s.ClearFaults()
			return nil
		}
		return s.Disarm(f.Get("id"))
	}},
	"hold": {"faults", func(s *Sim, f url.Values) error {
		_, err := s.newHold(Selector{Op: f.Get("op"), OrderID: f.Get("order_id")}, Point(f.Get("point")))
		return err
	}},
	"release": {"faults", func(s *Sim, f url.Values) error {
		h, err := s.holds.find(f.Get("id"))
		if err != nil {
			return err
		}
		h.Release()
		return nil
	}},
	"authenticate": {"intents", func(s *Sim, f url.Values) error {
		return s.CompleteAuthentication(f.Get("id"), f.Get("outcome") == "success")
	}},
	"capture": {"intents", func(s *Sim, f url.Values) error { return s.CaptureInDashboard(f.Get("id"), 0) }},
	"cancel":  {"intents", func(s *Sim, f url.Values) error { return s.CancelInDashboard(f.Get("id"), "") }},
	"dispute": {"intents", func(s *Sim, f url.Values) error {
		_, err := s.OpenDispute(f.Get("id"), "fraudulent", false)
		return err
	}},
	"endpoint": {"webhooks", func(s *Sim, f url.Values) error {
		if bad := checkURL(f.Get("url")); bad != nil {
			return errors.New(bad.Message)
		}
		if f.Get("secret") == "" {
			return errors.New("a secret is needed: it signs the webhooks, and the page does not show one that it drew")
		}
		_, err := s.AddWebhookEndpoint(cmp.Or(f.Get("key"), DefaultKey), f.Get("url"), f.Get("secret"))
		return err
	}},
	"resend":        {"webhooks", func(s *Sim, f url.Values) error { return s.Resend(f.Get("id"), 1) }},
	"webhook-fault": {"webhooks", pressWebhookFault},
	"disarm-webhook": {"webhooks", func(s *Sim, f url.Values) error {
		if f.Get("id") == "" {
			s.ClearWebhookFaults()
			return nil
		}
		return s.DisarmWebhook(f.Get("id"))
	}},
	"reset": {"top", func(s *Sim, _ url.Values) error { return s.Reset() }},
}

// pressed does what a form asks for and leads back to the page, or says why it did not.
func (s *Sim) pressed(w http.ResponseWriter, r *http.Request) {
	b, known := buttons[r.PathValue("button")]
	if !known {
		http.NotFound(w, r)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, 1<<16)
	err := r.ParseForm()
	if err == nil {
		err = b.press(s, r.PostForm)
	}
	if err != nil {
		v := s.look(nil)
		v.Error = err.Error()
		s.showPage(w, http.StatusBadRequest, v)
		return
	}
	http.Redirect(w, r, "/#"+b.section, http.StatusSeeOther)
}

func pressFault(s *Sim, f url.Values) error {
	times, err := strconv.Atoi(cmp.Or(f.Get("times"), "1"))
	if err != nil {
		return fmt.Errorf("times: %w", err)
	}
	fault := Fault{Op: f.Get("op"), Kind: f.Get("kind"), Times: times, OrderID: f.Get("order_id")}
	if slices.Contains(delayingKinds, fault.Kind) {
		if fault.Delay, err = time.ParseDuration(cmp.Or(f.Get("delay"), "5s")); err != nil {
			return fmt.Errorf("delay: %w", err)
		}
	}
	_, err = s.faults.add(fault)
	return err
}

func pressWebhookFault(s *Sim, f url.Values) error {
	times, err := strconv.Atoi(cmp.Or(f.Get("times"), "1"))
	if err != nil {
		return fmt.Errorf("times: %w", err)
	}
	fault := WebhookFault{Kind: f.Get("kind"), Type: f.Get("type"), Times: times}
	if fault.Kind == WebhookDelay {
		fault.Delay = time.Hour // on the simulator's clock, which has a button for it
	}
	_, err = s.outbox.addFault(fault)
	return err
}

// delayingKinds do nothing without a Delay.
var delayingKinds = []string{DelayBefore, DelayExecuting, Delay, SlowBody}

// faultGroup is the kinds that leave the same behind.
type faultGroup struct {
	Title   string
	Buttons []faultButton
}

type faultButton struct{ Kind, Does string }

// faultGroups has a button for each of faultKinds, as a test sees to.
var faultGroups = []faultGroup{
	{"The effect happens, the client does not see it", []faultButton{
		{Drop, "the connection is closed before the first byte of the response"},
		{ReusedDrop, "the same, on a connection that has carried a request before"},
		{Cut, "the response ends in the middle"},
		{EffectError, "502, although it happened"},
		{EffectStoredError, "500, stored under the key, although it happened"},
		{EffectForgotten, "502, and the key is not known: sent again, it happens again"},
	}},
	{"The effect happens, the response is late or strange", []faultButton{
		{DelayBefore, "waits, then does it"},
		{DelayExecuting, "does it, then waits with the key in use"},
		{Delay, "does it and stores it, then waits"},
		{SlowBody, "sends half of the response, waits, sends the rest"},
		{InvalidJSON, "200 with a body that is not JSON"},
		{UnknownEnum, "a status that no client knows"},
		{UnknownFields, "properties that no client knows"},
		{Stale, "the object as it was before"},
	}},
	{"Nothing happens, no response", []faultButton{
		{Reset, "the connection is reset"},
		{ReusedReset, "the same, on a connection that has carried a request before"},
		{BlackHole, "no response until the client gives up"},
		{Silence, "the connection stays open and carries no response any more; new ones work"},
	}},
	{"Nothing happens, the client is refused", []faultButton{
		{Refuse, "500"},
		{RetryError, "500 with Stripe-Should-Retry: true"},
		{StoredError, "500, stored under the key"},
		{RateLimited, "429"},
		{LockTimeout, "429, lock_timeout"},
		{InUse, "409, the key is in use"},
		{Unauthorized, "401, as after a rolled key"},
	}},
}

// webhookButtons has a button for each of webhookKinds.
var webhookButtons = []faultButton{
	{WebhookDuplicate, "sends the event twice"},
	{WebhookDouble, "makes a second event about the same fact"},
	{WebhookReorder, "keeps two events back and sends them in reverse"},
	{WebhookBurst, "keeps two events back and sends them at once"},
	{WebhookDelay, "sends it an hour later, on the simulator's clock"},
	{WebhookDrop, "never sends it; the event exists"},
	{WebhookNever, "never makes the event"},
	{WebhookWrongSignature, "the first attempt is signed with another secret"},
	{WebhookStale, "the first attempt is signed as of ten minutes ago"},
	{WebhookVersion, "the first attempt has another API version"},
}
