package main

import (
	"io/fs"
	"os"
	"path/filepath"

	"example.com/payonce/loadtest"
)

// scenario is a script, and what it is for.
type scenario struct{ name, shows string }

var scenarios = []scenario{
	{"smoke", "everything once, by few: does it work, and is it counted?"},
	{"steady", "so many payments a second, a quarter of them asked for twice"},
	{"ramp", "more and more payments a second, to saturation and beyond"},
	{"duplicate-storm", "the same request many times at the same instant"},
	{"retry-storm", "Stripe loses answers, and clients hang up and send again at once"},
	{"hot-order", "many clients pay one order, each under its own key"},
	{"checkout-mix", "checkouts: completed, declined, out of stock, sent twice"},
	{"soak", "a little of everything, for a long time"},
}

// unpackScripts writes them to a folder, where k6 can read them.
func unpackScripts(dir string) error {
	return fs.WalkDir(loadtest.Scripts, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := loadtest.Scripts.ReadFile(path)
		if err != nil {
			return err
		}
		to := filepath.Join(dir, filepath.FromSlash(path))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		return os.WriteFile(to, text, 0o600)
	})
}
