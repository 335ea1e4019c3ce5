// The metrics that are counted beside k6's own, and their thresholds.
//
// Latency depends on the machine, so its limits are wide and can be set. Effects do not:
// an extra charge is wrong on every machine.
import { Counter, Trend } from 'k6/metrics';
import { number } from './config.js';

export const metrics = {
  // From the responses, by the clients.
  executed: new Counter('answers_executed'), // final, and not a replay
  replayed: new Counter('answers_replayed'), // final, with Idempotent-Replayed: true
  inFlight: new Counter('answers_in_flight'), // 409: another request with this key is in progress
  processing: new Counter('answers_processing'), // 202: started, outcome not known yet
  refused: new Counter('answers_refused'), // final refusals: 409 order-already-paid, 422, …
  unavailable: new Counter('answers_unavailable'), // 429, 503: this request started nothing
  unanswered: new Counter('answers_none'), // the client gave up, or the connection broke
  unexpected: new Counter('answers_unexpected'), // responses that the API must never send here
  differing: new Counter('answers_that_differ'), // two final responses to one key with different bytes
  executedTwice: new Counter('keys_executed_twice'), // two final responses to one key, neither of them a replay
  neverFinal: new Counter('keys_never_final'), // the client retried until the end of the run
  duplicates: new Counter('duplicates_sent'), // requests with a key that was sent before, or at the same time

  // From the simulator and the database, at the end.
  chargesPerKey: new Trend('charges_per_key'), // of each key that should have taken money
  chargesPerOrder: new Trend('charges_per_order'), // of each order that should have been paid
  judged: new Counter('keys_checked'),
  violations: new Counter('effects_wrong'), // each with a line in the log
  unasked: new Counter('orders_not_paid_for'), // the run ended between the order and its payment

  // Of one payment, from its first request to its final response, retries included.
  settled: new Trend('payment_settled', true),
};

// thresholds are those of every scenario. more is merged over them; null takes
// one away.
export function thresholds(more = {}) {
  const all = {
    'http_req_duration{kind:write}': [`p(95)<${number('P95_MS', 2000)}`, `p(99)<${number('P99_MS', 5000)}`],
    charges_per_key: ['min==1', 'max==1'],
    charges_per_order: ['min==1', 'max==1'],
    keys_checked: ['count>=1'], // a teardown that failed must not pass
    effects_wrong: ['count==0'],
    answers_unexpected: ['count==0'],
    answers_that_differ: ['count==0'],
    keys_executed_twice: ['count==0'],
    keys_never_final: ['count==0'],
    ...more,
  };
  return Object.fromEntries(Object.entries(all).filter(([, list]) => list !== null));
}

// zero makes the counters that must be 0 appear in the summary.
export function zero() {
  for (const counter of [metrics.violations, metrics.unexpected, metrics.differing, metrics.executedTwice, metrics.neverFinal]) counter.add(0);
}
