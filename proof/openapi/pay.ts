// Pays an order with openapi-fetch and the types that openapi-typescript makes of the OpenAPI document.
import createClient from 'openapi-fetch'
import type { paths } from './schema.js'

const [api, apiKey] = process.argv.slice(2)
const client = createClient<paths>({ baseUrl: api, headers: { Authorization: `Bearer ${apiKey}` } })

const order = await client.POST('/v1/orders', {
  params: { header: { 'Idempotency-Key': 'typescript-order' } },
  body: { currency: 'eur', items: [{ sku: 'mug-blue', quantity: 2, unit_amount: 1250 }] },
})
if (!order.data) throw new Error(`create the order: ${JSON.stringify(order.error)}`)
const id = order.data.id

const declined = await client.POST('/v1/payments', {
  params: { header: { 'Idempotency-Key': 'typescript-declined' } },
  body: { order_id: id, payment_method: 'pm_card_chargeDeclined' },
})
if (!declined.error || !('code' in declined.error)) throw new Error('the card was not declined')

async function pay() {
  for (;;) {
    const payment = await client.POST('/v1/payments', {
      params: { header: { 'Idempotency-Key': 'typescript-payment' } },
      body: { order_id: id, payment_method: 'pm_card_visa' },
    })
    if (!payment.data) throw new Error(`pay: ${JSON.stringify(payment.error)}`)
    if (payment.response.status === 201) return { ...payment, data: payment.data }
    await new Promise((resolve) => setTimeout(resolve, 100))
  }
}
const first = await pay()
const again = await pay()
if (again.data.id !== first.data.id) throw new Error(`paid again: ${JSON.stringify(again.data)}`)

console.log(JSON.stringify({
  order: id, status: first.data.status, amount: first.data.amount, declined: declined.error.code,
  replayed: again.response.headers.get('Idempotent-Replayed'),
}))
