import { during, JournalError, JournalFailedError, JournalFullError, message } from "./errors.js";
import { validID } from "./journal.js";

/** How a journal of a browser is found. */
export interface BrowserOptions {
  /** Of the database, or of the entries in localStorage. "payonce-journal" if it is not set. */
  name?: string;

  /**
   * The id of the journal, if the server gives one: a random name that belongs to this customer, or to this cart, and to
   * no other. Intents then have the same keys on another device and after the browser's storage was cleared. Without it
   * the journal is given a random one, which is lost with the storage.
   */
  id?: string;
}

export function named(o: BrowserOptions = {}): { name: string; id: string | undefined } {
  if (o.id !== undefined && !validID(o.id)) throw new TypeError("the id of a journal is a line of 1 to 200 characters");
  return { name: o.name ?? "payonce-journal", id: o.id };
}

/** An error of a browser's storage as one of this client's. */
export function failed(what: string, error: unknown): JournalError {
  if (error instanceof JournalError) return during(what, error);
  if (error instanceof Error && error.name === "QuotaExceededError") {
    return new JournalFullError(`${what}: the browser gives this site no more space`, { cause: error });
  }
  return new JournalFailedError(`${what}: ${message(error)}`, { cause: error });
}

/** Runs one caller for an intent after another, in all tabs, where the browser has the Web Locks API. */
export function exclusive<T>(name: string, intent: string, signal: AbortSignal, run: () => Promise<T>): Promise<T> {
  const locks: LockManager | undefined = globalThis.navigator?.locks;
  if (locks === undefined) return run();
  return locks.request(`${name}: ${intent}`, { signal }, run) as Promise<T>;
}
