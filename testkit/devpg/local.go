package devpg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
)

// startLocal runs the PostgreSQL that is installed on this machine.
func startLocal(ctx context.Context, o Options) (started, error) {
	acc, err := unprivileged()
	if err != nil {
		return started{}, err
	}
	bin, err := installed(ctx, o, acc)
	if err != nil {
		return started{}, err
	}
	return startCluster(ctx, o, acc, bin, "this machine's binaries in "+bin.dir)
}

// binaries is a folder that holds initdb and postgres of one version.
type binaries struct {
	dir     string
	version string // "15.14", as postgres --version prints it
	major   int
}

func (b binaries) path(name string) string { return filepath.Join(b.dir, exe(name)) }

func exe(name string) string {
	if runtime.GOOS == "windows" {
		return name + ".exe"
	}
	return name
}

// installed returns the highest supported installation, or, for a folder that
// has data already, the one of the data's major version.
func installed(ctx context.Context, o Options, acc *account) (best binaries, err error) {
	want := dataMajor(o.Dir)
	var seen []string
	for _, dir := range binDirs(ctx) {
		bin, err := inspect(ctx, dir)
		switch {
		case err != nil:
			continue // a client-only installation, or none
		case bin.major < oldest || bin.major > newest || want != 0 && bin.major != want:
			seen = append(seen, fmt.Sprintf("%s in %s", bin.version, dir))
		case !acc.reaches(dir):
			seen = append(seen, fmt.Sprintf("%s in %s, which user %s cannot reach", bin.version, dir, acc.name))
		case bin.major > best.major:
			best = bin
		}
	}
	if best.major != 0 {
		return best, nil
	}
	wanted := fmt.Sprintf("version %d to %d", oldest, newest)
	if want != 0 {
		wanted = fmt.Sprintf("version %d, which the data in %s is of", want, o.Dir)
	}
	if len(seen) > 0 {
		return binaries{}, fmt.Errorf("no usable server installed: want %s, found %s", wanted, strings.Join(seen, ", "))
	}
	return binaries{}, errors.New("no server installed (initdb and postgres in one folder)")
}

// binDirs lists where a PostgreSQL may be, without repeats: what pg_config
// says, PATH, then the folders of the usual packages.
func binDirs(ctx context.Context) []string {
	var dirs []string
	if out, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output(); err == nil {
		dirs = append(dirs, strings.TrimSpace(string(out)))
	}
	dirs = append(dirs, filepath.SplitList(os.Getenv("PATH"))...)
	for _, pattern := range packageDirs {
		found, _ := filepath.Glob(pattern) // errs on a malformed pattern only
		dirs = append(dirs, found...)
	}
	var unique []string
	seen := map[string]bool{}
	for _, dir := range dirs {
		// A link in PATH, such as /usr/local/bin/postgres, stands for the folder it leads to.
		real, err := filepath.EvalSymlinks(filepath.Join(dir, exe("postgres")))
		if err != nil {
			continue
		}
		if dir = filepath.Dir(real); filepath.IsAbs(dir) && !seen[dir] {
			seen[dir] = true
			unique = append(unique, dir)
		}
	}
	return unique
}

var packageDirs = []string{
	"/usr/lib/postgresql/*/bin",                      // Debian, Ubuntu
	"/usr/pgsql-*/bin",                               // PostgreSQL's packages for RHEL
	"/usr/lib64/pgsql/bin",                           // SUSE
	"/usr/libexec/postgresql*",                       // Alpine
	"/usr/local/pgsql/bin",                           // built from source
	"/opt/homebrew/opt/postgresql@*/bin",             // Homebrew on Apple silicon
	"/usr/local/opt/postgresql@*/bin",                // Homebrew on Intel
	"/home/linuxbrew/.linuxbrew/opt/postgresql*/bin", // Homebrew on Linux
	"/Applications/Postgres.app/Contents/Versions/*/bin",
	"/opt/local/lib/postgresql*/bin",    // MacPorts
	`C:\Program Files\PostgreSQL\*\bin`, // Windows installer
}

var versionLine = regexp.MustCompile(`\(PostgreSQL\) ((\d+)\S*)`)

func inspect(ctx context.Context, dir string) (binaries, error) {
	bin := binaries{dir: dir}
	if _, err := os.Stat(bin.path("initdb")); err != nil {
		return binaries{}, err
	}
	out, err := exec.CommandContext(ctx, bin.path("postgres"), "--version").Output()
	if err != nil {
		return binaries{}, fmt.Errorf("%s --version: %w", bin.path("postgres"), err)
	}
	match := versionLine.FindStringSubmatch(string(out))
	if match == nil {
		return binaries{}, fmt.Errorf("%s --version printed %q", bin.path("postgres"), out)
	}
	bin.version = match[1]
	bin.major, err = strconv.Atoi(match[2])
	return bin, err
}
