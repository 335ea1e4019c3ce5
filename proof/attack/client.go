package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"time"
)

// client sends requests to one address. It follows no redirect and keeps no cookie.
type client struct {
	base string
	key  string // of the API; empty: none
}

type answer struct {
	status int
	header http.Header
	body   string
}

// code is the code of a problem, and empty in another answer.
func (a answer) code() string {
	var problem struct{ Code string }
	_ = json.Unmarshal([]byte(a.body), &problem)
	return problem.Code
}

var transport = &http.Client{
	Timeout: 30 * time.Second,
	CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	},
}

// send sends a request as it is: a header with several values is several lines.
func (c client) send(ctx context.Context, method, path, body string, header map[string][]string) (answer, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	if c.key != "" {
		request.Header.Set("Authorization", "Bearer "+c.key)
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	maps.Copy(request.Header, header)
	if host := header["Host"]; len(host) > 0 {
		request.Host = host[0]
	}
	response, err := transport.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header, string(text)}, err
}

// must is send for what has to work: its error is that the attack could not be tried.
func (c client) must(ctx context.Context, want int, method, path, key, body string) (map[string]any, error) {
	header := map[string][]string{}
	if key != "" {
		header["Idempotency-Key"] = []string{key}
	}
	a, err := c.send(ctx, method, path, body, header)
	if err != nil {
		return nil, err
	}
	if a.status != want {
		return nil, fmt.Errorf("%s %s: %d instead of %d: %.300s", method, path, a.status, want, a.body)
	}
	object := map[string]any{}
	err = json.Unmarshal([]byte(a.body), &object)
	return object, err
}
