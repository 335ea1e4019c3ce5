import assert from "node:assert/strict";
import test from "node:test";

import { Draft, IntentResponse, Payonce, Stripe, type Class } from "../src/index.js";
import { cutInBody, doesAndSays, journalIn, newClient, payment, problem, says, Server, type Fault } from "./server.js";

function response(status: number, body: string, headers: HeadersInit = {}): IntentResponse {
  return new IntentResponse({
    status, headers: new Headers(headers), body: new TextEncoder().encode(body), intent: "a", key: "k", final: false,
  });
}

function ours(status: number, kind: Class, ...codes: string[]): [number, string, Class][] {
  return codes.map((code) => [status, problem(status, code), kind]);
}

test("PayonceClasses", () => {
  const table: [number, string, Class][] = [
    [200, `{"object":"order","status":"canceled"}`, "final"],
    [201, `{"object":"payment","status":"succeeded"}`, "final"],
    [201, `{"object":"payment","status":"authorized"}`, "final"],
    [202, `{"object":"payment","status":"processing"}`, "pending"],
    [202, `{"object":"payment","status":"authorized"}`, "pending"], // its capture is unknown
    [202, `{"object":"refund","status":"pending"}`, "pending"],
    [202, `{"object":"payment","status":"requires_action"}`, "caller"],
    ...ours(400, "refused", "idempotency-key-missing", "idempotency-key-invalid", "invalid-request"),
    ...ours(401, "refused", "unauthenticated"),
    ...ours(402, "final", "payment-declined", "payment-failed"),
    ...ours(403, "refused", "forbidden"),
    ...ours(404, "refused", "not-found"),
    ...ours(405, "refused", "method-not-allowed"),
    ...ours(409, "retry", "idempotency-key-in-flight"),
    ...ours(409, "later", "payment-in-progress"),
    ...ours(409, "final", "order-already-paid", "order-not-payable", "order-not-cancelable", "payment-not-cancelable",
      "payment-not-refundable", "payment-not-capturable", "capture-exceeds-authorization", "refund-exceeds-payment",
      "payment-disputed", "out-of-stock", "too-many-endpoints"),
    ...ours(410, "expired", "idempotency-key-expired"),
    ...ours(413, "refused", "payload-too-large"),
    ...ours(415, "refused", "unsupported-media-type"),
    ...ours(422, "mismatch", "idempotency-key-mismatch"),
    ...ours(429, "later", "rate-limited"),
    ...ours(500, "retry", "internal"),
    ...ours(503, "later", "unavailable"),
    // Not from payonce.
    [200, `<html>`, "retry"],
    [200, ``, "retry"],
    [201, `{"id":`, "retry"],
    [301, ``, "unclear"],
    [304, `{}`, "unclear"],
    [307, `{}`, "unclear"],
    [400, `<html>`, "retry"],
    [401, `{"message":"Unauthorized"}`, "retry"],
    [402, `{"error":"pay your proxy"}`, "retry"],
    [404, `404 page not found`, "retry"],
    [409, `{}`, "retry"],
    [422, `[]`, "retry"],
    [429, ``, "retry"],
    [502, `<html>`, "retry"],
    [503, `upstream connect error`, "retry"],
    [504, `{}`, "retry"],
  ];
  for (const [status, body, want] of table) assert.equal(Payonce.classify(response(status, body)), want, `${status} ${body}`);
});

// Whatever the status: a page of a proxy is never a final response and never the proof that nothing was done.
test("PayonceBelievesOnlyPayonce", () => {
  for (let status = 200; status < 600; status++) {
    const want = status >= 300 && status < 400 ? "unclear" : "retry";
    for (const body of ["", "<html>", "[]", '"x"', "null", "{}", `{"message":"maintenance"}`, `{"id":"req_1"}`]) {
      assert.equal(Payonce.classify(response(status, body)), want, `${status} ${body}`);
    }
  }
});

