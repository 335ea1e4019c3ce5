package main

import (
	"container/heap"
	"fmt"
	"time"
)

// machine is what payments are simulated on.
type machine struct {
	processors int // of the service and the database
	processes  int // of the service, over which the clients are spread
	clients    int // each sends its next payment when it has its response
}

// costs are what one takes of what all share.
type costs struct {
	driver  time.Duration // processor time of the client, a payment; zero: it is on another machine
	request time.Duration // of the service, a payment
	send    time.Duration // of the service, a statement
	execute time.Duration // of PostgreSQL, a statement
	row     time.Duration // of PostgreSQL, a row of a statement
	flush   time.Duration // of the log, which is written for all that wait at once
	bytes   float64       // of the log, a payment
}

// statements of a payment, in their order: those of true commit, and wait for the log (ADR 40). A gateway that answers
// at once stands before the last two.
var statements = []bool{false, true, true, true}

// These are Batched's.
const (
	simulatedRows  = 64
	simulatedLanes = 2
	simulatedEvery = 16 // rows wait before a second lane is used
)

const (
	nearlyAll       = 0.9 // of its time
	simulatedWarmUp = time.Second
	simulatedLength = 2 * time.Second
)

// simulated is what a simulation came to.
type simulated struct {
	rate                    float64 // payments a second
	bytes                   float64 // of the log, a second
	rows                    float64 // a statement
	processors, lanes, logs float64 // how much of their time they were busy
}

// limit is what more of would bring more. It is never the log, however busy: a flush is for all that wait. A lane is also
// busy while it waits for a processor or for the log.
func (s simulated) limit() string {
	switch {
	case s.processors > nearlyAll:
		return "the processors"
	case s.lanes > nearlyAll:
		return "the lanes"
	default:
		return "the clients"
	}
}

func (s simulated) String() string {
	return fmt.Sprintf("%.0f rows a statement, %.0f MB of WAL a second; busy: processors %.0f %%, lanes %.0f %%, log %.0f %%; the "+
		"limit: %s", s.rows, s.bytes/1e6, 100*s.processors, 100*s.lanes, 100*s.logs, s.limit())
}

// simulate counts payments in simulated time: each waits its turn for a processor, for a lane and for the log, and
// nothing else. So it knows no limit that is not among those: no locks inside PostgreSQL, no memory bandwidth, no
// collector.
func simulate(m machine, c costs) simulated {
	s := &simulation{c: c, idle: m.processors}
	processes := make([]*simulatedProcess, m.processes)
	for i := range processes {
		processes[i] = &simulatedProcess{s: s}
	}
	for client := range m.clients {
		s.pay(processes[client%m.processes])
	}
	var began simulation
	for s.now < simulatedWarmUp+simulatedLength {
		if began.now == 0 && s.now >= simulatedWarmUp {
			began = *s
		}
		next := heap.Pop(&s.due).(*moment)
		s.now = next.at
		next.then()
	}
	took := float64(s.now - began.now)
	rate := float64(s.paid-began.paid) / (took / float64(time.Second))
	return simulated{
		rate:       rate,
		bytes:      rate * c.bytes,
		rows:       float64(s.rows-began.rows) / float64(max(1, s.batches-began.batches)),
		processors: float64(s.computed-began.computed) / took / float64(m.processors),
		lanes:      float64(s.sent-began.sent) / took / float64(m.processes*simulatedLanes),
		logs:       float64(s.flushed-began.flushed) / took,
	}
}

type simulation struct {
	c    costs
	now  time.Duration
	due  moments
	last int // of the moments

	idle     int      // processors
	ready    []func() // what waits for one
	flushing bool
	commits  []func() // what waits for the log

	paid, rows, batches     int
	computed, sent, flushed time.Duration // of processors, lanes and the log
}

// after calls then when this time has passed.
func (s *simulation) after(takes time.Duration, then func()) {
	s.last++
	heap.Push(&s.due, &moment{at: s.now + takes, n: s.last, then: then})
}

