package protocol

// A worker is one run of a process: a request that it answers, or a key that its completer has taken over. What it
// holds in memory is here, and is gone when the process exits.
type worker struct {
	at       place
	key      uint8
	flags    memo
	tries    uint8 // attempts in this run
	call     uint8 // that it makes, or is about to
	why      why   // it reads Stripe
	end      ending
	seen     intentStatus
	returned uint8  // of the intent that it has read
	object   uint8  // that the response has made, from 1
	listed   status // of that refund
	pay      status // of the payment, as it was read; so are the next ones
	order    status
	number   uint8
	intent   uint8
	received uint8 // of a manual intent, as it was seen
}

// place is where a worker is: what its next step is.
type place uint8

const (
	idle place = iota
	atLookup
	atBegin
	atAttempt
	atAwait
	atRead
	atList
	atRecover
	atAccount
	atRecordIntent
	atNextIntent
	atAction
	atFinish
	atSpent
	atReread
	atFinishOrder
	atPaidFirst
	atFinishCancel
	atFinishSweep
	atFinishRefund
	atHold
	atFinishCapture
	atFinishPaidBy
)

// memo is what a worker remembers.
type memo uint16

const (
	forClient  memo = 1 << iota // it answers a request
	heard                       // the client still waits for it
	firstSent                   // the request is the first one with its key
	begun                       // the key is known to be in use
	late                        // the process was paused: the time for the response is over
	recorded                    // the next call was recorded in the phase before
	inDoubt                     // an earlier attempt of the call is in doubt
	fits                        // the refund fits into what is left at Stripe
	seenFailed                  // the intent that was read shows a failure
	liveAtRead                  // the order had a live payment when it was read
	doneCancel                  // the cancel that was asked for is done; nothing comes of the capture any more
	expired                     // the network has dropped the authorization
	keyReused                   // Stripe knows the creation's key from another request
)

func (w *worker) has(m memo) bool { return w.flags&m != 0 }
func (w *worker) set(m memo, on bool) {
	if w.flags &^= m; on {
		w.flags |= m
	}
}

// why says what a worker reads an intent for.
type why uint8

const (
	whyBefore       why = iota // before a confirm that may have been sent
	whyAgain                   // after a response that contradicts what was known
	whyCustomer                // has the customer acted?
	whyCanceled                // what a cancel has done
	whyBeforeCancel            // a cancel was refused before
	whyResumed                 // a refund: whether it was made
	whyRefused                 // a refund: whether the refusal is of our own success
	whyCapture                 // before a capture that may have been sent
	whyCaptured                // what a capture has done
)

// ending is how a payment, a cancel or a refund ends.
type ending uint8

const (
	endNone ending = iota
	endSucceeded
	endFailed // the order's next payment may use the intent
	endFailedClosed
	endCanceled
	endStored // another operation has ended it
	endRefused
	endAuthorized
)

// request is one POST to Stripe on its way.
type request struct {
	state  wireState
	call   uint8
	intent uint8 // from 1
	units  uint8
	number uint8 // of the intent to create
	of     uint8 // the payment of a refund
	manual bool  // the intent to create
	own    bool  // it carries a Stripe key of its own
	reply  reply
	replay bool
	status intentStatus // in the reply
	object uint8        // in the reply, from 1
	listed status       // of the refund in the reply
}

type wireState uint8

const (
	nothing wireState = iota
	underWay
	answered
)
