package operator_test

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/ids"
	"example.com/payonce/testkit/world"
)

func TestMain(m *testing.M) { world.Main(m) }

// desk is a world.Desk with clients of the operator's page.
type desk struct{ *world.Desk }

func newDesk(t *testing.T, token string) *desk {
	t.Helper()
	return &desk{world.NewDesk(t, token)}
}

// person is an HTTP client with the cookies of a browser and none of its protections.
type person struct {
	t      testing.TB
	url    string
	client *http.Client
}

func (d *desk) person(t testing.TB) *person {
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	return &person{t: t, url: d.PageURL, client: &http.Client{Jar: jar}}
}

// signedIn is a client that has signed in with the token.
func (d *desk) signedIn(t testing.TB, name string) *person {
	t.Helper()
	p := d.person(t)
	a := p.post("/operator/login", url.Values{"actor": {name}, "token": {world.AdminToken}})
	require.Equal(t, http.StatusOK, a.status, a.body)
	return p
}

// page is a response after all redirects.
type page struct {
	status int
	path   string
	body   string
	header http.Header
}

// says is the page's visible text.
func (p page) says() string {
	text := regexp.MustCompile(`<[^>]*>`).ReplaceAllString(p.body, " ")
	return strings.NewReplacer("&#39;", "'", "&#34;", `"`, "&amp;",
		"&").Replace(strings.Join(strings.Fields(text), " "))
}

// field is the value of a hidden field.
func (p page) field(name string) string {
	m := regexp.MustCompile(`name="` + name + `" value="([^"]*)"`).FindStringSubmatch(p.body)
	if m == nil {
		return ""
	}
	return m[1]
}

func (p *person) do(method, path string, form url.Values, header ...string) page {
	p.t.Helper()
	a, err := p.try(method, path, form, header...)
	require.NoError(p.t, err)
	return a
}

func (p *person) try(method, path string, form url.Values, header ...string) (page, error) {
	req, err := http.NewRequest(method, p.url+path, strings.NewReader(form.Encode()))
	if err != nil {
		return page{}, err
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
			continue
		}
		req.Header.Set(header[i], header[i+1])
	}
	res, err := p.client.Do(req)
	if err != nil {
		return page{}, err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	return page{res.StatusCode, res.Request.URL.RequestURI(), string(body), res.Header}, err
}

func (p *person) get(path string, header ...string) page {
	p.t.Helper()
	return p.do(http.MethodGet, path, nil, header...)
}

func (p *person) post(path string, form url.Values, header ...string) page {
	p.t.Helper()
	return p.do(http.MethodPost, path, form, header...)
}

// form is the form of an action with a reason filled in.
func (p *person) form(kind, tenant, id, of string) url.Values {
	p.t.Helper()
	a := p.get("/operator/act?" + url.Values{"kind": {kind}, "tenant": {tenant}, "id": {id}, "of": {of}}.Encode())
	require.Equal(p.t, http.StatusOK, a.status, a.body)
	form := url.Values{"reason": {"the customer called"}, "csrf": {a.field("csrf")}, "action": {a.field("action")},
		"kind": {kind}, "tenant": {tenant}, "id": {id}, "of": {of}}
	if a.field("action") == "" { // Not possible, and the page says why. The form may still be submitted.
		require.Contains(p.t, a.says(), "Not possible.")
		form.Set("csrf", p.get("/operator").field("csrf"))
		form.Set("action", ids.New(ids.Action))
	}
	return form
}

// act fills in an action's form and submits it.
func (p *person) act(kind, tenant, id, of string) page {
	p.t.Helper()
	return p.post("/operator/act", p.form(kind, tenant, id, of))
}

func hash(key string) string { return idempotency.HashForLog(key) }
