package payments

// FindPagesMax is how much of Stripe's list one run reads.
const FindPagesMax = findPagesMax
