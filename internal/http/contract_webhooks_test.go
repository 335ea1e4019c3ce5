package http_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	httpapi "example.com/payonce/internal/http"
)

const newEndpoint = `{"url":"http://127.0.0.1:9/hooks","events":["order.paid"]}`

// contractOfWebhookEndpoints is the part of TestContract that is about webhook endpoints.
func contractOfWebhookEndpoints(t *testing.T, b *bundle) {
	const all = "/v1/webhook-endpoints"
	made := b.post(all, "endpoint", newEndpoint)
	require.Equal(t, http.StatusCreated, made.status, made.body)
	one := all + "/" + made.id()
	require.Equal(t, one, made.header.Get("Location"))
	require.Equal(t, "enabled", made.object["status"])
	require.Equal(t, []any{"order.paid"}, made.object["events"])
	require.Regexp(t, `^whsec_[A-Za-z0-9+/]{43}=$`, made.object["secret"])
	replay := b.post(all, "endpoint", newEndpoint)
	require.Equal(t, made.body, replay.body, "with the secret")
	require.Equal(t, "true", replay.header.Get("Idempotent-Replayed"))

	for body, pointer := range map[string]string{
		`{}`: "/url", `{"url":""}`: "/url", `{"url":"ftp://a.example"}`: "/url", `{"url":"http://a:b@c.example"}`: "/url",
		`{"url":"HTTPS://a.example"}`: "/url", `{"url":"https://a.example:70000"}`: "/url",
		`{"url":"http://127.0.0.1","events":[]}`:                                      "/events",
		`{"url":"http://127.0.0.1","events":["order.eaten"]}`:                         "/events/0",
		`{"url":"http://127.0.0.1","events":["order.paid","*"]}`:                      "/events/1",
		`{"url":"http://127.0.0.1","events":["order.paid","order.paid"]}`:             "/events/1",
		`{"url":"http://127.0.0.1","description":"` + strings.Repeat("d", 201) + `"}`: "/description",
	} {
		refused := b.post(all, "k", body)
		require.Equal(t, "invalid-request", refused.code(), body)
		require.Equal(t, pointer, refused.object["errors"].([]any)[0].(map[string]any)["pointer"], body)
	}
	require.Equal(t, []any{"*"}, b.post(all, "endpoint-all", `{"url":"http://127.0.0.1:9"}`).object["events"])

	shown := b.get(one)
	require.Equal(t, http.StatusOK, shown.status)
	require.NotContains(t, shown.body, "secret")
	require.NotContains(t, b.get(all).body, "secret")
	require.Len(t, b.get(all + "?limit=1").object["data"], 1)
	require.Equal(t, true, b.get(all + "?limit=1").object["has_more"])
	last := b.get(all + "?limit=1").object["data"].([]any)[0].(map[string]any)["id"].(string)
	require.Equal(t, made.id(), b.get(all + "?starting_after=" + last).object["data"].([]any)[0].(map[string]any)["id"])

	disabled := b.post(one+"/disable", "disable", "")
	require.Equal(t, "disabled", disabled.object["status"], disabled.body)
	require.Equal(t, "disabled", b.post(one+"/disable", "disable-2", "{}").object["status"])
	require.Equal(t, "enabled", b.post(one+"/enable", "enable", "").object["status"])
	rotated := b.post(one+"/rotate-secret", "rotate", "")
	require.NotEqual(t, made.object["secret"], rotated.object["secret"])
	require.Equal(t, rotated.body, b.post(one+"/rotate-secret", "rotate", "").body)
	require.Equal(t, 2, b.count(`SELECT count(*) FROM webhook_secrets WHERE endpoint_id = '`+made.id()+`'`))
	b.post(one+"/rotate-secret", "rotate-2", "")
	require.Equal(t, 2, b.count(`SELECT count(*) FROM webhook_secrets WHERE endpoint_id = '`+made.id()+`'`),
		"the oldest is gone")

	tested := b.post(one+"/test", "test", "")
	require.Equal(t, http.StatusAccepted, tested.status, tested.body)
	require.Equal(t, "ping", tested.object["type"])
	require.Equal(t, "pending", tested.object["status"])
	retry := "/v1/webhook-deliveries/" + tested.id() + "/retry"
	require.Equal(t, http.StatusAccepted, b.post(retry, "retry", "").status)
	require.Equal(t, http.StatusAccepted, b.post(one+"/test", "test", "").status, "it has not been tried")
	require.Equal(t, 1, b.count(`SELECT count(*) FROM webhook_deliveries`))
	b.exec(`UPDATE webhook_deliveries SET attempts = 1, leased_until = clock_timestamp() + interval '1 minute',
		lease_token = lease_token + 1, last_attempt_at = clock_timestamp()`)
	require.Equal(t, http.StatusAccepted, b.post(one+"/test", "test", "").status, "it is being tried")
	b.exec(`UPDATE webhook_deliveries SET attempts = 1, status = 'delivered', ended_at = clock_timestamp(), http_status = 204,
		last_attempt_at = clock_timestamp()`)
	for path, key := range map[string]string{one + "/test": "test", retry: "retry"} {
		ended := b.post(path, key, "")
		require.Equal(t, http.StatusOK, ended.status, path)
		require.Equal(t, "delivered", ended.object["status"])
		require.Equal(t, ended.body, b.post(path, key, "").body)
	}
	again := b.post(retry, "retry-2", "")
	require.Equal(t, http.StatusAccepted, again.status)
	require.Equal(t, "pending", again.object["status"])
	b.post(one+"/disable", "disable-3", "")
	b.exec(`UPDATE webhook_deliveries SET status = 'skipped', ended_at = clock_timestamp()`)
	require.Equal(t, "skipped", b.post(retry, "retry-3", "").object["status"], "its endpoint is disabled")

	deliveries := one + "/deliveries"
	require.Len(t, b.get(deliveries).object["data"], 1)
	require.Len(t, b.get(deliveries + "?status=skipped").object["data"], 1)
	require.Empty(t, b.get(deliveries + "?status=failed").object["data"])
	require.Equal(t, "invalid-request", b.get(deliveries+"?status=lost").code())
	require.Equal(t, "invalid-request", b.get(deliveries+"?starting_after=nonsense").code())
	require.Empty(t, b.get(deliveries + "?starting_after=" + tested.id()).object["data"])
	other := b.get(all).object["data"].([]any)[0].(map[string]any)["id"].(string)
	require.NotEqual(t, made.id(), other)
	require.Equal(t, "invalid-request", b.get(all+"/"+other+"/deliveries?starting_after="+tested.id()).code())

	const none = "_00000000000000000000000000"
	posts := map[string]string{retry: "", "/v1/webhook-deliveries/whd" + none + "/retry": "x"}
	for _, action := range []string{"/disable", "/enable", "/rotate-secret", "/test"} {
		posts[one+action], posts[all+"/whe"+none+action], posts[all+"/nonsense"+action] = "", "x", "x"
	}
	for path, missing := range posts {
		if missing != "" {
			require.Equal(t, "not-found", b.post(path, "k", "").code(), path)
			continue
		}
		refusedBeforeTheKey(t, b, path, "{}")
	}
	refusedBeforeTheKey(t, b, all, newEndpoint)
	require.Equal(t, tested.id(), b.get("/v1/webhook-deliveries/"+tested.id()).id())
	for _, path := range []string{all + "/whe" + none, all + "/whe" + none + "/deliveries",
		"/v1/webhook-deliveries/whd" + none} {
		require.Equal(t, "not-found", b.get(path).code())
		require.Equal(t, "unauthenticated", b.send("GET", path, "", "Authorization", "").code())
	}
	require.Equal(t, "unauthenticated", b.send("GET", all, "", "Authorization", "").code())
	require.Equal(t, "invalid-request", b.get(all+"?limit=0").code())

	for n := 3; n <= 10; n++ {
		require.Equal(t, http.StatusCreated, b.post(all, fmt.Sprint("endpoint-", n), newEndpoint).status)
	}
	full := b.post(all, "endpoint-11", newEndpoint)
	require.Equal(t, "too-many-endpoints", full.code())
	require.Equal(t, full.body, b.post(all, "endpoint-11", newEndpoint).body)

	slow := setup(t, func(o *httpapi.Options) { o.RateLimit = 0.001 })
	slow.post(all, "first", newEndpoint)
	for path := range posts {
		require.Equal(t, "rate-limited", slow.post(path, "limited"+path, "").code(), path)
	}
	require.Equal(t, "rate-limited", slow.post(all, "limited", newEndpoint).code())

	b.exec(`UPDATE idempotency_keys SET answer_version = NULL, answer_status = NULL, answer_headers = NULL,
		answer_body = NULL, answer_dropped_at = clock_timestamp() WHERE finished_at IS NOT NULL AND answer_dropped_at IS NULL`)
	expired := b.post(all, "endpoint", newEndpoint)
	require.Equal(t, "idempotency-key-expired", expired.code())
	require.Equal(t, one, expired.object["resource"].(map[string]any)["href"])
	for path, key := range map[string]string{
		one + "/disable": "disable", one + "/enable": "enable", one + "/rotate-secret": "rotate", one + "/test": "test",
		retry: "retry",
	} {
		require.Equal(t, "idempotency-key-expired", b.post(path, key, "").code(), path)
	}
}

