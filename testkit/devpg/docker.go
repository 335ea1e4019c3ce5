package devpg

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	programs "example.com/payonce/testkit/process"
)

// Image is what runs in a container.
const Image = "postgres:17"

const (
	// EngineAnswers is how soon a Docker engine answers that is in a state to start a database.
	EngineAnswers = 2 * time.Second
	// PullQuiet is how long a registry may send nothing before it is not there.
	PullQuiet = 15 * time.Second

	removedWithin = 30 * time.Second
)

// ContainerRequest is what the program container is asked for.
type ContainerRequest struct {
	Password string
	Settings map[string]string
	InMemory bool
}

// ContainerResponse is what it says: a URL, or why there is none, because no engine or no image is to be had here
// (Missing), or because something is broken.
type ContainerResponse struct{ URL, Missing, Failed string }

// noContainer is why a container is not to be had here, as opposed to broken.
type noContainer string

func (why noContainer) Error() string { return string(why) }

// startDocker has the program container run postgres:17, if there is an engine. It is built then, and what it needs is
// downloaded then.
func startDocker(ctx context.Context, o Options) (started, error) {
	if o.Dir != "" {
		return started{}, errors.New("the data is to stay in a folder, a container takes it along")
	}
	if err := engineAnswers(ctx); err != nil {
		return started{}, err
	}
	root, err := programs.Root()
	if err != nil {
		return started{}, err
	}
	request, err := json.Marshal(ContainerRequest{Password: randomPassword(), Settings: settings(o), InMemory: !o.Durable || o.Memory})
	if err != nil {
		return started{}, err
	}
	cmd := exec.Command("go", "run", "-tags=containers", "./testkit/devpg/container", string(request)) //nolint:noctx // its input's end ends it
	var said strings.Builder
	cmd.Dir, cmd.Stderr = root, &said
	in, err := cmd.StdinPipe()
	if err != nil {
		return started{}, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return started{}, err
	}
	if err := cmd.Start(); err != nil {
		return started{}, err
	}
	c := container{cmd, in}
	stopWaiting := context.AfterFunc(ctx, func() { _ = out.Close() })
	line, err := bufio.NewReader(out).ReadBytes('\n')
	stopWaiting()
	var response ContainerResponse
	if err == nil {
		err = json.Unmarshal(line, &response)
	}
	switch {
	case err != nil:
		return started{}, fmt.Errorf("a container of %s: %w", Image, errors.Join(ctx.Err(), err, c.stop(), errors.New(said.String())))
	case response.URL != "":
		return started{response.URL, "a container of " + Image, c}, nil
	}
	err = errors.New(response.Failed)
	if response.Missing != "" {
		err = noContainer(response.Missing)
	}
	return started{}, errors.Join(err, c.stop())
}

// container is the program that has one.
type container struct {
	cmd *exec.Cmd
	in  io.Closer
}

func (c container) stop() error {
	_ = c.in.Close()
	done := make(chan error, 1)
	go func() { done <- c.cmd.Wait() }()
	select {
	case err := <-done:
		return err
	case <-time.After(removedWithin):
		return errors.Join(fmt.Errorf("the container is not removed within %s", removedWithin), c.cmd.Process.Kill())
	}
}

func (container) halt(string) error {
	return errors.New("devpg: a server in a container cannot be restarted: its port would change")
}
func (c container) resume() error { return c.halt("") }
func (container) pid() int        { return 0 }

// engineAnswers asks the engine whether it is there, as cheaply as can be.
func engineAnswers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, EngineAnswers)
	defer cancel()
	var failed error
	for _, at := range engines() {
		err := ping(ctx, at)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return noContainer(fmt.Sprintf("no engine answers within %s", EngineAnswers))
		}
		failed = errors.Join(failed, err)
	}
	if failed == nil {
		return noContainer("no engine answers")
	}
	return noContainer("no engine answers (" + strings.ReplaceAll(failed.Error(), "\n", "; ") + ")")
}

// engines are where an engine may be, in the order in which testcontainers looks.
func engines() (list []url.URL) {
	if host, err := url.Parse(os.Getenv("DOCKER_HOST")); err == nil && host.Scheme != "" {
		return []url.URL{*host}
	}
	home, _ := os.UserHomeDir()
	properties, _ := os.ReadFile(filepath.Join(home, ".testcontainers.properties")) // #nosec G304 -- testcontainers' own file
	if strings.Contains(string(properties), "docker.host") {
		return []url.URL{{Scheme: "named"}}
	}
	if _, err := os.Stat(`\\.\pipe\docker_engine`); err == nil {
		return []url.URL{{Scheme: "npipe"}}
	}
	for _, socket := range []string{
		"/var/run/docker.sock", filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "docker.sock"),
		filepath.Join(home, ".docker/run/docker.sock"), filepath.Join(home, ".docker/desktop/docker.sock"),
	} {
		if _, err := os.Stat(socket); err == nil {
			list = append(list, url.URL{Scheme: "unix", Path: socket})
		}
	}
	return list
}

func ping(ctx context.Context, engine url.URL) error {
	network, addr := "tcp", engine.Host
	if engine.Scheme == "unix" {
		network, addr = "unix", engine.Path
	}
	if engine.Scheme != "unix" && engine.Scheme != "tcp" {
		return nil // it was named, so the program container asks
	}
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, addr)
	}}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://docker/_ping", nil)
	if err != nil {
		return err
	}
	res, err := transport.RoundTrip(r)
	if err != nil {
		return err
	}
	return res.Body.Close()
}
