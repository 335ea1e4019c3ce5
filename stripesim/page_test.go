package stripesim

import (
	"html"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v76"
)

// page reads the page as a browser without scripts does: spaces joined, tags kept.
func (b *bench) page(query string) string {
	b.t.Helper()
	resp, err := http.Get(b.admin + "/" + query)
	require.NoError(b.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(b.t, err)
	require.Equal(b.t, 200, resp.StatusCode)
	require.Equal(b.t, pagePolicy, resp.Header.Get("Content-Security-Policy"))
	return regexp.MustCompile(`\s+`).ReplaceAllString(string(body), " ")
}

// press posts a form of the page and returns where it leads, or what it says.
func (b *bench) press(button string, form url.Values, header ...string) (int, string) {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), http.MethodPost, b.admin+"/page/"+button,
		strings.NewReader(form.Encode()))
	require.NoError(b.t, err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
		if header[i] == "Host" {
			req.Host = header[i+1]
		}
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	require.NoError(b.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(b.t, err)
	if resp.StatusCode == http.StatusSeeOther {
		return resp.StatusCode, resp.Header.Get("Location")
	}
	return resp.StatusCode, string(body)
}

func (b *bench) pressed(button string, form url.Values) {
	b.t.Helper()
	code, answer := b.press(button, form)
	require.Equal(b.t, 303, code, alert.FindString(answer))
}

var alert = regexp.MustCompile(`role="alert">[^<]*`)

// shows and hides are Contains without the whole page in the message.
func shows(t *testing.T, page, want string) {
	t.Helper()
	require.True(t, strings.Contains(page, want), "the page does not have %s", want)
}

func hides(t *testing.T, page, secret string) {
	t.Helper()
	require.False(t, strings.Contains(page, secret), "the page has %s", secret)
}

// TestAdminAnswersLocalNamesAlone: a page whose name somebody has pointed at this machine reads nothing here.
func TestAdminAnswersLocalNamesAlone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for host, want := range map[string]int{
		"evil.example:12112": http.StatusMisdirectedRequest, "127.0.0.1.nip.io": http.StatusMisdirectedRequest,
		"127.0.0.1:12112": http.StatusOK, "[::1]:12112": http.StatusOK, "localhost": http.StatusOK, "stripesim:12112": http.StatusOK,
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.admin+"/charges", nil)
		require.NoError(t, err)
		req.Host = host
		resp, err := http.DefaultTransport.RoundTrip(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, want, resp.StatusCode, host)
	}
}

