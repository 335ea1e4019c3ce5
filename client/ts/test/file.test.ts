import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import * as fs from "node:fs";
import { join } from "node:path";
import test from "node:test";
import { fileURLToPath } from "node:url";

import { FileJournal, openFile } from "../src/file.js";
import { Payonce } from "../src/index.js";
import { headStart } from "../src/journal.js";
import { cutAfter, cutInBody, doesAndSays, folder, journalIn, newClient, payment, problem, says, Server } from "./server.js";

const testdata = fileURLToPath(new URL("../../../testdata/", import.meta.url));
const head = headStart + "ABCDEFGHIJKLMNOPQRSTUVWXYZ\n";

/** What a client leaves that is stopped again and again among its intents, and the server it has talked to. */
async function realJournal(path: string, intents: number): Promise<{ whole: Buffer; server: Server }> {
  const server = new Server();
  const never = (): Promise<Response> => new Promise(() => undefined); // the process ends
  const ends = [
    [says(400, problem(400, "invalid-request"))], [cutAfter], [cutAfter, never], [doesAndSays(503, "{}")], [cutInBody], [cutInBody, never], [],
  ];
  for (let i = 0; i < intents; i++) {
    const journal = await openFile(path);
    server.faults = [...ends[i % ends.length]!];
    const until = new Promise((resolve) => setTimeout(resolve, 500));
    await Promise.race([newClient(server, { journal }).do(payment(i)).catch(() => undefined), until]);
    await journal.close();
  }
  server.faults = [];
  return { whole: fs.readFileSync(path), server };
}

// Wherever a journal is cut after its first line, each intent is executed once: by a server that has executed all of
// them before, and by one that has executed only what the rest knows to be done. Cut in its first line it is refused.
test("JournalCutAtEveryByte", async (t) => {
  const intents = 5, path = join(folder(t), "j");
  const { whole, server: before } = await realJournal(path, intents);
  for (const state of ["sent", "final", "refused"]) assert.ok(whole.includes(`"state":"${state}"`), state);
  let opened = 0;
  const cut = async (n: number, path: string): Promise<void> => {
    fs.writeFileSync(path, whole.subarray(0, n));
    if (n < head.length) {
      await assert.rejects(openFile(path), { name: "JournalForeignError" }, `cut to ${n} bytes`);
      assert.equal(fs.statSync(path).size, n, "it was left as it was");
      return;
    }
    opened++;
    const journal = await openFile(path);
    try {
      const kept = fs.readFileSync(path, "utf8"); // without the incomplete end
      const s = new Server(cutAfter, cutInBody);
      for (const [key, entry] of before.stored) {
        if (n % 2 === 1 && !kept.split("\n").some((line) => line.includes(key) && /"state":"final"|"done":true/.test(line))) continue;
        s.stored.set(key, entry);
        s.done.set(entry.body, before.done.get(entry.body)!);
      }
      const c = newClient(s, { journal });
      for (const o of await c.resume()) assert.ok(o.response?.ok, `cut to ${n} bytes: ${o.intent}: ${String(o.error)}`);
      for (let i = 0; i < intents; i++) assert.ok((await c.do(payment(i))).ok, `cut to ${n} bytes`);
      s.once(intents);
      const requests = s.requests;
      for (let i = 0; i < intents; i++) assert.ok((await c.do(payment(i))).ok);
      assert.equal(s.requests, requests, "all is final");
    } finally {
      await journal.close();
    }
  };
  const parts = 16, other = folder(t);
  await Promise.all(Array.from({ length: parts }, async (_, part) => {
    for (let n = part; n <= whole.length; n += parts) await cut(n, join(other, `cut-${part}`));
  }));
  assert.ok(opened > 1500, `${opened}`);
});

