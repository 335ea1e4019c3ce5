package chaos

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"
	"time"
)

// vitals are what a process that has nothing to do holds on to.
type vitals struct{ goroutines, files, connections float64 }

// allowances over what a fresh process had: the pool keeps its connections for a
// while, and NATS and the clients theirs.
const (
	moreGoroutines = 60
	moreFiles      = 60
	restWithin     = 15 * time.Second
)

func (n *node) vitals(ctx context.Context) (v vitals, err error) {
	m, err := n.metrics(ctx)
	if err != nil {
		return v, fmt.Errorf("ask %s how it is: %w", n.name, err)
	}
	return vitals{m["go_goroutines"], m["process_open_fds"], m["payonce_pool_connections_in_use"]}, nil
}

// baseline is the state of the processes before the first request.
func (w *world) baseline(ctx context.Context) (base map[string]vitals, err error) {
	base = map[string]vitals{}
	for _, n := range w.nodes {
		if base[n.name], err = n.vitals(ctx); err != nil {
			return nil, err
		}
	}
	return base, nil
}

// nothingLeaks waits until everything that was held is let go.
func (j *checks) nothingLeaks(ctx context.Context) error {
	j.traffic.http.CloseIdleConnections()
	var held []string
	for deadline := time.Now().Add(restWithin); ; {
		held = nil
		open, err := j.world.strings(ctx,
			`SELECT application_name || ' has a transaction open since ' || (clock_timestamp() - xact_start) ||
				', ' || state FROM pg_stat_activity
			WHERE application_name LIKE 'api-%' AND (state LIKE 'idle in transaction%'
			OR xact_start < clock_timestamp() - interval '5 s')`)
		if err != nil {
			return err
		}
		held = append(held, open...)
		for _, n := range j.world.nodes {
			v, err := n.vitals(ctx)
			if err != nil {
				return err
			}
			base := j.base[n.name]
			if v.goroutines > base.goroutines+moreGoroutines || v.files > base.files+moreFiles || v.connections > 0 {
				held = append(held,
					fmt.Sprintf("%s has %.0f goroutines, %.0f files and %.0f connections in use; fresh it had %.0f, %.0f and %.0f",
						n.name, v.goroutines, v.files, v.connections, base.goroutines, base.files, base.connections))
			}
		}
		if len(held) == 0 || time.Now().After(deadline) {
			break
		}
		rest(ctx, 200*time.Millisecond)
	}
	j.add("I19", "no transaction, connection, file or goroutine is left behind", byProcesses, len(j.world.nodes), held)
	return nil
}

// complaints are the lines that no process may ever log.
func (w *world) complaints() (list []string) {
	file, err := os.Open(w.log.Name)
	if err != nil {
		return []string{err.Error()}
	}
	defer func() { _ = file.Close() }()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		if l := lines.Text(); strings.Contains(l, `"msg":"bug:`) || strings.Contains(l,
			": panic: ") || strings.Contains(l, ": fatal error: ") || strings.Contains(l, "WARNING: DATA RACE") {
			list = append(list, l[:min(len(l), 400)])
		}
	}
	if err := lines.Err(); err != nil {
		list = append(list, err.Error())
	}
	return list
}
