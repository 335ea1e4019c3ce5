import assert from "node:assert/strict";
import test from "node:test";

import { waitsOf } from "../src/client.js";
import { Budget, retryAfter } from "../src/retry.js";
import { answer, journalIn, newClient, payment, problem, says, Server, type Fault } from "./server.js";

test("RetryAfter", () => {
  const now = Date.UTC(2026, 10, 27, 12);
  const table: [string, number][] = [
    ["", 0], ["0", 0], ["1", 1000], ["120", 120_000], ["007", 7000],
    ["Fri, 27 Nov 2026 12:00:30 GMT", 30_000],
    ["Friday, 27-Nov-26 12:00:30 GMT", 30_000], // RFC 850
    ["Fri Nov 27 12:00:30 2026", 30_000], // asctime
    ["Fri, 27 Nov 2026 11:59:00 GMT", 0],
    ["-1", 0], ["1.5", 0], ["soon", 0], ["+1", 0], ["2026-11-27", 0],
    ["2147483648", 2147483647000], ["99999999999999999999", 2147483647000], ["Fri, 31 Dec 9999 12:00:30 GMT", 2147483647000],
  ];
  for (const [value, want] of table) assert.equal(retryAfter(new Headers({ "Retry-After": value }), now), want, value);
});

// Each wait is between 1/20 and all of a time that doubles, and is spread over it.
test("WaitsDoubleWithJitter", () => {
  for (const [n, most] of [200, 400, 800, 1600, 3200, 6400, 10000, 10000, 10000].entries()) {
    let low = 0, high = 0;
    for (let i = 0; i < 1000; i++) {
      const wait = new Budget().wait(n, undefined, 0);
      assert.ok(wait >= most / 20 && wait < most, `wait ${n} is ${wait}`);
      if (wait < most / 4) low++;
      if (wait > most * 3 / 4) high++;
    }
    assert.ok(low > 100 && high > 100, `wait ${n}: ${low} are early and ${high} late, of 1000`);
  }
  assert.ok(new Budget().wait(1e9, undefined, 0) <= 10_000);
});

// What Retry-After wants is waited for, and a different time by each client.
test("WaitsAtLeastRetryAfter", () => {
  const headers = new Headers({ "Retry-After": "30" });
  const seen = new Set<number>();
  for (let i = 0; i < 100; i++) {
    const wait = new Budget().wait(3, headers, 0);
    assert.ok(wait >= 30_000 && wait <= 31_000, `${wait}`);
    seen.add(wait);
  }
  assert.ok(seen.size > 50);
});

// When retries are many for each call, all of them wait the longest time.
test("RetryBudget", () => {
  const b = new Budget();
  const short = (): number => {
    let n = 0;
    for (let i = 0; i < 1000; i++) if (b.wait(0, undefined, 0) < 200) n++;
    return n;
  };
  assert.equal(short(), 100); // of those without a budget none is: the least is 500 ms
  assert.equal(short(), 0);
  for (let i = 0; i < 250; i++) b.deposit();
  assert.ok(Math.abs(short() - 50) <= 1);
  for (let i = 0; i < 10_000; i++) b.deposit();
  assert.equal(short(), 100, "the budget does not grow beyond its limit");
});

// A call ends when its time is over, and no wait goes beyond it.
for (const [name, timeout, own] of [["Timeout", 1000, 60_000], ["Signal", 60_000, 1000]] as const) {
  test(`Deadline/${name}`, async (t) => {
    const s = new Server();
    s.faults = Array.from({ length: 100_000 }, () => says(500, problem(500, "internal")));
    const c = newClient(s, { journal: await journalIn(t), timeout });
    const began = performance.now();
    await assert.rejects(c.do(payment(0), { signal: AbortSignal.timeout(own) }), { name: "UnknownError" });
    assert.ok(performance.now() - began < 5000);
    assert.ok(s.requests > 2);
  });
}

// A server that wants a longer wait than is left is not waited for, and not asked early.
test("RetryAfterBeyondTheDeadline", async (t) => {
  const s = new Server(says(500, problem(500, "internal"), { "Retry-After": "600" }));
  const c = newClient(s, { journal: await journalIn(t), timeout: 60_000 });
  const began = performance.now();
  await assert.rejects(c.do(payment(0)), { name: "UnknownError" });
  assert.ok(performance.now() - began < 5000);
  assert.equal(s.requests, 1);
});

// An attempt that gets no response is given up, and the next one succeeds.
test("AttemptTimeout", async (t) => {
  const hang: Fault = (q, execute) => {
    execute();
    return new Promise((_, reject) => q.signal!.addEventListener("abort", () => reject(q.signal!.reason)));
  };
  const s = new Server(hang);
  const c = newClient(s, { journal: await journalIn(t), timeout: 60_000, attemptTimeout: 50 });
  assert.ok((await c.do(payment(0))).ok);
  assert.equal(s.requests, 2);
  s.once(1);
});

test("AbortDuringWait", async (t) => {
  const stop = new AbortController();
  const s = new Server(() => {
    stop.abort(new Error("the user left"));
    return answer(500, problem(500, "internal"));
  });
  const c = newClient(s, { journal: await journalIn(t), timeout: 60_000 });
  waitsOf.get(c)!.scale = 1; // the real waits
  await assert.rejects(c.do(payment(0), { signal: stop.signal }), (error: Error) => {
    assert.equal(error.name, "UnknownError");
    assert.equal((error.cause as Error).message, "the user left");
    return true;
  });
  assert.equal(s.requests, 1);
});
