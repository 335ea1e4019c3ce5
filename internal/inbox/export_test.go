package inbox

// IntakeHeld is how many bytes of payloads an intake holds at most.
const IntakeHeld = intakeHeld

// Rest is how long after the begin of an iteration that left nothing undone the next one begins.
const Rest = rest
