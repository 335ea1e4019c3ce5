import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import test from "node:test";

import { Client, Draft, type IntentRecord, type IntentRequest, type Journal, JournalFailedError, NotSentError, openLocalStorage, OtherServerError } from "../src/index.js";
import { keyFor } from "../src/journal.js";
import {
  answer, cutAfter, cutBefore, cutInBody, cutInBodyOf, cutMaintenance, cutPage, doesAndSays, dropsTheMark, folder, journalIn, newClient, payment, problem, says, Server, type Fault,
} from "./server.js";

const html = { "Content-Type": "text/html" };

function paying(id: string, status: string): string {
  return JSON.stringify({ id, object: "payment", status, order_id: "ord_0", payment_method: "pm_card_visa" });
}

interface Case {
  faults?: Fault[];
  status?: number; // of a response
  final?: boolean;
  error?: string; // its name, if there is no response
  made?: number;
  requests: number;
}

const cases: { [name: string]: Case } = {
  Done: { status: 201, final: true, made: 1, requests: 1 },
  CutBefore: { faults: [cutBefore, cutBefore], status: 201, final: true, made: 1, requests: 3 },
  CutAfter: { faults: [cutAfter], status: 201, final: true, made: 1, requests: 2 },
  CutInBody: { faults: [cutInBody, cutInBody], status: 201, final: true, made: 1, requests: 3 },
  Unavailable: { faults: [says(503, problem(503, "unavailable"), { "Retry-After": "0" }), says(503, problem(503, "unavailable"))], status: 201, final: true, made: 1, requests: 3 },
  InternalAfter: { faults: [doesAndSays(500, problem(500, "internal"))], status: 201, final: true, made: 1, requests: 2 },
  ProxyPages: { faults: [doesAndSays(502, `<html>`), says(200, `<html>`), says(404, `<html>`), says(401, `{}`)], status: 201, final: true, made: 1, requests: 5 },
  Maintenance: { faults: [says(200, `{"message":"maintenance"}`), says(201, `{"id":"req_1","message":"maintenance"}`)], status: 201, final: true, made: 1, requests: 3 },
  AbsoluteLocation: { faults: [says(202, paying("obj_0", "processing"), { Location: "https://gateway/v1/payments/obj_0" }), doesAndSays(202, paying("obj_0", "processing"), { Location: "/v1/payments/obj_0" })], status: 201, final: true, made: 1, requests: 3 },
  MaintenanceCut: { faults: [cutMaintenance, says(402, problem(402, "payment-declined"))], status: 402, final: true, requests: 2 },
  MarkDropped: { faults: [cutInBodyOf("/v1/payments/obj_0"), dropsTheMark], status: 201, final: true, made: 1, requests: 2 },
  ProxyPageFirst: { faults: [says(200, `<html>`), says(200, `<html`, html)], status: 201, final: true, made: 1, requests: 3 },
  GatewayConflict: { faults: [doesAndSays(409, `{"code":"Conflict","message":"the upstream closed the connection"}`), says(402, `{"status":402,"code":"quota_exceeded"}`)], status: 201, final: true, made: 1, requests: 3 },
  ProxyPageCut: { faults: [cutPage], status: 201, final: true, made: 1, requests: 2 },
  InFlight: { faults: [doesAndSays(409, problem(409, "idempotency-key-in-flight")), says(409, problem(409, "idempotency-key-in-flight"))], status: 201, final: true, made: 1, requests: 3 },
  OtherPayment: { faults: [says(409, problem(409, "payment-in-progress"))], status: 201, final: true, made: 1, requests: 2 },
  RateLimited: { faults: [says(429, problem(429, "rate-limited"))], status: 201, final: true, made: 1, requests: 2 },
  Processing: { faults: [doesAndSays(202, paying("obj_0", "processing")), says(202, paying("obj_0", "processing"))], status: 201, final: true, made: 1, requests: 3 },
  RequiresAction: { faults: [says(202, paying("obj_0", "requires_action"))], status: 202, requests: 1 },
  Declined: { faults: [says(402, problem(402, "payment-declined"))], status: 402, final: true, requests: 1 },
  Conflict: { faults: [says(409, problem(409, "order-already-paid"))], status: 409, final: true, requests: 1 },
  Refused: { faults: [says(400, problem(400, "invalid-request"))], error: "RefusedError", requests: 1 },
  LimitedRefused: { faults: [says(429, problem(429, "rate-limited")), says(401, problem(401, "unauthenticated"))], error: "RefusedError", requests: 2 },
  CutThenRefused: { faults: [cutAfter, says(401, problem(401, "unauthenticated"))], error: "UnknownError", made: 1, requests: 2 },
  CutBeforeThenRefused: { faults: [cutBefore, says(401, problem(401, "unauthenticated"))], error: "UnknownError", requests: 2 }, // fetch does not tell
  Mismatch: { faults: [says(422, problem(422, "idempotency-key-mismatch"))], error: "MismatchError", requests: 1 },
  Expired: { faults: [says(410, `{"type":"/problems/idempotency-key-expired","status":410,"code":"idempotency-key-expired","resource":{"id":"pay_1","href":"/v1/payments/pay_1"}}`)], error: "ExpiredError", requests: 1 },
  Redirect: { faults: [says(307, `{}`, { Location: "http://elsewhere.example/" })], error: "UnknownError", requests: 1 },
  OtherOrder: { faults: [says(201, `{"id":"obj_0","object":"payment","order_id":"ord_9","payment_method":"pm_card_visa"}`)], error: "BrokenPromiseError", requests: 1 },
  OtherID: { faults: [says(202, paying("pay_1", "processing"))], error: "BrokenPromiseError", made: 1, requests: 2 },
  OtherLocation: { faults: [says(202, paying("pay_1", "processing"), { Location: "/1" }), says(202, paying("pay_1", "processing"), { Location: "/2" })], error: "BrokenPromiseError", requests: 2 },
  DoneTwice: { faults: [cutInBody, says(201, paying("obj_0", "succeeded"))], error: "BrokenPromiseError", made: 1, requests: 2 },
  DoneThenPending: { faults: [cutInBody, says(202, paying("obj_0", "processing"))], error: "BrokenPromiseError", made: 1, requests: 2 },
  DoneThenDeclined: { faults: [cutInBody, says(402, problem(402, "payment-declined"))], error: "BrokenPromiseError", made: 1, requests: 2 },
  DoneThenNoKey: { faults: [cutInBody, says(401, problem(401, "unauthenticated"))], error: "UnknownError", made: 1, requests: 2 },
  LongBody: { faults: [says(201, " ".repeat((8 << 20) + 1), { "Request-Id": "req_1" })], error: "BrokenPromiseError", made: 1, requests: 2 }, // it was a 201, and the next one is no replay
  NotFound: { faults: [says(404, problem(404, "not-found"))], error: "RefusedError", requests: 1 },
};

