package inbox

// IntakeHeld is how many bytes of payloads an intake holds at most.
const IntakeHeld = intakeHeld
