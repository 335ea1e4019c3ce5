package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"example.com/payonce/testkit/process"
)

// ClockOffset is the environment variable by which a program that Build made
// believes it is another time: "-1h".
const ClockOffset = "CLOCK_OFFSET"

// Build makes the service as it is put under test: with its crash seam, and with
// a clock that can be an hour off.
//
// The service has no seam for its clock, because a seam would only show that
// the code which uses it does. Here the standard library's own time.Now is
// another one, so that everything in the process is off, the libraries too. The
// monotonic clock, by which timers run, is as it was: so it is on a host whose
// wall clock is wrong.
func Build(ctx context.Context, program string) error {
	root, err := process.Root()
	if err != nil {
		return err
	}
	return BuildAt(ctx, root, program)
}

// BuildAt is Build of another checkout, at root.
func BuildAt(ctx context.Context, root, program string) error {
	return build(ctx, root, program, "-tags", "faults", "./cmd/api")
}

// build is go build with that clock, in the folder of the module that has the package.
func build(ctx context.Context, module, program string, args ...string) error {
	dir, err := os.MkdirTemp("", "payonce-clock")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	overlay, err := otherClock(ctx, dir)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go",
		append([]string{"build", "-trimpath", "-overlay", overlay, "-o", program}, args...)...)
	cmd.Dir, cmd.Env = module, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the program under test: %w\n%s", err, out)
	}
	return nil
}

const (
	trueNow  = "\nfunc Now() Time {\n"
	movedNow = `
func Now() Time {
	t := trueNow()
	if t.wall&hasMonotonic != 0 {
		t.wall += uint64(clockOffset) << nsecShift
	} else {
		t.ext += clockOffset
	}
	return t
}

func trueNow() Time {
`
	offset = `package time

import "syscall"

var clockOffset = func() int64 {
	text, _ := syscall.Getenv("` + ClockOffset + `")
	d, _ := ParseDuration(text)
	return int64(d / Second)
}()
`
)

// otherClock writes a changed copy of package time, and the file that tells go
// build to take it.
func otherClock(ctx context.Context, dir string) (overlay string, err error) {
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("ask go for its root: %w", err)
	}
	original := filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go")
	source, err := os.ReadFile(original)
	if err != nil {
		return "", err
	}
	text := string(source)
	if strings.Count(text, trueNow) != 1 {
		return "", fmt.Errorf("%s is not as expected: this version of Go needs another way to move a clock", original)
	}
	// Line numbers stay what they were up to the change, which is all that a stack needs.
	moved, added := filepath.Join(dir, "time.go"), filepath.Join(dir, "offset.go")
	replaced, err := json.Marshal(map[string]any{"Replace": map[string]string{
		original: moved,
		filepath.Join(filepath.Dir(original), "offset_of_chaos.go"): added,
	}})
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(dir, "overlay.json")
	for name, content := range map[string]string{moved: strings.Replace(text, trueNow, movedNow, 1), added: offset,
		overlay: string(replaced)} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			return "", err
		}
	}
	return overlay, nil
}
