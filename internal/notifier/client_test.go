package notifier

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPublic(t *testing.T) {
	t.Parallel()
	for _, ip := range []string{
		"0.0.0.0", "0.1.2.3", "10.1.2.3", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.254",
		"169.254.0.1", "169.254.169.254", "172.16.0.1", "172.31.255.255",
		"192.0.0.192", "192.0.2.1", "192.168.0.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1",
		"239.1.1.1", "240.0.0.1", "255.255.255.255",
		"::", "::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::ffff:10.0.0.1", "::127.0.0.1",
		"64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "100::1",
		"2001::1", "2001:db8::1", "2002:7f00:1::", "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "fec0::1",
		"ff02::1", "::ffff:0:127.0.0.1", "::ffff:0:7f00:1", "3fff::1", "4000::1", "5f00::1",
	} {
		require.False(t, public(netip.MustParseAddr(ip)), ip)
	}
	for _, ip := range []string{"1.1.1.1", "93.184.216.34", "172.32.0.1", "100.128.0.1", "::ffff:1.1.1.1",
		"2606:4700:4700::1111", "2a00:1450:4001:82a::200e"} {
		require.True(t, public(netip.MustParseAddr(ip)), ip)
	}
	require.False(t, public(netip.Addr{}))
	require.Error(t, refusePrivate("tcp", "not an address", nil))
}
