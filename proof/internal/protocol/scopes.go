package protocol

// Scopes are the bounds within which everything is explored.
var Scopes = []Scope{
	{
		Name: "a payment", What: "a payment, with a bank that takes time, and webhooks", asks: [clients]Operation{Pay},
		Tries: 2, Faults: 2, Acts: 1, Ticks: 2, Bank: true, Webhooks: true,
	},
	{
		Name: "two payments", What: "two payments of one order, under two keys", asks: [clients]Operation{Pay, Pay},
		Tries: 2, Faults: 1, Acts: 1, Ticks: 1, Webhooks: true,
	},
	{
		Name: "a payment and a cancel", What: "a payment, and a cancel of its order",
		asks:  [clients]Operation{Pay, CancelOrder},
		Tries: 1, Faults: 2, Ticks: 1,
	},
	{
		Name: "a payment, a cancel and others", What: "the same, and a person in the dashboard",
		asks:  [clients]Operation{Pay, CancelOrder},
		Tries: 1, Faults: 1, Acts: 1, Ticks: 1, Dashboard: true, Bank: true,
	},
	{
		Name: "a payment and its cancel", What: "a payment, and a cancel of it",
		asks:  [clients]Operation{Pay, CancelPayment},
		Tries: 1, Faults: 2, Ticks: 1,
	},
	{
		Name: "two refunds", What: "refunds of a part and of the rest of a payment, and others in the dashboard",
		asks: [clients]Operation{RefundPart, RefundAll}, begin: paidOrder,
		Tries: 1, Faults: 1, Acts: 1, Ticks: 1, Dashboard: true, Bank: true,
	},
	{
		Name: "late money", What: "an order that was canceled, and an intent of it that another program pays",
		asks: [clients]Operation{RefundPart}, begin: canceledOrder,
		Tries: 1, Faults: 1, Acts: 2, Ticks: 1, Others: true, Dashboard: true, Bank: true,
	},
	{
		Name: "paid elsewhere", What: "the next payment after a decline, on an intent that another program pays",
		asks: [clients]Operation{Pay, Pay}, begin: declinedPayment,
		Tries: 1, Faults: 1, Acts: 2, Ticks: 1, Others: true, Dashboard: true, Webhooks: true,
	},
	{
		Name: "paid elsewhere and a cancel",
		What: "a cancel of the order after a decline, and another program that pays",
		asks: [clients]Operation{Pay, CancelOrder}, begin: declinedPayment,
		Tries: 1, Faults: 2, Acts: 2, Ticks: 1, Others: true, Dashboard: true, Webhooks: true,
	},
	{
		Name: "a restore", What: "two payments of one order, and a database that goes back",
		asks:  [clients]Operation{Pay, Pay},
		Tries: 1, Faults: 1, Copies: 1, Ticks: 1,
	},
	{
		Name:  "a restore and both kinds of capture",
		What:  "a payment and an authorization of one order, and a database that goes back, perhaps after a day; `api restored` follows",
		asks:  [clients]Operation{Pay, Authorize},
		Tries: 1, Copies: 1, Ticks: 2, Announced: true,
	},
	{
		Name: "an unannounced restore and both kinds of capture",
		What: "the same within a day, and nobody runs `api restored`", asks: [clients]Operation{Pay, Authorize},
		Tries: 1, Copies: 1, Ticks: 1,
	},
	{
		Name: "a restore and a refund", What: "a payment and a refund of a part, and a database that goes back",
		asks:  [clients]Operation{Pay, RefundPart},
		Tries: 1, Acts: 1, Copies: 1, Ticks: 1, Dashboard: true,
	},
	{
		Name: "a restore and a cancel", What: "a payment and a cancel of its order, and a database that goes back",
		asks:  [clients]Operation{Pay, CancelOrder},
		Tries: 1, Faults: 1, Acts: 1, Copies: 1, Ticks: 1,
	},
	{
		Name: "an authorization", What: "a payment with manual capture, and others in the dashboard",
		asks: [clients]Operation{Authorize}, Tries: 1, Faults: 1, Acts: 2, Ticks: 1, Dashboard: true, Bank: true,
		Webhooks: true,
	},
	{
		Name: "a capture", What: "a capture of a part of an authorized payment, and others in the dashboard",
		asks: [clients]Operation{CapturePart}, begin: authorizedOrder,
		Tries: 2, Faults: 2, Acts: 2, Ticks: 2, Dashboard: true, Webhooks: true,
	},
	{
		Name: "two captures", What: "captures of all and of a part of an authorized payment, and others in the dashboard",
		asks: [clients]Operation{Capture, CapturePart}, begin: authorizedOrder,
		Tries: 1, Faults: 2, Acts: 1, Ticks: 1, Dashboard: true,
	},
	{
		Name: "a capture and a cancel",
		What: "a capture of an authorized payment and its cancel, and others in the dashboard",
		asks: [clients]Operation{Capture, CancelPayment}, begin: authorizedOrder,
		Tries: 1, Faults: 2, Acts: 1, Ticks: 1, Dashboard: true, Webhooks: true,
	},
	{
		Name: "a capture and a cancel of the order", What: "the same with a cancel of the order",
		asks: [clients]Operation{Capture, CancelOrder}, begin: authorizedOrder,
		Tries: 1, Faults: 2, Acts: 1, Ticks: 1, Dashboard: true, Webhooks: true,
	},
	{
		Name: "a cancel before a capture", What: "a customer who must act, a cancel of the payment, and a capture",
		asks: [clients]Operation{Authorize, CancelPayment, Capture}, begin: waitingOrder,
		Tries: 1, Faults: 1,
	},
	{
		Name: "cancels of both", What: "a customer who must act, and cancels of the payment and of its order",
		asks: [clients]Operation{Authorize, CancelPayment, CancelOrder}, begin: waitingOrder,
		Tries: 1, Faults: 1,
	},
	{
		Name: "a capture and a refund", What: "a capture of a part, a refund of it, and others in the dashboard",
		asks: [clients]Operation{CapturePart, RefundAll}, begin: authorizedOrder,
		Tries: 1, Faults: 1, Acts: 1, Ticks: 1, Dashboard: true, Bank: true,
	},
	{
		Name: "a restore and a capture", What: "an authorization, its capture, and a database that goes back",
		asks:  [clients]Operation{Authorize, CapturePart},
		Tries: 1, Copies: 1, Ticks: 1,
	},
}

