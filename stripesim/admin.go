package stripesim

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// AdminHandler serves the other port: what a test does to Stripe, and what it
// may know about it. Nothing of it is reachable from Stripe's port, and nothing
// is authenticated: bind it to loopback. Requests from another site's page, in a
// browser on that machine, are refused.
//
//	GET    /                                     a page with all of it, and buttons
//	GET    /healthz
//	GET    /effects?order_id=&kind=&since=       the effect log
//	GET    /charges?order_id=                    {"count": n}: how often money was taken
//	GET    /faults · POST · DELETE [/{id}]       scripted faults and how often they fired
//	GET    /holds · POST · DELETE /holds/{id}    stop requests at a point; which wait? (GET /holds/{id}?wait=5s)
//	GET    /clock · POST {"advance":"25h"}
//	POST   /keys/prune {"containing":""}         drop stored idempotency keys early
//	POST   /repair {"key":"","forward":true}     Stripe's clean-up after a frozen 500
//	POST   /authenticate/{intent} {"outcome":"success"|"fail"}
//	POST   /browser {"client_secret":"","payment_method":"pm_card_visa"}   Stripe.js pays
//	POST   /dashboard/{intent}/capture {"amount":0}   a person captures, all of it or a part
//	POST   /dashboard/{intent}/cancel {"reason":""}
//	POST   /authorizations/{intent}/lapse {"code":""}   the network drops the hold; Stripe does not know yet
//	POST   /refunds/{id}/fail {"reason":""}
//	POST   /disputes {"charge":"","reason":"","inquiry":false}
//	POST   /settings {"search_lag":"","list_lag":"","lock_wait":"","webhook_retry":"","limits":{},
//	        "release_regime":"refunds"|"basil","keep_refunded":false,"capture_processing":"2s",
//	        "authorization_lifetime":"20h","evidence_time":"12h","requests_per_connection":1000,
//	        "unmarked_replays":false,"key_lifetime":"24h"}
//	GET    /ca.pem                               the certificate of the port with TLS, for its clients to trust
//	GET    /webhooks                             the latest delivery attempts
//	POST   /webhooks/resend {"event_id":"","times":1}
//	POST   /webhook-endpoints {"url":"","secret":"","events":[],"key":""}
//	POST   /webhook-endpoints/thin {"id":"","thin":true}   thin events from now on; "": the one of the command line
//	POST   /webhook-endpoints/ping {"id":""}     how Stripe tries a destination
//	GET    /webhook-faults · POST · DELETE [/{id}]
//	POST   /reset
func (s *Sim) AdminHandler() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, h func(*http.Request) (any, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { answerAdmin(w, r, h) })
	}
	handle("GET /healthz", func(*http.Request) (any, error) { return map[string]string{"status": "ok"}, nil })
	handle("GET /effects", s.adminEffects)
	handle("GET /charges", func(r *http.Request) (any, error) {
		order := r.URL.Query().Get("order_id")
		return map[string]any{"order_id": order, "count": s.ChargeCount(order)}, nil
	})
	handle("POST /reset", func(*http.Request) (any, error) { return done, s.Reset() })

	handle("GET /faults", func(*http.Request) (any, error) { return s.faults.report(), nil })
	handle("POST /faults", s.adminInject)
	handle("DELETE /faults", func(*http.Request) (any, error) { s.ClearFaults(); return done, nil })
	handle("DELETE /faults/{id}", func(r *http.Request) (any, error) { return done, s.Disarm(r.PathValue("id")) })

	handle("GET /holds", func(*http.Request) (any, error) { return s.holds.report(), nil })
	handle("GET /holds/{id}", s.adminHold)
	handle("POST /holds", s.adminNewHold)
	handle("DELETE /holds/{id}", s.adminRelease)
	handle("DELETE /holds", func(*http.Request) (any, error) { s.holds.releaseAll(); return done, nil })

	handle("GET /clock", func(*http.Request) (any, error) { return clockReport{s.Now()}, nil })
	handle("POST /clock", s.adminClock)
	handle("POST /keys/prune", s.adminPrune)
	handle("POST /repair", s.adminRepair)
	handle("POST /authenticate/{intent}", s.adminAuthenticate)
	handle("POST /browser", s.adminBrowser)
	handle("POST /dashboard/{intent}/capture", s.adminCapture)
	handle("POST /dashboard/{intent}/cancel", s.adminCancel)
	handle("POST /authorizations/{intent}/lapse", s.adminLapse)
	handle("POST /refunds/{id}/fail", s.adminFailRefund)
	handle("POST /disputes", s.adminDispute)
	handle("POST /settings", s.adminSettings)
	handle("POST /webhook-endpoints/thin", func(r *http.Request) (any, error) {
		in, err := read[struct {
			ID   string `json:"id"`
			Thin bool   `json:"thin"`
		}](r)
		if err != nil {
			return nil, err
		}
		return done, s.SetThin(in.ID, in.Thin)
	})
	handle("POST /webhook-endpoints/ping", func(r *http.Request) (any, error) {
		in, err := read[struct {
			ID string `json:"id"`
		}](r)
		if err != nil {
			return nil, err
		}
		status, err := s.Ping(r.Context(), in.ID)
		return map[string]int{"status": status}, err
	})

	handle("GET /webhooks", func(*http.Request) (any, error) { return s.Deliveries(), nil })
	handle("POST /webhooks/resend", s.adminResend)
	handle("POST /webhook-endpoints", s.adminEndpoint)
	handle("GET /webhook-faults", func(*http.Request) (any, error) { return s.outbox.report(), nil })
	handle("POST /webhook-faults", s.adminInjectWebhook)
	handle("DELETE /webhook-faults", func(*http.Request) (any, error) { s.ClearWebhookFaults(); return done, nil })
	handle("DELETE /webhook-faults/{id}", func(r *http.Request) (any, error) {
		return done, s.DisarmWebhook(r.PathValue("id"))
	})
	mux.HandleFunc("GET /ca.pem", func(w http.ResponseWriter, _ *http.Request) {
		pem, err := s.CA()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/x-pem-file")
		_, _ = w.Write(pem)
	})
	s.pageHandler(mux)
	return ownOrigin(mux)
}

