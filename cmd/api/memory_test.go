package main

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

func TestContainerMemory(t *testing.T) {
	t.Parallel()
	const v2, v1 = "sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes"
	for name, c := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"version 2":           {map[string]string{v2: "536870912\n"}, 512 << 20},
		"version 2, no limit": {map[string]string{v2: "max\n"}, 0},
		"version 1":           {map[string]string{v1: "268435456\n"}, 256 << 20},
		"version 1, no limit": {map[string]string{v1: "9223372036854771712\n"}, 0},
		"no container":        {nil, 0},
	} {
		files := fstest.MapFS{}
		for path, text := range c.files {
			files[path] = &fstest.MapFile{Data: []byte(text)}
		}
		require.Equal(t, c.want, containerMemory(files), name)
	}
}
