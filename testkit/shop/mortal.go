package shop

import (
	"net/http"
	"slices"
	"sync"

	"example.com/payonce/internal/checkout"
	"example.com/payonce/testkit/world"
)

// Mortal is a seam at which a server's work on checkouts ends as if the process
// had been killed: the commit is there, and nothing comes after it. Its Boundary is
// the option of a server.
type Mortal struct {
	mu     sync.Mutex
	passed []string
	diesAt string
}

// Boundary ends the work at the point where it is to die.
func (m *Mortal) Boundary(operation, point string) {
	if operation != checkout.Create {
		return
	}
	m.mu.Lock()
	m.passed = append(m.passed, point)
	die := point == m.diesAt
	if die {
		m.diesAt = "" // once
	}
	m.mu.Unlock()
	if die {
		panic(http.ErrAbortHandler)
	}
}

// DieAt says at which recovery point the work is to die, once; empty is at none. What was passed is forgotten.
func (m *Mortal) DieAt(point string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.passed, m.diesAt = nil, point
}

// Past is which recovery points the work has reached, each once, and the point at which it is still to die.
func (m *Mortal) Past() (passed []string, diesAt string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, point := range m.passed {
		if !slices.Contains(passed, point) {
			passed = append(passed, point)
		}
	}
	return passed, m.diesAt
}

// Interrupted is a server on which every checkout stops at a recovery point once, as if its process had crashed.
func Interrupted(point string) world.LocalOptions {
	var lock sync.Mutex
	armed := true
	return world.LocalOptions{Boundary: func(operation, reached string) {
		lock.Lock()
		defer lock.Unlock()
		switch {
		case operation != checkout.Create:
		case reached == "checkout_recorded":
			armed = true
		case reached == point && armed:
			armed = false
			panic(http.ErrAbortHandler)
		}
	}}
}