var done = map[string]bool{"ok": true}

type clockReport struct {
	Now time.Time `json:"now"`
}

// answerAdmin writes JSON: the result, or {"error": …} with 400.
func answerAdmin(w http.ResponseWriter, r *http.Request, h func(*http.Request) (any, error)) {
	result, err := h(r)
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		result = map[string]string{"error": err.Error()}
	}
	_, _ = w.Write(append(render(result), '\n'))
}

// read decodes a JSON body strictly: a misspelt field in a script must not pass
// for a default. No body is an empty one.
func read[T any](r *http.Request) (T, error) {
	var in T
	dec := json.NewDecoder(r.Body)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&in); err != nil && !errors.Is(err, io.EOF) {
		return in, err
	}
	return in, nil
}

func (s *Sim) adminEffects(r *http.Request) (any, error) {
	q := r.URL.Query()
	since, err := strconv.ParseInt(cmp.Or(q.Get("since"), "0"), 10, 64)
	if err != nil {
		return nil, err
	}
	out := s.EffectsSince(since)
	out = slices.DeleteFunc(out, func(e Effect) bool {
		return (q.Has("order_id") && e.Metadata["order_id"] != q.Get("order_id")) ||
			(q.Has("kind") && e.Kind != q.Get("kind"))
	})
	if out == nil {
		out = []Effect{}
	}
	return out, nil
}

func (s *Sim) adminInject(r *http.Request) (any, error) {
	f, err := read[Fault](r)
	if err != nil {
		return nil, err
	}
	a, err := s.faults.add(f)
	if err != nil {
		return nil, err
	}
	return map[string]string{"id": a.id}, nil
}

type faultReport struct {
	ID      string   `json:"id"`
	Fault   Fault    `json:"fault"`
	Seen    int      `json:"seen"`
	Fired   int      `json:"fired"`
	Firings []Firing `json:"firings"`
}

func (fs *faults) report() []faultReport {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	out := []faultReport{}
	for _, a := range fs.all {
		out = append(out, faultReport{a.id, a.Fault, a.seen, len(a.firings), append([]Firing{}, a.firings...)})
	}
	return out
}

type holdReport struct {
	ID       string   `json:"id"`
	Selector Selector `json:"selector"`
	Point    Point    `json:"point"`
	Waiting  []Held   `json:"waiting"`
}

func (h *Hold) report() holdReport {
	return holdReport{h.id, h.sel, h.point, append([]Held{}, h.Waiting()...)}
}

func (hs *holds) report() []holdReport {
	hs.mu.Lock()
	all := slices.Clone(hs.all)
	hs.mu.Unlock()
	out := []holdReport{}
	for _, h := range all {
		out = append(out, h.report())
	}
	return out
}

