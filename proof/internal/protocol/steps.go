package protocol

// Step is a kind of step.
type Step uint8

// The steps. Their order is the one in which they are listed.
const (
	StepSend Step = iota
	StepRetry
	StepFresh
	StepReplay
	StepInFlight
	StepNoTimeLeft
	StepLookupTooLate
	StepBusy
	StepTaken
	StepRefuse
	StepTakeOver
	StepComplete
	StepReread
	StepFenced
	StepMoved
	StepBeginPayment
	StepRecordIntent
	StepNextIntent
	StepSearch
	StepAccount
	StepRequireAction
	StepReadIntent
	StepFinishPaid
	StepFinishLate
	StepFinishFailed
	StepFinishClosed
	StepFinishCanceled
	StepFinishPaidBy
	StepFinishStored
	StepIntentSpent
	StepAttempt
	StepTooOld
	StepResponse
	StepBeginCancel
	StepCancelOrder
	StepPaidFirst
	StepPaysNothing
	StepCancelPayment
	StepFinishSweep
	StepHold
	StepBeginCapture
	StepFinishCapture
	StepRefuseCapture
	StepFinishAuthorized
	StepBeginRefund
	StepListRefunds
	StepFinishRefund
	StepRefuseRefund
	StepRetryOwed
	StepReconcileAgrees
	StepReconcileExpedites
	StepReconcileRefunds
	StepReconcileEnds
	StepAdopt
	StepSweep
	StepWebhook
	StepReplayed
	StepKeyReused
	StepCreated
	StepCharged
	StepDeclined
	StepNeedsAction
	StepProcessing
	StepCanceledIntent
	StepStateConflict
	StepRefunded
	StepRefundPending
	StepCaptured
	StepCaptureRefused
	StepCaptureExpired
	StepExpires
	StepRefundTooLarge
	StepRefundRefused
	StepAuthenticates
	StepFailsAuthentication
	StepBrowserPays
	StepOtherPays
	StepDashboardCancels
	StepDashboardRefunds
	StepDashboardCaptures
	StepBankPays
	StepBankRefuses
	StepRefundArrives
	StepRefundReturns
	StepTime
	StepBackup
	StepRestore
	StepLookupFails
	StepDatabaseAway
	StepCommitLost
	StepRolledBack
	StepAnswersUncommitted
	StepResponseLost
	StepTimeout
	StepTurnedAway
	StepInvalid
	StepErrorStored
	StepErrorAfterEffect
	StepCrash
	StepCrashSent
	StepPaused
	StepDisconnect
	stepCount
)

// description of a step: what it says in a history, and the places in the code that it stands for.
type description struct {
	says   string
	places []string
}

func at(says string, places ...string) description { return description{says, places} }

const (
	inKeys          = "internal/idempotency/"
	inHTTP          = "internal/http/idempotency.go#"
	inPay           = "internal/payments/payment.go#"
	inResume        = "internal/payments/payment_resume.go#"
	inCancel        = "internal/payments/cancel.go#"
	inRefund        = "internal/payments/refund_"
	inRepair        = "internal/payments/repair_"
	inCapture       = "internal/payments/capture.go#"
	inAuthorization = "internal/payments/authorization.go#"
	inCalls         = "internal/calls/calls.go#"
	inQueries       = "db/queries/"
)

