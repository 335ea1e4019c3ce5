import { JournalError, JournalForeignError } from "./errors.js";
import { IntentResponse, keptHeaders } from "./response.js";

/**
 * Stores intents: their keys, their requests and how they ended. There are openIndexedDB and openLocalStorage for
 * browsers and openFile for Node; any other, such as one in the caller's own database, must keep the same promises.
 */
export interface Journal {
  /**
   * A random name that the journal was given when it was made, and that never changes. Keys are derived from it and
   * from the intent, so an intent has the same key even if its record is lost.
   */
  readonly id: string;

  /**
   * Stores an intent durably, so that it survives a crash of the machine, and resolves to undefined. If there is a record
   * of that intent, begin stores nothing and resolves to the record, except one that is refused, which is replaced. Of
   * two callers with the same intent, in one process or in two, only one gets undefined.
   */
  begin(record: IntentRecord): Promise<IntentRecord | undefined>;

  /**
   * Stores what is now known of an intent. A record that is sent or final may be lost in a crash: the request is then
   * sent again. One that is refused or broken must be durable. note rejects one that is refused, and stores nothing, if
   * another caller has begun the intent or has ended it, because that one may have sent it.
   */
  note(record: IntentRecord): Promise<void>;

  /** Lists the records that are sent, oldest first. */
  open(): Promise<IntentRecord[]>;

  /**
   * Runs one caller for an intent after another, also those of other tabs or processes. A journal may have no such
   * lock: both then send the request, under the same key. The signal ends the wait, not run.
   */
  exclusive?<T>(intent: string, signal: AbortSignal, run: () => Promise<T>): Promise<T>;
}

/** What a journal holds of an intent: the request as it was first sent, and the response. */
export interface IntentRecord {
  intent: string;
  key: string;
  base: string; // the server to which it was first sent: scheme, host, port and path
  request: StoredRequest;
  state: State;
  seen: Seen;
  response?: StoredResponse | undefined; // once state is final or broken
  broken?: string | undefined; // what contradicts what, once state is broken
  begunAt: Date; // by this machine's clock
}

/**
 * - sent: the request may have reached the server; there is no final response
 * - final: the response is final
 * - refused: the server did nothing and holds nothing under the key, or nothing was sent
 * - broken: the server contradicted itself; nothing more is sent
 */
export type State = "sent" | "final" | "refused" | "broken";

export interface StoredRequest {
  method: string;
  path: string; // with its query
  contentType: string;
  body: Uint8Array;
}

export interface StoredResponse {
  status: number;
  headers: { [name: string]: string[] };
  body: Uint8Array;
}

/** What earlier responses said; later ones are compared with it. */
export interface Seen {
  done?: boolean | undefined; // a 2xx other than 202, of which the body was lost
  location?: string | undefined;
  id?: string | undefined;
}

/** Derives the key of an intent. It is no secret. 160 bits of a hash are enough that no other intent has it. */
export async function keyFor(journal: string, intent: string): Promise<string> {
  const text = new TextEncoder().encode(`payonce client key 1\n${journal}\n${intent}`);
  const sum = new Uint8Array(await crypto.subtle.digest("SHA-256", text));
  return "pk1-" + base32(sum.subarray(0, 20), "0123456789abcdefghijklmnopqrstuv");
}

function base32(bytes: Uint8Array, alphabet: string): string { // of a multiple of 5 bytes
  let out = "", bits = 0, value = 0;
  for (const byte of bytes) {
    value = value << 8 | byte;
    for (bits += 8; bits >= 5; bits -= 5) out += alphabet[value >>> bits - 5 & 31];
    value &= (1 << bits) - 1;
  }
  return out;
}

// ---- how journals write an intent, the same as the Go client's ----

/** The first line of a journal, before its id. */
export const headStart = "payonce-journal 1 ";

/** 130 random bits, as the Go client has them. */
export function newID(): string {
  return base32(crypto.getRandomValues(new Uint8Array(20)), "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567").slice(0, 26);
}

/** The id in the head of a browser's journal. wanted is what the caller says it is, if he does. */
export function idOf(head: unknown, wanted: string | undefined): string {
  const id = typeof head === "string" && head.startsWith(headStart) ? head.slice(headStart.length) : "";
  if (!validID(id)) throw new JournalForeignError(`it does not begin as a journal of this client: ${String(head).slice(0, 60)}`);
  if (wanted !== undefined && wanted !== id) {
    throw new JournalForeignError("it has another id than the one it was opened with, and with it other keys");
  }
  return id;
}

export function validID(id: string): boolean {
  return /^[^\n\r\0]{1,200}$/.test(id) && !/\p{Surrogate}/u.test(id);
}

