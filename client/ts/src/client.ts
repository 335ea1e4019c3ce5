import {
  BrokenPromiseError, ExpiredError, IntentChangedError, KeyTooOldError, MismatchError, NotSentError, OtherServerError,
  RefusedError, UnknownError,
} from "./errors.js";
import { member, parse, sameBytes, sameJSON, string } from "./json.js";
import { kept, keyFor, responseOf, type IntentRecord, type Journal, type Seen, type StoredRequest } from "./journal.js";
import { Payonce, type Profile, type Class } from "./profile.js";
import { IntentResponse } from "./response.js";
import { Budget, Deadline, Turns } from "./retry.js";

/** What a client is made of. base and journal must be set. */
export interface Options {
  /** The API's URL: https://pay.example.com. The journal holds it with each intent. */
  base: string;

  /**
   * Addresses that the same server had before. What was begun at them is continued at base; what was begun at any other
   * is an OtherServerError.
   */
  formerBases?: readonly string[];

  journal: Journal;

  /** Sent with every request: Authorization. They are not written to the journal. */
  headers?: ConstructorParameters<typeof Headers>[0];

  /** Payonce if it is not set. */
  profile?: Profile;

  /** Bounds one call of do with all its attempts, in milliseconds; a signal may end it earlier. 2 minutes if not set. */
  timeout?: number;

  /** Bounds one request and its response, in milliseconds. 50 seconds if it is not set: payonce responds within 45. */
  attemptTimeout?: number;

  /**
   * Sends the requests; the global fetch if it is not set. It must not retry by itself under another key. Redirects are
   * never followed: they could send a key and a payment to another host.
   */
  fetch?: typeof fetch;
}

/**
 * What is sent for an intent. Two requests are equal if their methods, paths and media types are, and their bodies are
 * the same bytes or the same JSON values.
 */
export interface IntentRequest {
  /** The name of what is to happen once, chosen by the caller and the same after a restart: "order 17, payment 1" */
  intent: string;
  method?: string; // POST if it is not set
  path: string; // with its query; begins with a slash
  contentType?: string; // that of the profile if it is not set
  body?: string | Uint8Array;
}

/** What resume returns for an intent: response or error is set, as do returns or throws them. */
export type Outcome =
  | { intent: string; response: IntentResponse; error?: undefined }
  | { intent: string; response?: undefined; error: unknown };

const bodyMax = 8 << 20; // bytes of the longest response body that is read
const resumeAtOnce = 8; // intents that resume sends at the same time

/** Sends intents. Calls for one intent run one after another. */
export class Client {
  readonly #base: string;
  readonly #bases: readonly string[]; // as records hold them: that of base, and the former ones
  readonly #journal: Journal;
  readonly #headers: Headers;
  readonly #profile: Profile;
  readonly #timeout: number;
  readonly #attemptTimeout: number;
  readonly #fetch: typeof fetch;
  readonly #retries = new Budget();
  readonly #turns = new Turns();