// TestWebhookEndpointsMustBePublic: without the setting for development, what is private is refused when it is made.
func TestWebhookEndpointsMustBePublic(t *testing.T) {
	t.Parallel()
	b := setup(t, publicEndpointsOnly)
	for _, url := range []string{
		"http://shop.example", "https://127.0.0.1", "https://localhost", "https://10.1.2.3", "https://[::1]", "https://0x7f.1",
		"https://169.254.169.254/latest/meta-data",
	} {
		refused := b.post("/v1/webhook-endpoints", "k", `{"url":"`+url+`"}`)
		require.Equal(t, "invalid-request", refused.code(), url)
		require.Equal(t, "/url", refused.object["errors"].([]any)[0].(map[string]any)["pointer"], url)
	}
	require.Equal(t, http.StatusCreated, b.post("/v1/webhook-endpoints", "k", `{"url":"https://93.184.216.34/"}`).status,
		"the key was not used")
}

func (b *bundle) count(sql string) (n int) {
	b.t.Helper()
	require.NoError(b.t, b.pool.Raw().QueryRow(b.t.Context(), sql).Scan(&n))
	return n
}

// TestLongFiltersAreRefusedShortly: each type that does not exist is answered with all that do, so there must not be
// thousands of them in a request.
func TestLongFiltersAreRefusedShortly(t *testing.T) {
	t.Parallel()
	b := setup(t)
	events := strings.Repeat(`"a",`, 16_000)
	refused := b.post("/v1/webhook-endpoints", "k", `{"url":"http://127.0.0.1","events":[`+strings.TrimSuffix(events, ",")+`]}`)
	require.Equal(t, "invalid-request", refused.code())
	require.Equal(t, "/events", refused.object["errors"].([]any)[0].(map[string]any)["pointer"])
	require.Less(t, len(refused.body), 2000)
}

