package devpg

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
)

// account is whom the server runs as when we are root. A nil account is
// ourselves: every method then says yes or does nothing.
type account struct {
	name     string
	uid, gid uint32
}

// unprivileged returns postgres, or else nobody, if we are root, and nil
// otherwise. The user needs an entry in the password file: initdb looks it up,
// and stops on a bare number.
func unprivileged() (*account, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err1 == nil && err2 == nil && uid != 0 {
			return &account{name, uint32(uid), uint32(gid)}, nil
		}
	}
	return nil, errors.New("we are root, as whom PostgreSQL refuses to run, and there is neither a user postgres " +
		"nor nobody to run it as")
}

func (a *account) String() string {
	if a == nil {
		return ""
	}
	return ", as user " + a.name
}

// reaches says whether the account may enter dir: every folder above it, and
// itself, must let it through.
func (a *account) reaches(dir string) bool {
	if a == nil {
		return true
	}
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return false
	}
	for {
		info, err := os.Stat(dir)
		if err != nil || !info.IsDir() || !a.mayEnter(info) {
			return false
		}
		if filepath.Dir(dir) == dir {
			return true
		}
		dir = filepath.Dir(dir)
	}
}

func (a *account) own(path string) error {
	if a == nil {
		return nil
	}
	return os.Lchown(path, int(a.uid), int(a.gid))
}

// memory is where Linux has a file system in memory.
const memory = "/dev/shm"

// memoryRoot is a folder in memory for servers whose data may go with the
// machine; empty where there is none with room. Tests create and drop a database
// each, of three hundred files: on a disk's file system that takes longer than
// all that is done in them. TMPDIR overrides the choice.
func (a *account) memoryRoot() string {
	const room = 2 << 30 // bytes; a package's server takes less than a tenth of it
	if os.Getenv("TMPDIR") != "" || !inMemory(memory, room) || !a.reaches(memory) {
		return ""
	}
	return memory
}

// tempRoots are the folders under which servers may have their own, best first.
// Root's TMPDIR is often private to root, and then is no place for a server
// that runs as another user.
func (a *account) tempRoots() (roots []string) {
	for _, dir := range []string{os.TempDir(), "/tmp", "/var/tmp"} {
		if info, err := os.Stat(dir); err == nil && info.IsDir() && a.reaches(dir) {
			roots = append(roots, dir)
		}
	}
	return roots
}

// cacheDir is where binaries and initialised clusters are kept between runs:
// the user's cache, or for root, whose home the server's user cannot enter, the
// system's.
func cacheDir(a *account) (string, error) {
	dir := "/var/cache/payonce"
	if a == nil {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("no folder to keep anything in: %w", err)
		}
		dir = filepath.Join(cache, "payonce")
	}
	if err := makePublic(dir); err != nil {
		return "", err
	}
	if !a.reaches(dir) {
		return "", fmt.Errorf("user %s cannot reach %s", a.name, dir)
	}
	return dir, nil
}

// makePublic is MkdirAll whose new folders anyone may enter, whatever the umask.
func makePublic(dir string) error {
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		return nil
	}
	if parent := filepath.Dir(dir); parent != dir {
		if err := makePublic(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return os.Chmod(dir, 0o755)
}