func TestPage(t *testing.T) {
	t.Parallel()

	t.Run("CountsWhatThereIs", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		empty := b.page("")
		shows(t, empty, "<b>0</b> payment intents")
		shows(t, empty, "No effects yet.")
		pi := b.paid("o1")
		b.create("o2")
		_, err := b.refund(pi.ID, "r", 100)
		require.NoError(t, err)
		got := b.page("")
		for _, want := range []string{
			"<b>2</b> payment intents", "<b>1</b> charges", "<b>1</b> refunds", "<b>0</b> disputes",
			"<b>4</b> idempotency keys", pi.ID, "10.00 usd",
		} {
			shows(t, got, want)
		}
		hides(t, got, pi.ClientSecret)
	})

	t.Run("ShowsEveryEffectThatIsAskedFor", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.paid("order-1") // a random ID has no hyphen
		b.paid("order-2")
		rows := func(query string) int { return strings.Count(b.page(query), `<tr><td class="quiet">`) }
		require.Equal(t, len(b.sim.Effects()), rows(""))
		require.Equal(t, 2, rows("?kind=charge"))
		require.Equal(t, 1, rows("?kind=charge&find=order-2"))
		require.Equal(t, 1, rows("?find=confirm-order-1"))
		shows(t, b.page("?kind=charge&find=order-2"), `find=order-2#effects" aria-current="true">charge <b>2</b></a>`)
		shows(t, b.page("?find=nothing"), "No effect matches.")
		for range pageRows {
			b.create("more")
			b.sim.PruneKeys("")
		}
		require.Equal(t, pageRows, rows(""))
		shows(t, b.page(""), "50 of 54, newest first")
	})

	t.Run("ButtonsMoveTheClock", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		held, err := b.confirm(b.create("o1", func(p *stripe.PaymentIntentParams) {
			p.CaptureMethod = stripe.String("manual")
		}).ID, "k", "pm_card_visa")
		require.NoError(t, err)
		shows(t, b.page(""), "the authorization expires <code>"+held.ID)
		before := b.sim.Now()
		code, where := b.press("clock", url.Values{"advance": {"25h"}})
		require.Equal(t, 303, code)
		require.Equal(t, "/#clock", where)
		require.Equal(t, before.Add(25*time.Hour), b.sim.Now())
		got := b.page("")
		shows(t, got, when(b.sim.Now())+"</time> UTC")
		shows(t, got, "25h0m0s ahead")
		shows(t, got, "<b>0</b> idempotency keys")
		for _, wrong := range []string{"", "soon", "-1h"} {
			code, answer := b.press("clock", url.Values{"advance": {wrong}})
			require.Equal(t, 400, code)
			shows(t, answer, "the clock goes forward")
		}
		require.Equal(t, before.Add(25*time.Hour), b.sim.Now())
		b.create("o2")
		b.pressed("prune", nil)
		shows(t, b.page(""), "<b>0</b> idempotency keys")
	})

	t.Run("HasAButtonForEachFault", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		got := b.page("")
		for _, kind := range append(faultKinds, webhookKinds...) {
			shows(t, got, `<button name="kind" value="`+kind+`">`)
		}
		for _, kind := range faultKinds {
			b.pressed("fault", url.Values{"kind": {kind}, "op": {"charge.get"}})
		}
		armed := b.sim.faults.report()
		require.Len(t, armed, len(faultKinds))
		for i, kind := range faultKinds {
			require.Equal(t, kind, armed[i].Fault.Kind)
			require.Equal(t, "charge.get", armed[i].Fault.Op)
		}
		for _, kind := range webhookKinds {
			b.pressed("webhook-fault", url.Values{"kind": {kind}, "type": {"charge.*"}})
		}
		require.Len(t, b.sim.outbox.report(), len(webhookKinds))
		b.pressed("disarm", nil)
		b.pressed("disarm-webhook", nil)
		require.Empty(t, b.sim.faults.report())
		require.Empty(t, b.sim.outbox.report())
	})

	t.Run("ButtonsArmFaultsThatFire", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		shows(t, b.page(""), "No fault is armed")
		require.Contains(t, b.page(""), `<option value="*.post" selected>`, "a fault for whatever the reader sends next")
		b.pressed("fault", url.Values{"kind": {Drop}, "op": {"intent.confirm"}, "times": {"2"}, "order_id": {"o1"}})
		b.pressed("fault", url.Values{"kind": {Refuse}, "op": {"refund.create"}})
		pi := b.create("o1")
		_, err := b.confirm(pi.ID, "k", "pm_card_visa")
		require.Error(t, err)
		require.Equal(t, 1, b.sim.ChargeCount("o1"), "charged, and the response dropped")
		got := b.page("")
		shows(t, got, "<b>drop</b> <small>fault_1</small></td><td>intent.confirm of order o1</td>"+
			`<td class="n">2</td><td class="n">1</td><td><code>req_`)
		b.pressed("disarm", url.Values{"id": {"fault_1"}})
		require.Equal(t, map[string]int{"fault_2": 0}, b.sim.FaultsFired())
		hides(t, b.page(""), "fault_1<")
		for _, wrong := range []url.Values{{"kind": {"no_such"}}, {"kind": {Drop}, "op": {"no.such"}},
			{"kind": {Drop}, "times": {"x"}}, {"kind": {Delay}, "delay": {"soon"}}} {
			code, answer := b.press("fault", wrong)
			require.Equal(t, 400, code, wrong)
			shows(t, answer, `role="alert"`)
		}
		code, _ := b.press("disarm", url.Values{"id": {"fault_1"}})
		require.Equal(t, 400, code)
		code, _ = b.adminDo("DELETE", "/faults/fault_1", "")
		require.Equal(t, 400, code)
		code, _ = b.adminDo("DELETE", "/faults/fault_2", "")
		require.Equal(t, 200, code)
		require.Empty(t, b.sim.FaultsFired())
	})

	t.Run("ButtonsHoldAndRelease", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.pressed("hold", url.Values{"op": {"intent.confirm"}, "point": {"after_effect"}})
		pi := b.create("o1")
		answered := make(chan error, 1)
		go func() { _, err := b.confirm(pi.ID, "k", "pm_card_visa"); answered <- err }()
		h, err := b.sim.holds.find("hold_1")
		require.NoError(t, err)
		held, err := h.Wait(t.Context())
		require.NoError(t, err)
		shows(t, b.page(""), "<code>"+held.RequestID+"</code> intent.confirm since")
		b.pressed("release", url.Values{"id": {"hold_1"}})
		require.NoError(t, <-answered)
		hides(t, b.page(""), "hold_1<")
	})

	t.Run("ButtonsPlayTheCustomerAndTheBank", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		pi, err := b.confirm(b.create("o1").ID, "k", "pm_card_threeDSecure2Required")
		require.NoError(t, err)
		b.pressed("authenticate", url.Values{"id": {pi.ID}, "outcome": {"success"}})
		paid := b.get(pi.ID)
		require.Equal(t, stripe.PaymentIntentStatusSucceeded, paid.Status)
		shows(t, b.page(""), `<button name="id" value="`+paid.LatestCharge.ID+`">Dispute</button>`)
		b.pressed("dispute", url.Values{"id": {paid.LatestCharge.ID}})
		shows(t, b.page(""), "<b>1</b> disputes")
		for button, want := range map[string]stripe.PaymentIntentStatus{"capture": "succeeded", "cancel": "canceled"} {
			pi, err := b.confirm(b.create(button, func(p *stripe.PaymentIntentParams) {
				p.CaptureMethod = stripe.String("manual")
			}).ID, "k-"+button, "pm_card_visa")
			require.NoError(t, err)
			b.pressed(button, url.Values{"id": {pi.ID}})
			require.Equal(t, want, b.get(pi.ID).Status)
			code, _ := b.press(button, url.Values{"id": {pi.ID}})
			require.Equal(t, 400, code)
		}
		b.pressed("reset", nil)
		shows(t, b.page(""), "<b>0</b> payment intents")
	})

	t.Run("ShowsDeliveriesAndSendsAgain", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		r := newReceiver(t)
		shows(t, b.page(""), "No endpoints.")
		address := strings.Replace(r.URL, "http://", "http://me:opensesame@", 1)
		code, answer := b.press("endpoint", url.Values{"url": {address}})
		require.Equal(t, 400, code)
		shows(t, answer, "a secret is needed")
		b.pressed("endpoint", url.Values{"url": {address}, "secret": {whsec}})
		b.create("o1")
		b.settle()
		require.Len(t, r.all(), 1)
		got := b.page("")
		shows(t, got, "1 of 1 delivery attempts, newest first. 0 events are not delivered yet.")
		shows(t, got, r.all()[0].event.ID)
		shows(t, got, `<mark class="succeeded">200</mark>`)
		shows(t, got, "http://me:xxxxx@")
		hides(t, got, "opensesame")
		hides(t, got, whsec)
		b.pressed("resend", url.Values{"id": {r.all()[0].event.ID}})
		b.settle()
		require.Len(t, r.all(), 2)
		shows(t, b.page(""), "2 of 2 delivery attempts")
		b.pressed("webhook-fault", url.Values{"kind": {WebhookReorder}})
		b.create("o2")
		shows(t, b.page(""), "1 events are not delivered yet")
		b.pressed("disarm-webhook", url.Values{"id": {"webhook_fault_1"}})
		b.settle()
		require.Len(t, r.all(), 3, "what a fault has kept back goes out")
		code, _ = b.adminDo("DELETE", "/webhook-faults/webhook_fault_1", "")
		require.Equal(t, 400, code)
	})

	t.Run("ListsWhatIsServed", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		got := b.page("")
		for _, op := range Operations() {
			shows(t, got, "<code>"+op.Method+" "+op.Pattern+"</code>")
		}
	})

	t.Run("EscapesWhatClientsSend", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		const evil = `<script>alert("x")</script>`
		b.create(evil, func(p *stripe.PaymentIntentParams) { p.Description = stripe.String(evil) })
		got := b.page("?find=" + url.QueryEscape(evil))
		hides(t, got, "<script>")
		require.GreaterOrEqual(t, strings.Count(html.UnescapeString(got), evil), 4,
			"order twice, key, description and filter")
		code, answer := b.press("clock", url.Values{"advance": {evil}})
		require.Equal(t, 400, code)
		hides(t, answer, "<script>")
	})

	t.Run("LoadsNothingFromElsewhere", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		body := b.page("")
		require.Empty(t, regexp.MustCompile(`style="|onclick|<script>|<style>|https?://[a-z]`).FindString(body))
		for _, m := range regexp.MustCompile(`(?:src|href)="(/page/[^"]+)"`).FindAllStringSubmatch(body, -1) {
			resp, err := http.Get(b.admin + m[1])
			require.NoError(t, err)
			require.Equal(t, 200, resp.StatusCode, m[1])
			require.NoError(t, resp.Body.Close())
		}
		for _, m := range regexp.MustCompile(`action="/page/([a-z-]+)"`).FindAllStringSubmatch(body, -1) {
			require.NotNil(t, buttons[m[1]].press, m[1])
		}
	})

	t.Run("RefusesOtherSites", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		host := strings.TrimPrefix(b.admin, "http://")
		day := url.Values{"advance": {"24h"}}
		before := b.sim.Now()
		for _, header := range [][]string{
			{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "https://evil.example"},
			{"Origin", "null"}, {"Origin", "http://evil.example", "Host", "evil.example"}, {"Host", "evil.example:12112"},
		} {
			code, _ := b.press("clock", day, header...)
			require.Contains(t, []int{403, 421}, code, header)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.admin+"/clock", strings.NewReader(`{"advance":"24h"}`))
		require.NoError(t, err)
		req.Header.Set("Origin", "https://evil.example") // a form there can send JSON as text/plain
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, 403, resp.StatusCode)
		require.Equal(t, before, b.sim.Now())
		for _, header := range [][]string{
			{"Sec-Fetch-Site", "same-origin"}, {"Origin", b.admin}, {}, {"Host", "stripesim:12112"},
			{"Host", "localhost:12112", "Origin", "http://localhost:12112"}, {"Host", "[::1]:12112"}, {"Host", host},
		} {
			code, answer := b.press("clock", day, header...)
			require.Equal(t, 303, code, "%v %s", header, alert.FindString(answer))
		}
		code, _ := b.adminDo("POST", "/clock", `{"advance":"1s"}`) // curl names no origin
		require.Equal(t, 200, code)
	})
}
