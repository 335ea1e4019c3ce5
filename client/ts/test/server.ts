import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestContext } from "node:test";

import { waitsOf } from "../src/client.js";
import { openFile, type FileJournal } from "../src/file.js";
import { Client, type IntentRequest, type Options } from "../src/index.js";

/** A request as the server sees it. */
export interface Seen {
  path: string;
  headers: Headers;
  body: string;
  signal: AbortSignal | undefined;
}

/** Has the server respond something else. execute does what was asked, and returns the true response. */
export type Fault = (q: Seen, execute: () => Response) => Response | Promise<Response>;

/**
 * An API that keeps payonce's promises, in memory, and counts what it has done. Its fetch is that of the client under
 * test. faults are what becomes of the next requests, in their order.
 */
export class Server {
  readonly stored = new Map<string, { body: string; text: string }>();
  readonly done = new Map<string, number>(); // by body
  requests = 0;
  faults: Fault[];
  last: Seen | undefined;

  constructor(...faults: Fault[]) {
    this.faults = faults;
  }

  readonly fetch = async (input: string | URL | Request, init: RequestInit = {}): Promise<Response> => {
    init.signal?.throwIfAborted();
    const url = new URL(String(input));
    const body = init.body === undefined ? "" : new TextDecoder().decode(init.body as Uint8Array);
    const q: Seen = { path: url.pathname, headers: new Headers(init.headers), body, signal: init.signal ?? undefined };
    this.requests++;
    this.last = q;
    const execute = (): Response => this.execute(q.headers.get("Idempotency-Key") ?? "", body);
    const next = this.faults.shift();
    return next === undefined ? execute() : next(q, execute);
  };

  execute(key: string, body: string): Response {
    const before = this.stored.get(key);
    if (before !== undefined) {
      return before.body === body
        ? answer(201, before.text, { "Idempotent-Replayed": "true", "Request-Id": "req_2" })
        : answer(422, problem(422, "idempotency-key-mismatch"));
    }
    this.done.set(body, (this.done.get(body) ?? 0) + 1);
    const text = JSON.stringify({ ...JSON.parse(body), id: `obj_${this.stored.size}`, object: "payment" });
    this.stored.set(key, { body, text });
    return answer(201, text, { "Request-Id": "req_1" });
  }

  /** Fails unless the server has done each of n payments once. */
  once(n: number): void {
    for (let i = 0; i < n; i++) assert.equal(this.done.get(String(payment(i).body)), 1, `payment ${i}`);
    assert.equal(this.done.size, n, "payments that were made");
  }
}

export function answer(status: number, body: string, headers: HeadersInit = {}): Response {
  const noBody = status === 204 || status === 205 || status === 304;
  const response = new Response(noBody ? null : body, { status, headers });
  if (!new Headers(headers).has("Content-Type")) response.headers.delete("Content-Type");
  return response;
}

/** A problem document as payonce sends it. */
export function problem(status: number, code: string): string {
  const retryable = ["idempotency-key-in-flight", "payment-in-progress", "rate-limited", "unavailable", "internal"].includes(code);
  return JSON.stringify({ type: `/problems/${code}`, title: "…", status, code, retryable, request_id: "req_1" });
}

export function says(status: number, body: string, headers: HeadersInit = {}): Fault {
  return () => answer(status, body, headers);
}

export function doesAndSays(status: number, body: string, headers: HeadersInit = {}): Fault {
  return (_, execute) => {
    execute();
    return answer(status, body, headers);
  };
}

export const cutBefore: Fault = () => {
  throw new TypeError("fetch failed");
};

export const cutAfter: Fault = (_, execute) => {
  execute();
  throw new TypeError("fetch failed");
};

/** Loses the response after its status. */
export const cutInBody: Fault = (_, execute) => {
  const { status, headers } = execute();
  return new Response(cutBody('{"id'), { status, headers });
};

/** Loses the response after its Location. */
export function cutInBodyOf(location: string): Fault {
  return (_, execute) => {
    const { status, headers } = execute();
    headers.set("Location", location);
    return new Response(cutBody('{"id'), { status, headers });
  };
}

/** A gateway that lets pass only the headers that it knows. */
export const dropsTheMark: Fault = (_, execute) => {
  const response = execute();
  response.headers.delete("Idempotent-Replayed");
  return response;
};

/** What a gateway says by itself, and of which the end is lost. */
export const cutMaintenance: Fault = () => new Response(cutBody(`{"message`), { status: 201, headers: { "Content-Type": "application/json" } });

/** The page of a proxy that is cut off. */
export const cutPage: Fault = () => new Response(cutBody("<html"), { status: 200, headers: { "Content-Type": "text/html" } });

function cutBody(text: string): ReadableStream {
  let sent = false;
  return new ReadableStream({
    pull(controller) {
      if (sent) return controller.error(new TypeError("terminated"));
      sent = true;
      controller.enqueue(new TextEncoder().encode(text));
    },
  });
}

export function payment(n: number): IntentRequest {
  return { intent: `order ${n}, payment 1`, path: "/v1/payments", body: `{"order_id":"ord_${n}","payment_method":"pm_card_visa"}` };
}

/** A folder that is removed after the test. */
export function folder(t: TestContext): string {
  const path = mkdtempSync(join(tmpdir(), "payonce-client-"));
  t.after(() => rmSync(path, { recursive: true, force: true }));
  return path;
}

export async function journalIn(t: TestContext, path = join(folder(t), "j")): Promise<FileJournal> {
  const journal = await openFile(path);
  t.after(() => journal.close().catch(() => undefined));
  return journal;
}

export function newClient(server: Server, o: Partial<Options> & Pick<Options, "journal">): Client {
  const client = new Client({ base: "http://pay.example", fetch: server.fetch, timeout: 5000, ...o });
  waitsOf.get(client)!.scale = 1e-4;
  return client;
}