// Each byte changed: it is told, or it was in the last record and the request is sent again.
test("JournalWithAChangedByte", async (t) => {
  const path = join(folder(t), "j");
  const s = new Server();
  const journal = await openFile(path);
  for (let i = 0; i < 2; i++) await newClient(s, { journal }).do(payment(i));
  await journal.close();
  const whole = fs.readFileSync(path);
  const last = whole.lastIndexOf("\n", -2) + 1;
  for (let n = 0; n < whole.length; n++) {
    if (n >= headStart.length && n < head.length - 1) continue; // another id is another journal
    const changed = Buffer.from(whole);
    changed[n]! ^= 1;
    fs.writeFileSync(path, changed);
    if (n < last - 1) { // the newline between the last two makes them one line, at the end
      const name = n < head.length ? "JournalForeignError" : "JournalDamagedError";
      await assert.rejects(openFile(path), { name }, `byte ${n}`);
      assert.deepEqual(fs.readFileSync(path), changed, "it was left as it was");
      continue;
    }
    const journal = await openFile(path);
    for (let i = 0; i < 2; i++) assert.ok((await newClient(s, { journal }).do(payment(i))).ok);
    await journal.close();
    s.once(2);
  }
});

test("OpenFileRefuses", async (t) => {
  const at = folder(t);
  const texts = {
    Empty: "", Log: "hello\nworld\n", Later: "payonce-journal 2 ABCDEFGHIJKLMNOPQRSTUVWXYZ\n", ShortID: headStart + "A\n",
    Digits: headStart + "ABCDEFGHIJKLMNOPQRSTUVWXY1\n", Lower: headStart + "abcdefghijklmnopqrstuvwxyz\n", Torn: head.slice(0, -1),
  };
  for (const [name, text] of Object.entries(texts)) {
    const path = join(at, name);
    fs.writeFileSync(path, text);
    await assert.rejects(openFile(path), (error: Error) => {
      assert.equal(error.name, "JournalForeignError", name);
      assert.ok(error.message.includes(path), error.message);
      return true;
    });
    assert.equal(fs.readFileSync(path, "utf8"), text);
  }
  await assert.rejects(openFile(join(at, "no", "j")), { name: "JournalFailedError" });
  await assert.rejects(openFile(at), { name: "JournalForeignError" });
  await assert.rejects(openFile("/dev/null"), { name: "JournalForeignError" });
  const path = join(at, "j");
  const journal = await openFile(path);
  await assert.rejects(openFile(path), { name: "JournalInUseError", message: /in this process or another/ });
  assert.equal(fs.statSync(path).mode & 0o777, 0o600);
  const other = spawnSync("flock", ["-n", path, "true"]);
  assert.equal(other.status, 1, "it is locked as the Go client locks it");
  await journal.close();
  await (await openFile(path)).close();
  assert.deepEqual(fs.readdirSync(at).filter((name) => name.includes(".new-")), []);
});

// Without a program that locks files there is no lock, and so no journal.
test("OpenFileWithoutFlock", async (t) => {
  const path = process.env["PATH"];
  process.env["PATH"] = "/nowhere";
  try {
    await assert.rejects(openFile(join(folder(t), "j")), { name: "JournalFailedError", message: /util-linux/ });
  } finally {
    process.env["PATH"] = path;
  }
});

// A limit on the size of files is to a program what a full disk is: part of a record is written.
test("Full", async (t) => {
  if (process.env["JOURNAL"] === undefined) {
    const path = join(folder(t), "j");
    const again = spawnSync("sh", ["-c", `ulimit -f 2; exec "$0" --test-name-pattern='^Full$' "$1"`, process.execPath, fileURLToPath(import.meta.url)],
      { env: { ...process.env, JOURNAL: path, NODE_TEST_CONTEXT: "" }, encoding: "utf8" });
    assert.equal(again.status, 0, again.stdout + again.stderr);
    assert.match(again.stdout, /it is full/);
    await (await openFile(path)).close(); // nothing is torn
    return;
  }
  const journal = await openFile(process.env["JOURNAL"]);
  const s = new Server();
  const c = newClient(s, { journal });
  for (let i = 0; i < 100; i++) {
    try {
      await c.do(payment(i));
    } catch (error) {
      assert.ok(error instanceof Error);
      assert.deepEqual([error.name, (error.cause as Error).name, s.requests], ["NotSentError", "JournalFullError", i]);
      assert.ok(fs.readFileSync(process.env["JOURNAL"], "utf8").endsWith("}\n"), "a part of a record was left");
      console.log("it is full: ", error.message);
      return;
    }
  }
  assert.fail("it was never full");
});

