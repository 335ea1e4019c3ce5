//go:build containers

// Command container runs postgres:17 in a container for package devpg, until its standard input ends. It is a program by
// itself so that what talks to a Docker engine is downloaded and built only where there is one.
//
// Its argument is what devpg.Start asks of the server, as JSON: a Request. It prints one line, a Response.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	tclog "github.com/testcontainers/testcontainers-go/log"
	"github.com/testcontainers/testcontainers-go/modules/postgres"

	"example.com/payonce/testkit/devpg"
)

func main() {
	signal.Ignore(os.Interrupt) // for the process that started us, which may use the server while it shuts down
	if err := run(context.Background(), os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "container:", err)
		os.Exit(1)
	}
}

// run starts a container, says where it is, and removes it when in ends.
func run(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	if len(args) != 1 {
		return errors.New("the argument is a request of package devpg")
	}
	var r devpg.ContainerRequest
	if err := json.Unmarshal([]byte(args[0]), &r); err != nil {
		return fmt.Errorf("read the request: %w", err)
	}
	url, stop, err := start(ctx, r)
	response := devpg.ContainerResponse{URL: url}
	if missing := noContainer(""); errors.As(err, &missing) {
		response.Missing = missing.Error()
	} else if err != nil {
		response.Failed = err.Error()
	}
	if err := json.NewEncoder(out).Encode(response); err != nil || url == "" {
		return err
	}
	_, _ = io.Copy(io.Discard, in)
	return stop()
}

const (
	ownerLabel = "payonce.devpg.owner" // host/pid of the process that started the container

	engineAnswers = devpg.EngineAnswers
	pullWithin    = 60 * time.Second // past this a local installation is the better choice
	pullQuiet     = devpg.PullQuiet
)

// noContainer is why a container is not to be had here, as opposed to broken.
type noContainer string

func (why noContainer) Error() string { return string(why) }

func passOver(format string, args ...any) error { return noContainer(fmt.Sprintf(format, args...)) }

// start runs the container, and returns its URL and how it is removed.
func start(ctx context.Context, r devpg.ContainerRequest) (url string, stop func() error, err error) {
	defer recovered(&err)
	provider, err := engine(ctx)
	if err != nil {
		return "", nil, err
	}
	defer func() { _ = provider.Close() }()
	images := []string{devpg.Image}
	config := testcontainers.ReadConfig().Config
	if !config.RyukDisabled {
		//nolint:staticcheck // deprecated in favour of a value that only the library can read
		images = append(images, testcontainers.ReaperDefaultImage)
	}
	for _, name := range images {
		if config.HubImageNamePrefix != "" {
			name = strings.TrimSuffix(config.HubImageNamePrefix, "/") + "/" + name
		}
		if err := haveImage(ctx, provider.Client(), name); err != nil {
			return "", nil, err
		}
	}
	removeOrphans(ctx, provider.Client())
	return runContainer(ctx, r)
}

// recovered turns a panic into an error: testcontainers panics where it finds
// neither a socket nor a rootless engine.
func recovered(err *error) {
	if r := recover(); r != nil {
		*err = passOver("%v", r)
	}
}

// quiet silences the library, because our one line is enough. Its logger is a variable without a lock.
var quiet = sync.OnceFunc(func() { tclog.SetDefault(stdlog.New(io.Discard, "", 0)) })