test("DraftClasses", () => {
  const exceptions: { [status: number]: Class } =
    { 402: "final", 409: "retry", 408: "retry", 425: "retry", 410: "expired", 422: "mismatch", 429: "later", 202: "pending" };
  const others: { [hundreds: number]: Class } = { 2: "final", 3: "unclear", 4: "refused", 5: "retry" };
  for (let status = 200; status < 600; status++) {
    assert.equal(Draft.classify(response(status, "")), exceptions[status] ?? others[Math.floor(status / 100)], `${status}`);
  }
});

test("StripeClasses", () => {
  const error = (type: string): string => JSON.stringify({ error: { type, message: "…" } });
  const replayed = { "Idempotent-Replayed": "true" };
  const yes = { "Stripe-Should-Retry": "true" }, no = { "Stripe-Should-Retry": "false" };
  const table: [number, string, HeadersInit, Class][] = [
    [200, `{"message":"maintenance"}`, {}, "retry"],
    [200, `{"object":"payment_intent","status":"succeeded"}`, {}, "final"],
    [200, `{"object":"payment_intent","status":"requires_action"}`, replayed, "final"],
    [200, `{"object":`, {}, "retry"],
    [302, ``, {}, "unclear"],
    [400, error("invalid_request_error"), {}, "refused"],
    [400, error("invalid_request_error"), replayed, "final"],
    [400, error("invalid_request_error"), no, "refused"],
    [400, error("idempotency_error"), {}, "mismatch"],
    [400, error("idempotency_error"), no, "mismatch"],
    [401, error("invalid_request_error"), {}, "refused"],
    [402, error("card_error"), {}, "final"],
    [402, error("card_error"), { ...replayed, ...no }, "final"],
    [403, error("invalid_request_error"), {}, "refused"],
    [404, error("invalid_request_error"), {}, "refused"],
    [404, `<html>`, {}, "retry"],
    [409, error("invalid_request_error"), {}, "retry"],
    [409, error("idempotency_error"), {}, "retry"], // of some fakes
    [409, error("invalid_request_error"), yes, "retry"],
    [424, error("api_error"), {}, "retry"],
    [424, error("api_error"), replayed, "unclear"],
    [429, error("invalid_request_error"), {}, "later"],
    [429, `slow down`, {}, "retry"],
    [500, error("api_error"), {}, "retry"],
    [500, error("api_error"), yes, "retry"],
    [500, error("api_error"), no, "unclear"],
    [500, error("api_error"), replayed, "unclear"],
    [500, error("api_error"), { ...replayed, ...yes }, "unclear"],
    [502, `<html>`, {}, "retry"],
    [503, error("api_error"), {}, "retry"],
    [503, error("api_error"), replayed, "unclear"],
  ];
  for (const [status, body, headers, want] of table) {
    assert.equal(Stripe.classify(response(status, body, headers)), want, `${status} ${body} ${JSON.stringify(headers)}`);
  }
});

