//go:build !unix

package client

import (
	"errors"
	"os"
)

// lockFile fails: on this platform the standard library has no lock that ends with the process.
func lockFile(*os.File) error {
	return errors.New("a journal in a file needs flock, which is there on Unix; use one in a database: client.SQL")
}

func syncFolder(string) error { return nil }
