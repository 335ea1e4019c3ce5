// Package mutantswitch is what an instrumented build of the service calls
// instead of deciding for itself. It is laid over the service's source for the
// time of a run of mutants (go build -overlay); no program that is released
// imports it.
//
// One process runs at most one mutant. Which one is read from the environment
// when the process starts.
package mutantswitch

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// The environment of an instrumented test.
const (
	ActiveVar  = "PAYONCE_MUTANT"         // number of the Go mutant
	SQLVar     = "PAYONCE_MUTANT_SQL"     // file: the name of a query, a newline, its mutated text
	ReachedVar = "PAYONCE_MUTANT_REACHED" // file to which numbers of mutants that would change something are appended
)

var (
	active         = number(os.Getenv(ActiveVar))
	query, mutated = replaced(os.Getenv(SQLVar))
	reachedFile    = os.Getenv(ReachedVar)
	record         sync.Mutex
	reached        [1 << 16]atomic.Bool // by number; a map would allocate in each condition, and tests count allocations
)

// If is a condition with two mutants: never true, always true. A number of 0 is
// no mutant. It is reached where it would change the value.
func If(never, always int, value bool) bool {
	if value {
		reach(never)
	} else {
		reach(always)
	}
	switch active {
	case never:
		return false
	case always:
		return true
	}
	return value
}

// Case is a value of a case, whose mutant never equals the tag.
func Case[T comparable](without int, tag, value T) T {
	if tag == value {
		reach(without)
	}
	if active == without {
		return other(tag)
	}
	return value
}

// SQL is the text of a query, or of its mutant.
func SQL(name, text string) string {
	if name == query {
		return mutated
	}
	return text
}

// Query records that the mutants of a query are reached: the first of them
// stands for all.
func Query(first int) { reach(first) }

// other is any value but that one.
func other[T comparable](tag T) (v T) {
	set(&v, tag)
	return v
}

func reach(mutant int) {
	if reachedFile == "" || mutant == 0 {
		return
	}
	if reached[mutant].Load() || reached[mutant].Swap(true) {
		return
	}
	record.Lock()
	defer record.Unlock()
	f, err := os.OpenFile(reachedFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	if _, err := f.WriteString(strconv.Itoa(mutant) + "\n"); err != nil {
		panic(err)
	}
	if err := f.Close(); err != nil {
		panic(err)
	}
}

// number is -1, which no mutant has, if there is none.
func number(text string) int {
	if text == "" {
		return -1
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		panic(ActiveVar + ": " + err.Error())
	}
	return n
}

func replaced(path string) (name, text string) {
	if path == "" {
		return "", ""
	}
	b, err := os.ReadFile(path)
	if err != nil {
		panic(SQLVar + ": " + err.Error())
	}
	name, text, _ = strings.Cut(string(b), "\n")
	return name, text
}
