package process

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// module is the service's. Its programs are built in its own folder, so that the
// versions of what they import are those of its go.mod, whichever module asks.
const module = "example.com/payonce"

// Root is the folder of the service's go.mod, for a caller in that module or in
// one that replaces it with a folder, as proof does.
var Root = sync.OnceValues(func() (string, error) {
	list := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module)
	out, err := list.Output()
	if err != nil {
		return "", fmt.Errorf("find the folder of %s (go list -m, in the repository): %w", module, err)
	}
	return strings.TrimSpace(string(out)), nil
})

// Build builds a program of the service. The package is a path in the module,
// such as cmd/api; flags are those of go build.
func Build(ctx context.Context, pkg, program string, flags ...string) error {
	root, err := Root()
	if err != nil {
		return err
	}
	if err := lookAtSources(root); err != nil {
		return err
	}
	build := exec.CommandContext(ctx, "go", append(append([]string{"build"}, flags...), "-o", program, "./"+pkg)...)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s in %s: %w\n%s", pkg, root, err, bytes.TrimSpace(out))
	}
	return nil
}

// lookAtSources reads the folders of the service's source, so that go test runs a test again whose programs it does not
// see: the result of a test is used again as long as the files and folders that the test has read are what they were.
func lookAtSources(root string) error {
	for _, top := range []string{"cmd", "db", "internal", "stripesim"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(_ string, _ fs.DirEntry, err error) error { return err })
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// programsMax is how many programs BuildShared keeps: of a few checkouts and settings.
const programsMax = 6

const linkPrefix = "payonce-program-"

// BuildShared is Build for the tests of several packages, which would each link the same program: three seconds of a
// processor. All build to one file of the user, one after another, and go leaves alone what is as its source says. Each
// gets a link to the file, which stays what it is when the source changes and another builds. Remove removes the link.
func BuildShared(ctx context.Context, pkg string, flags ...string) (program string, remove func(), err error) {
	remove = func() {}
	root, err := Root()
	if err != nil {
		return "", remove, err
	}
	shared := filepath.Join(os.TempDir(), fmt.Sprintf("payonce-programs-%d", os.Getuid()))
	if err := os.Mkdir(shared, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", remove, err
	}
	if info, err := os.Lstat(shared); err != nil || !info.IsDir() || info.Mode().Perm() != 0o700 || !ours(info) {
		return "", remove, fmt.Errorf("%s is not a folder of this user alone: remove it (%w)", shared, err)
	}
	unlock, err := lock(ctx, filepath.Join(shared, "lock"))
	if err != nil {
		return "", remove, fmt.Errorf("lock %s: %w", shared, err)
	}
	defer unlock()
	// One file for each checkout, and for all that changes what a build makes.
	of := sha256.Sum256(fmt.Append(nil, root, pkg, flags, os.Getenv("GOFLAGS"), os.Getenv("CGO_ENABLED"), runtime.Version()))
	name := filepath.Join(shared, hex.EncodeToString(of[:8])+".program")
	if err := Build(ctx, pkg, name, flags...); err != nil {
		return "", remove, err
	}
	dir, err := os.MkdirTemp("", linkPrefix)
	if err != nil {
		return "", remove, err
	}
	remove = func() { _ = os.RemoveAll(dir) }
	program = filepath.Join(dir, filepath.Base(pkg))
	if err := os.Link(name, program); err != nil {
		remove()
		return "", remove, err
	}
	now := time.Now()
	return program, remove, errors.Join(os.Chtimes(name, now, now), keepNewest(shared), sweepLinks(now.Add(-24*time.Hour)))
}

// WriteProgram writes a program that a test runs. No process is started meanwhile: a child would hold the file open for
// writing, and the kernel would refuse to execute it as a busy text file (golang.org/issue/22315).
func WriteProgram(path string, text []byte) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, text, 0o700)
}

// sweepLinks removes the links of tests that were killed before that time.
func sweepLinks(before time.Time) error {
	dirs, err := filepath.Glob(filepath.Join(os.TempDir(), linkPrefix+"*"))
	for _, dir := range dirs {
		if info, failed := os.Stat(dir); failed == nil && info.ModTime().Before(before) && ours(info) {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}
	return err
}

// keepNewest removes the programs that were asked for least recently.
func keepNewest(shared string) error {
	names, err := filepath.Glob(filepath.Join(shared, "*.program"))
	if err != nil {
		return err
	}
	used := func(name string) time.Time {
		info, err := os.Stat(name)
		if err != nil {
			return time.Time{}
		}
		return info.ModTime()
	}
	slices.SortFunc(names, func(a, b string) int { return used(b).Compare(used(a)) })
	for _, name := range names[min(len(names), programsMax):] {
		err = errors.Join(err, os.Remove(name))
	}
	return err
}
