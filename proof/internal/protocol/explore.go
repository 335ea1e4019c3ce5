package protocol

import (
	"hash/maphash"
	"math"
	"runtime"
	"sync"
	"time"
)

// Result is what an exploration has found.
type Result struct {
	Scope       string
	States      int
	Transitions int
	Histories   float64 // distinct sequences of steps from the first state, no longer than Depth
	Depth       int     // of the deepest state that was reached
	Complete    bool    // nothing was left to explore at that depth
	Quiet       int     // states without a process at work, from which the fair end was followed
	Took        time.Duration
	Taken       [stepCount]bool
	Changed     changes
	Broken      Invariant // 0: none
	History     []string  // the shortest that breaks it
}

// explorer visits every state once, in the order of its distance from the first.
type explorer struct {
	m      *Model
	seed   maphash.Seed
	seen   table
	parent []uint32
	depth  int
	taken  [stepCount]bool

	expanders []*expander // one for each processor
	parts     [][]found
	edges     []edge // of the level that is explored now
	walks     []float64
	next      []float64
	quiet     *ends
	broken    uint32
	what      Invariant
}

type edge struct{ from, to uint32 }

// found is a successor that is not known yet, or not known to be known.
type found struct {
	successor
	hash uint64
	from uint32
	ends Invariant
}

const chunk = 2048 // states that are expanded before their successors are merged

// Explore visits all states up to a depth, and stops at the first that breaks an invariant. 0: all states.
func Explore(m *Model, depth int) Result {
	began := time.Now()
	e := &explorer{m: m, seed: maphash.MakeSeed(), quiet: newEnds()}
	first := canonical(m.start())
	e.add(e.hash(&first), 0)
	e.walks = []float64{1}
	r := Result{Scope: m.scope.Name, Histories: 1}
	frontier, base := []state{first}, uint32(0)
	for len(frontier) > 0 && (depth == 0 || e.depth < depth) && e.what == 0 {
		var after []state
		e.edges = e.edges[:0]
		for at := 0; at < len(frontier) && e.what == 0; at += chunk {
			part := frontier[at:min(at+chunk, len(frontier))]
			after = e.merge(after, e.expand(part, base+uint32(at)), &r)
		}
		base, frontier = base+uint32(len(frontier)), after
		e.countWalks(&r)
		if len(after) > 0 {
			e.depth++
		}
	}
	r.States, r.Depth, r.Complete, r.Taken = len(e.parent), e.depth, len(frontier) == 0, e.taken
	for _, x := range e.expanders {
		r.Changed.add(&x.changes)
	}
	r.Broken, r.Quiet = e.what, e.quiet.size()
	if e.what != 0 {
		r.History = e.history(e.broken)
	}
	r.Took = time.Since(began)
	return r
}

func (e *explorer) hash(s *state) uint64 { return maphash.Comparable(e.seed, *s) }

// add enters a new state, and returns its number.
func (e *explorer) add(hash uint64, parent uint32) uint32 {
	e.parent = append(e.parent, parent)
	id := uint32(len(e.parent) - 1)
	e.seen.put(hash, id)
	return id
}

// expand finds the successors of some states, each processor those of a part of them.
func (e *explorer) expand(states []state, first uint32) [][]found {
	n := runtime.GOMAXPROCS(0)
	share := (len(states) + n - 1) / n
	for len(e.expanders) < n {
		e.expanders = append(e.expanders, &expander{m: e.m})
		e.parts = append(e.parts, nil)
	}
	parts := e.parts[:n]
	var wait sync.WaitGroup
	for p := range n {
		wait.Go(func() {
			x := e.expanders[p]
			parts[p] = parts[p][:0]
			for i := p * share; i < min((p+1)*share, len(states)); i++ {
				for _, s := range x.steps(&states[i]) {
					s.state = canonical(s.state)
					parts[p] = append(parts[p], found{s, e.hash(&s.state), first + uint32(i), 0})
				}
			}
			for j := range parts[p] {
				f := &parts[p][j]
				if f.ends = e.m.violated(&f.state); f.ends == 0 {
					f.ends = e.quiet.check(e, &f.state, f.hash)
				}
			}
		})
	}
	wait.Wait()
	return parts
}

// merge enters what was found, in order, so that two runs number the states alike.
func (e *explorer) merge(after []state, parts [][]found, r *Result) []state {
	for _, part := range parts {
		for i := range part {
			f := &part[i]
			r.Transitions++
			e.taken[f.step] = true
			id, known := e.seen.get(f.hash)
			if !known {
				id = e.add(f.hash, f.from)
				after = append(after, f.state)
			}
			e.edges = append(e.edges, edge{f.from, id})
			if f.ends != 0 && e.what == 0 {
				e.what, e.broken = f.ends, id
			}
		}
	}
	return after
}

// countWalks adds the histories that are longer by one step. A step back to a state of an earlier level is one as
// well.
func (e *explorer) countWalks(r *Result) {
	e.next = append(e.next, make([]float64, len(e.parent)-len(e.next))...)
	for _, step := range e.edges {
		e.next[step.to] += e.walks[step.from]
	}
	sum := 0.0
	for _, step := range e.edges {
		sum += e.walks[step.from]
	}
	e.walks = append(e.walks, make([]float64, len(e.parent)-len(e.walks))...)
	for _, step := range e.edges {
		e.walks[step.to] += e.walks[step.from]
	}
	if !math.IsInf(sum, 0) {
		r.Histories += sum
	}
}

// canonical is a state with its processes in a fixed order: which of two does something makes no difference.
func canonical(s state) state {
	if !before(&s, 1, 0) {
		return s
	}
	s.work[0], s.work[1] = s.work[1], s.work[0]
	s.wire[0], s.wire[1] = s.wire[1], s.wire[0]
	for k := range s.key {
		if h := s.key[k].holder; h != 0 {
			s.key[k].holder = 3 - h
		}
	}
	return s
}

// before orders processes by what they do.
func before(s *state, a, b int) bool {
	for _, pair := range [][2]uint64{
		{s.work[a].order64(), s.work[b].order64()}, {s.work[a].second64(), s.work[b].second64()},
		{s.work[a].third64(), s.work[b].third64()},
		{s.wire[a].order64(), s.wire[b].order64()}, {s.wire[a].second64(), s.wire[b].second64()},
	} {
		if pair[0] != pair[1] {
			return pair[0] > pair[1]
		}
	}
	return s.heldBy(a) > s.heldBy(b)
}

func pack(list ...uint8) (n uint64) {
	for _, b := range list {
		n = n<<8 | uint64(b)
	}
	return n
}

func (w *worker) order64() uint64 {
	return pack(uint8(w.at), w.key, uint8(w.flags>>8), uint8(w.flags), w.tries, w.call, uint8(w.why), uint8(w.end))
}

func (w *worker) second64() uint64 {
	return pack(uint8(w.seen), w.returned, w.object, uint8(w.listed), uint8(w.pay), uint8(w.order), w.number, w.intent)
}

func (w *worker) third64() uint64 { return pack(w.received) }

func (r *request) order64() uint64 {
	return pack(uint8(r.state), r.call, r.intent, r.units, r.number, r.of, uint8(index(r.own)), uint8(r.reply))
}

func (r *request) second64() uint64 {
	return pack(uint8(index(r.replay)), uint8(r.status), r.object, uint8(r.listed),
		uint8(index(r.manual)))
}

// heldBy is the set of keys that a process holds.
func (s *state) heldBy(i int) (set uint64) {
	for k, row := range s.key {
		if row.holder == uint8(i+1) {
			set |= 1 << k
		}
	}
	return set
}