// authorizedOrder is an order whose payment with manual capture is authorized.
func authorizedOrder(s *state) {
	s.order.status = orderAuthorized
	s.pay[adoptedPayment] = paymentRow{status: authorized, number: 1, intent: 1, flags: manual}
	s.at.intent[0] = intent{status: held, number: 1, payer: byBrowser, manual: true}
}

// waitingOrder is an order whose payment with manual capture waits for its customer.
func waitingOrder(s *state) {
	s.pay[firstKey] = paymentRow{status: requiresAction, number: 1, intent: 1, flags: manual | hadAction}
	s.key[firstKey] = keyRow{point: actionRequired}
	s.call[createCalls] = callRow{attempts: 1, outcome: callDone}
	s.call[confirms] = callRow{attempts: 1, outcome: callDone}
	s.at.memory[createCalls] = memory{reply: replyDone, intent: unconfirmed, object: 1}
	s.at.memory[confirms] = memory{reply: replyDone, intent: needsAction, object: 1}
	s.at.intent[0] = intent{status: needsAction, number: 1, manual: true, secret: true}
	s.client[firstKey] = client{sent: 1}
}

// canceledOrder is an order that was canceled. The creation of its first intent got no response, and the intent is
// still unconfirmed.
func canceledOrder(s *state) {
	s.order.status = orderCanceled
	s.at.intent[0] = intent{status: unconfirmed, number: 1}
	s.at.intent[1] = intent{status: closed, number: 2}
	s.pay[secondKey] = paymentRow{status: failed, number: 2, intent: 2, flags: intentClosed}
	s.key[secondKey] = keyRow{point: finished, answer: answerFailed}
	s.client[secondKey] = client{sent: 1, final: answerFailed}
}

// paidOrder is an order that an earlier payment has paid.
func paidOrder(s *state) {
	s.order = orderRow{status: orderPaid, payment: adoptedPayment + 1}
	s.pay[adoptedPayment] = paymentRow{status: succeeded, number: 1, intent: 1}
	s.at.intent[0] = intent{status: paid, number: 1, payer: byBrowser}
}

// declinedPayment is an order whose first payment was declined. Its intent is left for the next card.
func declinedPayment(s *state) {
	s.pay[firstKey] = paymentRow{status: failed, number: 1, intent: 1}
	s.key[firstKey] = keyRow{point: finished, answer: answerFailed}
	s.call[createCalls] = callRow{attempts: 1, outcome: callDone}
	s.call[confirms] = callRow{attempts: 1, outcome: callRefused}
	s.at.memory[createCalls] = memory{reply: replyDone, intent: unconfirmed, object: 1}
	s.at.memory[confirms] = memory{reply: replyDeclined}
	s.at.intent[0] = intent{status: needsMethod, number: 1, failed: true}
	s.client[firstKey] = client{sent: 1, final: answerFailed}
}
