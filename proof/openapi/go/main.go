// Command pay pays an order with the client that oapi-codegen makes of the OpenAPI document, beside it in client.gen.go.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"time"

	_ "github.com/oapi-codegen/runtime" // client.gen.go imports it
)

func main() {
	if err := run(context.Background(), os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, api, apiKey string) error {
	c, err := NewClientWithResponses(api, WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+apiKey)
		return nil
	}))
	if err != nil {
		return err
	}
	order, err := c.CreateOrderWithResponse(ctx, &CreateOrderParams{IdempotencyKey: "go-order"}, NewOrder{
		Currency: "eur", Items: Items{{Sku: "mug-blue", Quantity: 2, UnitAmount: 1250}},
	})
	if err != nil {
		return err
	}
	if order.JSON201 == nil {
		return fmt.Errorf("create the order: %s %s", order.Status(), order.Body)
	}
	declined, err := c.CreatePaymentWithResponse(ctx, &CreatePaymentParams{IdempotencyKey: "go-declined"},
		NewPayment{OrderId: order.JSON201.Id, PaymentMethod: "pm_card_chargeDeclined"})
	if err != nil {
		return err
	}
	if declined.ApplicationproblemJSON402 == nil {
		return fmt.Errorf("pay with a card that is declined: %s %s", declined.Status(), declined.Body)
	}
	pay := func() (*CreatePaymentResponse, error) {
		for {
			payment, err := c.CreatePaymentWithResponse(ctx, &CreatePaymentParams{IdempotencyKey: "go-payment"},
				NewPayment{OrderId: order.JSON201.Id, PaymentMethod: "pm_card_visa"})
			if err != nil {
				return nil, err
			}
			if payment.JSON202 == nil {
				return payment, nil
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	first, err := pay()
	if err != nil {
		return err
	}
	if first.JSON201 == nil {
		return fmt.Errorf("pay: %s %s", first.Status(), first.Body)
	}
	again, err := pay()
	if err != nil {
		return err
	}
	if again.JSON201 == nil || again.JSON201.Id != first.JSON201.Id {
		return fmt.Errorf("pay again: %s %s", again.Status(), again.Body)
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{
		"order": order.JSON201.Id, "status": first.JSON201.Status, "amount": first.JSON201.Amount,
		"declined": declined.ApplicationproblemJSON402.Code,
		"replayed": again.HTTPResponse.Header.Get("Idempotent-Replayed"),
	})
}
