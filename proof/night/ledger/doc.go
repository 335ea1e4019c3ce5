// Package ledger runs payments' events through real processes to the ledger, while relays and consumers get SIGKILL and
// SIGSTOP and the broker is stopped, and counts the entries. What a kill can leave is tested case by case:
// in internal/inbox (TestEffectsUnderKills) and in proof/night/api (TestConsumerKilledBeforeItsAcknowledgement).
//
//	go test -C proof ./night/ledger
package ledger