// What do returns or throws, after each fault on the way.
for (const [name, want] of Object.entries(cases)) {
  test(`Do/${name}`, async (t) => {
    const s = new Server(...want.faults ?? []);
    const journal = await journalIn(t);
    const c = newClient(s, { journal });
    const got = await c.do(payment(0)).catch((error: Error) => error);
    if (got instanceof Error) assert.equal(got.name, want.error, got.message);
    else assert.deepEqual([got.status, got.final, undefined], [want.status, want.final ?? false, want.error]);
    assert.deepEqual([s.stored.size, s.requests], [want.made ?? 0, want.requests]);
    if (want.error === "BrokenPromiseError") {
      // It is kept, and nothing is sent any more: each attempt could be another charge.
      for (let i = 0; i < 2; i++) {
        await assert.rejects(c.do(payment(0)), { name: want.error, what: (got as { what?: string }).what });
      }
      assert.equal(s.requests, want.requests);
      assert.deepEqual(await journal.open(), []);
    }
    if (want.error === "ExpiredError") assert.equal((got as { href?: string }).href, "/v1/payments/pay_1");
    if (!want.final || got instanceof Error) return;
    const again = await c.do(payment(0));
    assert.deepEqual([again.status, again.text(), again.final, s.requests], [got.status, got.text(), true, want.requests]);
  });
}

