// smoke: every kind of request, with few clients: does it work, and is it counted?
import { config, duration } from './lib/config.js';
import { options as common } from './lib/options.js';
import { order, pay, payment, settle, send, request, read, same, replayed, problemOf, unexpected, keyOf, UNPAID } from './lib/client.js';
import { begin, end } from './lib/effects.js';
import { metrics } from './lib/metrics.js';
export { handleSummary } from './lib/summary.js';

export const options = common({
  smoke: { executor: 'constant-vus', vus: Math.min(config.vus, 3), duration: duration('5s') },
});

export const setup = begin;
export const teardown = end;

export default function (data) {
  const key = keyOf(data.run, 'pay');
  const id = order(data.run);
  if (id === null) return;

  const first = pay(key, id);
  if (first === null) return;
  if (first.json('status') !== 'succeeded') unexpected(first, 'a good card');

  const again = pay(key, id, { sentBefore: true });
  if (again === null || !replayed(again) || !same(first, again, key)) unexpected(again || first, 'the same request again');

  const other = send(request('POST', '/v1/payments', payment(id, 'pm_card_mastercard'), { key, name: 'POST /v1/payments' }));
  if (other.status === 422) metrics.refused.add(1);
  else unexpected(other, 'the key for another body');

  const late = pay(keyOf(data.run, 'late'), id, { allowed: ['order-already-paid'] });
  if (late !== null && problemOf(late) !== 'order-already-paid') unexpected(late, 'another key for the same order');

  if (read(`/v1/payments/${first.json('id')}`, 'GET /v1/payments/{id}').json('status') !== 'succeeded') unexpected(first, 'the payment, read back');

  const declinedKey = keyOf(data.run, 'declined');
  const unpaid = order(data.run, { key: keyOf(data.run, 'order-declined'), fate: UNPAID, payKey: declinedKey });
  const declined = unpaid === null ? null : pay(declinedKey, unpaid, { method: 'pm_card_visa_chargeDeclined', allowed: ['payment-declined'] });
  if (declined !== null && declined.status !== 402) unexpected(declined, 'a card that is declined');

  const back = settle('POST', `/v1/payments/${first.json('id')}/refunds`, { amount: 100 }, { key: keyOf(data.run, 'refund'), name: 'POST /v1/payments/{id}/refunds' });
  if (back !== null && back.json('status') !== 'succeeded') unexpected(back, 'a refund');
}
