package http

import (
	"sync"
	"time"
)

// A response stays in memory until the kernel has taken it, and that takes as long as the client does not read, up to
// ClientTimes.Read. A few connections that ask for pages of a list and do not read them could so take gigabytes. So the bytes
// that wait have a limit, and a request is refused before its response is made if its tenant has more than its share of
// what is left. One tenant can then have a fifth of all, and leaves room for each that comes.

const (
	unreadMax     = 128 << 20 // of all tenants
	unreadCounted = 4 << 10   // Less than that is not counted: a connection takes more.

	// The part of what is left that a tenant's responses may have. A POST may begin when reads may not any more, because
	// a client must get through with its payment while another of the tenant's does not read its lists.
	unreadReads = 4
	unreadPosts = 2
)

var errUnread = rateLimited(reasonTenantUnread, time.Second,
	"Too many responses of this tenant wait to be read. Read them, then retry the request unchanged.")

// unread counts the bytes of responses that are being sent.
type unread struct {
	mu      sync.Mutex
	bytes   int
	tenants map[string]int // those that have any
}

func newUnread() *unread { return &unread{tenants: map[string]int{}} }

// room is nil if a response to the tenant may be made. The requests that are served at the same time may exceed the limit
// by their responses; there are as many as the tenant has slots. A tenant that has read everything is not refused for what
// others have not, unless that is twice as much.
func (u *unread) room(tenantID string, part int) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if has := u.tenants[tenantID]; has > max(0, unreadMax-u.bytes)/part || has == 0 && u.bytes > 2*unreadMax {
		return errUnread
	}
	return nil
}

// add counts n bytes more, or less if it is negative.
func (u *unread) add(tenantID string, n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.bytes += n
	if u.tenants[tenantID] += n; u.tenants[tenantID] == 0 {
		delete(u.tenants, tenantID)
	}
}
