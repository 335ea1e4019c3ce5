package inbox

// IntakesMax is how many statements an intake runs concurrently.
const IntakesMax = intakesMax

// IntakeHeld is how many bytes of payloads an intake holds at most.
const IntakeHeld = intakeHeld

// Held is how many it holds now.
func (i *Intake) Held() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.held
}

// Waiting is how many events wait for the next statement.
func (i *Intake) Waiting() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.waiting)
}