async function refusesToSend(journal: FileJournal, cause: string): Promise<void> {
  const s = new Server();
  for (let i = 0; i < 3; i++) {
    await assert.rejects(newClient(s, { journal }).do(payment(i)), (error: Error) => {
      assert.deepEqual([error.name, (error.cause as Error).name], ["NotSentError", cause], String(error.cause));
      return true;
    });
  }
  assert.equal(s.requests, 0);
}

// A disk that takes no writes, or cannot be synced, is told before anything is sent.
test("JournalCannotBeWritten", async (t) => {
  const path = join(folder(t), "j");
  await (await openFile(path)).close();
  const readOnly = fs.openSync(path, "r");
  t.after(() => fs.closeSync(readOnly));
  await t.test("ReadOnly", () => refusesToSend(new FileJournal(readOnly, "A", head.length, new Map()), "JournalFailedError"));
  await t.test("FsyncFails", async () => {
    const unsyncable = fs.openSync("/dev/null", "r+"); // takes bytes, and cannot be synced
    await refusesToSend(new FileJournal(unsyncable, "A", 0, new Map()), "JournalFailedError");
    fs.closeSync(unsyncable);
  });
  await t.test("NoSpace", async () => {
    const full = fs.openSync("/dev/full", "r+");
    await refusesToSend(new FileJournal(full, "A", 0, new Map()), "JournalFullError");
    fs.closeSync(full);
  });
  await t.test("Closed", async () => {
    const journal = await openFile(path);
    await journal.close();
    await refusesToSend(journal, "JournalFailedError");
  });
});

// Many intents that begin at the same time share an fsync; each is on the disk before its request leaves.
test("BeginIsSynced", async (t) => {
  const path = join(folder(t), "j");
  const journal = await journalIn(t, path);
  const s = new Server();
  const seen: boolean[] = [];
  s.faults = Array.from({ length: 50 }, () => (q, execute) => {
    seen.push(fs.readFileSync(path, "utf8").includes(q.headers.get("Idempotency-Key")!));
    return execute();
  });
  const c = newClient(s, { journal });
  await Promise.all(Array.from({ length: 50 }, (_, i) => c.do(payment(i))));
  assert.deepEqual(seen, Array(50).fill(true));
  s.once(50);
});

// A journal that the Go client has written: the same intents, keys and responses.
test("ReadsTheJournalOfGo", async (t) => {
  const path = join(folder(t), "j");
  fs.copyFileSync(testdata + "go.journal", path);
  const journal = await journalIn(t, path);
  const s = new Server();
  const c = newClient(s, { journal });
  const response = await c.do({ intent: "order 1, payment 1", path: "/v1/payments", body: `{"order_id":"ord_<1>&ä"}` });
  assert.deepEqual([response.status, response.key, response.headers.get("Location"), (response.json() as { id: string }).id],
    [201, "pk1-30kthdbtf839l1eb3eonqgp1r14jsofi", "/v1/payments/pay_1", "pay_1"]);
  await assert.rejects(c.do({ intent: "order 4, payment 1", path: "/v1/payments", body: `{"order_id":"liar"}` }), { name: "BrokenPromiseError" });
  assert.equal(s.requests, 0);
  const open = await journal.open();
  assert.deepEqual(open.map((r) => [r.intent, r.key, r.seen.id]), [["order 3, payment 1", "pk1-h3p8pjfcu0hu838699cnj65nircc10vr", "pay_2"]]);
  s.faults = [says(400, problem(400, "invalid-request"))];
  await assert.rejects(c.do({ intent: "order 2, payment 1", path: "/v1/payments", body: `{"order_id":"corrected"}` }), { name: "RefusedError" });
  assert.equal(s.last!.headers.get("Idempotency-Key"), "pk1-a5elgjfj54vdnt2aqel9b5091shvpclv");
  assert.ok(Payonce.marksReplays);
});
