package inbox

import "time"

// IntakeHeld is how many bytes of payloads an intake holds at most.
const IntakeHeld = intakeHeld

// Rested is before when the processor begins no iteration.
func (p *Processor) Rested() time.Time { return p.rested }

// Rest is how long after the begin of an iteration that left nothing undone the next one begins.
const Rest = rest