func (hs *holds) find(id string) (*Hold, error) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for _, h := range hs.all {
		if h.id == id {
			return h, nil
		}
	}
	return nil, errors.New("no such hold: " + id)
}

func (s *Sim) adminNewHold(r *http.Request) (any, error) {
	in, err := read[struct {
		Selector
		Point Point `json:"point"`
	}](r)
	if err != nil {
		return nil, err
	}
	h, err := s.newHold(in.Selector, in.Point)
	if err != nil {
		return nil, err
	}
	return map[string]string{"id": h.ID()}, nil
}

// newHold is Hold for a selector that nobody has checked.
func (s *Sim) newHold(sel Selector, at Point) (*Hold, error) {
	switch {
	case at != BeforeEffect && at != AfterEffect:
		return nil, errors.New("point must be before_effect or after_effect")
	case !sel.possible():
		return nil, errors.New("no operation matches " + sel.Op + "; there are " + strings.Join(operationNames(), ", "))
	}
	return s.Hold(sel, at), nil
}

// adminHold shows a hold; with wait it first waits until a request is held.
func (s *Sim) adminHold(r *http.Request) (any, error) {
	h, err := s.holds.find(r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	if wait := r.URL.Query().Get("wait"); wait != "" {
		d, err := time.ParseDuration(wait)
		if err != nil {
			return nil, err
		}
		h.waitFor(r.Context(), d)
	}
	return h.report(), nil
}

func (s *Sim) adminRelease(r *http.Request) (any, error) {
	h, err := s.holds.find(r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	h.Release()
	return done, nil
}

func (s *Sim) adminClock(r *http.Request) (any, error) {
	in, err := read[struct {
		Advance string `json:"advance"`
	}](r)
	if err != nil {
		return nil, err
	}
	d, err := time.ParseDuration(in.Advance)
	if err != nil {
		return nil, err
	}
	return clockReport{s.Advance(d)}, nil
}

func (s *Sim) adminPrune(r *http.Request) (any, error) {
	in, err := read[struct {
		Containing string `json:"containing"`
	}](r)
	if err != nil {
		return nil, err
	}
	return map[string]int{"pruned": s.PruneKeys(in.Containing)}, nil
}

func (s *Sim) adminRepair(r *http.Request) (any, error) {
	in, err := read[struct {
		Key     string `json:"key"`
		Forward bool   `json:"forward"`
	}](r)
	if err != nil {
		return nil, err
	}
	return done, s.Repair(in.Key, in.Forward)
}

func (s *Sim) adminAuthenticate(r *http.Request) (any, error) {
	in, err := read[struct {
		Outcome string `json:"outcome"`
	}](r)
	if err != nil {
		return nil, err
	}
	if in.Outcome != "success" && in.Outcome != "fail" {
		return nil, errors.New(`outcome must be "success" or "fail"`)
	}
	return done, s.CompleteAuthentication(r.PathValue("intent"), in.Outcome == "success")
}

func (s *Sim) adminBrowser(r *http.Request) (any, error) {
	in, err := read[struct {
		ClientSecret  string `json:"client_secret"`
		PaymentMethod string `json:"payment_method"`
	}](r)
	if err != nil {
		return nil, err
	}
	return done, s.PayInBrowser(in.ClientSecret, cmp.Or(in.PaymentMethod, "pm_card_visa"))
}

func (s *Sim) adminCapture(r *http.Request) (any, error) {
	in, err := read[struct {
		Amount int64 `json:"amount"`
	}](r)
	if err != nil {
		return nil, err
	}
	return done, s.CaptureInDashboard(r.PathValue("intent"), in.Amount)
}

func (s *Sim) adminCancel(r *http.Request) (any, error) {
	in, err := read[struct {
		Reason string `json:"reason"`
	}](r)
	if err != nil {
		return nil, err
	}
	return done, s.CancelInDashboard(r.PathValue("intent"), in.Reason)
}

func (s *Sim) adminLapse(r *http.Request) (any, error) {
	in, err := read[struct {
		Code string `json:"code"`
	}](r)
	if err != nil {
		return nil, err
	}
	return done, s.LapseAuthorization(r.PathValue("intent"), in.Code)
}

func (s *Sim) adminFailRefund(r *http.Request) (any, error) {
	in, err := read[struct {
		Reason string `json:"reason"`
	}](r)
	if err != nil {
		return nil, err
	}
	return done, s.FailRefund(r.PathValue("id"), cmp.Or(in.Reason, "expired_or_canceled_card"))
}

func (s *Sim) adminDispute(r *http.Request) (any, error) {
	in, err := read[struct {
		Charge  string `json:"charge"`
		Reason  string `json:"reason"`
		Inquiry bool   `json:"inquiry"`
	}](r)
	if err != nil {
		return nil, err
	}
	id, err := s.OpenDispute(in.Charge, cmp.Or(in.Reason, "fraudulent"), in.Inquiry)
	return map[string]string{"id": id}, err
}

// adminSettings changes what is named and leaves the rest.
func (s *Sim) adminSettings(r *http.Request) (any, error) {
	in, err := read[struct {
		SearchLag             any            `json:"search_lag"`
		ListLag               any            `json:"list_lag"`
		LockWait              any            `json:"lock_wait"`
		WebhookRetry          any            `json:"webhook_retry"`
		CaptureProcessing     any            `json:"capture_processing"`
		AuthorizationLifetime any            `json:"authorization_lifetime"`
		EvidenceTime          any            `json:"evidence_time"`
		ReleaseRegime         *ReleaseRegime `json:"release_regime"`
		KeepRefunded          *bool          `json:"keep_refunded"`
		UnmarkedReplays       *bool          `json:"unmarked_replays"`
		KeyLifetime           any            `json:"key_lifetime"`
		RequestsPerConnection *int           `json:"requests_per_connection"`
		Limits                *Limits        `json:"limits"`
	}](r)
	if err != nil {
		return nil, err
	}
	if in.ReleaseRegime != nil {
		if err := s.SetReleaseRegime(*in.ReleaseRegime); err != nil {
			return nil, err
		}
	}
	if in.KeepRefunded != nil {
		s.SetKeepRefunded(*in.KeepRefunded)
	}
	if in.UnmarkedReplays != nil {
		s.SetUnmarkedReplays(*in.UnmarkedReplays)
	}
	if in.RequestsPerConnection != nil {
		s.SetRequestsPerConnection(*in.RequestsPerConnection)
	}
	for _, setting := range []struct {
		given any
		apply func(time.Duration)
	}{{in.SearchLag, s.SetSearchLag}, {in.ListLag, s.SetListLag}, {in.LockWait, s.SetLockWait},
		{in.WebhookRetry, s.SetWebhookRetry}, {in.CaptureProcessing, s.SetCaptureProcessing},
		{in.AuthorizationLifetime, s.SetAuthorizationLifetime}, {in.EvidenceTime, s.SetEvidenceTime},
		{in.KeyLifetime, s.SetKeyLifetime}} {
		if setting.given == nil {
			continue
		}
		d, err := readDelay(setting.given)
		if err != nil {
			return nil, err
		}
		setting.apply(d)
	}
	if in.Limits != nil {
		s.SetLimits(*in.Limits)
	}
	return done, nil
}

func (s *Sim) adminResend(r *http.Request) (any, error) {
	in, err := read[struct {
		EventID string `json:"event_id"`
		Times   int    `json:"times"`
	}](r)
	if err != nil {
		return nil, err
	}
	return done, s.Resend(in.EventID, in.Times)
}

func (s *Sim) adminEndpoint(r *http.Request) (any, error) {
	in, err := read[struct {
		URL    string   `json:"url"`
		Secret string   `json:"secret"`
		Events []string `json:"events"`
		Key    string   `json:"key"`
	}](r)
	if err != nil {
		return nil, err
	}
	if bad := checkURL(in.URL); bad != nil {
		return nil, errors.New(bad.Message)
	}
	id, err := s.AddWebhookEndpoint(cmp.Or(in.Key, DefaultKey), in.URL, in.Secret, in.Events...)
	return map[string]string{"id": id}, err
}

func (s *Sim) adminInjectWebhook(r *http.Request) (any, error) {
	f, err := read[WebhookFault](r)
	if err != nil {
		return nil, err
	}
	id, err := s.outbox.addFault(f)
	return map[string]string{"id": id}, err
}

type webhookFaultReport struct {
	ID    string       `json:"id"`
	Fault WebhookFault `json:"fault"`
	Seen  int          `json:"seen"`
	Fired int          `json:"fired"`
}

func (d *deliveries) report() []webhookFaultReport {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := []webhookFaultReport{}
	for _, a := range d.faults {
		out = append(out, webhookFaultReport{a.id, a.WebhookFault, a.seen, a.fired})
	}
	return out
}
