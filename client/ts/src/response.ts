/** What the server responded. */
export class IntentResponse {
  readonly status: number;
  readonly headers: Headers; // from the journal: only Content-Type, Location and Request-Id
  readonly body: Uint8Array;
  readonly intent: string;
  readonly key: string;

  /**
   * False if the intent waits for the caller, who must do something first, such as 3-D Secure. Call do again
   * afterwards.
   */
  readonly final: boolean;

  constructor(of: { status: number; headers: Headers; body: Uint8Array; intent: string; key: string; final: boolean }) {
    this.status = of.status;
    this.headers = of.headers;
    this.body = of.body;
    this.intent = of.intent;
    this.key = of.key;
    this.final = of.final;
  }

  /** Whether the request took effect: a 2xx other than 202. */
  get ok(): boolean {
    return this.status >= 200 && this.status < 300 && this.status !== 202;
  }

  text(): string {
    return new TextDecoder().decode(this.body);
  }

  json(): unknown {
    return JSON.parse(this.text());
  }
}

/** The headers of a response that a journal holds. */
export const keptHeaders = ["Content-Type", "Location", "Request-Id"];
