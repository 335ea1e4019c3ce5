// steady: so many payments a second, however long they take. A
// quarter of the clients send the request once more after the response.
import exec from 'k6/execution';
import { duration, number } from './lib/config.js';
import { options as common } from './lib/options.js';
import { order, pay, same, keyOf } from './lib/client.js';
import { begin, end } from './lib/effects.js';
export { handleSummary } from './lib/summary.js';

const rate = number('RATE', 20);

export const options = common({
  steady: { executor: 'constant-arrival-rate', rate, timeUnit: '1s', duration: duration('30s'), preAllocatedVUs: Math.ceil(rate / 2), maxVUs: rate * 10 },
});

export const setup = begin;
export const teardown = end;

export default function (data) {
  const key = keyOf(data.run, 'pay');
  const id = order(data.run);
  if (id === null) return;
  const first = pay(key, id);
  if (first === null || exec.scenario.iterationInTest % 4 !== 0) return;
  const again = pay(key, id, { sentBefore: true });
  if (again !== null) same(first, again, key);
}