// TestDeliveriesAreListedNewestFirst: a test event is listed by its time among the others, though a key made it.
func TestDeliveriesAreListedNewestFirst(t *testing.T) {
	t.Parallel()
	b := setup(t)
	endpoint := "/v1/webhook-endpoints/" + b.post("/v1/webhook-endpoints", "endpoint", `{"url":"http://127.0.0.1:9"}`).id()
	var newest []string
	for i := range 8 {
		newest = append([]string{b.post(endpoint+"/test", fmt.Sprint("test-", i), "").id()}, newest...)
	}
	var listed []string
	for _, d := range b.get(endpoint + "/deliveries").object["data"].([]any) {
		listed = append(listed, d.(map[string]any)["id"].(string))
	}
	require.Equal(t, newest, listed)
}

// TestWebhooksOfAnotherTenant: another tenant's endpoints and deliveries do not exist, whatever is asked of them.
func TestWebhooksOfAnotherTenant(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const all = "/v1/webhook-endpoints"
	mine := b.post(all, "mine", newEndpoint)
	delivery := b.post(all+"/"+mine.id()+"/test", "test", "")
	require.Equal(t, http.StatusAccepted, delivery.status)
	theirs := *b
	theirs.apiKey = b.newTenant("other")
	own := theirs.post(all, "own", newEndpoint)
	one := all + "/" + mine.id()
	for _, path := range []string{one, one + "/deliveries", "/v1/webhook-deliveries/" + delivery.id()} {
		require.Equal(t, "not-found", theirs.get(path).code(), path)
	}
	for i, path := range []string{one + "/disable", one + "/enable", one + "/rotate-secret", one + "/test",
		"/v1/webhook-deliveries/" + delivery.id() + "/retry"} {
		require.Equal(t, "not-found", theirs.post(path, fmt.Sprint("k-", i), "").code(), path)
		require.Equal(t, "not-found", theirs.post(path, "mine", "").code(), "and the key is another")
	}
	require.Equal(t, "invalid-request", theirs.get(all+"?starting_after="+mine.id()).code())
	require.Equal(t, "invalid-request", theirs.get(all+"/"+own.id()+"/deliveries?starting_after="+delivery.id()).code())
	require.Len(t, theirs.get(all).object["data"], 1)
	require.Equal(t, "enabled", b.get(one).object["status"])
	require.Equal(t, 1, b.count(`SELECT count(*) FROM webhook_secrets WHERE endpoint_id = '`+mine.id()+`'`))
	require.NotContains(t, b.get("/v1/idempotency-keys/mine").body, "whsec_") // part: history
}

