package port_test

import (
	"fmt"
	"net/netip"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/port"
)

// TestLoopback: the port of a process that is dead for a while is not given to
// another process's connection.
func TestLoopback(t *testing.T) {
	t.Parallel()
	from, to := 49152, 65535 // IANA's, where the kernel does not say
	if text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err == nil {
		_, err := fmt.Sscan(string(text), &from, &to)
		require.NoError(t, err)
	}
	seen := map[netip.AddrPort]bool{}
	for range 600 { // so many that two of random ports would be the same
		at, err := port.Loopback(t.Context())
		require.NoError(t, err)
		require.False(t, seen[at], "%s is given twice", at)
		seen[at] = true
		require.True(t, at.Addr().IsLoopback(), at)
		require.False(t, from <= int(at.Port()) && int(at.Port()) <= to, "%s is among the ports of outgoing "+
			"connections, %d to %d", at, from, to)
	}
}
