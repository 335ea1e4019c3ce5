// A program that sells: it places orders and pays them, and may be killed at any moment. Its parent starts it again, with
// the same arguments, until it exits by itself. Arguments: the client's modules, its journal, the API, the orders.
const [modules, path, base, orders] = process.argv.slice(2);
const { Client } = await import(`${modules}/index.js`);
const { openFile } = await import(`${modules}/file.js`);

const client = new Client({
  base,
  journal: await openFile(path),
  headers: { Authorization: `Bearer ${process.env.API_KEY}` },
});
for (const { intent, error } of await client.resume()) {
  if (error) throw new Error(intent, { cause: error });
}
let next = 0;
await Promise.all(Array.from({ length: 6 }, async () => {
  for (let i = next++; i < Number(orders); i = next++) {
    const order = await client.do({
      intent: `order ${i}`,
      path: "/v1/orders",
      body: JSON.stringify({
        currency: "usd", items: [{ sku: "tea", quantity: 2, unit_amount: 500 }], customer_reference: `order ${i}`,
      }),
    });
    const payment = await client.do({
      intent: `order ${i}, payment 1`,
      path: "/v1/payments",
      body: JSON.stringify({ order_id: order.json().id, payment_method: "pm_card_visa" }),
    });
    console.log(JSON.stringify({ order: order.json().id, payment: payment.json().id, status: payment.json().status }));
  }
}));
process.exit(0); // the journal is left open, as by a kill
