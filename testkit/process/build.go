package process

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"sync"
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
	build := exec.CommandContext(ctx, "go", append(append([]string{"build"}, flags...), "-o", program, "./"+pkg)...)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s in %s: %w\n%s", pkg, root, err, bytes.TrimSpace(out))
	}
	return nil
}