// Keys are those of the Go client: one intent has one key, in whatever language it is sent.
test("Keys", async () => {
  const vectors: { journal: string; intent: string; key: string }[] =
    JSON.parse(readFileSync(new URL("../../../testdata/keys.json", import.meta.url), "utf8"));
  assert.ok(vectors.length >= 6);
  for (const { journal, intent, key } of vectors) assert.equal(await keyFor(journal, intent), key, intent);
});

// A refusal leaves the name free for the request that is right; all else keeps it.
test("IntentKeepsItsRequest", async (t) => {
  const s = new Server(says(400, problem(400, "invalid-request")));
  const c = newClient(s, { journal: await journalIn(t) });
  const wrong = { ...payment(0), body: `{"order":"ord_0"}` };
  await assert.rejects(c.do(wrong), { name: "RefusedError" });
  assert.equal((await c.do(payment(0))).status, 201);
  await assert.rejects(c.do(wrong), (error: Error) => {
    assert.deepEqual([error.name, (error.cause as Error).name], ["NotSentError", "IntentChangedError"]);
    return true;
  });
  const reordered = { ...payment(0), body: ` {"payment_method":"pm_card_visa", "order_id":"ord_0"}` };
  assert.ok((await c.do(reordered)).ok); // means the same
  s.once(1);
});

// 9007199254740993 is not 9007199254740992, and 1 is not "1".
test("OtherNumbersAreOtherRequests", async (t) => {
  const c = newClient(new Server(), { journal: await journalIn(t) });
  const refund = (amount: string): IntentRequest => ({ intent: "a", path: "/v1/other", body: `{"amount":${amount},"a":[{}, "1"]}` });
  await c.do(refund("9007199254740993"));
  assert.ok((await c.do(refund(" 9007199254740993"))).ok);
  for (const amount of ["9007199254740992", '"9007199254740993"', "[]", "null", "01"]) {
    await assert.rejects(c.do(refund(amount)), { name: "NotSentError" }, amount);
  }
});

test("Resume", async (t) => {
  const path = join(folder(t), "j");
  const s = new Server();
  for (const [i, end] of [cutBefore, cutAfter, cutInBody].entries()) { // the process ends after each
    const journal = await journalIn(t, path);
    s.faults = [end, () => new Promise(() => undefined)];
    void newClient(s, { journal }).do(payment(i)).catch(() => undefined);
    while (s.requests < 2 * (i + 1)) await new Promise((resolve) => setTimeout(resolve, 1));
    await journal.close();
  }
  const c = newClient(s, { journal: await journalIn(t, path) });
  const ended = await c.resume();
  assert.deepEqual(ended.map((o) => [o.intent, o.response?.status]), [0, 1, 2].map((i) => [payment(i).intent, 201]));
  s.once(3);
  assert.deepEqual(await c.resume(), []);
});

