package browser_test

import (
	"net/http/httptest"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v76"
	"github.com/stripe/stripe-go/v76/client"

	"example.com/payonce/proof/internal/browser"
	"example.com/payonce/stripesim"
)

// The simulator's page as somebody sees it who tests a shop: what it pays appears by itself, buttons arm and advance
// without losing the filter, and nothing that a client sends is run.
func TestStripesim_InABrowser(t *testing.T) {
	t.Parallel()
	chromium := browser.Start(t)
	for name, size := range map[string]browser.Size{"Desktop": browser.Desktop, "Phone": browser.Phone} {
		t.Run(name, func(t *testing.T) {
			sim, err := stripesim.New(stripesim.Options{})
			require.NoError(t, err)
			api, admin := httptest.NewServer(sim.Handler()), httptest.NewServer(sim.AdminHandler())
			t.Cleanup(func() { require.NoError(t, sim.Close()); api.Close(); admin.Close() })

			p := chromium.Open(t, admin.URL+"/?kind=charge", size)
			p.Reads(t, "No effect matches.")
			p.FitsItsWindow(t)
			p.Screenshot(t, "stripesim-empty-"+name)
			p.Do(t, chromedp.SetValue(`#faults select[name=times]`, "2"), chromedp.Click(`#faults button[value=drop]`))
			p.Reads(t, "fault_1")
			p.Do(t, chromedp.Click(`#clock button[value="1h"]`))
			p.Reads(t, "1h0m0s ahead of this machine")
			// From now on the page is slow to become current. The buttons can be pressed meanwhile.
			browser.Evaluate[bool](t, p, `(() => { const now = fetch; fetch = async (to, how) => {
				if (!how) await new Promise((goOn) => setTimeout(goOn, 1000));
				return now(to, how);
			}; return true })()`)
			p.Do(t, chromedp.SendKeys(`#clock input`, "soon\r"))
			p.Reads(t, "the clock goes forward by a duration")
			p.Forgives(t, "400")
			p.Screenshot(t, "stripesim-error-"+name)
			p.Do(t, chromedp.Click(`#clock button[value="1m"]`))
			p.Reads(t, "1h1m0s ahead of this machine")
			require.Equal(t, "?kind=charge", browser.Evaluate[string](t, p, `location.search`), "the filter stays")
			require.False(t, browser.Evaluate[bool](t, p, `document.body.innerText.includes("goes forward by")`))

			stripeAPI := client.New(stripesim.DefaultKey, stripe.NewBackendsWithConfig(&stripe.BackendConfig{
				URL: stripe.String(api.URL), EnableTelemetry: stripe.Bool(false), LeveledLogger: &stripe.LeveledLogger{},
			}))
			for _, order := range []string{"order_1", "order_2"} {
				_, err = stripeAPI.PaymentIntents.New(&stripe.PaymentIntentParams{
					Amount: stripe.Int64(1250), Currency: stripe.String("eur"), Confirm: stripe.Bool(true),
					PaymentMethod: stripe.String("pm_card_visa"), PaymentMethodTypes: stripe.StringSlice([]string{"card"}),
					Description: stripe.String(`<script>alert("x")</script><img src="https://evil.example/x.png">`),
					Metadata:    map[string]string{"order_id": order},
				})
				require.NoError(t, err)
			}
			began := time.Now()
			p.Reads(t, "2 of 2, newest first") // by itself
			require.Less(t, time.Since(began), 30*time.Second)
			p.Do(t, chromedp.Click(`#faults button[value=fault_1]`))
			p.Reads(t, "No fault is armed")
			require.Empty(t, sim.FaultsFired())
			p.FitsItsWindow(t)
			p.Screenshot(t, "stripesim-"+name)
			p.Dark(t)
			p.Screenshot(t, "stripesim-"+name+"-dark")
		})
	}
}