  /** It sends nothing; call {@link resume} next. */
  constructor(o: Options) {
    this.#bases = [o.base, ...o.formerBases ?? []].map(normalBase);
    if (!o.journal) {
      throw new TypeError("a client needs a journal: without one a crash loses the key, and the next request is a second payment");
    }
    this.#headers = new Headers(o.headers);
    if (this.#headers.has("Idempotency-Key")) {
      throw new TypeError("remove the Idempotency-Key from the headers: the client sets one for each intent");
    }
    if (globalThis.crypto?.subtle === undefined) {
      throw new TypeError("keys are made with crypto.subtle, which browsers have on pages of https: only");
    }
    this.#base = o.base.replace(/\/+$/, "");
    this.#journal = o.journal;
    this.#profile = o.profile ?? Payonce;
    this.#timeout = o.timeout ?? 120_000;
    this.#attemptTimeout = o.attemptTimeout ?? 50_000;
    this.#fetch = o.fetch ?? ((input, init) => fetch(input, init));
    waitsOf.set(this, this.#retries);
  }

  /**
   * Sends a request until the response is final, and returns it: a success, or a refusal that is final, such as a
   * declined card, for which ok is false. If the intent is final already, do returns the response from the journal and
   * sends nothing.
   *
   * It throws:
   *
   * - {@link RefusedError}: the server did nothing. Correct the request and call do again, under the same name.
   * - {@link UnknownError}: it may have been done. Call do again with the same request.
   * - {@link NotSentError}: this call sent nothing.
   * - {@link MismatchError}, {@link ExpiredError}, {@link BrokenPromiseError}: retrying does not help; an operator must
   *   look.
   */
  async do(request: IntentRequest, options: { signal?: AbortSignal } = {}): Promise<IntentResponse> {
    return (await this.#do(request, options.signal, false))!;
  }

  /** Does what do does; if it resumes, only for an intent that is still open, and resolves to undefined for another. */
  async #do(request: IntentRequest, signal: AbortSignal | undefined, resumes: boolean): Promise<IntentResponse | undefined> {
    const deadline = new Deadline(this.#timeout, signal);
    let begun = false;
    try {
      const q = this.#valid(request);
      const intent = request.intent;
      return await this.#alone(intent, deadline, async () => {
        deadline.signal.throwIfAborted();
        // One that was refused since resume has listed it must not be begun again.
        if (resumes && !(await deadline.race(this.#journal.open())).some((open) => open.intent === intent)) return undefined;
        return this.#begin(intent, q, deadline, resumes, () => (begun = true));
      });
    } catch (error) {
      throw begun ? error : new NotSentError(error);
    } finally {
      deadline.close();
    }
  }

  /** Writes the intent to the journal, and sends it if that is to be done. begun is called before anything is sent. */
  async #begin(
    intent: string, q: StoredRequest, deadline: Deadline, resumes: boolean, begun: () => void,
  ): Promise<IntentResponse | undefined> {
    const key = await keyFor(this.#journal.id, intent);
    const r: IntentRecord =
      { intent, key, base: this.#bases[0]!, request: q, state: "sent", seen: {}, begunAt: new Date() };
    const stored = await deadline.race(this.#journal.begin(r));
    if (stored !== undefined) this.#here(stored);
    if (stored !== undefined && !same(stored.request, q)) throw new IntentChangedError(intent);
    if (resumes && stored === undefined) { // Another client was refused meanwhile, and its caller knows.
      await this.#journal.note({ ...r, state: "refused" });
      return undefined;
    }
    begun();
    switch (stored?.state) {
      case undefined:
        return this.#send(r, deadline, false);
      case "final":
        return responseOf(stored!, true)!;
      case "broken":
        throw new BrokenPromiseError({ ...of(stored!, responseOf(stored!, false)), what: stored!.broken ?? "" });
    }
    return this.#send(stored!, deadline, true);
  }

  /**
   * Throws if a record is of another server: its key means nothing to this one, which would execute the request as a new
   * one.
   */
  #here(r: IntentRecord): void {
    if (!this.#bases.includes(r.base)) throw new OtherServerError(r.intent, r.base, this.#bases[0]!);
  }

  /** Finds what is wrong with a request before it is written to the journal, from which it must be read as it is. */
  #valid(q: IntentRequest): StoredRequest {
    if (q.body !== undefined && typeof q.body !== "string" && !ArrayBuffer.isView(q.body)) {
      throw new TypeError("the body must be text or a Uint8Array: give an object to JSON.stringify first");
    }
    const request: StoredRequest = {
      method: q.method ?? "POST",
      path: q.path,
      contentType: q.contentType ?? this.#profile.contentType,
      body: typeof q.body === "string" ? new TextEncoder().encode(q.body) : (q.body ?? new Uint8Array()).slice(),
    };
    if (typeof q.intent !== "string" || q.intent === "") {
      throw new TypeError("the request has no intent: name it, by a name that is the same after a restart");
    }
    const texts = [q.intent, request.method, request.path, request.contentType];
    for (const text of typeof q.body === "string" ? [...texts, q.body] : texts) {
      if (/\p{Surrogate}/u.test(text) || (text !== q.body && text.includes("\0"))) {
        throw new TypeError(`${JSON.stringify(text.slice(0, 200))} is not Unicode text`);
      }
    }
    if (/^(get|head)$/i.test(request.method)) {
      throw new TypeError(`a ${request.method.toUpperCase()} needs no key: send it with fetch`);
    }
    if (!request.path.startsWith("/") || request.path.includes("#")) {
      throw new TypeError(`the path ${JSON.stringify(request.path)} must begin with a slash and have no fragment`);
    }
    new Request(this.#base + request.path, this.#init(request, "key", false)); // throws if fetch would
    return request;
  }

  /**
   * Sends every intent of the journal that was begun and is not final: those of a process that crashed or a page that
   * was closed, and those that ended in an UnknownError. Call it when a process starts or a page is opened. It returns
   * one outcome for each, oldest first, except those that another call has ended meanwhile. Each may take
   * Options.timeout, so give a signal if the server may be down: what is left then stays in the journal.
   */
  async resume(options: { signal?: AbortSignal } = {}): Promise<Outcome[]> {
    const open = await this.#journal.open();
    const outcomes: Outcome[] = [];
    let next = 0;
    const work = async (): Promise<void> => {
      for (let i = next++; i < open.length; i = next++) {
        const { intent, request } = open[i]!;
        try {
          try {
            this.#here(open[i]!);
          } catch (error) {
            throw new NotSentError(error);
          }
          const response = await this.#do({ intent, ...request }, options.signal, true);
          if (response !== undefined) outcomes[i] = { intent, response };
        } catch (error) {
          outcomes[i] = { intent, error };
        }
      }
    };
    await Promise.all(Array.from({ length: resumeAtOnce }, work));
    return outcomes.filter((outcome) => outcome !== undefined);
  }

  /**
   * Ends an intent whose outcome the caller has found elsewhere: by reading the object, or by the server's record of the
   * key. do returns the response from then on and sends nothing. It is for an UnknownError, MismatchError or
   * ExpiredError that stays; an intent that is not open, or not known, is an error.
   */
  async settle(intent: string, outcome: { status: number; headers?: HeadersInit; body?: Uint8Array | string }): Promise<void> {
    const deadline = new Deadline(this.#timeout, undefined);
    try {
      await this.#alone(intent, deadline, async () => {
        const r = (await this.#journal.open()).find((open) => open.intent === intent);
        if (r === undefined) throw new Error(`${JSON.stringify(intent)} is not an open intent`);
        this.#here(r);
        const body = typeof outcome.body === "string" ? new TextEncoder().encode(outcome.body) : outcome.body ?? new Uint8Array();
        const response = new IntentResponse(
          { ...outcome, headers: new Headers(outcome.headers), body, intent, key: r.key, final: true });
        await this.#journal.note({ ...r, state: "final", response: kept(response) });
      });
    } finally {
      deadline.close();
    }
  }

  /** Runs what concerns an intent, one caller after another. */
  #alone<T>(intent: string, deadline: Deadline, run: () => Promise<T>): Promise<T> {
    return this.#turns.run(intent, deadline, () => this.#journal.exclusive === undefined
      ? run() : this.#journal.exclusive(intent, deadline.signal, run));
  }

  /** Sends a request until the response is final. earlier: an attempt before this call may have reached the server. */
  async #send(r: IntentRecord, deadline: Deadline, earlier: boolean): Promise<IntentResponse> {
    this.#retries.deposit();
    let mayHaveArrived = earlier;
    let last: IntentResponse | undefined;
    for (let n = 0; ; n++) {
      const lifetime = this.#profile.keyLifetime ?? 0, age = Date.now() - r.begunAt.getTime();
      // What was begun in the future has no age: the clock was ahead by an unknown time.
      if (lifetime > 0 && (age > lifetime || age < -clockMayStep)) {
        throw await this.#unsettled(r, mayHaveArrived, last, new KeyTooOldError());
      }
      if (deadline.signal.aborted) throw await this.#unsettled(r, mayHaveArrived, last, deadline.signal.reason);
      const a = await this.#attempt(r, deadline.signal, n > 0 || earlier);
      let kind: Class = "retry";
      if (a.response !== undefined && a.error === undefined) {
        kind = a.redirected ? "unclear" : this.#profile.classify(a.response);
      }
      const what = await this.#compare(r, a, kind);
      if (what !== "") throw await this.#broken(r, a.response!, what);
      switch (kind) {
        case "final": {
          const response = a.response!;
          await this.#journal.note({ ...r, state: "final", response: kept(response) })
            .catch(() => undefined); // If it is lost, resume gets the same response again.
          return new IntentResponse({ ...response, final: true });
        }
        case "caller":
          return a.response!;
        case "mismatch":
          throw new MismatchError(of(r, a.response));
        case "expired":
          throw new ExpiredError({ ...of(r, a.response), href: href(a.response!) });
        case "refused":
          if (mayHaveArrived) throw new UnknownError(of(r, a.response)); // This refusal says nothing of the earlier attempt.
          throw await this.#refused(r, a.response!);
        case "unclear":
          throw new UnknownError(of(r, a.response));
      }
      // Fetch does not tell whether a request that failed had been sent, so it counts as sent.
      mayHaveArrived ||= kind !== "later";
      last = a.response ?? last;
      if (!await deadline.sleep(this.#retries.wait(n, a.response?.headers, Date.now()))) {
        throw await this.#unsettled(r, mayHaveArrived, last,
          a.error ?? deadline.signal.reason ?? new DOMException("no time is left for another attempt", "TimeoutError"));
      }
    }
  }

  #init(request: StoredRequest, key: string, again: boolean): RequestInit {
    const headers = new Headers(this.#headers);
    if (request.body.length > 0) headers.set("Content-Type", request.contentType);
    headers.set("Idempotency-Key", this.#profile.quoted ? `"${key}"` : key);
    const wait = Math.floor((this.#profile.wait ?? 0) / 1000);
    if (again && wait > 0) headers.set("Prefer", `wait=${wait}`);
    const init: RequestInit = { method: request.method, headers, redirect: "manual", cache: "no-store" };
    if (request.body.length > 0) init.body = request.body as Uint8Array<ArrayBuffer>;
    return init;
  }

  async #attempt(r: IntentRecord, signal: AbortSignal, again: boolean): Promise<Attempt> {
    const time = new Deadline(this.#attemptTimeout, signal);
    let response: IntentResponse | undefined, redirected = false, marked = true;
    try {
      const got = await this.#fetch(this.#base + r.request.path, { ...this.#init(r.request, r.key, again), signal: time.signal });
      redirected = got.type === "opaqueredirect"; // a browser shows no more of it
      // To pages of another origin the API must expose a header, or they cannot see it.
      marked = got.type === "cors" || got.headers.get("Idempotent-Replayed") === "true";
      const partial = { status: got.status, headers: got.headers, intent: r.intent, key: r.key, final: false };
      response = new IntentResponse({ ...partial, body: new Uint8Array() });
      response = new IntentResponse({ ...partial, body: await read(got) });
      return { response, error: undefined, redirected, marked };
    } catch (error) {
      return { response, error: error ?? new Error("the request failed"), redirected, marked };
    } finally {
      time.close();
    }
  }

  /**
   * Compares a response with the request and with earlier responses, and returns what cannot be true. What it learns is
   * added to the record and noted.
   */
  async #compare(r: IntentRecord, a: Attempt, v: Class): Promise<string> {
    const response = a.response;
    if (response === undefined) return "";
    const whole = a.error === undefined;
    const success = response.status >= 200 && response.status < 300;
    if (r.seen.done && !success && whole && v === "final") {
      return `an earlier response said that it was done, and this one is ${response.status}`;
    }
    // What a proxy says by itself has not been near the server.
    if (!success || v === "retry" && (whole || !ours(response.headers))) return "";
    const unmarked = this.#profile.marksReplays === true && Boolean(r.seen.done) && !a.marked;
    if (unmarked && !whole) return ""; // A gateway may have dropped the mark, and what else would tell is lost.
    const location = response.headers.get("Location") ?? "";
    const id = whole ? string(member(parse(response.body), "id")) : "";
    if (whole) {
      const what = this.#profile.check?.(r.request, response) ?? "";
      if (what !== "") return what;
    }
    const before = r.seen;
    if (unmarked && !sameObject(before, id, location)) {
      return "an earlier response said that it was done, and this one is not marked as a replay of it";
    }
    for (const [name, was, is] of [["id", before.id, id], ["Location", place(before.location), place(location)]] as const) {
      if (was && is && was !== is) return `the response's ${name} is ${is}, and an earlier response's was ${was}`;
    }
    const now: Seen = { done: before.done || response.status !== 202, id: id || before.id, location: location || before.location };
    r.seen = now;
    const news = now.done !== Boolean(before.done) || now.id !== before.id || now.location !== before.location;
    if (news && v !== "final") { // which is noted with the response
      await this.#journal.note(r).catch(() => undefined); // If it is lost, later responses are compared with less.
    }
    return "";
  }

  /** Ends an intent: a server that loses a key would charge again with each attempt. */
  async #broken(r: IntentRecord, response: IntentResponse, what: string): Promise<Error> {
    const cause = await failure(this.#journal.note({ ...r, state: "broken", broken: what, response: kept(response) }));
    return new BrokenPromiseError({ ...of(r, response), what, cause });
  }

  /** Ends an intent for which the server did nothing. It may be begun again, with the same request or another. */
  async #refused(r: IntentRecord, response: IntentResponse): Promise<Error> {
    const cause = await failure(this.#journal.note({ ...r, state: "refused" }));
    if (cause !== undefined) return new UnknownError({ ...of(r, response), cause }); // resume will send it
    return new RefusedError(of(r, response));
  }

  /** The error of a call that stops without a final response. */
  async #unsettled(r: IntentRecord, mayHaveArrived: boolean, response: IntentResponse | undefined, cause: unknown): Promise<Error> {
    if (mayHaveArrived) return new UnknownError({ ...of(r, response), cause });
    if (response !== undefined) return this.#refused(r, response); // later, and nothing else
    // Or resume would send what the caller was told was not sent.
    const failed = await failure(this.#journal.note({ ...r, state: "refused" }));
    if (failed !== undefined) return new UnknownError({ ...of(r, response), cause: failed });
    return new NotSentError(cause);
  }
}

/** How far this machine's clock may be set back without making the age of an intent unknown, in milliseconds. */
const clockMayStep = 30 * 60 * 1000;

/** Whether the headers of a response whose body is lost are the API's: they name an object, or the request. */
function ours(headers: Headers): boolean {
  return Boolean(headers.get("Location")) || Boolean(headers.get("Request-Id")?.startsWith("req_"));
}

/**
 * Whether two responses name the same object, by its id or its Location. A gateway may have dropped the mark of a replay,
 * and a header.
 */
function sameObject(before: Seen, id: string, location: string): boolean {
  const was = place(before.location);
  return id !== "" && (before.id === id || was.endsWith("/" + id)) || was !== "" && was === place(location);
}

/** What a Location names, however it is written: a gateway may have made it absolute. */
function place(location: string | undefined): string {
  if (!location) return "";
  try {
    return new URL(location, "http://x").pathname;
  } catch {
    return location;
  }
}

/** An address as records hold it: equal ones are the same text. */
function normalBase(base: string): string {
  const url = URL.canParse?.(base) === false ? undefined : new URL(base);
  if (url === undefined || !/^https?:$/.test(url.protocol) || /[?#]/.test(base)) {
    throw new TypeError(`the base ${JSON.stringify(base)} is not the URL of an HTTP API`);
  }
  if (url.username || url.password) throw new TypeError("the base has a user or password: send them in a header");
  return url.origin + url.pathname.replace(/\/+$/, "");
}

/** The waits of a client, for tests. */
export const waitsOf = new WeakMap<Client, Budget>();

/** A request that was sent once. A response with an error is one whose body was lost. */
interface Attempt {
  response: IntentResponse | undefined;
  error: unknown;
  redirected: boolean;
  marked: boolean; // as a replay, or it could not be seen
}

function of(r: IntentRecord, response: IntentResponse | undefined) {
  return { intent: r.intent, key: r.key, response };
}

async function failure(work: Promise<void>): Promise<unknown> {
  try {
    await work;
    return undefined;
  } catch (error) {
    return error ?? new Error("the journal failed");
  }
}

async function read(response: Response): Promise<Uint8Array> {
  const reader = response.body?.getReader();
  const parts: Uint8Array[] = [];
  let length = 0;
  while (reader !== undefined) {
    const { done, value } = await reader.read();
    if (done) break;
    parts.push(value);
    if ((length += value.length) > bodyMax) {
      reader.cancel().catch(() => undefined);
      throw new Error(`the response is longer than ${bodyMax} bytes`);
    }
  }
  const whole = new Uint8Array(length);
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

function href(response: IntentResponse): string {
  return string(member(member(parse(response.body), "resource"), "href"));
}

function same(a: StoredRequest, b: StoredRequest): boolean {
  return a.method === b.method && a.path === b.path && a.contentType === b.contentType &&
    (sameBytes(a.body, b.body) || sameJSON(a.body, b.body));
}
