// duplicate-storm: the same request many times at the same instant, to all
// processes, in two ways: one client that opens so many connections, and as many
// clients that know one key. One of them is executed. The others have to
// wait, or get its response, byte for byte.
import exec from 'k6/execution';
import { config, duration, number } from './lib/config.js';
import { options as common } from './lib/options.js';
import { atOnce, together, classify, order, pay, payment, keyOf, request, send, same, FINAL } from './lib/client.js';
import { begin, end } from './lib/effects.js';
import { metrics } from './lib/metrics.js';
export { handleSummary } from './lib/summary.js';

const copies = number('COPIES', 20);

export const options = common(
  {
    batch: { executor: 'constant-vus', vus: Math.max(1, Math.ceil(config.vus / 5)), duration: duration('20s'), exec: 'batch' },
    crowd: { executor: 'constant-vus', vus: config.vus, duration: duration('20s'), exec: 'crowd' },
  },
  { duplicates_sent: ['count>=20'], answers_replayed: ['count>=1'], answers_in_flight: ['count>=1'] }, // otherwise there were no duplicates to suppress
);

export const setup = begin;
export const teardown = end;

export function batch(data) {
  const key = keyOf(data.run, 'pay');
  const id = order(data.run);
  if (id === null) return;
  const answers = atOnce(copies, 'POST', '/v1/payments', payment(id), { key, name: 'POST /v1/payments' });
  const early = together(answers, key);
  const last = pay(key, id, { sentBefore: true }); // a request that got 409 is retried
  if (early !== null && last !== null) same(early, last, key);
}

// As many clients as there are VUs draw the same number, one after the other, and
// do the same thing with it: also the order is made by all of them at once.
export function crowd(data) {
  const n = Math.floor(exec.scenario.iterationInTest / config.vus);
  const key = keyOf(data.run, 'pay', n);
  const sentBefore = exec.scenario.iterationInTest % config.vus !== 0; // by another of them, or at this moment
  const id = order(data.run, { key: keyOf(data.run, 'order', n), payKey: key, units: 1 + (n % 20), sentBefore });
  if (id === null) return;
  if (sentBefore) metrics.duplicates.add(1);
  const waited = send(request('POST', '/v1/payments', payment(id), { key, name: 'POST /v1/payments', headers: { Prefer: 'wait=5' } }));
  const early = classify(waited) === FINAL ? waited : null;
  const last = pay(key, id, { sentBefore: true });
  if (early !== null && last !== null) same(early, last, key);
}
