// retry-storm: Stripe's responses are lost, it fails with and without effect, and is slow;
// the clients time out early and retry at once. Where a retry is a new request, this
// makes two charges out of one.
import http from 'k6/http';
import exec from 'k6/execution';
import { sleep } from 'k6';
import { config, duration, number } from './lib/config.js';
import { options as common } from './lib/options.js';
import { order, pay, keyOf } from './lib/client.js';
import { begin, end } from './lib/effects.js';
export { handleSummary } from './lib/summary.js';

export const options = common(
  { retries: { executor: 'constant-vus', vus: config.vus, duration: duration('20s') } },
  { duplicates_sent: ['count>=20'], answers_none: ['count>=1'], answers_replayed: ['count>=1'] }, // otherwise there were no retries
);

const impatience = `${number('IMPATIENCE_MS', 250)}ms`;

// Only what the keys of this run move is broken, so that a system that others
// use at the same time is not. Each fault ends by itself.
export function setup() {
  const data = begin();
  for (const fault of [
    { kind: 'drop', probability: 0.15 }, // charged, no response
    { kind: 'effect_error', probability: 0.05, status: 502 }, // charged, response says failed
    { kind: 'delay', probability: 0.15, delay: '600ms' }, // charged, response after the client's timeout
    { kind: 'reset', probability: 0.05 }, // not charged, no response
    { kind: 'refuse', probability: 0.05, status: 503 }, // not charged, response says so
  ]) {
    const body = JSON.stringify({ op: 'intent.confirm', key: data.run, times: 100000, ...fault });
    const res = http.post(`${config.simulator}/faults`, body, { tags: { name: 'POST simulator/faults', kind: 'witness' } });
    if (res.status !== 200) exec.test.abort(`the simulator refuses a fault: ${res.body}`);
  }
  return data;
}

export const teardown = end;

export default function (data) {
  const id = order(data.run);
  if (id === null) return;
  const key = keyOf(data.run, 'pay');
  const atOnceAgain = () => sleep(0.02 + 0.03 * Math.random());
  pay(key, id, { timeout: impatience, pause: atOnceAgain });
  pay(key, id, { sentBefore: true }); // and once more, from another client
}
