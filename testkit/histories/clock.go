package histories

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/world"
)

// clock lets time pass at Stripe and in a database together. The simulator's clock goes on, and the rows become older. A
// proxy in front of the simulator shows its times as they are by the database's clock.
type clock struct {
	passed atomic.Int64 // in seconds
}

// newClock puts the clock between a world and its Stripe.
func newClock(t testing.TB, w *world.World) *clock {
	t.Helper()
	c := &clock{}
	to, err := url.Parse(w.StripeURL)
	require.NoError(t, err)
	transport := &http.Transport{DisableKeepAlives: true} // no request is sent twice
	server := httptest.NewServer(&httputil.ReverseProxy{
		Transport: transport, Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.URL.RawQuery = c.later(r.In.URL.Query()).Encode()
		},
		ModifyResponse: c.earlier,
		ErrorHandler:   func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	})
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	w.StripeURL = server.URL
	return c
}

// later are the parameters of a list by Stripe's clock.
func (c *clock) later(q url.Values) url.Values {
	for name, values := range q {
		if at, err := strconv.ParseInt(values[0], 10, 64); err == nil && strings.HasPrefix(name, "created[") {
			q.Set(name, strconv.FormatInt(at+c.passed.Load(), 10))
		}
	}
	return q
}

var times = regexp.MustCompile(`"(created|canceled_at|capture_before|due_by|available_on)": ?\d{10}\b`)

// earlier shows Stripe's times by the database's clock.
func (c *clock) earlier(r *http.Response) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	body = times.ReplaceAllFunc(body, func(found []byte) []byte {
		name, at := found[:len(found)-10], string(found[len(found)-10:])
		seconds, _ := strconv.ParseInt(at, 10, 64)
		return strconv.AppendInt(bytes.Clone(name), seconds-c.passed.Load(), 10)
	})
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	r.Header.Set("Content-Length", strconv.Itoa(len(body)))
	return nil
}

// pass lets time pass at Stripe and in the world's database.
func (c *clock) pass(w *world.World, d time.Duration) {
	c.passed.Add(int64(d.Seconds()))
	w.Sim.Advance(d)
	older(w, d)
}

// older makes everything in a database so much older. The ids keep the time at which they were made.
func older(w *world.World, d time.Duration) {
	w.T.Helper()
	w.Unguarded(fmt.Sprintf(`DO $$
		DECLARE r record;
		BEGIN
			FOR r IN SELECT c.oid::regclass AS name, string_agg(format('%%1$I = CASE WHEN %%1$I > ''2001-01-01'' AND %%1$I < ''infinity''
					THEN %%1$I - interval ''%d s'' ELSE %%1$I END', a.attname), ', ') AS sets
				FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
				WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace AND a.atttypid = 'timestamptz'::regtype
					AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
				GROUP BY c.oid
			LOOP
				EXECUTE format('UPDATE %%s SET %%s', r.name, r.sets);
			END LOOP;
		END $$`, int64(d.Seconds())))
}
