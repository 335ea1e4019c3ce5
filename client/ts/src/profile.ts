import { member, parse, same, show } from "./json.js";
import type { StoredRequest } from "./journal.js";
import type { IntentResponse } from "./response.js";

/**
 * Describes how an API treats an Idempotency-Key. Payonce is that of payonce, Draft that of any API that follows the
 * IETF's draft, Stripe that of Stripe. Copy one and change it for another API:
 *
 *     const mine: Profile = { ...Draft, keyLifetime: 60 * 60 * 1000 };
 */
export interface Profile {
  /** Of requests that name none. */
  contentType: string;

  /** Sends the key in quotes, as the draft has it. Few servers want them. */
  quoted?: boolean;

  /**
   * Sent with each retry as Prefer: wait, in milliseconds, rounded down to seconds: the server may hold the request
   * until it has an answer. Not sent if it is 0.
   */
  wait?: number;

  /**
   * How long the server keeps a key at least, in milliseconds, counted from begin by this machine's clock. After that the
   * request is not sent again, because the server would execute it again. 0 if the server refuses expired keys.
   */
  keyLifetime?: number;

  /**
   * The server sends Idempotent-Replayed: true with each response that it repeats. If it once said that a request was
   * done, a later response without the header is a second execution, and a BrokenPromiseError.
   */
  marksReplays?: boolean;

  /** Says what a response means. It is called for whole responses only. */
  classify(response: IntentResponse): Class;

  /** Compares a success, replayed or not, with the request. It returns what contradicts it, or "". */
  check?(request: StoredRequest, response: IntentResponse): string;
}

/**
 * What a response means for an intent:
 *
 * - unclear: retrying with the key will not tell whether it was done
 * - final
 * - retry: it may have been done: retry
 * - later: nothing was done and nothing is held under the key, yet: retry
 * - pending: it is in progress: retry
 * - caller: it waits for the caller, such as for 3-D Secure: return the response as it is
 * - refused: nothing was done and nothing is held under the key
 * - mismatch: the key was used for another request
 * - expired: it was done, and the response is deleted
 */
export type Class =
  "unclear" | "final" | "retry" | "later" | "pending" | "caller" | "refused" | "mismatch" | "expired";

/** The profile of payonce: its problem documents say what a client should do (code, retryable). */
export const Payonce: Profile = {
  contentType: "application/json",
  wait: 10_000,
  marksReplays: true,
  classify: classifyPayonce,
  check: checkPayonce,
};

function classifyPayonce(r: IntentResponse): Class {
  const body = object(r);
  const status = body?.["status"]; // of an object a word, of a problem a number
  const code = typeof body?.["code"] === "string" ? body["code"] : "", type = body?.["type"];
  const problem = code !== "" && typeof type === "string" && type.endsWith("/problems/" + code);
  if (hundreds(r) === 3) return "unclear"; // the API does not redirect: the base is wrong
  if (r.status >= 400 ? !problem : !isObject(body)) return "retry"; // of a proxy, which may say anything with any status
  if (r.status === 202) return status === "requires_action" ? "caller" : "pending";
  if (hundreds(r) === 2) return "final";
  switch (code) {
    case "idempotency-key-mismatch": return "mismatch";
    case "idempotency-key-expired": return "expired";
    // Sent before a key is claimed, so if it is the first response the key is still unused.
    case "payment-in-progress":
    case "rate-limited":
    case "unavailable": return "later";
  }
  if (body?.["retryable"] === true || r.status >= 500 || r.status === 429) return "retry";
  if (r.status === 402 || r.status === 409) return "final"; // and stored
  return hundreds(r) === 4 ? "refused" : "unclear";
}

/** The members of an object that must be as they were sent; id is the one that must be the id in the path. */
const echoes: { path: RegExp; members: string[]; id?: string }[] = [
  { path: /^\/v1\/orders$/, members: ["currency", "customer_reference"] },
  { path: /^\/v1\/payments$/, members: ["order_id", "payment_method", "capture"] },
  { path: /^\/v1\/payments\/([^/]+)\/refunds$/, members: ["amount", "reason"], id: "payment_id" },
  { path: /^\/v1\/(?:orders|payments)\/([^/]+)\/(?:cancel|capture)$/, members: [], id: "id" },
];

