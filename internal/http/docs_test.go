package http

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/openapi"
)

// docsServer serves the documentation alone: it must not need a database.
func docsServer(t *testing.T) *httptest.Server {
	t.Helper()
	s := new(Server)
	r := chi.NewRouter()
	for _, route := range docsRoutes(72*time.Hour, s.notFound) {
		require.True(t, route.open, "%s needs no API key", route.pattern)
		r.Method(route.method, route.pattern, route.handle)
		r.Method(http.MethodHead, route.pattern, route.handle)
	}
	r.NotFound(s.unrouted)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		ctx, visit := visited(req.Context())
		visit.slot.class = classDocument
		w.Header().Set("Request-Id", visit.requestID)
		r.ServeHTTP(w, req.WithContext(ctx))
	}))
	t.Cleanup(server.Close)
	return server
}

// TestDocumentCountsByItsBytes: who reads the largest script without gzip uses up what all networks may read together.
func TestDocumentCountsByItsBytes(t *testing.T) {
	t.Parallel()
	for name, file := range fixedPages().assets {
		if !strings.HasPrefix(name, "scalar-") {
			continue
		}
		s := &Server{admission: newAdmission(admissionLimits(8, 2)), networks: newNetworks()}
		left := s.admission.ofNetworks[classDocument].rate
		before := left.Tokens()
		for _, c := range []struct {
			method string
			kib    int
		}{{http.MethodHead, 0}, {http.MethodGet, len(file.plain()) >> 10}} {
			w := httptest.NewRecorder()
			r := httptest.NewRequest(c.method, "/docs/assets/"+name, nil)
			ctx, visit := visited(r.Context())
			s.document(file.ServeHTTP)(w, r.WithContext(ctx))
			visit.slot.release()
			require.Equal(t, http.StatusOK, w.Code)
			require.InDelta(t, c.kib+1, before-left.Tokens(), 500, "a second has %d", documentKiB)
		}
	}
}

// fetch gets a page; every answer is held against the document on its way.
func fetch(t *testing.T, url string, header ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	client := http.Client{Transport: openapi.New(t, OpenAPI()).Transport(t, nil)}
	res, err := client.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res, string(body)
}

