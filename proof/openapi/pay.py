# Pays an order with the client that OpenAPI Generator makes of the OpenAPI document, in the package payonce_client.
import json
import sys
import time

import payonce_client
from payonce_client.rest import ApiException

api, api_key = sys.argv[1:]
configuration = payonce_client.Configuration(host=api)
configuration.access_token = api_key
client = payonce_client.ApiClient(configuration)
orders = payonce_client.OrdersApi(client)
payments = payonce_client.PaymentsApi(client)

order = orders.create_order(
    "python-order",
    payonce_client.NewOrder(
        currency="eur", items=[payonce_client.Item(sku="mug-blue", quantity=2, unit_amount=1250)]
    ),
)

try:
    payments.create_payment(
        "python-declined",
        payonce_client.NewPayment(order_id=order.id, payment_method="pm_card_chargeDeclined"),
    )
    sys.exit("the card was not declined")
except ApiException as e:
    declined = json.loads(e.body)["code"]


def pay():
    while True:
        payment, status, headers = payments.create_payment_with_http_info(
            "python-payment",
            payonce_client.NewPayment(order_id=order.id, payment_method="pm_card_visa"),
        )
        if status == 201:
            return payment, headers
        time.sleep(0.1)


first, _ = pay()
again, headers = pay()
if again.id != first.id:
    sys.exit(f"paid again: {again}")
print(
    json.dumps(
        {
            "order": order.id,
            "status": first.status,
            "amount": first.amount,
            "declined": declined,
            "replayed": headers.get("Idempotent-Replayed"),
        }
    )
)