// What is not sent is not sent by resume either. What fetch was given counts as sent, also where nothing listens.
test("ResumeOfWhatHasEnded", async (t) => {
  for (const status of [400, 201]) {
    const server = new Server();
    let arrived!: () => void, respond!: () => void;
    const arrives = new Promise<void>((resolve) => (arrived = resolve));
    const responds = new Promise<void>((resolve) => (respond = resolve));
    const send = server.fetch;
    let sent = 0;
    const slow = newClient(server, { journal: await journalIn(t), fetch: async (...args) => {
      sent++;
      arrived();
      await responds;
      return status === 400 ? answer(400, problem(400, "invalid-request")) : send(...args);
    } });
    const done = slow.do(payment(0)).catch((error: Error) => error);
    await arrives;
    const resumed = slow.resume(); // lists the intent, and waits for its turn
    await new Promise((resolve) => setTimeout(resolve, 50));
    respond();
    const first = await done;
    if (status === 400) assert.equal((first as Error).name, "RefusedError");
    assert.deepEqual(await resumed, [], "what was refused or is final is not sent again");
    assert.equal(sent, 1);
  }
});

test("NotSent", async (t) => {
  const s = new Server();
  const journal = await journalIn(t);
  const c = newClient(s, { journal });
  await assert.rejects(c.do(payment(1), { signal: AbortSignal.abort(new Error("no")) }), { name: "NotSentError" });
  const bad: [string, Partial<IntentRequest>][] = [
    ["intent", { intent: "" }], ["intent", { intent: "a\ud800" }], ["intent", { intent: "a\0" }], ["body", { body: "\ud800" }],
    ["path", { path: "v1/payments" }], ["path", { path: "/v1#a" }], ["method", { method: "TRACE" }], ["method", { method: "A B" }],
    ["GET", { method: "GET" }], ["contentType", { contentType: "a\nb" }],
  ];
  for (const [what, change] of bad) {
    await assert.rejects(c.do({ ...payment(1), ...change }), { name: "NotSentError" }, `${what} ${JSON.stringify(change)}`);
  }
  for (const method of ["GET", "HEAD", "get"]) {
    await assert.rejects(c.do({ intent: "read", path: "/v1/payments/pay_1", method }), { name: "NotSentError", message: /needs no key/ });
  }
  assert.deepEqual(await c.resume(), []);
  assert.equal(s.requests, 0);

  const nobody = new Client({ base: "http://127.0.0.1:9", journal, timeout: 1000 });
  await assert.rejects(nobody.do(payment(0)), { name: "UnknownError" });
  assert.equal((await journal.open()).length, 1);
});

// A refusal for the time being is a refusal when the time is over, and leaves the request free to be changed.
test("LaterUntilTheDeadline", async (t) => {
  const s = new Server(...Array.from({ length: 5000 }, () => says(429, problem(429, "rate-limited"))));
  const journal = await journalIn(t);
  await assert.rejects(newClient(s, { journal, timeout: 1000 }).do(payment(0)), { name: "RefusedError" });
  assert.deepEqual(await journal.open(), []);
});

// A server that refuses now what it may have executed before leaves an intent unknown, until the caller says what it was.
test("Settle", async (t) => {
  const path = join(folder(t), "j");
  const s = new Server(cutBefore, ...Array.from({ length: 100 }, () => says(400, problem(400, "invalid-request"))));
  const journal = await journalIn(t, path);
  const c = newClient(s, { journal });
  for (let i = 0; i < 2; i++) await assert.rejects(c.do(payment(0)), { name: "UnknownError" });
  await c.settle(payment(0).intent, { status: 400, body: "found" });
  const requests = s.requests;
  await journal.close();
  const later = newClient(s, { journal: await journalIn(t, path) });
  assert.deepEqual(await later.resume(), []);
  const response = await later.do(payment(0));
  assert.deepEqual([response.ok, response.final, response.status, response.text(), s.requests], [false, true, 400, "found", requests]);
  for (const intent of [payment(0).intent, "another"]) await assert.rejects(later.settle(intent, { status: 200 }));
});

