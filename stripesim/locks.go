package stripesim

import (
	"sync"
	"time"
)

// objectLocks let one request at a time change an object. Another one waits for
// a while and is then told lock_timeout.
type objectLocks struct {
	mu   sync.Mutex
	held map[string]*objectLock
}

type objectLock struct {
	free    chan struct{} // holds one token
	waiters int
}

// SetLockWait sets how long a request waits for an object that another one changes.
func (s *Sim) SetLockWait(wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lockWait = wait
}

// acquire takes the lock on an object. The empty id is no object and is free.
func (l *objectLocks) acquire(id string, wait time.Duration, closed <-chan struct{}) bool {
	if id == "" {
		return true
	}
	l.mu.Lock()
	if l.held == nil {
		l.held = map[string]*objectLock{}
	}
	lock := l.held[id]
	if lock == nil {
		lock = &objectLock{free: make(chan struct{}, 1)}
		l.held[id] = lock
		lock.waiters = 1
		l.mu.Unlock()
		return true
	}
	lock.waiters++
	l.mu.Unlock()

	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-lock.free:
		return true
	case <-timer.C:
	case <-closed:
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-lock.free: // it came in the last moment
		return true
	default:
	}
	lock.waiters--
	return false
}

func (l *objectLocks) release(id string) {
	if id == "" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	lock := l.held[id]
	if lock.waiters--; lock.waiters == 0 {
		delete(l.held, id)
		return
	}
	lock.free <- struct{}{}
}