/** A record as one line without its end: a checksum and JSON. */
export function encode(r: IntentRecord): string {
  const text = JSON.stringify({
    intent: r.intent,
    key: r.key,
    base: r.base,
    request: {
      method: r.request.method, path: r.request.path, content_type: r.request.contentType, body: toBase64(r.request.body),
    },
    state: r.state,
    seen: r.seen.done || r.seen.location || r.seen.id
      ? { done: r.seen.done || undefined, location: r.seen.location || undefined, id: r.seen.id || undefined } : undefined,
    response: r.response && { status: r.response.status, header: r.response.headers, body: toBase64(r.response.body) },
    broken: r.broken || undefined,
    begun_at: r.begunAt.toISOString(),
  });
  return `${checksum(new TextEncoder().encode(text))} ${text}`;
}

/** The record in a line, or undefined if it cannot be read. */
export function decode(line: string | Uint8Array): IntentRecord | undefined {
  try {
    const bytes = typeof line === "string" ? new TextEncoder().encode(line) : line;
    const text = bytes.subarray(9);
    if (bytes[8] !== 0x20 || new TextDecoder().decode(bytes.subarray(0, 8)).toLowerCase() !== checksum(text)) return undefined;
    const r = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(text));
    const begunAt = new Date(r.begun_at);
    for (const needed of [r.intent, r.key, r.base, r.request.method, r.request.path, r.request.content_type]) {
      if (typeof needed !== "string") return undefined;
    }
    if (!["sent", "final", "refused", "broken"].includes(r.state) || Number.isNaN(begunAt.getTime())) return undefined;
    if (r.state === "final" && typeof r.response?.status !== "number") return undefined;
    return {
      intent: r.intent,
      key: r.key,
      base: r.base,
      request: {
        method: r.request.method, path: r.request.path, contentType: r.request.content_type, body: fromBase64(r.request.body),
      },
      state: r.state,
      seen: { done: r.seen?.done === true, location: r.seen?.location ?? "", id: r.seen?.id ?? "" },
      response: r.response
        ? { status: r.response.status, headers: r.response.header ?? {}, body: fromBase64(r.response.body) } : undefined,
      broken: r.broken ?? "",
      begunAt,
    };
  } catch {
    return undefined;
  }
}

/** The response that a record holds. */
export function responseOf(r: IntentRecord, final: boolean): IntentResponse | undefined {
  if (r.response === undefined) return undefined;
  const headers = new Headers();
  for (const [name, values] of Object.entries(r.response.headers)) {
    for (const value of values) headers.append(name, value);
  }
  return new IntentResponse({ status: r.response.status, headers, body: r.response.body, intent: r.intent, key: r.key, final });
}

/** What a record holds of a response. */
export function kept(response: IntentResponse): StoredResponse {
  const headers: StoredResponse["headers"] = {};
  for (const name of keptHeaders) {
    const value = response.headers.get(name);
    if (value) headers[name] = [value];
  }
  return { status: response.status, headers, body: response.body };
}

/**
 * Whether a journal that several tabs write may replace one record with another: what is final or broken stays so, if a
 * tab that knows less writes later.
 */
export function replaces(stored: IntentRecord, r: IntentRecord): boolean {
  return (stored.state !== "final" && stored.state !== "broken") || r.state === "final" || r.state === "broken";
}

/** Why a journal does not store that an intent was refused. */
export function others(): JournalError {
  return new JournalError("another caller has begun the same intent, and may have sent it");
}

/** The records that are sent, oldest first. */
export function openOf(records: Iterable<IntentRecord>): IntentRecord[] {
  return [...records].filter((r) => r.state === "sent").sort((a, b) => a.begunAt.getTime() - b.begunAt.getTime());
}

const castagnoli = Uint32Array.from({ length: 256 }, (_, n) => {
  for (let bit = 0; bit < 8; bit++) n = n & 1 ? n >>> 1 ^ 0x82f63b78 : n >>> 1;
  return n;
});

function checksum(bytes: Uint8Array): string { // CRC-32C
  let sum = ~0;
  for (const byte of bytes) sum = castagnoli[(sum ^ byte) & 255]! ^ sum >>> 8;
  return (~sum >>> 0).toString(16).padStart(8, "0");
}

function toBase64(bytes: Uint8Array): string {
  let text = "";
  for (let i = 0; i < bytes.length; i += 8192) text += String.fromCharCode(...bytes.subarray(i, i + 8192));
  return btoa(text);
}

function fromBase64(text: string | null): Uint8Array {
  return Uint8Array.from(atob(text ?? ""), (c) => c.charCodeAt(0));
}