// A journal that is used with another server, such as a copy of staging's in production: neither what is open nor what is
// final there is sent to it, or taken for what it has done.
test("OtherServer", async (t) => {
  const path = join(folder(t), "j");
  const journal = await journalIn(t, path);
  const staging = new Server(says(400, problem(400, "invalid-request"))), production = new Server();
  const there = newClient(staging, { journal, base: "HTTPS://Staging.example:443/api/" });
  await assert.rejects(there.do(payment(2)), { name: "RefusedError" });
  await there.do(payment(0));
  staging.faults = [cutAfter, says(401, problem(401, "unauthenticated"))];
  await assert.rejects(there.do(payment(1)), { name: "UnknownError" });
  assert.ok(readFileSync(path, "utf8").includes(`"base":"https://staging.example/api"`));

  const here = newClient(production, { journal, base: "https://pay.example" });
  const refused = (error: unknown): true => {
    assert.ok(error instanceof NotSentError && error.cause instanceof OtherServerError, String(error));
    for (const part of ["https://staging.example/api", "https://pay.example", "formerBases"]) assert.ok(error.message.includes(part), error.message);
    return true;
  };
  for (let i = 0; i < 2; i++) await assert.rejects(here.do(payment(i)), refused);
  const outcomes = await here.resume();
  assert.equal(outcomes.length, 1);
  refused(outcomes[0]!.error);
  await assert.rejects(here.settle(payment(1).intent, { status: 201 }), { name: "OtherServerError" });
  assert.equal(production.requests, 0);
  await here.do(payment(2)); // What staging has refused it does not hold: this server may be asked.

  // The same server at another address.
  const moved = newClient(staging, { journal, base: "https://moved.example", formerBases: ["https://STAGING.example/api//", "https://pay.example"] });
  assert.deepEqual((await moved.resume()).map((outcome) => outcome.error), [undefined]);
  for (let i = 0; i < 3; i++) assert.ok((await moved.do(payment(i))).ok);
  assert.throws(() => new Client({ base: "https://a.example", formerBases: ["b.example"], journal }), TypeError);
});

// Two clients of one process, with other headers perhaps, may share a journal in a file. What one of them is refused says
// nothing of what the other has in flight or has finished under the same key.
test("RefusalOfOneClientDoesNotUndoAnother", async (t) => {
  for (const resumes of [false, true]) {
    for (const inFlight of [false, true]) {
      const journal = await journalIn(t);
      let arrived!: () => void, refuse!: () => void, respond!: () => void, sent!: () => void;
      const arrives = new Promise<void>((resolve) => (arrived = resolve)), refuses = new Promise<void>((resolve) => (refuse = resolve));
      const responds = new Promise<void>((resolve) => (respond = resolve)), sends = new Promise<void>((resolve) => (sent = resolve));
      const other = new Server(async () => {
        arrived();
        await refuses;
        return answer(401, problem(401, "unauthenticated"));
      });
      const s = new Server(async (_, execute) => {
        const response = execute();
        sent();
        if (inFlight) await responds;
        return response;
      });
      const refused = newClient(other, { journal }).do(payment(0)).catch((error: Error) => error);
      await arrives;
      const c = newClient(s, { journal });
      const done = resumes ? c.resume() : c.do(payment(0));
      await sends;
      if (!inFlight) await done;
      refuse();
      assert.equal((await refused as Error).name, "UnknownError", "the other client's request was executed");
      respond();
      await done;
      assert.ok((await c.do(payment(0))).ok);
      assert.deepEqual(await journal.open(), []);
      assert.equal(s.requests, 1);
    }
  }
});

// Those of "shop:eu" would be records of "shop".
test("LocalStorageRefusesAColonInAName", async () => {
  await assert.rejects(openLocalStorage({ name: "shop:eu", id: "a" }), { name: "TypeError", message: /colon/ });
});

test("ConcurrentCallsOfOneIntent", async (t) => {
  const s = new Server(cutAfter);
  const c = newClient(s, { journal: await journalIn(t) });
  const all = await Promise.all(Array.from({ length: 100 }, () => c.do(payment(0))));
  assert.ok(all.every((response) => response.ok));
  s.once(1);
  assert.equal(s.requests, 2);
});

