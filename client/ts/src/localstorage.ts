import { exclusive, failed, named, type BrowserOptions } from "./browser.js";
import { JournalDamagedError, JournalFailedError } from "./errors.js";
import { decode, encode, headStart, idOf, openOf, others, replaces, type IntentRecord, type Journal } from "./journal.js";

/**
 * Opens the journal in localStorage, or makes it, under an id that the server gives. Prefer openIndexedDB: localStorage
 * holds some 5 MB, a browser writes it to the disk some seconds later, and what one tab has written another may read
 * late, even in a lock. So a record may be lost, or two tabs may send one intent; the key is the same, because it is made
 * from the id. An id that the journal drew itself could be lost or drawn twice in the same way, and with it the keys.
 *
 * It throws JournalForeignError, JournalDamagedError, JournalFullError or JournalFailedError; whatever the error, the
 * entries were left as they were.
 */
export async function openLocalStorage(o: BrowserOptions & { id: string }): Promise<Journal> {
  const { name, id } = named(o);
  // A record's entry is the name, a colon and the intent: those of "shop:eu" would be among those of "shop".
  if (name.includes(":")) throw new TypeError(`the name ${JSON.stringify(name)} of a journal in localStorage must have no colon`);
  if (id === undefined) throw new TypeError("a journal in localStorage needs an id from the server");
  try {
    if (globalThis.navigator?.locks === undefined) {
      throw new JournalFailedError("tabs share it through the Web Locks API, which browsers have on pages of https: only");
    }
    const storage = globalThis.localStorage; // throws if the browser blocks it
    if (!storage) throw new JournalFailedError("there is no localStorage here");
    return await locked(name, () => {
      const records = new Records(storage, name);
      const head = storage.getItem(name);
      if (head === null) {
        if (records.intents().length > 0) throw new JournalDamagedError("its head is lost, and with it its id");
        storage.setItem(name, headStart + id);
        return new InLocalStorage(records, storage, name, id);
      }
      const journal = new InLocalStorage(records, storage, name, idOf(head, id));
      records.all(); // or a damaged record would be found when it is needed
      return journal;
    });
  } catch (error) {
    throw failed(`open the journal ${name}`, error);
  }
}

/** Runs what reads and writes the entries of a journal, one tab after another. */
async function locked<T>(name: string, run: () => T): Promise<T> {
  return await navigator.locks.request(name, run) as T;
}

class Records {
  readonly #storage: Storage;
  readonly #prefix: string;

  constructor(storage: Storage, name: string) {
    this.#storage = storage;
    this.#prefix = name + ":";
  }

  get(intent: string): IntentRecord | undefined {
    const line = this.#storage.getItem(this.#prefix + intent);
    if (line === null) return undefined;
    const r = decode(line);
    if (r?.intent !== intent) throw new JournalDamagedError(`the record of ${JSON.stringify(intent)} cannot be read`);
    return r;
  }

  put(r: IntentRecord): void {
    this.#storage.setItem(this.#prefix + r.intent, encode(r)); // whole, or not at all
  }

  intents(): string[] {
    return Array.from({ length: this.#storage.length }, (_, i) => this.#storage.key(i) ?? "")
      .filter((key) => key.startsWith(this.#prefix)).map((key) => key.slice(this.#prefix.length));
  }

  all(): IntentRecord[] {
    return this.intents().map((intent) => this.get(intent)!);
  }
}

class InLocalStorage implements Journal {
  readonly #records: Records;
  readonly #storage: Storage;
  readonly #name: string;
  readonly id: string;

  constructor(records: Records, storage: Storage, name: string, id: string) {
    this.#records = records;
    this.#storage = storage;
    this.#name = name;
    this.id = id;
  }

  begin(r: IntentRecord): Promise<IntentRecord | undefined> {
    return this.#locked("begin an intent", () => {
      const stored = this.#records.get(r.intent);
      if (stored !== undefined && stored.state !== "refused") return stored;
      this.#records.put(r);
      return undefined;
    });
  }

  note(r: IntentRecord): Promise<void> {
    return this.#locked("note an intent", () => {
      const stored = this.#records.get(r.intent);
      if (stored === undefined || replaces(stored, r)) this.#records.put(r);
      else if (r.state === "refused") throw others();
    });
  }

  open(): Promise<IntentRecord[]> {
    return this.#locked("read the journal", () => openOf(this.#records.all()));
  }

  exclusive<T>(intent: string, signal: AbortSignal, run: () => Promise<T>): Promise<T> {
    return exclusive(this.#name, intent, signal, run);
  }

  /** Runs run, if the journal is still the one that was opened: a user may clear a site's data at any time. */
  async #locked<T>(what: string, run: () => T): Promise<T> {
    try {
      return await locked(this.#name, () => {
        if (this.#storage.getItem(this.#name) !== headStart + this.id) throw new JournalFailedError("it was cleared: open it again");
        return run();
      });
    } catch (error) {
      throw failed(what, error);
    }
  }
}
