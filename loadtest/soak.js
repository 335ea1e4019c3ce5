// soak: a little of everything for a long time. What grows without end, what is
// slower at the end than at the beginning, and what happens once in ten thousand
// times show here and nowhere else.
import exec from 'k6/execution';
import { duration, number, seconds } from './lib/config.js';
import { options as common } from './lib/options.js';
import { atOnce, together, order, pay, payment, settle, read, same, keyOf, reference, UNPAID, BOUGHT } from './lib/client.js';
import { begin, end } from './lib/effects.js';
export { handleSummary } from './lib/summary.js';
import { Trend } from 'k6/metrics';

const rate = number('RATE', 10);
const length = seconds(duration('10m'));
const firstTenth = new Trend('settled_in_first_tenth', true);
const lastTenth = new Trend('settled_in_last_tenth', true);

export const options = common(
  { soak: { executor: 'constant-arrival-rate', rate, timeUnit: '1s', duration: duration('10m'), preAllocatedVUs: rate, maxVUs: rate * 10 } },
  { settled_in_last_tenth: [`p(95)<${number('P95_MS', 2000)}`] }, // as fast in the end as in the beginning
);

export function setup() {
  const data = begin();
  data.sku = `cup-${data.run}`;
  settle('PUT', `/v1/stock/${data.sku}`, { available: 1000000000 }, { name: 'PUT /v1/stock/{sku}' });
  return data;
}

export const teardown = end;

export default function (data) {
  const n = exec.scenario.iterationInTest;
  if (n % 10 === 9) {
    checkout(data, n);
    return;
  }
  const key = keyOf(data.run, 'pay');
  const declined = n % 10 === 4;
  const id = order(data.run, { fate: declined ? UNPAID : undefined });
  if (id === null) return;
  if (declined) {
    pay(key, id, { method: 'pm_card_visa_chargeDeclined', allowed: ['payment-declined'] });
    return;
  }
  const began = Date.now();
  const early = n % 10 === 2 ? together(atOnce(5, 'POST', '/v1/payments', payment(id), { key, name: 'POST /v1/payments' }), key) : null;
  const first = pay(key, id, { sentBefore: early !== null });
  if (first === null) return;
  if (early !== null) same(early, first, key);
  const at = (Date.now() - data.began) / 1000 / length;
  if (at < 0.1) firstTenth.add(Date.now() - began);
  else if (at > 0.9) lastTenth.add(Date.now() - began);
  if (n % 10 === 5) {
    const again = pay(key, id, { sentBefore: true });
    if (again !== null) same(first, again, key);
  }
  if (n % 10 === 6) settle('POST', `/v1/payments/${first.json('id')}/refunds`, { amount: 100 }, { key: keyOf(data.run, 'refund'), name: 'POST /v1/payments/{id}/refunds' });
  if (n % 10 === 7) read(`/v1/payments/${first.json('id')}`, 'GET /v1/payments/{id}');
}

function checkout(data, n) {
  const declined = n % 20 === 19;
  const key = keyOf(data.run, 'checkout');
  const body = {
    currency: 'usd', items: [{ sku: data.sku, quantity: 1, unit_amount: 900 }], payment_method: declined ? 'pm_card_visa_chargeDeclined' : 'pm_card_visa',
    customer_reference: reference(data.run, declined ? UNPAID : BOUGHT, key),
  };
  settle('POST', '/v1/checkouts', body, { key, name: 'POST /v1/checkouts', allowed: ['payment-declined'] });
}
