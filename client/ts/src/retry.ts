const firstWait = 200; // milliseconds before the first retry, at most
const longestWait = 10_000; // before any

const budgetMax = 100; // retries before all of them wait longestWait
const perCall = 0.2; // retries that each call of do gives back

/**
 * Slows retries down once there are many for each call: clients that all retry keep a slow server from ever recovering
 * (https://aws.amazon.com/builders-library/timeouts-retries-and-backoff-with-jitter/).
 */
export class Budget {
  #spent = 0;
  scale = 1; // of the waits, in tests

  deposit(): void {
    this.#spent = Math.max(0, this.#spent - perCall);
  }

  #take(): boolean {
    if (this.#spent + 1 > budgetMax) return false;
    this.#spent++;
    return true;
  }

  /**
   * The time until the next attempt, n being the number of this one, from 0: a random part of a time that doubles from
   * firstWait to longestWait (full jitter); after Retry-After, what the server wants and a random part on top.
   */
  wait(n: number, headers: Headers | undefined, now: number): number {
    let most = this.#take() ? Math.min(longestWait, firstWait * 2 ** Math.min(n, 10)) : longestWait;
    most *= this.scale;
    const wait = most / 20 + Math.random() * (most - most / 20);
    const asked = headers === undefined ? 0 : retryAfter(headers, now);
    return asked > 0 ? asked + wait / 4 : wait; // or those that were refused together come back together
  }
}

/** What a longer Retry-After is taken for, in milliseconds: some 68 years. */
const longestRetryAfter = (2 ** 31 - 1) * 1000;

/** Reads Retry-After (RFC 9110, 10.2.3), seconds or a date, as milliseconds. */
export function retryAfter(headers: Headers, now: number): number {
  const value = headers.get("Retry-After") ?? "";
  if (/^\d+$/.test(value)) return Math.min(Number(value) * 1000, longestRetryAfter);
  const asctime = /^[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}$/;
  if (!/^[A-Z][a-z]{2,8}, .* GMT$/.test(value) && !asctime.test(value)) return 0;
  const at = Date.parse(asctime.test(value) ? value + " GMT" : value);
  return Number.isNaN(at) ? 0 : Math.min(Math.max(0, at - now), longestRetryAfter);
}

/** The end of a call: its own time is over, or the caller's signal says so. It is to be closed. */
export class Deadline {
  readonly #controller = new AbortController();
  readonly #until: number;
  readonly #timer: ReturnType<typeof setTimeout>;
  readonly #outer: AbortSignal | undefined;
  readonly #abort = (): void => this.#controller.abort(this.#outer!.reason);

  constructor(timeout: number, outer: AbortSignal | undefined) {
    timeout = Math.min(timeout, longestTimer);
    this.#outer = outer;
    this.#until = performance.now() + timeout;
    this.#timer = setTimeout(() =>
      this.#controller.abort(new DOMException(`${timeout} ms are over`, "TimeoutError")), timeout);
    if (outer?.aborted) this.#abort();
    outer?.addEventListener("abort", this.#abort);
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  close(): void {
    clearTimeout(this.#timer);
    this.#outer?.removeEventListener("abort", this.#abort);
  }

  /** Resolves to false at once if the call ends before the time is over. */
  sleep(ms: number): Promise<boolean> {
    const signal = this.signal;
    if (signal.aborted || this.#until - performance.now() <= ms) return Promise.resolve(false);
    return new Promise((resolve) => {
      const end = (slept: boolean): void => {
        clearTimeout(timer);
        signal.removeEventListener("abort", aborted);
        resolve(slept);
      };
      const aborted = (): void => end(false);
      const timer = setTimeout(() => end(true), ms);
      signal.addEventListener("abort", aborted);
    });
  }

  /** What a promise resolves to, unless the call ends first. */
  async race<T>(work: Promise<T>): Promise<T> {
    const signal = this.signal;
    signal.throwIfAborted();
    let abort: (() => void) | undefined;
    try {
      return await Promise.race([work, new Promise<never>((_, reject) => {
        abort = () => reject(signal.reason);
        signal.addEventListener("abort", abort);
      })]);
    } finally {
      if (abort !== undefined) signal.removeEventListener("abort", abort);
    }
  }
}

const longestTimer = 2 ** 31 - 1; // of setTimeout, which runs at once what is to wait longer

/** Lets the calls for one intent run one after another. */
export class Turns {
  readonly #last = new Map<string, Promise<void>>();

  async run<T>(intent: string, deadline: Deadline, run: () => Promise<T>): Promise<T> {
    const before = this.#last.get(intent);
    let done!: () => void;
    const mine = new Promise<void>((resolve) => (done = resolve));
    const all = before === undefined ? mine : before.then(() => mine);
    this.#last.set(intent, all);
    void all.then(() => {
      if (this.#last.get(intent) === all) this.#last.delete(intent);
    });
    try {
      if (before !== undefined) await deadline.race(before);
      return await run();
    } finally {
      done();
    }
  }
}