// The wait for another call of the same intent ends with the signal, and nothing was sent.
test("SignalEndsTheWaitForATurn", async (t) => {
  const s = new Server(() => new Promise(() => undefined));
  const c = newClient(s, { journal: await journalIn(t) });
  const first = c.do(payment(0), { signal: AbortSignal.timeout(1000) }).catch(() => undefined);
  while (s.requests === 0) await new Promise((resolve) => setTimeout(resolve, 1));
  await assert.rejects(c.do(payment(0), { signal: AbortSignal.timeout(20) }), { name: "NotSentError" });
  assert.equal(s.requests, 1);
  s.faults = [() => { throw new TypeError("fetch failed"); }];
  void first;
});

test("Headers", async (t) => {
  const s = new Server(cutBefore);
  const journal = await journalIn(t);
  await newClient(s, { journal, headers: { Authorization: "Bearer sk" } }).do(payment(0));
  const sent = Object.fromEntries(s.last!.headers);
  assert.deepEqual(sent, {
    "authorization": "Bearer sk", "content-type": "application/json", "prefer": "wait=10",
    "idempotency-key": await keyFor(journal.id, "order 0, payment 1"),
  });
});

test("ClientRefuses", async (t) => {
  const journal = await journalIn(t);
  for (const base of ["", "pay.example", "ftp://pay.example", "http://pay.example?a", "http://pay.example#a", "http://a:b@pay.example"]) {
    assert.throws(() => new Client({ base, journal }), TypeError, base);
  }
  assert.throws(() => new Client({ base: "http://pay.example" } as never), /needs a journal/);
  assert.throws(() => new Client({ base: "http://pay.example", journal, headers: { "idempotency-key": "k" } }), /remove the/);
  const c = newClient(new Server(), { journal });
  await assert.rejects(c.do({ ...payment(0), body: { order_id: "ord_0" } as never }), /nothing was sent: .*JSON\.stringify/);
});

// Node's fetch has the reason in its cause.
test("ReasonOfFetch", async (t) => {
  const refused = new TypeError("fetch failed", { cause: new Error("connect ECONNREFUSED 127.0.0.1:1") });
  const s = new Server(...Array.from({ length: 5000 }, () => () => { throw refused; }));
  await assert.rejects(newClient(s, { journal: await journalIn(t), timeout: 500 }).do(payment(0)), /ECONNREFUSED/);
});

// After the lifetime of keys the server would execute the request again.
test("KeyLifetime", async (t) => {
  const s = new Server(...Array.from({ length: 5000 }, () => cutAfter));
  const journal = await journalIn(t);
  await assert.rejects(newClient(s, { journal, profile: Draft, timeout: 1000 }).do(payment(0)), { name: "UnknownError" });
  const requests = s.requests;
  assert.ok(requests > 0);
  await assert.rejects(newClient(s, { journal, profile: { ...Draft, keyLifetime: 1 } }).do(payment(0)), (error: Error) => {
    assert.deepEqual([error.name, (error.cause as Error).name], ["UnknownError", "KeyTooOldError"]);
    return true;
  });
  assert.equal(s.requests, requests);
});

// A clock that was ahead when the intent began says nothing of its age; one that was set back a little does.
test("KeyLifetimeOfAClockThatWasAhead", async (t) => {
  const now = Date.now();
  for (const [ahead, sent] of [[48 * 3600_000, 0], [60_000, 1], [-3600_000, 1], [-24 * 3600_000, 0]] as const) {
    const s = new Server(cutBefore, says(401, problem(401, "unauthenticated")));
    const journal = await journalIn(t);
    t.mock.timers.enable({ apis: ["Date"], now: now + ahead });
    try {
      await assert.rejects(newClient(s, { journal, profile: Draft }).do(payment(0)), { name: "UnknownError" });
    } finally {
      t.mock.timers.reset();
    }
    const before = s.requests;
    const again = newClient(s, { journal, profile: Draft }).do(payment(0));
    if (sent === 0) await assert.rejects(again, (error: Error) => (error.cause as Error).name === "KeyTooOldError");
    else assert.ok((await again).ok);
    assert.equal(s.requests, before + sent, `${ahead} ms ahead`);
  }
});

