package devpg

import (
	"context"
	"os"
	"path/filepath"
	"time"
)

const dirPrefix = "payonce-pg-"

// sweep removes the folders of servers whose owner exited together with its
// janitor. The lock tells: its holder is gone when we can take it, and unlike a
// process id it is never another process's by now.
func sweep(ctx context.Context, roots []string) {
	for _, root := range roots {
		dirs, _ := filepath.Glob(filepath.Join(root, dirPrefix+"*")) // errs on a malformed pattern only
		for _, dir := range dirs {
			if ctx.Err() != nil {
				return
			}
			sweepOne(dir)
		}
	}
}

func sweepOne(dir string) {
	lock := filepath.Join(dir, "lock")
	if _, err := os.Stat(lock); err != nil {
		// Between making its folder and its lock a server is a stranger.
		if info, err := os.Stat(dir); err != nil || time.Since(info.ModTime()) < time.Minute {
			return
		}
	}
	unlock, err := tryLockFile(lock)
	if err != nil {
		return // in use, or another user's
	}
	defer unlock()
	endServerIn(dir)
	_ = os.RemoveAll(dir) // what cannot be removed now will be tried again
}
