package protocol

import (
	"time"
)

// How large the world of the model is. An order is of two units, so that it can be refunded in part.
const (
	workers   = 2
	clients   = 3
	fullPrice = 2
	// tick is how much time passes at once. Five ticks separate all limits of the code: of resending (12 h), of
	// Stripe's memory (24 h), of waiting for a lost refund (36 h) and of retrying (48 h).
	tick = 13 * time.Hour
)

// The slots of keys: those of clients, and those of the service's own work.
const (
	firstKey = iota
	secondKey
	thirdKey
	automaticKey // of the first automatic refund
	retryKey     // of the next, when that has failed
	sweepKey     // of the cancel of the first abandoned intent; the next slot is that of the second
	keys         = sweepKey + 2
)

// The slots of payments: one for each client's key, and one for money that is adopted.
const (
	adoptedPayment = clients
	pays           = clients + 1
)

// The slots of refunds: one for each client's key, two automatic ones and two that others have made.
const (
	automaticRefund = clients
	retryRefund     = clients + 1
	othersRefund    = clients + 2
	refunds         = clients + 4
	ownRefunds      = othersRefund // those that are sent to Stripe
)

// The slots of calls to Stripe, which are those of their idempotency keys.
const (
	intents     = 3 // at Stripe
	createCalls = 0
	confirms    = createCalls + intents
	cancelsOf   = confirms + clients
	cancelTries = 3
	refundCalls = cancelsOf + intents*cancelTries
	captures    = refundCalls + ownRefunds
	calls       = captures + clients
)

// state is everything at one moment. It is compared and hashed as it is, so it holds no pointers and no sums that
// follow from other members.
type state struct {
	rows
	at      account
	work    [workers]worker
	wire    [workers + 1]request // the last: one that its process does not wait for any more
	client  [clients]client
	faults  uint8 // that may still happen
	acts    uint8 // of people, of a bank or of another program
	hours   uint8 // ticks that have passed
	backup  uint16
	flags   flag
	backups uint8     // that may still be taken
	broken  Invariant // by the step that led here
}

type flag uint8

const restored flag = 1 // the database has gone back

// rows is the database.
type rows struct {
	order  orderRow
	pay    [pays]paymentRow
	key    [keys]keyRow
	call   [calls]callRow
	refund [refunds]refundRow
	owed   owedRow
}

type orderRow struct {
	status    status
	canceling bool  // canceling_key is set
	payment   uint8 // the payment that paid it, from 1
	retired   uint8 // intents_retired
	refunded  uint8
}

type paymentRow struct {
	status    status
	number    uint8 // intent_number
	intent    uint8 // from 1
	flags     paymentFlag
	captured  uint8 // of a manual one
	capturing uint8 // capturing_key, from 1
	amount    uint8 // capturing_minor; 0: it is canceled
	refunding uint8
	refunded  uint8
	since     uint8 // the hour of its status
	id        uint8 // of an adopted one: the payment, from 1, whose id it took from a refund at Stripe
}

type paymentFlag uint8

const (
	intentClosed paymentFlag = 1 << iota
	intentSpent
	mustBeRefunded
	hadAction // it has been requires_action: the invariant needs it, the row has no such column
	manual    // manual_capture
)

type keyRow struct {
	point  point // noPoint: there is no such key
	answer answer
	holder uint8 // 0: none; otherwise the number of a worker, from 1
	over   bool  // its lease has run out
	parked bool
	born   uint8
}

type callRow struct {
	attempts uint8 // no more than two are counted
	outcome  outcome
	inDoubt  bool
	cached   bool
	ours     bool  // the request that got the stored error is recorded
	first    uint8 // the hour
}

type refundRow struct {
	status  status
	units   uint8
	payment uint8
	stripe  uint8 // the refund at Stripe, from 1
}

type owedRow struct {
	payment  uint8 // from 1; 0: nothing was ever owed
	attempts uint8
	last     uint8 // the refund of the last attempt
	ended    bool
	parked   bool
}

// account is what Stripe has.
type account struct {
	intent [intents]intent
	refund [refunds]stripeRefund
	memory [calls]memory
}

type intent struct {
	status intentStatus
	number uint8
	failed bool  // a payment of it was tried and failed
	secret bool  // its client secret was handed out
	payer  uint8 // who paid it: a client's confirm, from 1; byBrowser, byOthers
	events event // that have happened, and may be delivered at any time, in any order and again
	born   uint8

	manual   bool  // its money is reserved first
	received uint8 // of a manual one
	capturer uint8 // a client's capture, from 1; 0: none, or others
}

const (
	byBrowser = clients + 1
	byOthers  = clients + 2
)

type event uint8

const (
	eventChanged event = 1 << iota
	eventSucceeded
	eventCanceled
	eventRefund
)

type stripeRefund struct {
	status status
	units  uint8
	intent uint8
	row    uint8 // of which row it is, from its metadata, from 1; 0: others made it
	of     uint8 // the payment that its metadata names
}

// memory is what Stripe repeats under a key.
type memory struct {
	reply  reply
	intent intentStatus // as the reply showed it
	object uint8        // that it made, from 1
	since  uint8
	manual bool // of a creation: what it asked for
}

// client sends one request, and again until it has a final answer.
type client struct {
	sent    uint8
	waiting bool
	final   answer // the first that it got
}
