// Package browser looks at our pages in a real Chromium that can reach
// nothing but this machine. A page that asks any other host for something,
// writes an error to the console or throws fails the test that opened it: our
// pages must work on a night when the rest of the network does not.
//
// Without Chromium tests are skipped, with the reason; in CI (CI=true) they fail.
package browser

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"example.com/payonce/proof/internal/inventory"
)

const patience = 60 * time.Second // for one step; a busy machine takes seconds to run a megabyte of script

// The window sizes that pages are looked at in.
var (
	Desktop = Size{1280, 900}
	Phone   = Size{390, 844}
)

// Size of a window, in CSS pixels.
type Size struct{ Width, Height int64 }

// Browser is one Chromium. It ends with its test.
type Browser struct{ ctx context.Context }

// Start starts a browser, or skips the test and says why.
func Start(tb testing.TB) *Browser {
	tb.Helper()
	binary, err := find()
	if err != nil {
		const remedy = "no Chromium on this machine; install the package chromium, or set CHROMIUM to its path"
		if os.Getenv("CI") == "true" {
			tb.Fatalf("%s: %v", remedy, err)
		}
		tb.Skipf("skipped: %s: %v", remedy, err)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(binary),
		chromedp.UserDataDir(tb.TempDir()),
		// Every name but this machine's is unknown, and every other address is
		// behind a proxy that does not exist.
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND , EXCLUDE 127.0.0.1 , EXCLUDE localhost"),
		chromedp.Flag("proxy-server", "http://127.0.0.1:9"),
		chromedp.Flag("proxy-bypass-list", "127.0.0.1;localhost"),
	)
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium refuses to start as root with its sandbox.
	}
	ctx, stop := chromedp.NewExecAllocator(context.Background(), options...)
	tb.Cleanup(stop)
	ctx, closeBrowser := chromedp.NewContext(ctx)
	tb.Cleanup(closeBrowser)
	if err := chromedp.Do(ctx, chromedp.Navigate("about:blank")); err != nil {
		tb.Fatalf("start %s: %v", binary, err)
	}
	return &Browser{ctx: ctx}
}

func find() (string, error) {
	if path := os.Getenv("CHROMIUM"); path != "" {
		return exec.LookPath(path)
	}
	var err error
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		var path string
		if path, err = exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", err
}

// Page is one tab, and what was wrong with what it showed.
type Page struct {
	ctx context.Context

	mu         sync.Mutex
	complaints []string
}

// Open opens an address in a window of the size. When the test ends, whatever
// the page did wrong until then fails it.
func (b *Browser) Open(tb testing.TB, address string, size Size) *Page {
	tb.Helper()
	p := b.tab(tb, size)
	p.Do(tb, chromedp.Navigate(address))
	tb.Cleanup(func() {
		for _, complaint := range p.Complaints() {
			tb.Errorf("%s: %s", address, complaint)
		}
	})
	return p
}

func (b *Browser) tab(tb testing.TB, size Size) *Page {
	tb.Helper()
	ctx, closeTab := chromedp.NewContext(b.ctx)
	tb.Cleanup(closeTab)
	p := &Page{ctx: ctx}
	if err := chromedp.Listen(ctx, p.watch); err != nil {
		tb.Fatalf("open a tab: %v", err)
	}
	p.Do(tb, chromedp.EmulateViewport(size.Width, size.Height))
	return p
}

// Complaints are the requests to other hosts, errors on the console and
// exceptions so far.
func (p *Page) Complaints() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.complaints...)
}

// Forgives takes back the one complaint that a test has caused on purpose, and
// fails the test if there was none.
func (p *Page) Forgives(tb testing.TB, complaint string) {
	tb.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, c := range p.complaints {
		if strings.Contains(c, complaint) {
			p.complaints = append(p.complaints[:i], p.complaints[i+1:]...)
			return
		}
	}
	tb.Errorf("no complaint about %q, only: %q", complaint, p.complaints)
}

func (p *Page) watch(event any) {
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		if !local(e.Request.URL) {
			p.complain("asked another host: %s", e.Request.URL)
		}
	case *network.EventWebSocketCreated:
		if !local(e.URL) {
			p.complain("asked another host: %s", e.URL)
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError {
			p.complain("error in the log: %s %s", e.Entry.Text, e.Entry.URL)
		}
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError {
			var said []string
			for _, arg := range e.Args {
				said = append(said, string(arg.Value)+arg.Description)
			}
			p.complain("error on the console: %s", strings.Join(said, " "))
		}
	case *runtime.EventExceptionThrown:
		what := e.ExceptionDetails.Text
		if e.ExceptionDetails.Exception != nil {
			what += " " + e.ExceptionDetails.Exception.Description
		}
		p.complain("uncaught: %s", what)
	}
}

