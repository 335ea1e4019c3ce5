package http

import "maps"

// problemText explains a problem on its page, for a developer whose request has failed.
type problemText struct {
	What  string // what was and what was not executed
	Retry string // whether to retry, how, and with which key
}

// problemTexts are the texts of all problemTypes, by code.
func problemTexts() map[string]problemText {
	texts := maps.Clone(serviceTexts)
	maps.Copy(texts, checkoutTexts)        // part: checkouts
	maps.Copy(texts, webhookEndpointTexts) // part: webhooks
	return texts
}

// serviceTexts are the texts of serviceProblems.
var serviceTexts = map[string]problemText{
	codeIdempotencyKeyMissing: {
		What: "The request changes something, but has no Idempotency-Key. Without a key the service " +
			"cannot tell a retry from a new request, so this request was not executed.",
		Retry: "Create a key, save it together with what you want to pay for, and send the request again " +
			"with it. A random UUID is a good key.",
	},
	codeIdempotencyKeyInvalid: {
		What: "A key has 1 to 200 visible ASCII characters, bare or as a quoted string, on one header " +
			"line. This key does not, so this request was not executed.",
		Retry: "Correct the key and send the request again. If an earlier attempt at the same payment, " +
			"order or refund was accepted with another spelling of the key, use exactly that key.",
	},
	codeInvalidRequest: {
		What: "The body or a query parameter does not have the form that the API requires. The member " +
			"errors lists the mistakes (those of unknown parameters alone, if there are any), each with its " +
			"place as a JSON Pointer, or with the query parameter as parameter. " +
			"This request was not executed, and its key was not looked up.",
		Retry: "Not unchanged: the same request fails again. Correct it. You may use the same key, because " +
			"a request that was refused here has not used it.",
	},
	codeInvalidSignature: {
		What: "The Stripe-Signature header is missing, does not match the body, was made with a secret " +
			"that this service does not have, or its time is more than 300 seconds from now. The event was not stored.",
		Retry: "Stripe sends the event again automatically. If all events are refused, compare the " +
			"endpoint's signing secret with STRIPE_WEBHOOK_SECRET and check the clock of the server.",
	},
	codeUnauthenticated: {
		What: "The request has no header “Authorization: Bearer <api key>”, or the API key is unknown, " +
			"expired or revoked, or its tenant is disabled. This request was not executed.",
		Retry: "Correct the API key and send the request again with the same Idempotency-Key, which was not " +
			"looked up.",
	},
	codeForbidden: {
		What: "The API key is valid, but it was created read-only, and the request would change something. " +
			"This request was not executed.",
		Retry: "Not with this API key. Send the request with a key that may write, under the same " +
			"Idempotency-Key, which was not looked up.",
	},
	codePaymentDeclined: {
		What: "The card's issuer declined the payment, and no money moved. The member decline_code has " +
			"the issuer's reason, if it gave one, and the member payment has the failed payment. The " +
			"order is open again; in a checkout, the completed steps were compensated.",
		Retry: "Not with this key: it returns this response every time, without another attempt. Let the " +
			"customer choose another payment method and send a new request with a new key.",
	},
	codePaymentFailed: {
		What: "The payment failed for another reason than a decline: the payment method does not exist, " +
			"the customer did not authenticate in time, the payment was canceled, or it was canceled at " +
			"the provider after an error there; or a capture took nothing. No money moved, and none will, unless the " +
			"failure's code is provider_key_reused, or the payment is still authorized and is captured under another key.",
		Retry: "Not with this key: it returns this response every time. Unless the payment is authorized, the order is " +
			"open again. Send a " +
			"new request with a new key, and with another payment method if that was the reason. But if the " +
			"failure's code is provider_key_reused, ask the operator first: an earlier request with the key " +
			"may have moved money.",
	},
	codeNotFound: {
		What: "There is no such page, or your tenant has no object with this id. An object of another " +
			"tenant gets 404, too.",
		Retry: "Check the id, and that you use the API key of the tenant that created the object. You may use " +
			"the same Idempotency-Key, because this request has not used it.",
	},
	codeMethodNotAllowed: {
		What: "The path exists, but does not support this method. The header Allow lists the methods that " +
			"it supports.",
		Retry: "Use one of the methods in Allow.",
	},
	codeIdempotencyKeyInFlight: {
		What: "A process is working on the first request with this Idempotency-Key, or has crashed while " +
			"its lease has not expired, or the response to its first commit was lost. What was started is " +
			"completed even if its client has disconnected or its process has crashed. A second request " +
			"does nothing until then.",
		Retry: "Yes: the same request with the same key, after the seconds in Retry-After. With “Prefer: " +
			"wait=10” the retry waits up to 10 seconds for the response. Do not use a new key: an order " +
			"would be created, or a part of a payment refunded, a second time. A payment would not: an " +
			"order is paid at most once, whatever keys are used.",
	},
	codePaymentInProgress: {
		What: "The order is being paid or canceled under another key, or a capture or cancel of this payment is in " +
			"progress. Until that has an outcome, no second payment of the order can start, and neither can another " +
			"capture or cancel. A payment that is authorized occupies its order, too, until it is captured or " +
			"canceled or has expired, which may take days. This request has moved no money.",
		Retry: "Yes: the same request with the same key, after the seconds in Retry-After. If the other " +
			"request succeeds, you get order-already-paid (or order-not-cancelable, or payment-not-capturable); if it " +
			"fails, your request is executed. If a payment of the order is authorized, waiting does not help: capture " +
			"or cancel that one first (GET /v1/payments?order_id=… names it).",
	},
	codeOrderAlreadyPaid: {
		What: "A payment of this order succeeded; it may have been refunded since. An order is paid at " +
			"most once, whatever keys are used. The card was not charged again.",
		Retry: "No. Read the order: its payment_id is the payment that succeeded. To charge for something " +
			"else, create another order.",
	},
	codeOrderNotPayable: {
		What: "The order is canceled, or its cancellation is in progress, so no payment can start. No " +
			"money moved.",
		Retry: "No. Create a new order and pay that one, with a new key.",
	},
	codeOrderNotCancelable: {
		What:  "The order is paid. A paid order cannot be canceled, only refunded. Nothing was changed.",
		Retry: "No. Refund the order's payment (its payment_id), with a new key.",
	},
	codePaymentNotCancelable: {
		What: "Only a payment that waits for the customer (requires_action) or for its capture (authorized) can be " +
			"canceled. This one has another status. Nothing was changed.",
		Retry: "No. If the payment succeeded, refund it. If it is processing, read it again later: it " +
			"becomes final without you. To cancel it then, use a new key.",
	},
	codePaymentNotCapturable: {
		What: "Only a payment that is authorized can be captured, and only once. This one has another status: it was " +
			"captured before, released, or never authorized. Nothing was captured by this request.",
		Retry: "No. Read the payment; its amount_captured says what was taken. What was not captured then was released, " +
			"so to take more, create another order.",
	},
	codeCaptureExceedsAuthorization: {
		What: "No more can be captured than was authorized, which is the payment's amount. Nothing was captured by this " +
			"request.",
		Retry: "Not with this key. Send a new request with a new key and a smaller amount, or without amount to capture " +
			"all of it.",
	},
	codePaymentNotRefundable: {
		What: "The payment did not succeed, all of it is refunded, or Stripe refuses to refund it. No money was " +
			"refunded by this request.",
		Retry: "Not with this key. Read the payment; see its status and amount_refunded. If it is authorized, no money " +
			"was taken yet: cancel it, and what is reserved is released. If it succeeded and is not " +
			"refunded, Stripe has refused: look at the payment in Stripe's dashboard, and then use a new key.",
	},
	codeRefundExceedsPayment: {
		What: "Together with the refunds that succeeded or are pending, also those made directly at Stripe, " +
			"this refund would exceed the payment. No money was refunded by this request.",
		Retry: "Not with this key. Read the payment and send a new request with a new key and a smaller " +
			"amount, or without amount to refund the rest.",
	},
	codePaymentDisputed: {
		What: "The customer disputes the payment at the bank, and the dispute is open or lost: the bank has taken " +
			"the money back already, or keeps it. A refund would return it twice. No money was refunded by this " +
			"request.",
		Retry: "Not with this key. If the dispute is won, the payment can be refunded with a new key.",
	},
	codeIdempotencyKeyExpired: {
		What: "This request was answered so long ago that its response, a success or a refusal, is no longer " +
			"stored. It was not executed again, and never will be with this key. The member resource identifies " +
			"the object that it was about.",
		Retry: "No. Read the object at resource.href. To do the same thing a second time, use a new key.",
	},
	codePayloadTooLarge: {
		What: "The limit is 64 KiB, and 1 MiB for a webhook. This request was not executed, and its key was " +
			"not looked up.",
		Retry: "Only with a smaller body.",
	},
	codeHeadersTooLarge: {
		What:  "The request line and the headers may have 16 KiB in sum. This request was not executed.",
		Retry: "Only with smaller headers, or a shorter path and query.",
	},
	codeUnsupportedMediaType: {
		What: "Bodies must be JSON with “Content-Type: application/json”. This request was not executed, " +
			"and its key was not looked up.",
		Retry: "Set the header and send the request again with the same key.",
	},
	codeIdempotencyKeyMismatch: {
		What: "The Idempotency-Key was used with another method, path or body. This request was not executed. The " +
			"response reveals nothing about the first request.",
		Retry: "Not unchanged. To retry the first request, send it exactly as before. For a new request " +
			"use a new key. The cause is a bug in the client: its keys are not unique, or it changes a " +
			"request between retries.",
	},
	codeRateLimited: {
		What: "Your tenant sends more new requests or reads per second than the service allows, or has too many " +
			"requests waiting at the same time, or more than 32 refunds of one payment. This request did nothing. " +
			"Replays of finished requests do not count as new.",
		Retry: "Yes: the same request with the same key, after the seconds in Retry-After, and then at a " +
			"lower rate.",
	},
	codeInternal: {
		What: "An unexpected error occurred in the service. This response does not say whether the " +
			"request was executed. If the service has started it, it completes it.",
		Retry: "Yes: the same request with the same key. That is safe in every case; a new key is not. If " +
			"the error persists, send the request_id to the operator.",
	},
	codeUnavailable: {
		What: "The service cannot reach its database or its payment provider, has more requests than it can take, or is " +
			"shutting down. It refused this request before it started it. If this was the first request with its key, nothing " +
			"was begun. If it was a retry, the response says nothing about the earlier request, which may " +
			"have been executed.",
		Retry: "Yes: the same request with the same key, after the seconds in Retry-After, with a longer " +
			"pause each time. Do not use a new key: an earlier request may have moved money.",
	},
}
