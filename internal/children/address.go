package children

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
)

// FreeAddress is an address of this machine on which nothing listens, for a
// process that must be where it was when it comes back.
//
// Its port is below those that kernels give to outgoing connections (from 32768 on
// Linux, from 49152 elsewhere), or one of those might have it while the process is
// dead.
func FreeAddress(ctx context.Context) (addr string, err error) {
	for range 100 {
		addr = fmt.Sprintf("127.0.0.1:%d", 20_000+rand.IntN(12_000))
		l, failed := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
		if failed == nil {
			return addr, l.Close()
		}
		err = failed
	}
	return "", err
}
