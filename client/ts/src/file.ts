import { spawnSync } from "node:child_process";
import * as fs from "node:fs";
import * as path from "node:path";
import { promisify } from "node:util";

import {
  during, JournalDamagedError, JournalError, JournalFailedError, JournalForeignError, JournalFullError, JournalInUseError, message,
} from "./errors.js";
import { decode, encode, headStart, newID, openOf, others, type IntentRecord, type Journal } from "./journal.js";

const headLength = headStart.length + 26 + 1; // with an id and a newline
const newline = 0x0a;

/**
 * Opens the journal in a file, or makes it. Its folder must exist, on a file system with hard links and flock. One
 * process has it open at a time. The format is that of the Go client, which can open the same file.
 *
 * The first line names the format and the journal's id; each line after it is a checksum and a record. A crash may leave
 * the last lines incomplete: their requests were never sent, and openFile cuts them off. The file holds requests as they
 * were sent, and only its owner can read it. It is never shortened otherwise, and its records are held in memory.
 *
 * It throws JournalInUseError, JournalForeignError, JournalDamagedError, or JournalFailedError for an error of the file
 * system; whatever the error, the file was left as it was.
 */
export async function openFile(name: string): Promise<FileJournal> {
  let fd: number | undefined;
  try {
    let exists = true;
    try {
      if (!fs.statSync(name).isFile()) throw new JournalForeignError("it is not a regular file");
    } catch (error) {
      if (code(error) !== "ENOENT") throw error;
      exists = false;
    }
    if (!exists) create(name);
    fd = fs.openSync(name, fs.constants.O_RDWR | exclusiveLock);
    lock(fd);
    const { id, size, records } = load(fd);
    // The incomplete end is cut off, and the rest must be on the disk before anything relies on it. So must the file's
    // name, of which another process may have had no time to sync the folder.
    fs.ftruncateSync(fd, size);
    fs.fsyncSync(fd);
    syncFolder(path.dirname(name));
    return new FileJournal(fd, id, size, records);
  } catch (error) {
    if (fd !== undefined) fs.closeSync(fd);
    throw failed(`open the journal ${name}`, error);
  }
}

/** Makes a journal that has its whole first line or does not exist: of all in it, the id must not be lost. */
function create(name: string): void {
  const made = `${name}.new-${newID()}`;
  const fd = fs.openSync(made, "wx", 0o600);
  try {
    try {
      writeAll(fd, Buffer.from(headStart + newID() + "\n"), 0);
      fs.fsyncSync(fd);
    } finally {
      fs.closeSync(fd);
    }
    try {
      fs.linkSync(made, name);
    } catch (error) {
      if (code(error) !== "EEXIST") throw error; // another process has made one meanwhile
    }
  } finally {
    fs.unlinkSync(made);
  }
  syncFolder(path.dirname(name));
}

/** Makes the name of a new file as durable as its content. */
function syncFolder(folder: string): void {
  if (process.platform === "win32") return;
  const fd = fs.openSync(folder, "r");
  try {
    fs.fsyncSync(fd);
  } finally {
    fs.closeSync(fd);
  }
}

/** Where open can lock a file, it does: O_EXLOCK and O_NONBLOCK of BSD and macOS, and what libuv makes of it on Windows. */
const exclusiveLock = process.platform === "linux" ? 0
  : process.platform === "win32" ? 0x10000000
  : process.platform === "darwin" || process.platform.endsWith("bsd") ? 0x20 | fs.constants.O_NONBLOCK : 0;

/**
 * Excludes other processes, and other calls of openFile in this one, until the file is closed or this process has
 * exited. Node has no flock. The program of that name, of util-linux or BusyBox, locks the open file that it is given,
 * which stays locked after the program has exited, because this process has it open as well.
 */
function lock(fd: number): void {
  if (exclusiveLock !== 0) return;
  const got = spawnSync("flock", ["-x", "-n", "3"], { stdio: ["ignore", "ignore", "pipe", fd], timeout: 10_000 });
  if (got.error !== undefined) {
    throw new JournalFailedError(`it cannot be locked without the program flock, of util-linux or BusyBox: ${message(got.error)}`);
  }
  if (got.status === 1) throw new JournalInUseError(inUse);
  if (got.status !== 0) throw new JournalFailedError(`flock: exit ${got.status ?? got.signal}: ${got.stderr}`);
}

/** Reads a file. size is where its whole records end. */
function load(fd: number): { id: string; size: number; records: Map<string, IntentRecord> } {
  const file = fs.readFileSync(fd);
  const head = file.subarray(0, headLength).toString("latin1");
  const id = head.slice(headStart.length, -1);
  if (!head.startsWith(headStart) || !/^[A-Z2-7]{26}$/.test(id) || !head.endsWith("\n")) {
    throw new JournalForeignError("it does not begin as a journal of this client");
  }
  const records = new Map<string, IntentRecord>();
  let size = headLength, torn = -1;
  for (let at = size; at < file.length;) {
    const end = file.indexOf(newline, at);
    const r = end < 0 ? undefined : decode(file.subarray(at, end));
    if (r === undefined) {
      if (torn < 0) torn = at;
      if (end < 0) break;
    } else if (torn >= 0) {
      throw new JournalDamagedError(`the line at byte ${torn} cannot be read, and records follow it`);
    } else {
      records.set(r.intent, r);
      size = end + 1;
    }
    at = end + 1;
  }
  return { id, size, records };
}

