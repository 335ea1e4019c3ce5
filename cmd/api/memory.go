package main

import (
	"io/fs"
	"math"
	"runtime/debug"
	"strconv"
	"strings"
)

// memoryShare is how much of a container's memory the Go runtime may use before it collects more often. The rest is for
// what it does not count, such as the program itself.
const memoryShare = 0.9

// limitMemory tells the runtime the limit of the container, which it does not read itself. Without that the heap may grow
// to several times what is live, and the kernel kills the process although most of it is garbage.
func limitMemory(getenv func(string) string, files fs.FS) {
	if limit := containerMemory(files); limit > 0 && getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(int64(memoryShare * float64(limit)))
	}
}

// containerMemory is the limit of the control group that the process is in, of version 2 or 1. Zero: there is none.
func containerMemory(files fs.FS) int64 {
	for _, name := range []string{"sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			continue
		}
		limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err == nil && limit > 0 && limit < math.MaxInt64/2 { // Version 1 writes a number near the largest, version 2 "max".
			return limit
		}
	}
	return 0
}