func TestDocs(t *testing.T) {
	t.Parallel()
	server := docsServer(t)

	t.Run("ServesTheOpenAPIDocument", func(t *testing.T) {
		t.Parallel()
		res, body := fetch(t, server.URL+"/openapi.json")
		require.Equal(t, "application/json", res.Header.Get("Content-Type"))
		require.Equal(t, string(OpenAPI()), body)
	})

	t.Run("AreSentWhole", func(t *testing.T) {
		t.Parallel()
		for _, path := range []string{"/openapi.json", "/docs", "/problems", "/docs/assets/page.css"} {
			res, body := fetch(t, server.URL+path)
			require.Equal(t, "none", res.Header.Get("Accept-Ranges"), path)
			part, same := fetch(t, server.URL+path, "Range", "bytes=0-0,0-0")
			require.Equal(t, http.StatusOK, part.StatusCode, path)
			require.Equal(t, body, same, path)
		}
	})

	t.Run("RootRedirectsToTheDocs", func(t *testing.T) {
		t.Parallel()
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			req, err := http.NewRequestWithContext(t.Context(), method, server.URL+"/", nil)
			require.NoError(t, err)
			checked := openapi.New(t, OpenAPI()).Transport(t, nil)
			if method == http.MethodHead {
				checked = http.DefaultTransport // The document does not list HEAD.
			}
			res, err := checked.RoundTrip(req) // A client would follow the redirect.
			require.NoError(t, err)
			require.NoError(t, res.Body.Close())
			require.Equal(t, http.StatusSeeOther, res.StatusCode, method)
			require.Equal(t, "/docs", res.Header.Get("Location"), method)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/", nil)
		require.NoError(t, err)
		req.Header.Set("Accept", "application/json")
		res, err := openapi.New(t, OpenAPI()).Transport(t, nil).RoundTrip(req)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		require.Equal(t, http.StatusOK, res.StatusCode, "a program is told what there is")
		res, _ = fetch(t, server.URL+"/")
		require.Equal(t, "/docs", res.Request.URL.Path)
		require.Equal(t, http.StatusOK, res.StatusCode)
	})

	t.Run("ExplainsEveryProblem", func(t *testing.T) {
		t.Parallel()
		_, list := fetch(t, server.URL+"/problems")
		for _, pt := range problemTypes {
			res, body := fetch(t, server.URL+pt.typeURI())
			require.Equal(t, http.StatusOK, res.StatusCode, pt.Code)
			require.Equal(t, "text/html; charset=utf-8", res.Header.Get("Content-Type"))
			text := problemTexts()[pt.Code]
			require.NotEmpty(t, text.What, pt.Code)
			require.NotEmpty(t, text.Retry, pt.Code)
			for _, part := range []string{pt.Title, pt.Code, text.What, text.Retry} {
				require.Contains(t, unescape(body), part, pt.Code)
			}
			require.Contains(t, list, `href="`+pt.typeURI()+`"`)
		}
	})

	t.Run("ExplainsEveryProblemAsJSON", func(t *testing.T) {
		t.Parallel()
		for _, pt := range problemTypes {
			_, body := fetch(t, server.URL+pt.typeURI(), "Accept", "application/json")
			var got struct {
				Type, Code, What, Retry string
				Status                  int
				Retryable, Stored       bool
			}
			require.NoError(t, json.Unmarshal([]byte(body), &got))
			require.Equal(t, problemType{Code: pt.Code, Title: pt.Title, Status: got.Status, Retryable: got.Retryable,
				Stored: got.Stored}, pt)
			require.Equal(t, problemTexts()[pt.Code], problemText{What: got.What, Retry: got.Retry})
			require.Equal(t, pt.typeURI(), got.Type)
		}
		_, body := fetch(t, server.URL+"/problems", "Accept", "application/json")
		var list struct{ Data []map[string]any }
		require.NoError(t, json.Unmarshal([]byte(body), &list))
		require.Len(t, list.Data, len(problemTypes))
		require.Len(t, problemTexts(), len(problemTypes), "no text is of a problem that does not exist")
	})

	t.Run("UnknownPathsAre404", func(t *testing.T) {
		t.Parallel()
		for _, path := range []string{"/problems/no-such-code", "/problems/no-such-code/", "/docs/assets/no-such-file.js",
			"/docs/assets/..%2Fdocs.go", "/docs/x%2F", "/problems/a/b%2F"} {
			res, body := fetch(t, server.URL+path)
			require.Equal(t, http.StatusNotFound, res.StatusCode, path)
			require.Contains(t, body, `"code":"not-found"`, path)
		}
	})

	t.Run("SlashAtTheEndRedirects", func(t *testing.T) {
		t.Parallel()
		for _, path := range []string{"/docs", "/docs/idempotency", "/problems", "/problems/internal"} {
			res, body := fetch(t, server.URL+path+"/")
			require.Equal(t, http.StatusOK, res.StatusCode, path)
			require.Equal(t, path, res.Request.URL.Path)
			require.Contains(t, body, "<html")
		}
	})

	t.Run("PolicyStatesRetentionAndProblems", func(t *testing.T) {
		t.Parallel()
		_, body := fetch(t, server.URL+"/docs/idempotency")
		require.Contains(t, body, "<strong>72 hours</strong>", "the retention of this service, not a default")
		for _, pt := range problemTypes {
			if strings.HasPrefix(pt.Code, "idempotency-key-") || pt.Status == http.StatusConflict {
				require.Contains(t, body, pt.typeURI()+`"`, "the policy names every code that a key can cause")
			}
		}
	})

	t.Run("LinksWork", func(t *testing.T) {
		t.Parallel()
		link := regexp.MustCompile(`(?:href|src)="([^"#]*)[^"]*"|\]\((/[^)#]*)[^)]*\)`)
		paths := []string{"/docs", "/docs/idempotency", "/problems", "/openapi.json"}
		for _, pt := range problemTypes {
			paths = append(paths, pt.typeURI())
		}
		checked := map[string]bool{}
		for _, path := range paths {
			_, body := fetch(t, server.URL+path)
			for _, m := range link.FindAllStringSubmatch(body, -1) {
				target := m[1] + m[2]
				require.Truef(t, strings.HasPrefix(target, "/"),
					"%s links to %q: pages ask no other host for anything", path, target)
				if !checked[target] {
					checked[target] = true
					res, _ := fetch(t, server.URL+target)
					require.Equalf(t, http.StatusOK, res.StatusCode, "%s links to %s", path, target)
				}
			}
		}
		require.Greater(t, len(checked), len(problemTypes))
	})

	t.Run("UnchangedPagesAre304", func(t *testing.T) {
		t.Parallel()
		for _, path := range []string{"/openapi.json", "/docs", "/docs/idempotency", "/problems",
			"/problems/internal", "/docs/assets/page.css", "/docs/assets/scalar-1.46.4.js"} {
			first, _ := fetch(t, server.URL+path)
			again, body := fetch(t, server.URL+path, "If-None-Match", first.Header.Get("ETag"))
			require.Equal(t, http.StatusNotModified, again.StatusCode, path)
			require.Empty(t, body, path)
			require.NotEmpty(t, first.Header.Get("Content-Security-Policy"), path)
			require.Equal(t, "nosniff", first.Header.Get("X-Content-Type-Options"), path)
		}
		page, _ := fetch(t, server.URL+"/problems/internal")
		value, _ := fetch(t, server.URL+"/problems/internal", "Accept", "application/json")
		require.NotEqual(t, page.Header.Get("ETag"), value.Header.Get("ETag"))
	})

	t.Run("PolicyForbidsOtherHosts", func(t *testing.T) {
		t.Parallel()
		for _, path := range []string{"/docs", "/docs/idempotency"} {
			res, _ := fetch(t, server.URL+path)
			policy := res.Header.Get("Content-Security-Policy")
			require.Contains(t, policy, "default-src 'none'")
			require.NotContains(t, policy, "http")
			require.NotContains(t, policy, "*")
			require.NotContains(t, policy, "script-src 'self' 'unsafe")
		}
	})
}

