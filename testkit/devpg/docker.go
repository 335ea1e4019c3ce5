package devpg

import (
	"context"
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	tclog "github.com/testcontainers/testcontainers-go/log"
	"github.com/testcontainers/testcontainers-go/modules/postgres"
)

const (
	image      = "postgres:17"
	ownerLabel = "payonce.devpg.owner" // host/pid of the process that started the container
)

// noContainer is why a container is not to be had here, as opposed to broken.
type noContainer string

func (why noContainer) Error() string { return string(why) }

func passOver(format string, args ...any) error { return noContainer(fmt.Sprintf(format, args...)) }

// startDocker runs postgres:17 in a container.
func startDocker(ctx context.Context, o Options) (_ started, err error) {
	if o.Dir != "" {
		return started{}, errors.New("the data is to stay in a folder, a container takes it along")
	}
	defer recovered(&err)
	provider, err := engine(ctx)
	if err != nil {
		return started{}, err
	}
	defer provider.Close()
	images := []string{image}
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
			return started{}, err
		}
	}
	removeOrphans(ctx, provider.Client())
	return runContainer(ctx, o)
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
		if n, err := strconv.Atoi(pid); err == nil && host == hostname() && !alive(n) {
			// One that another process is removing as well is as good as removed.
			_, _ = api.ContainerRemove(ctx, c.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		}
	}
}

func runContainer(ctx context.Context, o Options) (started, error) {
	password := randomPassword()
	cmd := []string{"postgres"}
	for name, value := range settings(o) {
		cmd = append(cmd, "-c", name+"="+value)
	}
	opts := []testcontainers.ContainerCustomizer{
		postgres.WithPassword(password),
		testcontainers.WithEnv(map[string]string{"POSTGRES_INITDB_ARGS": "--encoding=UTF8 --locale=C", "TZ": "UTC"}),
		testcontainers.WithCmd(cmd...),
		testcontainers.WithLabels(map[string]string{ownerLabel: hostname() + "/" + strconv.Itoa(os.Getpid())}),
		postgres.BasicWaitStrategies(),
	}
	if !o.Durable {
		opts = append(opts, testcontainers.WithTmpfs(map[string]string{"/var/lib/postgresql/data": "rw"}))
	}
	ctr, err := postgres.Run(ctx, image, opts...)
	if err != nil {
		return started{}, errors.Join(fmt.Errorf("container of %s: %w", image, err),
			testcontainers.TerminateContainer(ctr))
	}
	url, err := ctr.ConnectionString(ctx, "sslmode=disable")
	if err != nil {
		return started{}, errors.Join(err, testcontainers.TerminateContainer(ctr))
	}
	return started{url, "a container of " + image, containerised{ctr}}, nil
}

type containerised struct{ ctr *postgres.PostgresContainer }

func (c containerised) stop() error { return testcontainers.TerminateContainer(c.ctr) }
func (containerised) halt(string) error {
	return errors.New("devpg: a server in a container cannot be restarted: its port would change")
}
func (c containerised) resume() error { return c.halt("") }
func (containerised) pid() int        { return 0 }

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