// engine finds the engine. The library's first call has no deadline of its
// own, so it is left behind if it takes too long.
func engine(ctx context.Context) (*testcontainers.DockerProvider, error) {
	type answer struct {
		provider *testcontainers.DockerProvider
		err      error
	}
	quiet()
	answers := make(chan answer, 1)
	go func() {
		var a answer
		defer func() { answers <- a }()
		defer recovered(&a.err)
		if a.provider, a.err = testcontainers.NewDockerProvider(); a.err != nil {
			return
		}
		ctx, cancel := context.WithTimeout(ctx, engineAnswers)
		defer cancel()
		a.err = a.provider.Health(ctx)
	}()
	select {
	case a := <-answers:
		if a.err != nil {
			return nil, passOver("no engine answers%s", because(a.err))
		}
		return a.provider, nil
	case <-time.After(engineAnswers):
		return nil, passOver("no engine answers within %s", engineAnswers)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// haveImage pulls an image once, without the library's retries: a registry that
// cannot be reached now will not be reachable in a moment, and we have
// somewhere else to go.
func haveImage(ctx context.Context, api client.APIClient, name string) error {
	if _, err := api.ImageInspect(ctx, name); err == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, pullWithin)
	defer cancel()
	quiet := time.AfterFunc(pullQuiet, cancel)
	defer quiet.Stop()
	pull, err := api.ImagePull(ctx, name, client.ImagePullOptions{})
	if err != nil {
		return passOver("an engine answers, but has no %s and cannot pull it%s", name, because(err))
	}
	for message, err := range pull.JSONMessages(ctx) {
		quiet.Reset(pullQuiet)
		if err == nil && message.Error != nil {
			err = message.Error
		}
		if err != nil {
			return passOver("an engine answers, but pulling %s failed%s", name, because(err))
		}
	}
	return ctx.Err()
}

// removeOrphans removes containers whose owner on this host is dead. With the
// reaper switched off nothing else does.
func removeOrphans(ctx context.Context, api client.APIClient) {
	list, err := api.ContainerList(ctx, client.ContainerListOptions{
		All: true, Filters: make(client.Filters).Add("label", ownerLabel),
	})
	if err != nil {
		return
	}
	for _, c := range list.Items {
		host, pid, _ := strings.Cut(c.Labels[ownerLabel], "/")
		if n, err := strconv.Atoi(pid); err == nil && host == hostname() && !devpg.Alive(n) {
			// One that another process is removing as well is as good as removed.
			_, _ = api.ContainerRemove(ctx, c.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		}
	}
}

func runContainer(ctx context.Context, r devpg.ContainerRequest) (url string, stop func() error, err error) {
	cmd := []string{"postgres"}
	for name, value := range r.Settings {
		cmd = append(cmd, "-c", name+"="+value)
	}
	opts := []testcontainers.ContainerCustomizer{
		postgres.WithPassword(r.Password),
		testcontainers.WithEnv(map[string]string{"POSTGRES_INITDB_ARGS": "--encoding=UTF8 --locale=C", "TZ": "UTC"}),
		testcontainers.WithCmd(cmd...),
		testcontainers.WithLabels(map[string]string{ownerLabel: hostname() + "/" + strconv.Itoa(os.Getpid())}),
		postgres.BasicWaitStrategies(),
	}
	if r.InMemory {
		opts = append(opts, testcontainers.WithTmpfs(map[string]string{"/var/lib/postgresql/data": "rw"}))
	}
	ctr, err := postgres.Run(ctx, devpg.Image, opts...)
	stop = func() error { return testcontainers.TerminateContainer(ctr) }
	if err != nil {
		return "", nil, errors.Join(fmt.Errorf("container of %s: %w", devpg.Image, err), stop())
	}
	if url, err = ctr.ConnectionString(ctx, "sslmode=disable"); err != nil {
		return "", nil, errors.Join(err, stop())
	}
	return url, stop, nil
}

func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
}

// because is the end of an error's first line, where the cause stands, for a
// line that has room for no more. That there is no rootless engine either is the
// library's last word when it found none at all, and no cause.
func because(err error) string {
	line, _, _ := strings.Cut(strings.TrimSpace(err.Error()), "\n")
	cause := line[strings.LastIndex(line, ": ")+1:]
	if strings.Contains(cause, "rootless Docker not found") {
		return ""
	}
	return " (" + strings.TrimSpace(cause) + ")"
}