// compute calls then when a processor has worked for so long.
func (s *simulation) compute(takes time.Duration, then func()) {
	work := func() {
		s.after(takes, func() {
			s.computed += takes
			if len(s.ready) > 0 {
				next := s.ready[0]
				s.ready = s.ready[1:]
				next()
			} else {
				s.idle++
			}
			then()
		})
	}
	if s.idle == 0 {
		s.ready = append(s.ready, work)
		return
	}
	s.idle--
	work()
}

// flush calls then when the log is written.
func (s *simulation) flush(then func()) {
	s.commits = append(s.commits, then)
	if !s.flushing {
		s.write()
	}
}

func (s *simulation) write() {
	commits := s.commits
	s.flushing, s.commits = len(commits) > 0, nil
	if !s.flushing {
		return
	}
	s.after(s.c.flush, func() {
		s.flushed += s.c.flush
		for _, then := range commits {
			then()
		}
		s.write()
	})
}

// pay is a client that pays again and again.
func (s *simulation) pay(p *simulatedProcess) {
	part := s.c.request / time.Duration(len(statements)+1)
	var step func(n int)
	step = func(n int) {
		s.compute(part, func() {
			if n < len(statements) {
				p.do(n, func() { step(n + 1) })
				return
			}
			s.paid++
			s.pay(p)
		})
	}
	s.compute(s.c.driver, func() { step(0) })
}

// simulatedProcess has the lanes of a process, as Batched has them.
type simulatedProcess struct {
	s       *simulation
	busy    int
	waiting int
	queues  [5][]func()
	passed  [5]int
}

// do calls then when the statement was executed for a row.
func (p *simulatedProcess) do(statement int, then func()) {
	if p.busy == 0 {
		p.busy++
		p.run(statement, []func(){then})
		return
	}
	p.queues[statement] = append(p.queues[statement], then)
	p.waiting++
	if p.busy < simulatedLanes && p.waiting >= simulatedEvery {
		p.busy++
		p.next()
	}
}

// next runs the queue in which most wait; those that are passed by count for a batch more each time.
func (p *simulatedProcess) next() {
	most, weight := -1, 0
	for i, q := range p.queues {
		if w := len(q) + p.passed[i]*simulatedRows; len(q) > 0 && w > weight {
			most, weight = i, w
		}
	}
	if most < 0 {
		p.busy--
		return
	}
	for i, q := range p.queues {
		p.passed[i]++
		if i == most || len(q) == 0 {
			p.passed[i] = 0
		}
	}
	n := min(len(p.queues[most]), simulatedRows)
	rows := p.queues[most][:n:n]
	p.queues[most] = p.queues[most][n:]
	p.waiting -= n
	p.run(most, rows)
}

func (p *simulatedProcess) run(statement int, rows []func()) {
	s := p.s
	began := s.now
	done := func() {
		s.sent += s.now - began
		s.batches++
		s.rows += len(rows)
		for _, then := range rows {
			then()
		}
		p.next()
	}
	s.compute(s.c.send, func() {
		s.compute(s.c.execute+time.Duration(len(rows))*s.c.row, func() {
			if statements[statement] {
				s.flush(done)
				return
			}
			done()
		})
	})
}

// moments are what happens next, the earliest first, and of the same time what was planned first.
type moments []*moment

type moment struct {
	at   time.Duration
	n    int
	then func()
}

func (m moments) Len() int { return len(m) }
func (m moments) Less(i, j int) bool {
	return m[i].at < m[j].at || m[i].at == m[j].at && m[i].n < m[j].n
}
func (m moments) Swap(i, j int) { m[i], m[j] = m[j], m[i] }
func (m *moments) Push(one any) { *m = append(*m, one.(*moment)) }
func (m *moments) Pop() any {
	last := (*m)[len(*m)-1]
	*m = (*m)[:len(*m)-1]
	return last
}
