package protocol

import "fmt"

// history is the shortest sequence of steps to a state, as sentences. It is found again by its states: only their
// numbers were kept.
func (e *explorer) history(id uint32) []string {
	var path []uint32
	for at := id; at != 0; at = e.parent[at] {
		path = append([]uint32{at}, path...)
	}
	var lines []string
	x := expander{m: e.m}
	s := e.m.start()
	for _, want := range path {
		next := successor{}
		for _, f := range x.steps(&s) {
			c := canonical(f.state)
			if got, ok := e.seen.get(e.hash(&c)); ok && got == want {
				next = f
				break
			}
		}
		s = next.state
		lines = append(lines, line(len(lines)+1, next))
	}
	if e.m.violated(&s) == 0 { // It breaks later, when only what is fair happens.
		lines = append(lines, "   and without further faults:")
		end := fairEnd{m: e.m, known: func(*state) bool { return false }, trace: true}
		end.follow(s)
		lines = append(lines, end.lines(len(path))...)
	}
	return lines
}

// lines are the steps of a fair end. At its end only time passes.
func (f *fairEnd) lines(n int) (list []string) {
	ticks := 0
	for len(f.taken) > 0 && f.taken[len(f.taken)-1].step == StepTime {
		f.taken = f.taken[:len(f.taken)-1]
		ticks++
	}
	for _, next := range f.taken {
		n++
		list = append(list, line(n, next))
	}
	if ticks == 0 {
		return list
	}
	hours := ticks * int(tick.Hours())
	return append(list, fmt.Sprintf("%2d clock %d hours pass, and nothing happens any more", n+1, hours))
}

func line(n int, s successor) string {
	return fmt.Sprintf("%2d %s %s", n, actorNames[s.who], sentence(descriptions[s.step].says, s.note))
}

func sentence(says, note string) string {
	if note == "" {
		return says
	}
	return says + " " + note
}
