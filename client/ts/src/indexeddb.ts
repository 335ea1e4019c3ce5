import { exclusive, failed, named, type BrowserOptions } from "./browser.js";
import { JournalDamagedError, JournalFailedError, JournalForeignError } from "./errors.js";
import { decode, encode, headStart, idOf, newID, openOf, others, replaces, type IntentRecord, type Journal } from "./journal.js";

const openWithin = 10_000; // milliseconds; a database that is being deleted by another tab does not open

/**
 * Opens the journal in IndexedDB, or makes it. Each record is written in a transaction of its own that is flushed to the
 * disk, so the journal may be used by several tabs and survives a crash of the browser. It throws JournalForeignError,
 * JournalDamagedError, JournalFullError or JournalFailedError; whatever the error, the database was left as it was.
 */
export async function openIndexedDB(o: BrowserOptions = {}): Promise<Journal & { close(): void }> {
  const { name, id } = named(o);
  try {
    const db = await connect(name);
    try {
      const journal = new InIndexedDB(db, name, await settleID(db, id));
      for (const r of await journal.all()) void r; // or a damaged record would be found when it is needed
      return journal;
    } catch (error) {
      db.close();
      throw error;
    }
  } catch (error) {
    throw failed(`open the journal ${name}`, error);
  }
}

function connect(name: string): Promise<IDBDatabase> {
  return new Promise((resolve, reject) => {
    if (globalThis.indexedDB === undefined) throw new JournalFailedError("there is no IndexedDB here");
    const request = indexedDB.open(name, 1); // throws if the browser blocks it
    const timer = setTimeout(() => reject(new JournalFailedError("the browser does not open it")), openWithin);
    request.onupgradeneeded = () => {
      request.result.createObjectStore("head");
      request.result.createObjectStore("records");
    };
    request.onerror = () => {
      clearTimeout(timer);
      reject(request.error?.name === "VersionError"
        ? new JournalForeignError("it is a database of another version") : request.error);
    };
    request.onsuccess = () => {
      clearTimeout(timer);
      const db = request.result;
      db.onversionchange = () => db.close(); // another tab deletes it: nothing more is sent from here
      const ours = db.objectStoreNames.contains("head") && db.objectStoreNames.contains("records");
      if (ours) return resolve(db);
      db.close();
      reject(new JournalForeignError("it is a database of something else"));
    };
  });
}

/** The id of a journal. One that has none yet is given one, once, however many tabs open it. */
async function settleID(db: IDBDatabase, wanted: string | undefined): Promise<string> {
  const head = await transact<string>(db, (store, records, done, fail) => {
    const request = store.get("head");
    request.onsuccess = () => {
      if (request.result !== undefined) return done(request.result);
      const count = records.count();
      count.onsuccess = () => {
        if (count.result > 0) return fail(new JournalDamagedError("its head is lost, and with it its id"));
        const made = headStart + (wanted ?? newID());
        store.put(made, "head");
        done(made);
      };
    };
  });
  return idOf(head, wanted);
}

type Body<T> = (
  head: IDBObjectStore, records: IDBObjectStore, done: (value: T) => void, fail: (error: Error) => void,
) => void;

/** Runs a transaction, and resolves once it is on the disk. */
function transact<T>(db: IDBDatabase, body: Body<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const tx = db.transaction(["head", "records"], "readwrite", { durability: "strict" });
    let value: T, error: unknown;
    tx.oncomplete = () => resolve(value);
    tx.onabort = () => reject(error ?? tx.error ?? new JournalFailedError("the browser stopped the transaction"));
    body(tx.objectStore("head"), tx.objectStore("records"), (v) => (value = v), (e) => {
      error = e;
      tx.abort();
    });
  });
}

class InIndexedDB implements Journal {
  readonly #db: IDBDatabase;
  readonly #name: string;
  readonly id: string;

  constructor(db: IDBDatabase, name: string, id: string) {
    this.#db = db;
    this.#name = name;
    this.id = id;
  }

  begin(r: IntentRecord): Promise<IntentRecord | undefined> {
    return this.#change("begin an intent", r, (stored, callers, write, done, count) => {
      if (stored !== undefined && stored.state !== "refused") {
        if (stored.state === "sent") count(callers + 1); // one that has ended is read also if there is no space
        return done(stored);
      }
      count(1);
      write();
    });
  }

  async note(r: IntentRecord): Promise<void> {
    await this.#change("note an intent", r, (stored, callers, write, done, _, fail) => {
      const replaced = stored === undefined || replaces(stored, r);
      if (r.state === "refused" && (!replaced || callers > 1)) return fail(others());
      if (!replaced) return done(stored);
      write();
    });
  }

  /** Decides on the record that is stored, and on how many callers have begun the intent, whether to write r. */
  async #change(what: string, r: IntentRecord, decide: (
    stored: IntentRecord | undefined, callers: number, write: () => void, done: (value: IntentRecord | undefined) => void,
    count: (callers: number) => void, fail: (error: Error) => void,
  ) => void) {
    const line = encode(r), counter = ["callers", r.intent];
    return this.#transact<IntentRecord | undefined>(what, (records, done, fail, head) => {
      const counted = head.get(counter), request = records.get(r.intent); // in their order
      request.onsuccess = () => {
        const stored = request.result === undefined ? undefined : decode(request.result);
        if (request.result !== undefined && stored === undefined) return fail(damaged(r.intent));
        const write = (): void => {
          records.put(line, r.intent);
          done(undefined);
        };
        const callers: number = counted.result ?? 1; // none is written as long as there is one
        decide(stored, callers, write, done, (n) => {
          if (n > 1) head.put(n, counter);
          else if (callers > 1) head.delete(counter);
        }, fail);
      };
    });
  }

  async open(): Promise<IntentRecord[]> {
    return openOf(await this.all());
  }

  all(): Promise<IntentRecord[]> {
    return this.#transact<IntentRecord[]>("read the journal", (records, done, fail) => {
      const keys = records.getAllKeys();
      const lines = records.getAll();
      lines.onsuccess = () => {
        const all: IntentRecord[] = [];
        for (const [i, line] of lines.result.entries()) {
          const r = decode(line);
          if (r === undefined || r.intent !== keys.result[i]) return fail(damaged(String(keys.result[i])));
          all.push(r);
        }
        done(all);
      };
    });
  }

  /** Runs a transaction, if the journal is still the one that was opened: a user may clear a site's data at any time. */
  async #transact<T>(what: string, body: (
    records: IDBObjectStore, done: (value: T) => void, fail: (error: Error) => void, head: IDBObjectStore,
  ) => void) {
    try {
      return await transact<T>(this.#db, (head, records, done, fail) => {
        const request = head.get("head");
        request.onsuccess = () => {
          if (request.result !== headStart + this.id) return fail(new JournalFailedError("it was cleared: open it again"));
          body(records, done, fail, head);
        };
      });
    } catch (error) {
      throw failed(what, error);
    }
  }

  exclusive<T>(intent: string, signal: AbortSignal, run: () => Promise<T>): Promise<T> {
    return exclusive(this.#name, intent, signal, run);
  }

  close(): void {
    this.#db.close();
  }
}

function damaged(intent: string): JournalDamagedError {
  return new JournalDamagedError(`the record of ${JSON.stringify(intent)} cannot be read`);
}
