/**
 * Sends requests that must take effect once: payments, refunds, orders. It stores the Idempotency-Key of each intent in
 * a journal, so that after a crash, a reload or a retry by the caller the same intent has the same key. The journal in a
 * file, for Node, is in payonce-client/file.
 */
export { Client, type IntentRequest, type Options, type Outcome } from "./client.js";
export {
  BrokenPromiseError, ExpiredError, IntentChangedError, JournalDamagedError, JournalError, JournalFailedError,
  JournalForeignError, JournalFullError, JournalInUseError, KeyTooOldError, MismatchError, NotSentError, OtherServerError,
  RefusedError, UnknownError,
} from "./errors.js";
export { openIndexedDB } from "./indexeddb.js";
export type { IntentRecord, Journal, Seen, State, StoredRequest, StoredResponse } from "./journal.js";
export { openLocalStorage } from "./localstorage.js";
export { Draft, Payonce, Stripe, type Profile, type Class } from "./profile.js";
export { IntentResponse } from "./response.js";