func (p *Page) complain(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.complaints = append(p.complaints, fmt.Sprintf(format, args...))
}

// local reports whether an address is on this machine, or no address at all.
func local(address string) bool {
	u, err := url.Parse(address)
	if err != nil {
		return false
	}
	switch u.Scheme {
	case "data", "blob", "about":
		return true
	case "http", "https", "ws", "wss":
		ip, err := netip.ParseAddr(u.Hostname())
		return u.Hostname() == "localhost" || err == nil && ip.IsLoopback()
	}
	return false
}

// Do takes steps, or fails the test.
func (p *Page) Do(tb testing.TB, steps ...chromedp.Action[chromedp.Void]) {
	tb.Helper()
	if err := chromedp.Do(p.ctx, p.limited(steps)); err != nil {
		tb.Fatalf("%v; until then: %q", err, p.Complaints())
	}
}

// limited gives all steps together their time. The limit must not be on the
// context of the tab: its end would close the tab.
func (p *Page) limited(steps []chromedp.Action[chromedp.Void]) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		for _, step := range steps {
			if _, err := step(ctx, t); err != nil {
				return err
			}
		}
		return nil
	})
}

// WaitFor waits until a JavaScript expression is true.
func (p *Page) WaitFor(tb testing.TB, expression string) {
	tb.Helper()
	p.Do(tb, chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := chromedp.Poll[bool](expression, chromedp.WithPollingTimeout(patience))(ctx, t)
		if err != nil {
			return fmt.Errorf("wait for %s: %w", expression, err)
		}
		return nil
	}))
}

// Reads waits until a sentence can be read, through whatever pages a click leads:
// while one is left for the next there is nothing to evaluate in, and that is no
// failure.
func (p *Page) Reads(tb testing.TB, sentence string) {
	tb.Helper()
	var last string
	for end := time.Now().Add(patience / 3); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		_ = chromedp.Do(p.ctx,
			p.limited([]chromedp.Action[chromedp.Void]{chromedp.Func(func(ctx context.Context,
				t *chromedp.Target) error {
				text, err := chromedp.Evaluate[string](`document.readyState === "complete" ? document.body.innerText : ""`)(ctx, t)
				if err == nil {
					last = strings.Join(strings.Fields(text), " ")
				}
				return err
			})}))
		if strings.Contains(last, sentence) {
			return
		}
	}
	tb.Fatalf("the page does not say %q; it says %q; until then: %q", sentence, last, p.Complaints())
}

// Evaluate is the value of a JavaScript expression.
func Evaluate[T any](tb testing.TB, p *Page, expression string) T {
	tb.Helper()
	var value T
	p.Do(tb, chromedp.Func(func(ctx context.Context, t *chromedp.Target) (err error) {
		value, err = chromedp.Evaluate[T](expression)(ctx, t)
		return err
	}))
	return value
}

// Dark asks for the dark colours.
func (p *Page) Dark(tb testing.TB) {
	tb.Helper()
	p.Do(tb, chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}},
		})
		return err
	}))
}

// FitsItsWindow fails the test if the page is wider than its window, which on a
// phone means scrolling sideways to read.
func (p *Page) FitsItsWindow(tb testing.TB) {
	tb.Helper()
	if excess := Evaluate[float64](tb, p, "document.documentElement.scrollWidth - window.innerWidth"); excess > 0 {
		tb.Errorf("the page is %v pixels wider than its window", excess)
	}
}

// Screenshot writes what the window shows to SCREENSHOT_DIR/name.png, if that
// is set: pages are to be looked at, not only measured.
func (p *Page) Screenshot(tb testing.TB, name string) {
	tb.Helper()
	dir := inventory.Path(os.Getenv("SCREENSHOT_DIR"))
	if dir == "" {
		return
	}
	var image []byte
	p.Do(tb, chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		shot, err := cdp.Call(ctx, t, page.CaptureScreenshot, page.CaptureScreenshotParams{})
		image = shot.Data
		return err
	}))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), image, 0o644); err != nil {
		tb.Fatal(err)
	}
}
