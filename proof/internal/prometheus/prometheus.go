package prometheus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.com/payonce/deploy"
	"example.com/payonce/testkit/port"
	"example.com/payonce/testkit/process"
)

// ErrMissing says that there is no Prometheus on this machine.
var ErrMissing = errors.New("prometheus is not installed; Debian's package prometheus has it")

// Prometheus is the real one, running, with our configuration and our rules.
type Prometheus struct {
	child process.Child
	url   string
	began time.Time
}

// Options of a Prometheus.
type Options struct {
	Dir     string // for its data; the caller's to remove
	Group   *process.Group
	Log     *process.Log
	Targets []string // admin addresses of the API
}

// Installed is nil if there is a Prometheus on this machine, and otherwise
// ErrMissing.
func Installed() error {
	if _, err := exec.LookPath("prometheus"); err != nil {
		return ErrMissing
	}
	return nil
}

// Start starts one that scrapes the targets once a second, and returns when it is
// ready. ErrMissing: there is none to start.
func Start(ctx context.Context, o Options) (*Prometheus, error) {
	program, err := exec.LookPath("prometheus")
	if err != nil {
		return nil, ErrMissing
	}
	config, err := configFor(o.Targets)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(o.Dir, "prometheus")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	for name, content := range map[string][]byte{"rules.yml": []byte(Accelerated(deploy.Rules)),
		"prometheus.yml": config} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, process.ReadyWithin)
	defer cancel()
	for {
		free, err := port.Loopback(ctx)
		if err != nil {
			return nil, err
		}
		addr := free.String()
		p := &Prometheus{url: "http://" + addr, child: process.Child{
			Name: "prometheus", Program: program, Group: o.Group, Log: o.Log,
			Says: "Server is ready to receive web requests.", Env: []string{"TMPDIR=" + o.Dir},
			Args: []string{"--config.file=" + filepath.Join(dir, "prometheus.yml"),
				"--storage.tsdb.path=" + filepath.Join(dir, "data"), "--web.listen-address=" + addr,
				"--log.format=json"},
		}}
		_, err = p.child.Start(ctx)
		if errors.Is(err, process.ErrEnded) && ctx.Err() == nil && strings.Contains(err.Error(),
			"address already in use") {
			continue // Another process took the port since it was chosen.
		}
		p.began = time.Now()
		return p, err
	}
}

// Stop ends it.
func (p *Prometheus) Stop() error { return p.child.Stop() }

// ask returns what the API answers, or its own words for what is wrong.
func ask[T any](ctx context.Context, p *Prometheus, path string, query url.Values) (data T, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/api/v1/"+path+"?"+query.Encode(), nil)
	if err != nil {
		return data, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return data, fmt.Errorf("ask Prometheus: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	var answer struct {
		Status, Error string
		Data          T
	}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		return data, fmt.Errorf("read Prometheus's answer: %w", err)
	}
	if answer.Status != "success" {
		return data, fmt.Errorf("Prometheus: %s: %s", answer.Status, answer.Error)
	}
	return answer.Data, nil
}

// series is one line of a matrix: a number for each second at which there was one.
type series struct {
	Metric map[string]string
	Values [][2]any
}

// since asks a query for every second since the beginning.
func (p *Prometheus) since(ctx context.Context, query string) ([]series, error) {
	data, err := ask[struct{ Result []series }](ctx, p, "query_range", url.Values{
		"query": {query}, "step": {"1s"}, "start": {unix(p.began)}, "end": {unix(time.Now())},
	})
	return data.Result, err
}

func unix(t time.Time) string { return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', 3, 64) }

// Points counts what a query has returned since the beginning: numbers, in all
// series, at every second.
func (p *Prometheus) Points(ctx context.Context, query string) (n int, err error) {
	lines, err := p.since(ctx, query)
	for _, line := range lines {
		for _, v := range line.Values {
			text, _ := v[1].(string)
			if f, err := strconv.ParseFloat(text, 64); err == nil && !math.IsNaN(f) {
				n++
			}
		}
	}
	return n, err
}

// Firing are the alerts that fire now.
func (p *Prometheus) Firing(ctx context.Context) (map[string]bool, error) {
	return p.alerts(ctx, func(state string) bool { return state == "firing" })
}

// Calm reports whether no alert fires and none is about to.
func (p *Prometheus) Calm(ctx context.Context) (bool, error) {
	raised, err := p.alerts(ctx, func(string) bool { return true })
	return len(raised) == 0, err
}

func (p *Prometheus) alerts(ctx context.Context, in func(state string) bool) (map[string]bool, error) {
	data, err := ask[struct {
		Alerts []struct {
			State  string
			Labels map[string]string
		}
	}](ctx, p, "alerts", nil)
	names := map[string]bool{}
	for _, a := range data.Alerts {
		if in(a.State) {
			names[a.Labels["alertname"]] = true
		}
	}
	return names, err
}

// Firing is a time in which an alert fired, for whatever labels. One that has not
// gone still fires.
type Firing struct {
	Alert       string
	From, Until time.Time
	Gone        bool
}

// Firings are all of them since the beginning, in the order in which they began.
func (p *Prometheus) Firings(ctx context.Context) ([]Firing, error) {
	now, err := p.Firing(ctx)
	if err != nil {
		return nil, err
	}
	lines, err := p.since(ctx, `max by (alertname) (ALERTS{alertstate="firing"})`)
	if err != nil {
		return nil, err
	}
	return firings(lines, now), nil
}

// firings cuts each alert's seconds where there is a gap.
func firings(lines []series, now map[string]bool) (list []Firing) {
	for _, line := range lines {
		name := line.Metric["alertname"]
		var last *Firing
		for _, v := range line.Values {
			seconds, _ := v[0].(float64)
			at := time.UnixMilli(int64(seconds * 1000))
			if last == nil || at.Sub(last.Until) > 1500*time.Millisecond {
				list = append(list, Firing{Alert: name, From: at, Until: at, Gone: true})
				last = &list[len(list)-1]
			}
			last.Until = at
		}
		if last != nil {
			last.Gone = !now[name]
		}
	}
	slices.SortStableFunc(list, func(a, b Firing) int { return a.From.Compare(b.From) })
	return list
}
