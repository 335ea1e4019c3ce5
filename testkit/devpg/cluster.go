package devpg

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// Every cluster is made alike: passwords even on loopback, because other users
// of the machine can reach a port; and C, UTF-8 and UTC, so that no test
// depends on the locale of the machine.
var initdbArgs = []string{"--username=postgres", "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C"}

// initialised puts a fresh cluster into dir, and returns its superuser's
// password. initdb takes seconds, a copy of what it made a tenth of one: so it
// runs once per version and user of this machine, and every server gets a copy.
func initialised(ctx context.Context, acc *account, bin binaries, dir string) (password string, err error) {
	cache, err := cacheDir(acc)
	if err != nil { // nowhere to keep one: a server can do without
		return initdb(ctx, acc, bin, dir)
	}
	made, err := cachedCluster(ctx, acc, bin, filepath.Join(cache, "clusters"))
	if err != nil {
		return "", err
	}
	if err := copyTree(filepath.Join(made, "data"), filepath.Join(dir, "data"), acc); err != nil {
		return "", fmt.Errorf("copy %s: %w", made, err)
	}
	secret, err := os.ReadFile(filepath.Join(made, "password"))
	return strings.TrimSpace(string(secret)), err
}

func cachedCluster(ctx context.Context, acc *account, bin binaries, clusters string) (string, error) {
	key := sha256.Sum256([]byte(strings.Join(append([]string{bin.dir, bin.version, acc.String()}, initdbArgs...),
		"\x00")))
	made := filepath.Join(clusters, bin.version+"-"+hex.EncodeToString(key[:6]))
	if _, err := os.Stat(made); err == nil {
		return made, nil
	}
	if err := makePublic(clusters); err != nil {
		return "", err
	}
	unlock, err := lockFile(ctx, made+".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(made); err == nil {
		return made, nil // another process made it while we waited
	}
	tmp := made + ".tmp" // the lock's holder alone uses it; who was killed here left it behind
	if err := errors.Join(os.RemoveAll(tmp), os.Mkdir(tmp, 0o700), acc.own(tmp)); err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	if _, err := initdb(ctx, acc, bin, tmp); err != nil {
		return "", err
	}
	return made, os.Rename(tmp, made) // a name that exists is a cluster that is whole
}

// initdb makes dir/data and dir/password.
func initdb(ctx context.Context, acc *account, bin binaries, dir string) (password string, err error) {
	password = randomPassword()
	file := filepath.Join(dir, "password")
	if err := errors.Join(os.WriteFile(file, []byte(password+"\n"), 0o600), acc.own(file)); err != nil {
		return "", err
	}
	args := append([]string{"--pgdata=" + filepath.Join(dir, "data"), "--pwfile=" + file}, initdbArgs...)
	cmd := exec.CommandContext(ctx, bin.path("initdb"), args...)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = dir, environment(dir), childOf(acc)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("initdb: %w: %s", err, bytes.TrimSpace(out))
	}
	return password, nil
}

// environment is all that a server process inherits: no PGDATA, PGOPTIONS or
// locale of ours, and a temporary folder that its user may write to.
func environment(dir string) []string {
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + dir, "LC_ALL=C", "TZ=UTC"}
	if root := os.Getenv("SYSTEMROOT"); root != "" {
		env = append(env, "SYSTEMROOT="+root) // Windows' sockets do not work without
	}
	return env
}

// dataMajor is the major version of the data in a kept folder, 0 if there is none.
func dataMajor(dir string) int {
	if dir == "" {
		return 0
	}
	text, err := os.ReadFile(filepath.Join(dir, "data", "PG_VERSION"))
	if err != nil {
		return 0
	}
	major, _ := strconv.Atoi(strings.TrimSpace(string(text))) // 0 if unreadable, and the server will say so
	return major
}

func copyTree(from, to string, acc *account) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		if entry.IsDir() {
			err = os.Mkdir(target, 0o700) // PostgreSQL insists on it
		} else {
			err = copyFile(path, target)
		}
		return errors.Join(err, acc.own(target))
	})
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

func randomPassword() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