// descriptions of all steps. Those of others than the service name no place.
var descriptions = [stepCount]description{
	StepSend:  at("sends its request,", inHTTP+"keyed"),
	StepRetry: at("sends its request again,", inHTTP+"keyed"),
	StepFresh: at("looks up a new key and reads the order:", inHTTP+"execute", inKeys+"store.go#Lookup",
		inPay+"beginPayment"),
	StepReplay:     at("answers with the stored response of", inHTTP+"execute", inKeys+"store.go#Lookup"),
	StepInFlight:   at("answers 409, in progress:", inHTTP+"inProgress"),
	StepNoTimeLeft: at("has no time left to work on", inHTTP+"timeLeft"),
	StepLookupTooLate: at("cannot look up the key, as its time is over, and answers 503: nothing was begun with",
		inHTTP+"lookup"),
	StepBusy: at("answers 409: another payment or a cancel of the order is in progress",
		"internal/payments/payment_resume.go#whyNotClaimed"),
	StepTaken: at("claims nothing, and looks up again", inKeys+"begin.go#begin"),
	StepRefuse: at("stores a refusal and answers", "internal/payments/service.go#refuse",
		inKeys+"begin.go#BeginFinished"),
	StepTakeOver: at("takes over", inKeys+"store.go#TakeOver", inQueries+"idempotency_keys.sql#KeyTakeOver"),
	StepComplete: at("(completer) takes over",
		inKeys+"completer.go#RunOnce", inQueries+"idempotency_keys.sql#KeyTakeOverDue"),
	StepReread: at("reads its rows again:", inResume+"ReadRun"),
	StepFenced: at("writes nothing, because its lease was lost:",
		inKeys+"phase.go#lockFenced", inQueries+"idempotency_keys.sql#KeyLockFenced"),
	StepMoved: at("writes nothing, because a row was changed:", inResume+"whyNotFinished"),
	StepBeginPayment: at("commits T1, the payment and its first call, and sends that:", inPay+"recordPayment",
		inQueries+"payments.sql#PaymentBegin"),
	StepRecordIntent: at("commits T1b, the intent and its confirm, and sends that:", inPay+"recordIntent",
		inQueries+"payments.sql#PaymentIntentRecord"),
	StepNextIntent: at("commits that the payment uses another intent:",
		inResume+"nextIntent", inQueries+"payments.sql#PaymentNextIntent"),
	StepSearch: at("searches Stripe for the intent, and cancels what else could be paid", inResume+"makeAnother",
		inRepair+"find_intent.go#recoverIntent", inRepair+"find_intent.go#choose", inRepair+"find_intent.go#endOther"),
	StepAccount: at("accounts for other intents of the order, before it creates one:", inResume+"endEarlier",
		"internal/payments/cancel_intent.go#closeEarlier", inRepair+"find_intent.go#accountForLostLife",
		inQueries+"lives.sql#UnaccountedIntents"),
	StepRequireAction: at("commits requires_action, and answers 202:", inResume+"requireAction"),
	StepReadIntent: at("reads the intent at Stripe:",
		inResume+"settle", inResume+"settlePaid", inResume+"awaitCustomer", inResume+"confirmedBefore", inResume+"readAgain"),
	StepFinishPaid:   at("commits T2, succeeded:", inPay+"finish", inQueries+"payments.sql#PaymentFinish"),
	StepFinishLate:   at("commits a success for an order that is closed:", inResume+"finishOtherwise"),
	StepFinishFailed: at("commits T2, failed:", inPay+"finish", inQueries+"payments.sql#PaymentFinish"),
	StepFinishClosed: at("commits T2, failed, with its intent closed:",
		inResume+"failed", inResume+"notAuthenticated"),
	StepFinishCanceled: at("commits T2, canceled:", inResume+"canceled"),
	StepFinishPaidBy: at("commits T2, failed, and adopts the intent that has the order's money:", inResume+"finishPaidBy",
		inResume+"paidOtherwise"),
	StepFinishStored: at("commits the answer of a payment that has ended:", inResume+"finishOtherwise"),
	StepIntentSpent: at("commits that the intent pays nothing",
		inResume+"intentSpent", inQueries+"payments.sql#PaymentIntentSpent"),
	StepAttempt: at("commits an attempt and sends",
		inCalls+"Attempt", inQueries+"stripe_calls.sql#StripeCallRecordAttempt"),
	StepTooOld: at("does not send what is too old:", inCalls+"MakeRecorded", inCalls+"ResendWithin"),
	StepResponse: at("receives", inCalls+"RecordAttempt", "internal/stripe/classify.go#effect",
		inPay+"createIntent", inPay+"confirm", inResume+"createUnanswered", inResume+"confirmUndecided"),
	StepBeginCancel: at("commits that a cancel has begun:",
		inCancel+"beginOrder", inCancel+"beginPayment", inQueries+"orders.sql#OrderCancelBegin"),
	StepCancelOrder: at("commits the end of the cancel, the order and what waited for its customer:",
		inCancel+"finishOrder", inQueries+"orders.sql#OrderCancel"),
	StepPaidFirst: at("commits that the order was paid first:",
		inCancel+"orderPaidFirst", inQueries+"orders.sql#OrderCancelAbort"),
	StepPaysNothing:   at("finds that the intent was paid and pays nothing:", inCancel+"errPaysNothing"),
	StepCancelPayment: at("commits the end of the payment's cancel:", inCancel+"finishPayment"),
	StepFinishSweep: at("commits that an abandoned intent has ended:",
		inRepair+"cancel_abandoned.go#runCancelAbandoned"),
	StepHold: at("commits that the cancel works on the authorization:", inCancel+"runPayment",
		inCapture+"HoldAuthorization"),
	StepBeginCapture: at("commits a capture, and sends it:", inCapture+"begin", inCapture+"beginHolding",
		inQueries+"payments.sql#PaymentCaptureBegin"),
	StepFinishCapture: at("commits the end of the capture:", inCapture+"FinishCapture", inCapture+"EndCapture", inCapture+"run", inCapture+"Capture",
		inCapture+"settleCapture", inAuthorization+"endAuthorization", inAuthorization+"Advanced"),
	StepRefuseCapture: at("commits that the capture took nothing:", inCapture+"captureRefused", inCapture+"abortHolding",
		inQueries+"payments.sql#PaymentCaptureAbort"),
	StepFinishAuthorized: at("commits T2, authorized:", inAuthorization+"settleAuthorized",
		inAuthorization+"finishAuthorized", inQueries+"orders.sql#OrderAuthorize"),
	StepBeginRefund: at("commits a refund:",
		inRefund+"begin.go#beginRefund", inQueries+"refunds.sql#RefundInsert"),
	StepListRefunds: at("lists the refunds at Stripe:",
		inRefund+"run.go#advanceRefund", "internal/payments/refund.go#findRefund"),
	StepFinishRefund: at("commits the refund's end:",
		inRefund+"finish.go#finishRefund", inQueries+"refunds.sql#RefundSettle"),
	StepRefuseRefund: at("commits that the refund was refused:", inRefund+"finish.go#refundRefused"),
	StepRetryOwed: at("commits another refund of what is owed",
		inRefund+"owed.go#RetryOwed", inQueries+"refunds_owed.sql#RefundOwedAttempt"),
	StepReconcileAgrees: at("records what others have moved of", "internal/reconcile/reconciler.go#repairIntent",
		inRepair+"adopt.go#MovedByOthers"),
	StepReconcileExpedites: at("resumes the key of",
		"internal/reconcile/reconciler.go#repairIntent", inKeys+"wake.go#Expedite"),
	StepReconcileRefunds: at("applies the refunds of",
		"internal/reconcile/reconciler.go#repairRefund", inRefund+"seen.go#applyRefunds"),
	StepReconcileEnds: at("records how the authorization ended:", inAuthorization+"AuthorizationEnded",
		inAuthorization+"authorizationSeen", inQueries+"orders.sql#OrderReopen"),
	StepAdopt: at("adopts", inRepair+"adopt.go#adoptAs", inRepair+"adopt.go#recordAdopted"),
	StepSweep: at("has an abandoned intent canceled:", inRepair+"cancel_abandoned.go#CancelAbandoned"),
	StepWebhook: at("is delivered, of",
		"internal/payments/webhook.go#prepare", "internal/payments/webhook.go#applyIntentSeen",
		"internal/payments/webhook.go#applyRefundsSeen"),

	StepReplayed:            at("repeats its response to"),
	StepKeyReused:           at("refuses, because the key was used with another request:"),
	StepCreated:             at("creates"),
	StepCharged:             at("charges"),
	StepDeclined:            at("declines"),
	StepNeedsAction:         at("asks for authentication of"),
	StepProcessing:          at("begins to process"),
	StepCanceledIntent:      at("cancels"),
	StepStateConflict:       at("refuses, because of the intent's state,"),
	StepRefunded:            at("refunds for"),
	StepRefundPending:       at("begins a refund for"),
	StepCaptured:            at("captures for"),
	StepCaptureRefused:      at("refuses for good, and captures nothing,"),
	StepCaptureExpired:      at("refuses, because the network has dropped the authorization,"),
	StepExpires:             at("releases what was reserved, after its time, of"),
	StepRefundTooLarge:      at("refuses, because less is left,"),
	StepRefundRefused:       at("refuses for good"),
	StepAuthenticates:       at("authenticates and pays"),
	StepFailsAuthentication: at("fails the authentication of"),
	StepBrowserPays:         at("pays with another card on"),
	StepOtherPays:           at("pays"),
	StepDashboardCancels:    at("cancels"),
	StepDashboardRefunds:    at("refunds"),
	StepDashboardCaptures:   at("captures"),
	StepBankPays:            at("pays"),
	StepBankRefuses:         at("refuses"),
	StepRefundArrives:       at("completes a refund"),
	StepRefundReturns:       at("sends a refund back"),
	StepTime:                at("thirteen hours pass"),
	StepBackup:              at("copies the database"),
	StepRestore:             at("restores the database from the copy"),
	StepLookupFails:         at("cannot look up, as the database is away,"),
	StepDatabaseAway:        at("commits nothing, as the database is away:"),
	StepCommitLost:          at("commits, and never learns of it:"),
	StepRolledBack:          at("does not commit, and never learns of it:"),
	StepAnswersUncommitted:  at("takes a COMMIT that was lost for one that succeeded, and answers:"),
	StepResponseLost:        at("gets no response to"),
	StepTimeout:             at("waits no longer for the response, and the request is still under way:"),
	StepTurnedAway:          at("turns away (429)"),
	StepInvalid:             at("refuses before it looks up the key (404)"),
	StepErrorStored:         at("responds with an error that it stores, without effect, to"),
	StepErrorAfterEffect:    at("responds with an error that it stores, after the effect, to"),
	StepCrash:               at("exits"),
	StepCrashSent:           at("exits, and its request is still under way:"),
	StepPaused:              at("is paused past its lease of"),
	StepDisconnect:          at("loses its connection:"),
}

// The names in histories.
var (
	keyNames = [keys]string{
		"key k1", "key k2", "key k3", "refund_order 1", "refund_order 2", "sweep of intent 1", "sweep of intent 2",
	}
	intentNames = [intents]string{"intent 1", "intent 2", "intent 3"}
	callNames   = [calls]string{
		"create intent 1", "create intent 2", "create intent 3", "confirm of k1", "confirm of k2", "confirm of k3",
		"cancel of intent 1", "second cancel of intent 1", "third cancel of intent 1",
		"cancel of intent 2", "second cancel of intent 2", "third cancel of intent 2",
		"cancel of intent 3", "second cancel of intent 3", "third cancel of intent 3",
		"refund of k1", "refund of k2", "refund of k3", "automatic refund 1", "automatic refund 2",
		"capture of k1", "capture of k2", "capture of k3",
	}
)