function checkPayonce(q: StoredRequest, r: IntentResponse): string {
  const request = parse(q.body), response = parse(r.body);
  for (const { path, members, id } of echoes) {
    const match = path.exec(q.path.split("?")[0]!);
    if (match === null) continue;
    if (id !== undefined && member(response, id) !== "s" + unescaped(match[1]!)) {
      return `the response's ${id} is ${show(member(response, id))}, and the request was for ${unescaped(match[1]!)}`;
    }
    for (const name of members) {
      const sent = member(request, name) ?? undefined, got = member(response, name);
      if (sent !== undefined && !same(sent, got)) {
        return `the response's ${name} is ${show(got)}, and the request's ${show(sent)}`;
      }
    }
  }
  return "";
}

function unescaped(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/**
 * The profile of an API of which nothing is known but that it follows
 * https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/: a key in progress is a 409, and one of
 * another request a 422. What the server does after a 5xx the draft leaves open, so it is retried and never believed to
 * mean that nothing was done. Set keyLifetime to what the server documents.
 */
export const Draft: Profile = {
  contentType: "application/json",
  keyLifetime: 23 * 60 * 60 * 1000,
  classify: classifyDraft,
};

function classifyDraft(r: IntentResponse): Class {
  switch (r.status) {
    case 202: return "pending";
    case 422: return "mismatch";
    case 410: return "expired";
    case 402: return "final";
    case 429: return "later";
    case 408:
    case 409:
    case 425: return "retry";
  }
  switch (hundreds(r)) {
    case 2: return "final";
    case 4: return "refused";
    case 5: return "retry";
  }
  return "unclear";
}

/**
 * The profile of Stripe's API v1 (https://docs.stripe.com/api/idempotent_requests): bodies are forms, and keys are kept
 * for at least 24 hours. A 500 is stored and repeated like any other response, and says neither that the request was
 * executed nor that it was not: the first is retried, its replay is an UnknownError. Then read the object, or its
 * events; a request under another name may charge twice.
 */
export const Stripe: Profile = {
  contentType: "application/x-www-form-urlencoded",
  keyLifetime: 23 * 60 * 60 * 1000,
  marksReplays: true,
  classify: classifyStripe,
};

function classifyStripe(r: IntentResponse): Class {
  const body = object(r), error = body?.["error"];
  const type = typeof error === "object" && error !== null && "type" in error ? error.type : undefined;
  const replayed = r.headers.get("Idempotent-Replayed") === "true";
  const advice = r.headers.get("Stripe-Should-Retry");
  if (hundreds(r) === 2 && isObject(body)) return "final";
  if (hundreds(r) === 3) return "unclear";
  if (typeof error !== "object" || error === null) return "retry"; // not from the API: a proxy, an edge
  if (r.status === 409) return "retry"; // before the type, which fakes of Stripe get wrong
  if (type === "idempotency_error") return "mismatch";
  if (r.status === 429) return "later";
  if (r.status === 402) return "final";
  if (advice === "true" && !replayed) return "retry";
  if (r.status >= 500 || r.status === 424) { // 424 has been executed in part
    return replayed || advice === "false" ? "unclear" : "retry";
  }
  return replayed ? "final" : "refused"; // a 4xx after execution had begun is stored
}

/** Whether a body is an object of the API's: each has its type, and its id or status. */
function isObject(body: { [name: string]: unknown } | undefined): boolean {
  const text = (name: string) => typeof body?.[name] === "string" && body[name] !== "";
  return text("object") && (text("id") || text("status"));
}

function hundreds(r: IntentResponse): number {
  return Math.floor(r.status / 100);
}

function object(r: IntentResponse): { [name: string]: unknown } | undefined {
  try {
    const value = r.json();
    return typeof value === "object" && value !== null && !Array.isArray(value) ? { ...value } : undefined;
  } catch {
    return undefined;
  }
}