// A journal that fails before a request is sent: no request. One that fails afterwards loses nothing but comfort.
test("JournalFails", async (t) => {
  const real = await journalIn(t);
  let fails = "";
  const journal: Journal = {
    id: real.id,
    begin: (r: IntentRecord) => fails === "begin" ? Promise.reject(new JournalFailedError("the disk is gone")) : real.begin(r),
    note: (r: IntentRecord) => fails === "note" ? Promise.reject(new JournalFailedError("the disk is gone")) : real.note(r),
    open: () => real.open(),
  };
  const s = new Server();
  const c = newClient(s, { journal });
  fails = "begin";
  await assert.rejects(c.do(payment(0)), (error: Error) => {
    assert.deepEqual([error.name, (error.cause as Error).name], ["NotSentError", "JournalFailedError"]);
    return true;
  });
  assert.equal(s.requests, 0);
  fails = "note";
  assert.ok((await c.do(payment(0))).ok);
  assert.equal((await real.open()).length, 1, "resume will get the same response again");
  s.faults = [says(400, problem(400, "invalid-request"))];
  await assert.rejects(c.do(payment(1)), { name: "UnknownError" }, "what cannot be noted as refused is still open");
  fails = "";
  assert.ok((await c.do(payment(0))).ok);
  s.once(1);
});

// A journal that hangs holds a call no longer than its time, and nothing is sent.
test("JournalHangs", async (t) => {
  const real = await journalIn(t);
  const s = new Server();
  const journal: Journal = { id: real.id, begin: () => new Promise(() => undefined), note: (r) => real.note(r), open: () => real.open() };
  await assert.rejects(newClient(s, { journal, timeout: 50 }).do(payment(0)), { name: "NotSentError" });
  assert.equal(s.requests, 0);
});

// A server that says 2xx to the same key with two ids, whatever is between.
for (const [name, faults] of Object.entries({
  AtOnce: [says(202, paying("pay_1", "processing")), says(201, paying("pay_2", "succeeded"), { "Idempotent-Replayed": "true" })],
  AfterAnError: [says(202, paying("pay_1", "processing")), says(500, problem(500, "internal")), says(201, paying("pay_2", "succeeded"), { "Idempotent-Replayed": "true" })],
})) {
  test(`Liar/TwoIDs/${name}`, async (t) => {
    const s = new Server(...faults);
    await assert.rejects(newClient(s, { journal: await journalIn(t) }).do(payment(0)), { name: "BrokenPromiseError", what: /pay_2.*pay_1/ });
    assert.equal(s.requests, faults.length);
  });
}

// What an earlier process saw is compared with what this one sees.
test("Liar/AcrossARestart", async (t) => {
  const path = join(folder(t), "j");
  const s = new Server(says(202, paying("pay_1", "requires_action")), says(201, paying("pay_2", "succeeded")));
  const journal = await journalIn(t, path);
  await newClient(s, { journal }).do(payment(0));
  await journal.close();
  await assert.rejects(newClient(s, { journal: await journalIn(t, path) }).do(payment(0)), { name: "BrokenPromiseError" });
});

// Of a response to a page of another origin the browser hides what the API does not expose: a missing mark says nothing.
test("HiddenMarkOfAReplay", async (t) => {
  const cors = (status: number, body: string): Response => Object.defineProperty(answer(status, body), "type", { value: "cors" });
  const s = new Server(cutInBody, () => cors(201, paying("obj_0", "succeeded")));
  assert.ok((await newClient(s, { journal: await journalIn(t) }).do(payment(0))).ok);
});
