// The end of every run: its outcome from two independent sources. The simulator's effect
// log says how often money was taken, and by which key; the database, through the API's
// lists, says what the service has recorded.
//
// k6 fails a run by thresholds, so what is found goes into metrics.
import http from 'k6/http';
import exec from 'k6/execution';
import { sleep } from 'k6';
import { config } from './config.js';
import { metrics, zero } from './metrics.js';
import { UNPAID, CONTESTED } from './client.js';

// begin is every scenario's setup: it does not start a run whose outcome could not be checked.
export function begin() {
  for (const [name, value] of [['API_URL', config.bases.length], ['STRIPESIM_URL', config.simulator], ['API_KEY', config.apiKey]]) {
    if (!value) exec.test.abort(`${name} is not set: where to send requests, and whom to ask about the money? (go run -C proof ./load starts everything)`);
  }
  const run = config.run || `load${Date.now().toString(36)}${Math.random().toString(36).slice(2, 6)}`;
  const seen = charges(0);
  const newest = {};
  for (const path of ['/v1/orders', '/v1/payments']) {
    const probe = ask(`${path}?limit=1`, `GET ${path}`);
    if (probe.status !== 200) exec.test.abort(`the API at ${config.bases[0]} answers ${probe.status} ${probe.body}`);
    newest[path] = probe.json('data.0.id') || '';
  }
  return { run, began: Date.now(), seq: seen.length > 0 ? seen[seen.length - 1].seq : 0, newest };
}

// end is every scenario's teardown. It returns what the database has of the run.
export function end(data) {
  zero();
  const books = awaitQuiet(data);
  const { byKey, byOrder } = tally(data);
  for (const [key, list] of byKey) checkKey(key, list.length);
  for (const order of books.orders) {
    const [run, fate, key] = order.customer_reference.split('|');
    if (run !== data.run) continue;
    const charged = byOrder.get(order.id) || [];
    const paid = books.paid.get(order.id) || [];
    const label = `order ${order.id}, key ${key}`;
    if (fate === UNPAID || order.asked === false) {
      if (order.asked === false) metrics.unasked.add(1);
      expect(charged.length === 0, `${label}: charged ${charged.length} times at Stripe, and should not have been`);
      expect(paid.length === 0, `${label}: ${paid.length} payments succeeded here, and none should have`);
      continue;
    }
    metrics.chargesPerOrder.add(charged.length, offender(charged.length, order.id));
    expect(charged.length === 1, `${label}: charged ${charged.length} times at Stripe`);
    if (fate !== CONTESTED) {
      if (!byKey.has(key)) checkKey(key, 0);
      expect(charged.every((c) => c.caller === key), `${label}: charged under ${charged.map((c) => c.caller).join(', ')}`);
    }
    expect(order.amount_paid === order.amount && order.payment_id !== null, `${label}: charged, and here it is ${order.status} with ${order.amount_paid} of ${order.amount} paid`);
    expect(paid.length === 1, `${label}: ${paid.length} payments succeeded here`);
    expect(charged.every((c) => c.amount === order.amount && c.currency === order.currency && paid.some((p) => p.stripe.charge === c.charge_id)), `${label}: the charge at Stripe is not the one we know of`);
  }
  // What Stripe took for keys of this run and that no order here has recorded.
  const known = new Set(books.orders.map((o) => o.id));
  for (const [id, list] of byOrder) expect(known.has(id), `order ${id}: charged ${list.length} times at Stripe, and not known here`);
  return books;
}

// listSold is how many pieces of the run's article were bought and paid.
export function listSold(books, data) {
  return books.orders
    .filter((order) => order.customer_reference.startsWith(`${data.run}|`) && order.amount_paid > 0)
    .flatMap((order) => order.items)
    .filter((item) => item.sku === data.sku)
    .reduce((sum, item) => sum + item.quantity, 0);
}

// checkKey records how often a key took money.
function checkKey(key, n) {
  metrics.judged.add(1);
  metrics.chargesPerKey.add(n, offender(n, key));
  expect(n === 1, `key ${key}: charged ${n} times at Stripe`);
}

// expect counts and logs what is not as expected.
export function expect(holds, what) {
  if (holds) return;
  metrics.violations.add(1);
  console.error(`effect: ${what}`);
}

// offender is an order that was not charged as expected; empty for all others.
function offender(n, who) {
  return n === 1 ? {} : { who };
}

// tally is what Stripe took in this run, by the caller's key and by order.
function tally(data) {
  const byKey = new Map();
  const byOrder = new Map();
  for (const charge of charges(data.seq)) {
    // <tenant>:<caller's key>:<operation>
    charge.caller = charge.key.split(':').slice(1, -1).join(':');
    if (!charge.caller.startsWith(`${data.run}-`)) continue; // of another run
    append(byKey, charge.caller, charge);
    append(byOrder, (charge.metadata || {}).order_id, charge);
  }
  return { byKey, byOrder };
}

function append(map, key, value) {
  const list = map.get(key);
  if (list) list.push(value);
  else map.set(key, [value]);
}

// charges is the simulator's own log of money taken, oldest first.
function charges(since) {
  const res = http.get(`${config.simulator}/effects?kind=charge&since=${since}`, { timeout: '60s', tags: { name: 'GET simulator/effects', kind: 'witness' } });
  if (res.status !== 200) throw new Error(`the simulator at ${config.simulator} responds ${res.status} ${res.error}: the charges cannot be counted`);
  return res.json();
}

// awaitQuiet waits, without sending retries, until every request that was started has
// finished, and returns the tenant's objects.
function awaitQuiet(data) {
  for (const began = Date.now(); ; sleep(0.5)) {
    const books = { orders: list('/v1/orders', data), paid: new Map() };
    const busy = books.orders.filter((order) => unfinished(order, data.run));
    if (busy.length === 0 || Date.now() - began > config.patience * 1000) {
      for (const order of busy) expect(false, `order ${order.id}: still ${order.status} after ${config.patience} s of quiet: ${order.customer_reference}`);
      for (const payment of list('/v1/payments', data)) if (payment.status === 'succeeded') append(books.paid, payment.order_id, payment);
      return books;
    }
  }
}

// unfinished orders are those whose payment was requested and is not final. A client that
// was stopped between the order and its payment has requested none.
function unfinished(order, run) {
  const [of, fate, key] = order.customer_reference.split('|');
  if (of !== run || order.status !== 'open' || fate === UNPAID) return false;
  if (fate === CONTESTED) return true;
  const history = ask(`/v1/idempotency-keys/${encodeURIComponent(key)}`, 'GET /v1/idempotency-keys/{key}');
  order.asked = history.status !== 404;
  return order.asked && history.json('state') !== 'finished';
}

// ask reads from the API for a check; its time does not count as load.
function ask(path, name) {
  return http.get(config.bases[0] + path, { headers: { Authorization: `Bearer ${config.apiKey}` }, timeout: '60s', tags: { name, kind: 'witness' }, responseCallback: http.expectedStatuses(200, 404) });
}

// list is all of the tenant's objects that are younger than the run.
function list(path, data) {
  const all = [];
  for (let after = ''; ; ) {
    const res = ask(`${path}?limit=100${after}`, `GET ${path}`);
    if (res.status !== 200) throw new Error(`${path} responds ${res.status} ${res.body}: the objects cannot be read`);
    const page = res.json();
    for (const object of page.data) {
      if (object.id === data.newest[path]) return all;
      if (path !== '/v1/orders' || (object.customer_reference || '').includes('|')) all.push(object);
    }
    if (!page.has_more) return all;
    after = `&starting_after=${page.data[page.data.length - 1].id}`;
  }
}
