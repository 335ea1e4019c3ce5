/**
 * JSON with numbers as they are written: 9007199254740993 is not 9007199254740992, which JSON.parse makes of it. Strings
 * and names begin with s and numbers, as strings, with n. Undefined if the text is not JSON.
 */
export function parse(text: string | Uint8Array): unknown {
  try {
    const whole = typeof text === "string" ? text : new TextDecoder("utf-8", { fatal: true }).decode(text);
    JSON.parse(whole); // or what follows would make JSON of what is none, as of 01
    return JSON.parse(whole.replace(/"((?:[^"\\]|\\.)*)"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g,
      (token, string?: string) => string === undefined ? `"n${token}"` : `"s${string}"`));
  } catch {
    return undefined;
  }
}

/** A member of an object that was parsed. */
export function member(value: unknown, name: string): unknown {
  if (!isObject(value) || !Object.hasOwn(value, "s" + name)) return undefined;
  return value["s" + name];
}

export function isObject(value: unknown): value is { [name: string]: unknown } {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** A parsed value for a message. */
export function show(value: unknown): string {
  if (typeof value === "string") return value.slice(1);
  return value === undefined ? "missing" : JSON.stringify(value);
}

/** The string that a parsed value is, if it is one. */
export function string(value: unknown): string {
  return typeof value === "string" && value.startsWith("s") ? value.slice(1) : "";
}

export function sameBytes(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.every((byte, i) => byte === b[i]);
}

export function sameJSON(a: Uint8Array, b: Uint8Array): boolean {
  const x = parse(a);
  return x !== undefined && same(x, parse(b));
}

export function same(a: unknown, b: unknown): boolean {
  if (Array.isArray(a) && Array.isArray(b)) return a.length === b.length && a.every((value, i) => same(value, b[i]));
  if (isObject(a) && isObject(b)) {
    const names = Object.keys(a);
    return names.length === Object.keys(b).length &&
      names.every((name) => Object.hasOwn(b, name) && same(a[name], b[name]));
  }
  return a === b;
}
