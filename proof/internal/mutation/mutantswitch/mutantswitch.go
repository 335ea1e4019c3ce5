// Package mutantswitch is what an instrumented build of the service calls
// instead of deciding for itself. It is laid over the service's source for the
// time of a run of mutants (go build -overlay); no program that is released
// imports it.
//
// One process runs at most one mutant. Which one is read from the environment
// when the process starts.
package mutantswitch

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"sync"
)

// The environment of an instrumented test.
const (
	ActiveVar  = "PAYONCE_MUTANT"         // number of the Go mutant
	SQLVar     = "PAYONCE_MUTANT_SQL"     // file: the name of a query, a newline, its mutated text
	ReachedVar = "PAYONCE_MUTANT_REACHED" // file to which a test and the number of a mutant that would change something are appended
	OutputVar  = "PAYONCE_MUTANT_OUTPUT"  // file to which package testing writes which test it runs (-test.v=test2json)
)

var (
	active         = number(os.Getenv(ActiveVar))
	query, mutated = replaced(os.Getenv(SQLVar))
	reachedFile    = os.Getenv(ReachedVar)
	output         = opened(os.Getenv(OutputVar))
	record         sync.Mutex
	reached        [1 << 16]int // the turn in which it was, by number; a map would allocate in each condition, and tests count allocations
	current        = "-"        // the top-level test that runs
	turn           = 1          // grows when another test runs
	offset         int64        // of what was not read of the output
	unread         [1 << 12]byte
	line           []byte // that is not complete
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
	record.Lock()
	defer record.Unlock()
	follow()
	if reached[mutant] == turn {
		return
	}
	reached[mutant] = turn
	f, err := os.OpenFile(reachedFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	if _, err := f.WriteString(current + " " + strconv.Itoa(mutant) + "\n"); err != nil {
		panic(err)
	}
	if err := f.Close(); err != nil {
		panic(err)
	}
}

// follow reads which test runs now. Package testing has written its name before the test goes on, so the last name in the
// file is the one, as long as one test runs at a time.
func follow() {
	for output != nil {
		n, _ := output.ReadAt(unread[:], offset)
		if n == 0 {
			return
		}
		offset += int64(n)
		for rest := unread[:n]; len(rest) > 0; {
			end := bytes.IndexByte(rest, '\n')
			if end < 0 {
				line = append(line, rest...)
				break
			}
			line = append(line, rest[:end]...)
			rest = rest[end+1:]
			runs(line)
			line = line[:0]
		}
	}
}

var marks = [][]byte{[]byte("\x16=== RUN   "), []byte("\x16=== CONT  "), []byte("\x16=== NAME  ")}

func runs(line []byte) {
	for _, mark := range marks {
		at := bytes.Index(line, mark)
		if at < 0 {
			continue
		}
		name, _, _ := bytes.Cut(line[at+len(mark):], []byte("/"))
		if len(name) > 0 && string(name) != current {
			current = string(name)
			turn++
		}
	}
}

func opened(path string) *os.File {
	if path == "" {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		panic(OutputVar + ": " + err.Error())
	}
	return f
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
