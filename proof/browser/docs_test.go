package browser_test

import (
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"example.com/payonce/proof/internal/browser"
	"example.com/payonce/testkit/world"
)

// The pages of the documentation as a reader sees them. Set SCREENSHOT_DIR to look at them, too.
func TestDocs_InABrowser(t *testing.T) {
	t.Parallel()
	chromium := browser.Start(t) // fails the test on any request to another host, and on errors
	api := world.New(t).Local(world.LocalOptions{})
	rendered := `document.querySelector("#reference h1") !== null && document.body.innerText.includes("Create an order")`

	for name, size := range map[string]browser.Size{"Desktop": browser.Desktop, "Phone": browser.Phone} {
		t.Run("Reference/"+name, func(t *testing.T) {
			p := chromium.Open(t, api.Base+"/docs", size)
			p.WaitFor(t, rendered)
			p.FitsItsWindow(t)
			require.NotContains(t, browser.Evaluate[string](t, p, `document.body.innerText`), "Client Libraries",
				"a panel without content")
			p.Screenshot(t, "reference-"+name)
			p.Dark(t)
			p.Do(t, chromedp.Reload()) // it asks for the colours once
			p.WaitFor(t, rendered)
			p.Screenshot(t, "reference-"+name+"-dark")
		})
		t.Run("Key/"+name, func(t *testing.T) { // the samples begin with this address, and with the key that is given
			p := chromium.Open(t, api.Base+"/docs", size)
			shows := func(text string) string {
				return `[...document.querySelectorAll("pre, code")].some(e => e.innerText.includes("` + text + `"))`
			}
			p.WaitFor(t, shows("API="+api.Base))
			p.Do(t, chromedp.SendKeys(`#key input`, "payonce_abc_1-23"), chromedp.Click(`#key button`))
			p.WaitFor(t, shows("API_KEY=payonce_abc_1-23"))
			p.FitsItsWindow(t)
			p.Screenshot(t, "key-"+name)
		})
		t.Run("Operation/"+name, func(t *testing.T) {
			p := chromium.Open(t, api.Base+"/docs#tag/payments/POST/v1/payments", size)
			p.WaitFor(t, `[...document.querySelectorAll("[id*='POST/v1/payments'] pre, [id*='POST/v1/payments'] `+
				`code")].some(e => e.innerText.includes("Idempotency-Key: pay-$ORDER"))`)
			p.FitsItsWindow(t)
			p.Screenshot(t, "operation-"+name)
		})
		t.Run("Read/"+name, func(t *testing.T) { // an operation whose sample is made from the document
			p := chromium.Open(t, api.Base+"/docs#tag/payments/GET/v1/payments/{id}", size)
			p.WaitFor(t, `[...document.querySelectorAll("[id*='GET/v1/payments/{id}'] pre, [id*='GET/v1/payments/{id}'] `+
				`code")].some(e => e.innerText.includes("curl"))`)
			p.Screenshot(t, "read-"+name)
		})
		for page, path := range map[string]string{"Policy": "/docs/idempotency", "Retries": "/docs/retries", "Cards": "/docs/test-cards",
			"Problem": "/problems/idempotency-key-in-flight", "Problems": "/problems"} {
			t.Run(page+"/"+name, func(t *testing.T) {
				p := chromium.Open(t, api.Base+path, size)
				p.WaitFor(t, `document.readyState === "complete"`)
				p.FitsItsWindow(t)
				require.NotEqual(t, "rgba(0, 0, 0, 0)",
					browser.Evaluate[string](t, p, `getComputedStyle(document.body).backgroundColor`),
					"the style sheet arrived")
				p.Screenshot(t, page+"-"+name)
				p.Dark(t)
				p.Screenshot(t, page+"-"+name+"-dark")
			})
		}
	}
}
