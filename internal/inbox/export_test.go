package inbox

import "time"

// IntakeHeld is how many bytes an intake holds at most, IntakeEach of each event besides its payload.
const (
	IntakeHeld = intakeHeld
	IntakeEach = intakeEach
)

// Rested is before when the processor begins no iteration.
func (p *Processor) Rested() time.Time { return p.rested }

// Rest is how long after the begin of an iteration that left nothing undone the next one begins.
const Rest = rest