/** A journal in a file, from openFile. Callers that begin intents at the same time share an fsync. */
export class FileJournal implements Journal {
  readonly id: string;
  readonly #fd: number;
  readonly #records: Map<string, IntentRecord>;
  readonly #callers = new Map<string, number>(); // how many have begun an intent; 1 if it was read from the file
  #size: number; // all before it is written whole
  #synced: number; // all before it survives a crash
  #syncing: Promise<void> | undefined;
  #failed: JournalError | undefined; // no record is accepted any more

  constructor(fd: number, id: string, size: number, records: Map<string, IntentRecord>) {
    this.#fd = fd;
    this.id = id;
    this.#size = this.#synced = size;
    this.#records = records;
  }

  async begin(r: IntentRecord): Promise<IntentRecord | undefined> {
    const stored = this.#records.get(r.intent);
    if (stored !== undefined && stored.state !== "refused") {
      this.#callers.set(r.intent, (this.#callers.get(r.intent) ?? 1) + 1);
      await this.#sync(this.#size); // another caller may have just written it
      return decode(encode(stored));
    }
    const size = this.#write(r);
    this.#callers.delete(r.intent);
    await this.#sync(size);
    return undefined;
  }

  /**
   * What is final or broken is never overwritten. What is refused is stored only if no other caller has begun the intent,
   * perhaps through another client of this process, because that one may have sent it.
   */
  async note(r: IntentRecord): Promise<void> {
    const state = this.#records.get(r.intent)?.state, ended = state === "final" || state === "broken";
    if (r.state === "refused" && (ended || (this.#callers.get(r.intent) ?? 1) > 1)) throw others();
    if (ended) return;
    const size = this.#write(r);
    if (r.state === "refused" || r.state === "broken") await this.#sync(size);
  }

  async open(): Promise<IntentRecord[]> {
    return openOf(this.#records.values());
  }

  /**
   * Appends a record, and returns the size of the file with it. If only a part of it could be written, that is removed.
   */
  #write(r: IntentRecord): number {
    if (this.#failed !== undefined) throw this.#failed;
    const line = Buffer.from(encode(r) + "\n");
    try {
      writeAll(this.#fd, line, this.#size);
    } catch (error) {
      const why = failed("write the journal", error);
      try {
        fs.ftruncateSync(this.#fd, this.#size);
      } catch {
        this.#failed = why;
      }
      throw why;
    }
    this.#size += line.length;
    this.#records.set(r.intent, decode(line.subarray(0, -1))!);
    return this.#size;
  }

  /**
   * Resolves once all before size is on the disk. After an fsync that failed it is not known what is
   * (https://wiki.postgresql.org/wiki/Fsync_Errors), so the journal accepts no more records.
   */
  async #sync(size: number): Promise<void> {
    while (this.#synced < size) {
      if (this.#failed !== undefined) throw this.#failed;
      if (this.#syncing === undefined) {
        const written = this.#size;
        this.#syncing = fsync(this.#fd).then(() => {
          this.#synced = written;
        }, (error: unknown) => {
          this.#failed = failed("sync the journal", error);
        }).finally(() => (this.#syncing = undefined));
      }
      await this.#syncing;
    }
  }

  /**
   * Syncs the journal and releases it for another process. Calls of do that are running go on, and what they note is
   * lost: their requests are sent again by resume.
   */
  async close(): Promise<void> {
    try {
      await this.#sync(this.#size);
    } finally {
      if (this.#failed?.message !== closed) {
        this.#failed = new JournalFailedError(closed);
        await this.#syncing;
        fs.closeSync(this.#fd);
      }
    }
  }
}

const inUse = "it is open already, in this process or another";
const closed = "the journal is closed";
const fsync = promisify(fs.fsync);

function writeAll(fd: number, bytes: Uint8Array, position: number): void {
  for (let n = 0; n < bytes.length;) n += fs.writeSync(fd, bytes, n, bytes.length - n, position + n);
}

function code(error: unknown): unknown {
  return error instanceof Error && "code" in error ? error.code : undefined;
}

/** An error of the file system as one of this client's. */
function failed(what: string, error: unknown): JournalError {
  if (error instanceof JournalError) return during(what, error);
  if (code(error) === "ENOSPC" || code(error) === "EDQUOT" || code(error) === "EFBIG") {
    return new JournalFullError(`${what}: ${message(error)}`, { cause: error });
  }
  if (code(error) === "EWOULDBLOCK" || code(error) === "EAGAIN" || (code(error) === "EBUSY" && process.platform === "win32")) {
    return new JournalInUseError(`${what}: ${inUse}`, { cause: error });
  }
  return new JournalFailedError(`${what}: ${message(error)}`, { cause: error });
}
