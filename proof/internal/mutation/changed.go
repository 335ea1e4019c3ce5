package mutation

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Changed are the mutants that have to be tried again: those of which nothing is recorded, those whose file, or the file
// of whose test, is not as it was when they were tried, and those that survived, which any new test may kill.
func (r *Recorded) Changed(root string, all []Mutant) ([]Mutant, error) {
	testFiles, err := r.testFiles(root)
	if err != nil {
		return nil, err
	}
	asTried := map[string]bool{}
	unchanged := func(file string) (bool, error) {
		if same, ok := asTried[file]; ok {
			return same, nil
		}
		hash, err := hashOf(root, file)
		asTried[file] = hash != "" && hash == r.Files[file]
		return asTried[file], err
	}
	var changed []Mutant
	for _, m := range all {
		by, killed := r.KilledBy[m.ID]
		known := killed || r.Equivalent[m.ID] != ""
		same, err := unchanged(m.File)
		if err != nil {
			return nil, err
		}
		if same && killed {
			if same, err = unchanged(testFiles[by.Test]); err != nil {
				return nil, err
			}
		}
		if !known || !same {
			changed = append(changed, m)
		}
	}
	return changed, nil
}

// Note records the files as they are: those of which all mutants are among those that were tried, and the tests' files
// of which all that they kill are. The others stay as they were, so that Changed still has their mutants.
func (r *Recorded) Note(root string, tried, all []Mutant) error {
	testFiles, err := r.testFiles(root)
	if err != nil {
		return err
	}
	was := map[string]bool{}
	for _, m := range tried {
		was[m.ID] = true
	}
	complete := map[string]bool{}
	note := func(file, id string) {
		if before, seen := complete[file]; file != "" && (!seen || before) {
			complete[file] = was[id]
		}
	}
	for _, m := range all {
		note(m.File, m.ID)
		if by, killed := r.KilledBy[m.ID]; killed {
			note(testFiles[by.Test], m.ID)
		}
	}
	files := map[string]string{}
	for file, allTried := range complete {
		files[file] = r.Files[file]
		if allTried {
			if files[file], err = hashOf(root, file); err != nil {
				return err
			}
		}
		if files[file] == "" {
			delete(files, file)
		}
	}
	r.Files = files
	return nil
}

// testFiles are the files of the tests that kill a mutant.
func (r *Recorded) testFiles(root string) (map[Test]string, error) {
	found, read := map[Test]string{}, map[string]bool{}
	for _, by := range r.KilledBy {
		if read[by.Package] {
			continue
		}
		read[by.Package] = true
		names, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(by.Package), "*_test.go"))
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			source, err := os.ReadFile(name)
			if err != nil {
				return nil, err
			}
			for line := range strings.Lines(string(source)) {
				if test, ok := strings.CutPrefix(line, "func Test"); ok {
					test, _, _ = strings.Cut(test, "(")
					found[Test{by.Package, "Test" + test}] = path.Join(by.Package, filepath.Base(name))
				}
			}
		}
	}
	return found, nil
}

// hashOf is a short hash of a file; empty: there is none.
func hashOf(root, file string) (string, error) {
	if file == "" {
		return "", nil
	}
	source, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read %s: %w", file, err)
	}
	sum := sha256.Sum256(source)
	return hex.EncodeToString(sum[:6]), nil
}
