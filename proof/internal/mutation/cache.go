package mutation

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// cache keeps what tests reach between runs. What a test reaches depends on the
// service's source and on the files of its package; both are in the name of its
// file.
type cache struct {
	mu   sync.Mutex
	off  bool
	root string
	dir  string
	all  map[string]map[string]Measured // by package, then by name
}

// openCache opens the cache of a build. With some of the mutants in it, tests reach less: nothing is kept.
func openCache(b *Build) (*cache, error) {
	if b.some {
		return &cache{off: true}, nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	c := &cache{root: b.Root, dir: filepath.Join(dir, "payonce-mutants"), all: map[string]map[string]Measured{}}
	return c, os.MkdirAll(c.dir, 0o750)
}

// find returns what is known of a test.
func (c *cache) find(t Test) (Measured, bool) {
	if c.off {
		return Measured{}, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all[t.Package] == nil {
		c.all[t.Package] = map[string]Measured{}
		if file, err := c.file(t.Package); err == nil {
			if text, err := os.ReadFile(file); err == nil {
				known := map[string]Measured{}
				if json.Unmarshal(text, &known) == nil {
					c.all[t.Package] = known
				}
			}
		}
	}
	m, ok := c.all[t.Package][t.Name]
	return m, ok
}

func (c *cache) add(m Measured) error {
	if c.off {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all[m.Package][m.Name] = m
	file, err := c.file(m.Package)
	if err != nil {
		return err
	}
	text, err := json.Marshal(c.all[m.Package])
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o600)
}

func (c *cache) file(pkg string) (string, error) {
	digest := sha256.New()
	add := func(path string) error {
		text, err := os.ReadFile(path)
		name, _ := filepath.Rel(c.root, path)
		digest.Write([]byte(name))
		digest.Write(text)
		return err
	}
	var files []string
	for _, folder := range []string{"internal", "db", "testkit", "stripesim", "proof/internal/mutation", pkg} {
		err := filepath.WalkDir(filepath.Join(c.root, folder), func(path string, d fs.DirEntry, err error) error {
			mine := filepath.Dir(path) == filepath.Join(c.root, filepath.FromSlash(pkg))
			if err == nil && !d.IsDir() && (strings.HasSuffix(path, ".go") || strings.HasSuffix(path, ".sql")) &&
				(mine || !strings.HasSuffix(path, "_test.go")) {
				files = append(files, path)
			}
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	slices.Sort(files)
	files = slices.Compact(files)
	for _, f := range files {
		if err := add(f); err != nil {
			return "", err
		}
	}
	name := strings.ReplaceAll(pkg, "/", "_") + "_" + hex.EncodeToString(digest.Sum(nil)[:12]) + ".json"
	return filepath.Join(c.dir, name), nil
}
