package demo_test

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/demo"
)

// secured is a card whose bank asks the customer.
const secured = "pm_card_threeDSecure2Required"

// TestConsole_SaysNothingSensitive presses every button, while card numbers,
// secrets and raw keys are sent on every way there is into the console and, as the
// same tenant, into the shop's API. Then it looks for them in what the console has
// shown, in the log of the processes and on the terminal. The console shows the
// keys of its own requests, as any client may; they are in no line of the log.
func TestConsole_SaysNothingSensitive(t *testing.T) {
	t.Parallel()
	d := demo.Start(t, nil, "-serve", "-run", "customer pays|3-D")
	console := d.Await(`Console +(http://\S+),`)[1]
	heard := recordEvents(t, console)
	d.Await(`Ctrl-C ends it`)
	said := d.Output()
	api, apiKey := demo.Find(t, said, `(?m)^  API A +(http://\S+)$`), demo.Find(t, said, `API key +(\S+)`)

	answers := sendTheConsoleWhatItDoesNotWant(t, console)
	shown := shopWhatIsSensitive(t, api, apiKey)
	require.Contains(t, shown, demo.OfAClientSecret, "the customer's browser was given none, so none is looked for")
	for _, atOnce := range [][]string{{"pay", "double", "fifty"}, {"capture", "release"}, {"lose", "webhook"}, {"kill"},
		{"pause"}, {"cut"}, {"again"}} {
		before := heard.endedCount()
		for _, name := range atOnce {
			res, err := http.Post(console+"/do/"+name, "", nil)
			require.NoError(t, err)
			require.NoError(t, res.Body.Close())
			require.Equal(t, http.StatusAccepted, res.StatusCode, name)
		}
		heard.await(t, fmt.Sprintf("the verdicts of %s", atOnce),
			func() bool { return heard.endedCount() == before+len(atOnce) })
	}
	shopWhatIsSensitive(t, api, apiKey)
	for _, what := range []string{"201 payment succeeded", "payment.succeeded", "is killed with SIGKILL",
		"503 unavailable", "the work is taken over", "takes 12.50 USD"} {
		require.Contains(t, heard.all(), what, "the stream was not heard")
	}

	places := map[string]string{
		"the events": heard.all(), "the console's answers": answers, "the log": processLog(t, d),
		"the terminal": d.Output(),
	}
	for _, page := range []string{"/", "/console.js", "/console.css", "/actions"} {
		places[page] = getPage(t, console+page)
	}
	require.Contains(t, places["the log"], `"key_hash"`, "the log was not found")
	ownKeys := regexp.MustCompile(`"key":"((?:pay|capture|release)-[0-9a-f]{6})"`)
	for _, own := range ownKeys.FindAllStringSubmatch(heard.all(), -1) {
		places["the history of key "+own[1]] = getPage(t, console+"/keys/"+own[1])
	}
	for place, text := range places {
		for what, secret := range demo.ForbiddenText {
			require.NotContains(t, text, secret, "%s is in %s", what, place)
		}
		if place == "the terminal" { // which shows them to the user who started it
			continue
		}
		require.NotContains(t, text, apiKey, "the API key is in %s", place)
		if dsn, err := url.Parse(demo.Find(t, said, `psql '(\S+)'`)); err == nil {
			if password, given := dsn.User.Password(); given {
				require.NotContains(t, text, password, "the database's password is in %s", place)
			}
		}
	}
	keys := regexp.MustCompile(`key ((?:pay|capture|release)-[0-9a-f]{6})`).FindAllStringSubmatch(heard.all(), -1)
	require.GreaterOrEqual(t, len(keys), 8, "the console's own keys were not found")
	for _, key := range keys {
		require.NotContains(t, places["the log"], key[1], "a raw key is in the log")
	}
}

// sendTheConsoleWhatItDoesNotWant puts everything everywhere a request has room
// for it, and returns what came back.
func sendTheConsoleWhatItDoesNotWant(t *testing.T, console string) string {
	t.Helper()
	var back strings.Builder
	send := func(method, path string, change func(*http.Request)) {
		req, err := http.NewRequestWithContext(t.Context(), method,
			console+path+"?card="+demo.CardInAnAddress+"&key="+demo.ForeignRawKey,
			strings.NewReader(`{"card":{"number":"`+demo.CardInABody+`"},"client_secret":"`+demo.SomeClientSecret+`"}`))
		require.NoError(t, err)
		for _, name := range []string{"Authorization", "Cookie", "Content-Type", "Idempotency-Key", "Last-Event-ID",
			"Referer", "User-Agent", "X-Forwarded-For"} {
			req.Header.Set(name, demo.CardInAHeader+" "+demo.StripeKeyPasted+" "+demo.ForeignRawKey+" "+demo.SomeClientSecret)
		}
		change(req)
		res, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer func() { _ = res.Body.Close() }()
		_, _ = fmt.Fprintln(&back, res.Status, res.Header)
		if res.Header.Get("Content-Type") == "text/event-stream" {
			return // it does not end; listenToAll reads it
		}
		text, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		_, _ = back.Write(text)
	}
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete,
		http.MethodOptions} {
		for _, path := range []string{"/", "/events", "/actions", "/do/" + demo.CardInAnAddress, "/do/" + demo.StripeKeyPasted,
			"/" + demo.SomeClientSecret, "/" + demo.CardInAnAddress} {
			send(method, path, func(*http.Request) {})
		}
	}
	send(http.MethodPost, "/do/pay",
		func(r *http.Request) { r.Header.Set("Origin", "http://"+demo.CardInAHeader+".example") })
	send(http.MethodGet, "/", func(r *http.Request) { r.Host = demo.CardInAnAddress + ".example" })
	return back.String()
}