// TestEndpointsAtOnce: ten of twenty that are made at once exist, each with a secret; rotations at once leave two secrets.
func TestEndpointsAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const all = "/v1/webhook-endpoints"
	atOnce := func(n int, path, body string) (statuses map[int]int) {
		statuses = map[int]int{}
		var mu sync.Mutex
		var posts sync.WaitGroup
		for i := range n {
			posts.Go(func() {
				a, err := b.try(t.Context(), "POST", path, body, "Idempotency-Key", fmt.Sprint(path, i))
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					statuses[0]++
				}
				statuses[a.status]++
			})
		}
		posts.Wait()
		return statuses
	}
	require.Equal(t, map[int]int{201: 10, 409: 10}, atOnce(20, all, newEndpoint))
	require.Equal(t, 10, b.count(`SELECT count(*) FROM webhook_secrets`))
	id := b.get(all).object["data"].([]any)[0].(map[string]any)["id"].(string)
	require.Equal(t, map[int]int{200: 8}, atOnce(8, all+"/"+id+"/rotate-secret", ""))
	require.Equal(t, 2, b.count(`SELECT count(*) FROM webhook_secrets WHERE endpoint_id = '`+id+`'`))
	require.Equal(t, 1, b.count(`SELECT count(*) FROM webhook_secrets WHERE endpoint_id = '`+id+`' AND expires_at IS NULL`))
	d := b.post(all+"/"+id+"/test", "test", "").id()
	require.Equal(t, map[int]int{202: 8}, atOnce(8, "/v1/webhook-deliveries/"+d+"/retry", ""))
	require.Equal(t, 1, b.count(`SELECT count(*) FROM webhook_deliveries`))
}
