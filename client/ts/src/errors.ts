import type { IntentResponse } from "./response.js";

/** Every error of {@link Client.do} is one of the classes in this file; all but NotSentError have these members. */
export interface OfIntent {
  intent: string;
  key: string;
  response?: IntentResponse | undefined; // the last one, if there was one
  cause?: unknown;
}

class IntentError extends Error {
  readonly intent: string;
  readonly key: string;
  readonly response: IntentResponse | undefined;

  constructor(message: string, of: OfIntent) {
    super(message, of.cause === undefined ? undefined : { cause: of.cause });
    this.intent = of.intent;
    this.key = of.key;
    this.response = of.response;
  }
}

/**
 * The server did nothing, and holds nothing under the key. Call do again under the same name once the cause is fixed,
 * with another body if need be.
 */
export class RefusedError extends IntentError {
  override readonly name = "RefusedError";

  constructor(of: OfIntent) {
    super(`the server refused ${quote(of.intent)} and did nothing: ${shown(of.response)}`, of);
  }
}

/**
 * The request may have taken effect, or still may. Call do again with the same request; never give it another name,
 * which has another key.
 */
export class UnknownError extends IntentError {
  override readonly name = "UnknownError";

  constructor(of: OfIntent) {
    let text = `the outcome of ${quote(of.intent)} is unknown: retry it under the same name (key ${of.key})`;
    if (of.response !== undefined) text += `: last response ${shown(of.response)}`;
    if (of.cause !== undefined) text += `: ${message(of.cause)}`;
    super(text, of);
  }
}

/**
 * The server holds another request under the key. Two programs use copies of one journal, or the request under this
 * name was changed after its record was lost.
 */
export class MismatchError extends IntentError {
  override readonly name = "MismatchError";

  constructor(of: OfIntent) {
    super(`the server holds another request than that of ${quote(of.intent)} under the key ${of.key}`, of);
  }
}

/** The request was executed, and the server has deleted the response. href is the path of the object, if it is named. */
export class ExpiredError extends IntentError {
  override readonly name = "ExpiredError";
  readonly href: string;

  constructor(of: OfIntent & { href: string }) {
    super(`${quote(of.intent)} was executed; the server no longer stores the response under the key ${of.key}` +
      (of.href === "" ? "" : `: read ${of.href}`), of);
    this.href = of.href;
  }
}

/**
 * The server's responses contradict each other, or the request: another object than before, the response to another
 * request, a second execution under the same key. It is kept in the journal: the client sends nothing more for the
 * intent. Compare what and response with the server's own records. cause: the journal could not keep it.
 */
export class BrokenPromiseError extends IntentError {
  override readonly name = "BrokenPromiseError";
  readonly what: string;

  constructor(of: OfIntent & { what: string }) {
    super(`the server contradicts itself about ${quote(of.intent)} (key ${of.key}): ${of.what}` +
      (of.cause === undefined ? "" : `: ${message(of.cause)}`), of);
    this.what = of.what;
  }
}

/**
 * This call sent nothing; cause says why. An earlier call for the same intent may have sent it; and if it was the
 * journal that failed, the record may be in it all the same, and resume sends it.
 */
export class NotSentError extends Error {
  override readonly name = "NotSentError";

  constructor(cause: unknown) {
    super(`nothing was sent: ${message(cause)}`, { cause });
  }
}

/** The intent was begun with another request. Another request is another intent, with another name. */
export class IntentChangedError extends Error {
  override readonly name = "IntentChangedError";

  constructor(intent: string) {
    super(`the intent ${quote(intent)} was begun with another request`);
  }
}

/**
 * The intent was begun at another base; it is the cause of a NotSentError. The journal is that of another server, such as
 * the one for tests, or the server has moved (Options.formerBases).
 */
export class OtherServerError extends Error {
  override readonly name = "OtherServerError";

  constructor(intent: string, begunAt: string, base: string) {
    super(`the intent ${quote(intent)} was begun at another server: it was begun at ${quote(begunAt)} and this client sends to ` +
      `${quote(base)}: use another journal for this server, or if the server has moved, name its former address in formerBases`);
  }
}

/**
 * The server may have deleted the key, and would take the request for a new one. It is the cause of an UnknownError:
 * look for what the request made.
 */
export class KeyTooOldError extends Error {
  override readonly name = "KeyTooOldError";

  constructor() {
    super("the key is older than the server keeps keys, so the request is not sent again");
  }
}

/** What is wrong with a journal. */
export class JournalError extends Error {
  override readonly name: string = "JournalError";
}

/** Another process has the file open, or this one has it open already. */
export class JournalInUseError extends JournalError {
  override readonly name = "JournalInUseError";
}

/**
 * This is no journal, or one of a later version or of another id, or its head is damaged. It was left as it is. A new
 * journal has another id, and with it the same intents have other keys: restore the head.
 */
export class JournalForeignError extends JournalError {
  override readonly name = "JournalForeignError";
}

/**
 * A record cannot be read. A crash leaves no such record, except at the end of a file, where it is cut off; a disk that
 * loses writes, or another program, may.
 */
export class JournalDamagedError extends JournalError {
  override readonly name = "JournalDamagedError";
}

/** The journal could not be opened, read or written: blocked by the browser, cleared while in use, a disk's error. */
export class JournalFailedError extends JournalError {
  override readonly name: string = "JournalFailedError";
}

/** There is no space for another record. Free some and call do again. */
export class JournalFullError extends JournalFailedError {
  override readonly name = "JournalFullError";
}

/** The same error, with what was being done. */
export function during(what: string, error: JournalError): JournalError {
  return new (error.constructor as typeof JournalError)(`${what}: ${error.message}`, { cause: error.cause });
}

export function message(error: unknown): string {
  // Node's fetch says only "fetch failed", and why in its cause.
  if (error instanceof TypeError && error.cause instanceof Error) return `${error.message}: ${message(error.cause)}`;
  return error instanceof Error ? error.message || error.name : String(error);
}

function quote(text: string): string {
  return JSON.stringify(text);
}

function shown(response: IntentResponse | undefined): string {
  return response === undefined ? "no response" : `${response.status} ${response.text().slice(0, 300)}`;
}