// A success that is not about the request is not one. What the server may add, or leave out, is.
test("PayonceCheck", () => {
  const table: [string, string, string, string][] = [
    ["/v1/orders", `{"currency":"usd","items":[]}`, `{"currency":"usd","customer_reference":null}`, ""],
    ["/v1/orders", `{"currency":"usd"}`, `{"currency":"eur"}`, "currency"],
    ["/v1/orders", `{"currency":"usd","customer_reference":"a"}`, `{"currency":"usd","customer_reference":"b"}`, "customer_reference"],
    ["/v1/orders", `{"currency":{"a":1}}`, `{"currency":{"a":1}}`, ""],
    ["/v1/payments", `{"order_id":"ord_1","payment_method":"pm_1"}`, `{"order_id":"ord_1","payment_method":"pm_1","capture":"automatic"}`, ""],
    ["/v1/payments?a=b", `{"order_id":"ord_1"}`, `{"order_id":"ord_2"}`, "order_id"],
    ["/v1/payments", `{"order_id":"ord_1"}`, `{}`, "order_id"],
    ["/v1/payments", `{"order_id":"ord_1","capture":null}`, `{"order_id":"ord_1","capture":"automatic"}`, ""],
    ["/v1/payments", `{"order_id":"ord_1","capture":"manual"}`, `{"order_id":"ord_1","capture":"automatic"}`, "capture"],
    ["/v1/payments/pay_1/refunds", `{"amount":10}`, `{"payment_id":"pay_1","amount":10}`, ""],
    ["/v1/payments/pay%5F1/refunds", ``, `{"payment_id":"pay_1","amount":10}`, ""],
    ["/v1/payments/pay%5F1/refunds", ``, `{"payment_id":"pay_2","amount":10}`, "pay_1"],
    ["/v1/payments/pay_1/refunds", ``, `{"payment_id":"pay_1","amount":10}`, ""],
    ["/v1/payments/pay_1/refunds", `{"amount":10}`, `{"payment_id":"pay_1","amount":11}`, "amount"],
    ["/v1/payments/pay_1/refunds", `{"amount":9007199254740993}`, `{"payment_id":"pay_1","amount":9007199254740992}`, "amount"],
    ["/v1/payments/pay_1/refunds", `{"amount":10}`, `{"payment_id":"pay_2","amount":10}`, "payment_id"],
    ["/v1/payments/pay_1/capture", `{}`, `{"id":"pay_1"}`, ""],
    ["/v1/payments/pay_1/capture", `{}`, `{"id":"pay_2"}`, "pay_2"],
    ["/v1/orders/ord_1/cancel", ``, `{"id":"ord_2"}`, "ord_2"],
    ["/v1/other", `{"currency":"usd"}`, `{"id":"oth_1"}`, ""],
  ];
  for (const [path, sent, got, contains] of table) {
    const request = { method: "POST", path, contentType: "application/json", body: new TextEncoder().encode(sent) };
    const what = Payonce.check!(request, response(201, got));
    assert.equal(what === "", contains === "", `${path} ${sent} ${got}: ${what}`);
    assert.ok(what.includes(contains), what);
  }
});

// Stripe repeats a 500 for as long as it keeps the key: the first is retried, to see whether it is stored, and no more.
test("StripeRepeatsAnError", async (t) => {
  const body = `{"error":{"type":"api_error"}}`, replayed = { "Idempotent-Replayed": "true" };
  const s = new Server(says(500, body), says(500, body, replayed), says(500, body, replayed));
  const c = newClient(s, { journal: await journalIn(t), profile: Stripe });
  await assert.rejects(c.do({ intent: "a", path: "/v1/charges", body: "amount=100" }), { name: "UnknownError" });
  assert.equal(s.requests, 2);
  assert.equal(s.last!.headers.get("Content-Type"), "application/x-www-form-urlencoded");
  assert.equal(s.last!.headers.get("Prefer"), null, "Stripe does not know Prefer");
});

// Where replays are not marked, a repeated success is not taken for a second execution; another id is.
test("DraftDoesNotMarkReplays", async (t) => {
  const s = new Server(cutInBody, says(201, `{"id":"1","object":"payment"}`));
  const c = newClient(s, { journal: await journalIn(t), profile: { ...Draft, quoted: true } });
  assert.ok((await c.do(payment(0))).ok);
  assert.match(s.last!.headers.get("Idempotency-Key")!, /^"pk1-[0-9a-v]{32}"$/);
});

// The first request does not ask the server to wait, each other does.
test("PreferWait", async (t) => {
  const prefer: (string | null)[] = [];
  const see = (next: Fault): Fault => (q, execute) => {
    prefer.push(q.headers.get("Prefer"));
    return next(q, execute);
  };
  const processing = `{"object":"payment","status":"processing","order_id":"ord_0","payment_method":"pm_card_visa"}`;
  const s = new Server(see(doesAndSays(202, processing)), see(says(409, problem(409, "idempotency-key-in-flight"))),
    see(says(202, processing)), see((_, execute) => execute()));
  const c = newClient(s, { journal: await journalIn(t) });
  assert.ok((await c.do(payment(0))).ok);
  assert.deepEqual(prefer, [null, "wait=10", "wait=10", "wait=10"]);
});