// shopWhatIsSensitive has a customer be seen by the bank, and sends the API what
// it must refuse. It returns the responses.
func shopWhatIsSensitive(t *testing.T, api, apiKey string) (told string) {
	t.Helper()
	send := func(path, authorization, key, body string) (id string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, api+path, strings.NewReader(body))
		require.NoError(t, err)
		req.Header.Set("Authorization", authorization)
		req.Header.Set("Idempotency-Key", key+rand.Text()[:8])
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Traceparent", demo.CardInAHeader)
		res, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer func() { _ = res.Body.Close() }()
		text, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		told += string(text)
		var object struct{ ID string }
		_ = json.Unmarshal(text, &object) // a refusal has none
		return object.ID
	}
	ours := "Bearer " + apiKey
	basket := `"currency":"usd","items":[{"sku":"tea","quantity":1,"unit_amount":1250}]`
	order := send("/v1/orders", ours, demo.ForeignRawKey,
		`{`+basket+`,"customer_reference":"`+demo.CardInMetadata+`","metadata":{"card":"`+demo.CardInMetadata+`"}}`)
	require.Empty(t, order, told)
	order = send("/v1/orders", ours, demo.ForeignRawKey, `{`+basket+`}`)
	require.NotEmpty(t, order, told)
	send("/v1/payments", ours, demo.ForeignRawKey, fmt.Sprintf(`{"order_id":%q,"payment_method":%q}`, order, secured))
	for _, body := range []string{
		fmt.Sprintf(`{"order_id":%q,"payment_method":%q}`, order, demo.CardAsAMethod),
		fmt.Sprintf(`{"card":{"number":%q}}`, demo.CardInABody), demo.CardInABody, `{"order_id":` + demo.CardInABody + `}`,
	} {
		send("/v1/payments", ours, demo.ForeignRawKey, body)
		send("/v1/checkouts", ours, demo.CardInAHeader, body)
	}
	send("/v1/orders", "Bearer "+demo.StripeKeyPasted, demo.ForeignRawKey, `{`+basket+`}`)
	send("/v1/payments/"+demo.CardInAnAddress+"/cancel", ours, demo.ForeignRawKey, `{}`)
	send("/v1/webhooks/stripe", ours, demo.ForeignRawKey,
		`{"id":"evt_1","client_secret":"`+demo.SomeClientSecret+`","card":"`+demo.CardInABody+`"}`)
	return told
}

// eventRecorder keeps everything that a stream of events sends.
type eventRecorder struct {
	mu    sync.Mutex
	text  strings.Builder
	ended map[int64]bool // by run: whether it has ended
	news  chan struct{}  // closed and replaced with every result
}

func recordEvents(t *testing.T, console string) *eventRecorder {
	t.Helper()
	e := &eventRecorder{ended: map[int64]bool{}, news: make(chan struct{})}
	lines := demo.Events(t, console, "")
	go func() {
		for line := range lines {
			e.record(line)
		}
	}()
	return e
}

func (e *eventRecorder) record(line string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.text.WriteString(line + "\n")
	var said struct {
		Run  int64
		Kind string
	}
	if data, ok := strings.CutPrefix(line, "data: "); ok && json.Unmarshal([]byte(data),
		&said) == nil && said.Kind == "result" {
		e.ended[said.Run] = true
		close(e.news)
		e.news = make(chan struct{})
	}
}

func (e *eventRecorder) all() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.text.String()
}

func (e *eventRecorder) endedCount() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.ended)
}

func (e *eventRecorder) await(t *testing.T, what string, so func() bool) {
	t.Helper()
	timeout := time.After(time.Minute)
	for {
		e.mu.Lock()
		news := e.news
		e.mu.Unlock()
		if so() {
			return
		}
		select {
		case <-news:
		case <-timeout:
			require.FailNow(t, what+" never come", e.all())
		}
	}
}

// processLog is what the processes of a demo have logged so far.
func processLog(t *testing.T, d *demo.Demo) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(d.Tmp, "payonce-demo-*.log"))
	require.NoError(t, err)
	require.Len(t, names, 1)
	text, err := os.ReadFile(names[0])
	require.NoError(t, err)
	return string(text)
}

func getPage(t *testing.T, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return string(body)
}
