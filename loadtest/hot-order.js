// hot-order: many clients pay one order at the same time, each with another key,
// like a family with one shopping cart. Keys do not help here. The order does:
// it is paid once, whatever keys are used.
import exec from 'k6/execution';
import { config, duration } from './lib/config.js';
import { options as common } from './lib/options.js';
import { order, pay, keyOf, problemOf, unexpected, CONTESTED } from './lib/client.js';
import { begin, end } from './lib/effects.js';
export { handleSummary } from './lib/summary.js';

export const options = common(
  { hot: { executor: 'constant-vus', vus: config.vus, duration: duration('20s') } },
  { answers_refused: ['count>=1'] }, // otherwise the payments did not overlap
);

export const setup = begin;
export const teardown = end;

export default function (data) {
  const n = Math.floor(exec.scenario.iterationInTest / config.vus);
  const id = order(data.run, { key: keyOf(data.run, 'order', n), fate: CONTESTED, payKey: 'any', units: 1 + (n % 20), sentBefore: exec.scenario.iterationInTest % config.vus !== 0 });
  if (id === null) return;
  const res = pay(keyOf(data.run, 'pay'), id, { allowed: ['order-already-paid'] });
  if (res !== null && res.status !== 201 && problemOf(res) !== 'order-already-paid') unexpected(res, 'a loser of the race');
}
