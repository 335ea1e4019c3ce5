// checkout-mix: checkouts, most with a good card, some declined, some sent twice
// at once, some for more than there is. A saga has more effects than a
// payment, so the stock is checked as well as the charges: what is sold is gone, what was
// compensated is back, nothing is left reserved.
import exec from 'k6/execution';
import { config, duration, number } from './lib/config.js';
import { options as common } from './lib/options.js';
import { atOnce, together, settle, send, request, read, keyOf, reference, problemOf, unexpected, same, BOUGHT, UNPAID } from './lib/client.js';
import { begin, end, expect, listSold } from './lib/effects.js';
export { handleSummary } from './lib/summary.js';

const shelf = number('STOCK', 1000000);

export const options = common(
  { checkouts: { executor: 'constant-vus', vus: config.vus, duration: duration('20s') } },
  { 'http_req_duration{kind:write}': [`p(95)<${number('P95_MS', 4000)}`, `p(99)<${number('P99_MS', 8000)}`] }, // a checkout is several payments' worth of work
);

export function setup() {
  const data = begin();
  data.sku = `cup-${data.run}`;
  const res = send(request('PUT', `/v1/stock/${data.sku}`, { available: shelf }, { name: 'PUT /v1/stock/{sku}' }));
  if (res.status !== 200) exec.test.abort(`the shelf cannot be filled: ${res.status} ${res.body}`);
  return data;
}

export function teardown(data) {
  const books = end(data);
  const stock = read(`/v1/stock/${data.sku}`, 'GET /v1/stock/{sku}').json();
  const sold = listSold(books, data);
  expect(stock.reserved === 0, `stock: ${stock.reserved} are still reserved, and no checkout is running`);
  expect(stock.available === shelf - sold, `stock: of ${shelf}, ${sold} were sold and ${stock.available} are left`);
}

export default function (data) {
  const n = exec.scenario.iterationInTest;
  const key = keyOf(data.run, 'checkout');
  const declined = n % 5 === 0;
  const greedy = n % 7 === 3;
  const body = {
    currency: 'usd',
    items: [{ sku: data.sku, quantity: greedy ? 1000000 : 1 + (n % 3), unit_amount: greedy ? 1 : 900 }],
    payment_method: declined ? 'pm_card_visa_chargeDeclined' : 'pm_card_visa',
    customer_reference: reference(data.run, declined || greedy ? UNPAID : BOUGHT, key),
  };
  const how = { key, name: 'POST /v1/checkouts', allowed: ['payment-declined', 'out-of-stock'] };
  const early = n % 3 === 0 ? together(atOnce(4, 'POST', '/v1/checkouts', body, how), key, how.allowed) : null;
  const res = settle('POST', '/v1/checkouts', body, { ...how, sentBefore: early !== null });
  if (res === null) return;
  if (early !== null) same(early, res, key);
  const want = greedy ? 'out-of-stock' : declined ? 'payment-declined' : '';
  if (problemOf(res) !== want) unexpected(res, `a checkout that should be ${want || 'completed'}`);
}
