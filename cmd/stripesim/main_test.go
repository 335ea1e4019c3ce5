package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func env(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

// start runs the command on free ports and reads its one line.
func start(t *testing.T, args ...string) (api, admin string, stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := run(
			ctx,
			append([]string{"-addr", "127.0.0.1:0", "-admin", "127.0.0.1:0"}, args...),
			env(),
			w, io.Discard,
		)
		_ = w.CloseWithError(err)
		ended <- err
	}()
	line, err := bufio.NewReader(r).ReadString('\n')
	require.NoError(t, err)
	m := regexp.MustCompile(`^stripesim: Stripe at (https?://\S+), admin at (http://\S+)\n$`).FindStringSubmatch(line)
	require.NotNil(t, m, line)
	stop = func() error { cancel(); return <-ended }
	return m[1], m[2], stop
}

func request(t *testing.T, method, url, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	require.NoError(t, err)
	req.SetBasicAuth("sk_test_payonce", "")
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(data)
}

func TestRun(t *testing.T) {
	t.Parallel()

	t.Run("ServesUntilStoppedAndKeepsItsState", func(t *testing.T) {
		t.Parallel()
		store := filepath.Join(t.TempDir(), "journal")
		api, admin, stop := start(t, "-store", store, "-latency", "1ms")
		form := "amount=1000&currency=usd&payment_method_types[0]=card&confirm=true&payment_method=pm_card_visa"
		code, body := request(t, "POST", api+"/v1/payment_intents", form)
		require.Equal(t, 200, code, body)
		code, _ = request(t, "GET", api+"/effects", "")
		require.Equal(t, 404, code, "the admin port's paths are not on Stripe's")
		require.NoError(
			t,
			healthcheck(t.Context(), []string{"-admin", strings.TrimPrefix(admin, "http://")}, env(), io.Discard),
		)
		require.NoError(t, stop())
		require.Error(
			t,
			healthcheck(t.Context(), []string{"-admin", strings.TrimPrefix(admin, "http://")}, env(), io.Discard),
		)

		_, admin, stop = start(t, "-store", store)
		_, body = request(t, "GET", admin+"/charges", "")
		require.JSONEq(t, `{"count":1,"order_id":""}`, body)
		require.NoError(t, stop())
	})

	t.Run("PlaysTheNewerReleaseRegime", func(t *testing.T) {
		t.Parallel()
		for regime, refunded := range map[string]string{"refunds": `"amount_refunded":1000`, "basil": `"amount_refunded":0`} {
			api, _, stop := start(t, "-release-regime", regime)
			form := "amount=1000&currency=usd&payment_method_types[0]=card&confirm=true&payment_method=pm_card_visa" +
				"&capture_method=manual"
			code, body := request(t, "POST", api+"/v1/payment_intents", form)
			require.Equal(t, 200, code, body)
			id := regexp.MustCompile(`pi_\w{24}`).FindString(body)
			code, body = request(t, "POST", api+"/v1/payment_intents/"+id+"/cancel", "expand[0]=latest_charge")
			require.Equal(t, 200, code, body)
			require.Contains(t, body, refunded, regime)
			require.NoError(t, stop())
		}
	})

	t.Run("HasTLS", func(t *testing.T) {
		t.Parallel()
		api, admin, stop := start(t, "-tls")
		code, ca := request(t, "GET", admin+"/ca.pem", "")
		require.Equal(t, 200, code, ca)
		trusted := x509.NewCertPool()
		require.True(t, trusted.AppendCertsFromPEM([]byte(ca)))
		client := &http.Client{Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: trusted}, ForceAttemptHTTP2: true,
		}}
		resp, err := client.Get(api + "/v1/payment_intents")
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		client.CloseIdleConnections()
		require.Equal(t, 2, resp.ProtoMajor)
		require.Equal(t, http.StatusUnauthorized, resp.StatusCode)
		require.NoError(t, stop())
	})

	t.Run("StopsWhileARequestIsHeld", func(t *testing.T) {
		t.Parallel()
		api, admin, stop := start(t)
		code, body := request(t, "POST", admin+"/holds", `{"op":"intent.create","point":"before_effect"}`)
		require.Equal(t, 200, code, body)
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			url := strings.Replace(api, "http://", "http://sk_test_payonce:@", 1) + "/v1/payment_intents"
			resp, err := http.Post(
				url, "application/x-www-form-urlencoded",
				strings.NewReader("amount=1000&currency=usd"),
			)
			if err == nil {
				_ = resp.Body.Close()
			}
		}()
		_, body = request(t, "GET", admin+"/holds/hold_1?wait=5s", "")
		require.Contains(t, body, "intent.create")
		began := time.Now()
		require.NoError(t, stop())
		require.Less(t, time.Since(began), 5*time.Second)
		<-answered
	})

	t.Run("NamesTheVariableThatIsWrong", func(t *testing.T) {
		t.Parallel()
		for name, e := range map[string]func(string) string{
			"STRIPESIM_LATENCY":        env("STRIPESIM_LATENCY", "soon"),
			"STRIPESIM_TLS":            env("STRIPESIM_TLS", "perhaps"),
			"STRIPESIM_SEED":           env("STRIPESIM_SEED", "random"),
			"STRIPESIM_WEBHOOK_SECRET": env("STRIPESIM_WEBHOOK_URL", "http://127.0.0.1:1/"),
		} {
			err := run(t.Context(), nil, e, io.Discard, io.Discard)
			require.ErrorContains(t, err, name)
			require.NotContains(t, err.Error(), "\n")
		}
		require.Error(t, run(t.Context(), []string{"-no-such-flag"}, env(), io.Discard, io.Discard))
		require.Error(t, run(t.Context(), []string{"stray"}, env(), io.Discard, io.Discard))
		require.ErrorContains(t, run(t.Context(), []string{"-release-regime", "acacia"}, env(), io.Discard, io.Discard),
			"there are refunds and basil")
		require.ErrorContains(t, run(t.Context(), nil, env("STRIPESIM_RELEASE_REGIME", "acacia"), io.Discard, io.Discard),
			"there are refunds and basil")
		var help bytes.Buffer
		require.NoError(t, run(t.Context(), []string{"-h"}, env(), io.Discard, &help))
		require.Contains(t, help.String(), "-webhook-url")
	})
}
