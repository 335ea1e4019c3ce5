package browser

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// A watcher that sees nothing would make every test of a page pass.
func TestPage_Complaints(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		io.WriteString(w, map[string]string{
			"/good":    `<p>good</p><img src="data:image/gif;base64,R0lGODlhAQABAAAAACwAAAAAAQABAAA=">`,
			"/image":   `<img src="http://images.example/a.png">`,
			"/address": `<script>fetch("http://192.0.2.1/").catch(() => {})</script>`,
			"/console": `<script>console.error("it broke")</script>`,
			"/throws":  `<script>nothing.at.all()</script>`,
		}[r.URL.Path])
	}))
	t.Cleanup(server.Close)
	browser := Start(t)
	for path, want := range map[string]string{
		"/good":    "",
		"/image":   "asked another host: http://images.example/a.png",
		"/address": "asked another host: http://192.0.2.1/",
		"/console": "it broke",
		"/throws":  "uncaught: ",
	} {
		p := browser.tab(t, Phone)
		p.Do(t, chromedp.Navigate(server.URL+path))
		p.WaitFor(t, `document.readyState === "complete"`)
		if want == "" {
			require.Empty(t, p.Complaints(), path)
			continue
		}
		require.Contains(t, strings.Join(p.Complaints(), "\n"), want, path)
	}
}