func TestPrefersJSON(t *testing.T) {
	t.Parallel()
	for accept, want := range map[string]bool{
		"":                 false,
		"*/*":              false,
		"application/json": true,
		"application/problem+json, application/json":                      true,
		"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8": false,
		"application/json, text/html;q=0.9":                               true,
		"application/json;q=0.5, text/html":                               false,
		"application/json;q=nonsense":                                     false,
		"application/json;;":                                              false,
	} {
		require.Equal(t, want, prefersJSON([]string{accept}), accept)
	}
	require.True(t, prefersJSON([]string{"text/html;q=0.1", "application/json"}), "two lines are one list")
	require.True(t, prefersJSON([]string{strings.Repeat("a/b,", acceptMax-1) + "application/json"}))
	require.False(t, prefersJSON([]string{strings.Repeat("a/b,", acceptMax) + "application/json"}), "it is not read to its end")
}

func TestInWords(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		72 * time.Hour: "72 hours", time.Hour: "1 hour", 90 * time.Minute: "90 minutes",
		45 * time.Second: "45 seconds", 1500 * time.Millisecond: "1.5s",
	} {
		require.Equal(t, want, inWords(d))
	}
}

// The vendored files are those that the notice names, unchanged.
func TestThirdPartyNotices(t *testing.T) {
	t.Parallel()
	notices, err := os.ReadFile("../../THIRD_PARTY_NOTICES.md")
	require.NoError(t, err)
	assets, err := docsFiles.ReadDir("assets")
	require.NoError(t, err)
	vendored := 0
	for _, asset := range assets {
		if !strings.HasSuffix(asset.Name(), ".gz") {
			continue
		}
		vendored++
		packed := mustRead("assets/" + asset.Name())
		r, err := gzip.NewReader(bytes.NewReader(packed))
		require.NoError(t, err)
		plain, err := io.ReadAll(r)
		require.NoError(t, err)
		for _, content := range [][]byte{packed, plain} {
			sum := sha256.Sum256(content)
			require.Containsf(t, string(notices), hex.EncodeToString(sum[:]), "%s is not the file of the notice",
				asset.Name())
		}
	}
	require.Equal(t, 1, vendored)
}

func unescape(html string) string {
	return strings.NewReplacer("&#39;", "'", "&#34;", `"`, "&amp;", "&", "&lt;", "<", "&gt;", ">").Replace(html)
}
