// ramp: more and more payments a second, until the service is saturated and
// beyond. Latency then grows without bound, because clients come at their own
// pace; what must not change is how often they are charged.
import { duration, number, seconds } from './lib/config.js';
import { options as common } from './lib/options.js';
import { order, pay, keyOf } from './lib/client.js';
import { begin, end } from './lib/effects.js';
export { handleSummary } from './lib/summary.js';

const top = number('RATE', 300);
const third = `${Math.max(1, Math.round(seconds(duration('60s')) / 3))}s`;

export const options = common(
  {
    ramp: {
      executor: 'ramping-arrival-rate',
      startRate: Math.ceil(top / 30),
      timeUnit: '1s',
      stages: [
        { target: Math.ceil(top / 4), duration: third },
        { target: top, duration: third },
        { target: top, duration: third },
      ],
      preAllocatedVUs: 50,
      maxVUs: number('VUS', 200), // above this, iterations are dropped: dropped_iterations
    },
  },
  { 'http_req_duration{kind:write}': null }, // the point of the run is to pass every such limit
);

export const setup = begin;
export const teardown = end;

export default function (data) {
  const id = order(data.run);
  if (id !== null) pay(keyOf(data.run, 'pay'), id);
}
