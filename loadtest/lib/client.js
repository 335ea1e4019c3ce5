// A careful client of the API: every POST has a key, and until the response is final
// the request is repeated with the same key.
import http from 'k6/http';
import exec from 'k6/execution';
import { sleep } from 'k6';
import { config } from './config.js';
import { metrics } from './metrics.js';

let turn = 0;

// base returns the API processes in turn; each VU starts with another one.
function base() {
  return config.bases[(exec.vu.idInTest + turn++) % config.bases.length];
}

// request returns the arguments of http.request or http.batch.
export function request(method, path, body, { key, name, timeout = '30s', headers = {} } = {}) {
  const all = { Authorization: `Bearer ${config.apiKey}`, ...headers };
  if (body !== null) all['Content-Type'] = 'application/json';
  if (key) all['Idempotency-Key'] = key;
  const kind = method === 'GET' ? 'read' : 'write';
  return { method, url: base() + path, body: body === null ? null : JSON.stringify(body), params: { headers: all, timeout, tags: { name: name || `${method} ${path}`, kind } } };
}

// send sends one request.
export function send(r) {
  return http.request(r.method, r.url, r.body, r.params);
}

// read gets an object.
export function read(path, name) {
  return send(request('GET', path, null, { name }));
}

// classes of responses
export const FINAL = 'final';
export const AGAIN = 'again';

// classify says whether a response is final, and counts it.
// allowed are the problem codes that this request may be refused with.
export function classify(res, allowed = []) {
  if (res.status === 0) {
    metrics.unanswered.add(1);
    return AGAIN;
  }
  const problem = problemOf(res);
  if (res.status === 202) {
    metrics.processing.add(1);
    return AGAIN;
  }
  if (res.status === 429 || res.status === 503) {
    metrics.unavailable.add(1);
    return AGAIN;
  }
  if (problem === 'idempotency-key-in-flight' || problem === 'payment-in-progress') {
    (problem === 'idempotency-key-in-flight' ? metrics.inFlight : metrics.refused).add(1);
    return AGAIN;
  }
  if (res.status === 200 || res.status === 201 || allowed.includes(problem)) {
    if (replayed(res)) metrics.replayed.add(1);
    else if (res.status < 300 || res.status === 402) metrics.executed.add(1);
    else metrics.refused.add(1);
    return FINAL;
  }
  unexpected(res, `${res.request.method} ${res.request.url}`);
  return FINAL;
}

// unexpected counts a response that the API must never send, and logs it.
export function unexpected(res, what) {
  metrics.unexpected.add(1);
  console.error(`unexpected: ${what}: ${res.status} ${String(res.body).slice(0, 300)}`);
}

// problemOf is the code of a problem document; empty for any other response.
export function problemOf(res) {
  if (res.status < 400) return '';
  try {
    return JSON.parse(res.body).code || '';
  } catch {
    return ''; // not ours: classify counts it as unexpected
  }
}

export function replayed(res) {
  return res.headers['Idempotent-Replayed'] === 'true';
}

// same compares a later final response to a key with the first.
export function same(first, later, key) {
  if (later.status === first.status && later.body === first.body && later.headers['Content-Type'] === first.headers['Content-Type'] && later.headers.Location === first.headers.Location) return true;
  metrics.differing.add(1);
  console.error(`differs: key ${key}: ${first.status} ${first.body} and then ${later.status} ${later.body}`);
  return false;
}

// settle sends a request until its response is final, and returns that; null if
// there is none in time. pause waits before a retry; sentBefore: the key has been
// sent before.
export function settle(method, path, body, { key, name, allowed, timeout, sentBefore = false, pause = politely, giveUpAfter = config.patience } = {}) {
  const began = Date.now();
  for (let attempt = 0; ; attempt++) {
    if (attempt > 0 || sentBefore) metrics.duplicates.add(1);
    const res = send(request(method, path, body, { key, name, timeout }));
    if (classify(res, allowed) === FINAL) return res;
    if (Date.now() - began > giveUpAfter * 1000) {
      metrics.neverFinal.add(1);
      console.error(`never final: key ${key}: ${res.status} ${res.body}`);
      return null;
    }
    pause(res, attempt);
  }
}

// politely waits for as long as the server says, or twice as long every time.
export function politely(res, attempt) {
  const said = Number(res.headers['Retry-After']);
  sleep(said > 0 ? Math.min(said, 5) : Math.min(0.05 * 2 ** attempt, 2) * (0.5 + Math.random() / 2));
}

// keyOf is a key of this run: what it is for and a number that is drawn once.
export function keyOf(run, what, n = exec.scenario.iterationInTest) {
  return `${run}-${exec.scenario.name}-${what}-${n}`;
}

// The expected outcome of an order is in its metadata, for the end of the run: how often
// it should be charged, and the key that is to pay it.
export const PAID = 'paid'; // once, under this key
export const UNPAID = 'unpaid'; // never
export const CONTESTED = 'contested'; // once, under whichever key comes first
export const BOUGHT = 'bought'; // by a checkout, under this key

export function reference(run, fate, key) {
  return `${run}|${fate}|${key}`;
}

// order makes an order of this run and returns its id, or null.
export function order(run, { key = keyOf(run, 'order'), fate = PAID, payKey = keyOf(run, 'pay'), units = 1 + (exec.scenario.iterationInTest % 20), sentBefore = false } = {}) {
  const body = { currency: 'usd', items: [{ sku: 'tea', quantity: units, unit_amount: 250 }], customer_reference: reference(run, fate, payKey) };
  const res = settle('POST', '/v1/orders', body, { key, name: 'POST /v1/orders', sentBefore });
  return res !== null && res.status === 201 ? res.json('id') : null;
}

// payment is the request that pays an order.
export function payment(id, method = 'pm_card_visa') {
  return { order_id: id, payment_method: method };
}

// pay pays an order under a key, until the response is final.
export function pay(key, id, { method = 'pm_card_visa', allowed = [], ...how } = {}) {
  const began = Date.now();
  const res = settle('POST', '/v1/payments', payment(id, method), { key, name: 'POST /v1/payments', allowed, ...how });
  if (res !== null) metrics.settled.add(Date.now() - began);
  return res;
}

// atOnce sends the same request so many times in parallel, to all processes, and
// returns the responses. k6 opens a connection for each (options.batch).
export function atOnce(n, method, path, body, how) {
  const requests = [];
  for (let i = 0; i < n; i++) requests.push(request(method, path, body, how));
  metrics.duplicates.add(n - 1);
  return http.batch(requests);
}

// together checks the responses to one request that was sent many times: at most
// one of them executed it, and the final ones are the same bytes. It returns a
// final one, or null.
export function together(answers, key, allowed = []) {
  let first = null;
  let executed = 0;
  for (const res of answers) {
    if (classify(res, allowed) !== FINAL || res.status >= 500) continue;
    if (!replayed(res) && (res.status < 300 || res.status === 402)) executed++;
    if (first === null) first = res;
    else same(first, res, key);
  }
  if (executed > 1) {
    metrics.executedTwice.add(1);
    console.error(`executed twice: key ${key}: ${executed} answers that are no replays`);
  }
  return first;
}
