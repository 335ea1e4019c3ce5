package main

import (
	"context"
	"fmt"
	"regexp"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"example.com/payonce/internal/notifier"
)

// brokerForgery: an event's id can be predicted, so a message can be sent under the id of an event to come.
var brokerForgery = attack{
	name: "broker forgery", who: "who can publish to the broker",
	tries: "messages of payments that do not exist, with another amount, in another tenant's name, without sense, and under the ids of events to come",
	holds: "no tenant is told of one and none is booked; the real events arrive all the same; the forged messages are counted",
	run: func(ctx context.Context, s *site) (string, error) {
		if err := notifier.SetEndpoint(ctx, s.pool, s.victim.id, "https://victim.invalid/hooks", endpointSecret); err != nil {
			return "", err
		}
		conn, err := nats.Connect(s.broker)
		if err != nil {
			return "", err
		}
		defer conn.Close()
		js, err := jetstream.New(conn)
		if err != nil {
			return "", err
		}
		object, err := s.victim.must(ctx, 201, "POST", "/v1/orders", "broker-order",
			`{"currency":"usd","items":[{"sku":"sku-of-victim","quantity":1,"unit_amount":1000}]}`)
		if err != nil {
			return "", err
		}
		order, _ := object["id"].(string)
		forged := []struct{ tenant, kind, subject, version, id, body string }{
			{s.victim.id, "payment.succeeded", "pay_forged", "2", "pay_forged-2", ""},
			{s.victim.id, "payment.succeeded", s.owned.payment, "2", "changed", ""},
			{s.attacker.id, "payment.succeeded", s.owned.payment, "2", "of-another-tenant", ""},
			{s.victim.id, "order.paid", order, "2", order + "-2", ""},
			{s.victim.id, "order.paid", order, "3", order + "-3", "forged"},
		}
		for _, f := range forged {
			body := f.body
			if body == "" {
				body = fmt.Sprintf(`{"specversion":"1.0","id":"%s-%s","source":"/payonce","type":%q,"subject":%q,`+
					`"time":"2026-01-01T00:00:00Z","datacontenttype":"application/json","tenantid":%q,"sequence":%q,`+
					`"data":{"id":%q,"amount":666600,"currency":"usd","note":"forged"}}`,
					f.subject, f.version, f.kind, f.subject, f.tenant, f.version, f.subject)
			}
			if _, err := js.PublishMsg(ctx, &nats.Msg{Subject: "payonce." + f.tenant + "." + f.kind, Data: []byte(body)},
				jetstream.WithMsgID(f.id)); err != nil {
				return "", err
			}
		}
		if _, err := s.victim.must(ctx, 201, "POST", "/v1/payments", "broker-payment",
			fmt.Sprintf(`{"order_id":%q,"payment_method":"pm_card_visa"}`, order)); err != nil {
			return "", err
		}
		began := time.Now()
		for _, real := range []string{
			// The victim's other endpoint is disabled.
			`SELECT count(*) FROM webhook_deliveries WHERE status <> 'skipped' AND event_id = '` + order + `-2'`,
			`SELECT count(DISTINCT l.event_id) FROM ledger_entries l JOIN payments p ON l.resource_id = p.id
				WHERE p.order_id = '` + order + `'`,
		} {
			if err := s.settledWithin(ctx, 30*time.Second, real); err != nil {
				return "", err
			}
		}
		arrived := time.Since(began)
		var told, booked int
		if err := s.pool.Raw().QueryRow(ctx, `SELECT
			(SELECT count(*) FROM webhook_deliveries WHERE convert_from(body, 'UTF8') LIKE '%forged%'),
			(SELECT count(*) FROM ledger_entries WHERE abs(amount_minor) = 666600 OR resource_id = 'pay_forged')`).
			Scan(&told, &booked); err != nil {
			return "", err
		}
		if told+booked > 0 {
			return "", didNotHold("tenants were told of %d forged messages, and %d entries were booked", told, booked)
		}
		counted, err := s.admin().send(ctx, "GET", "/metrics", "", nil)
		if err != nil {
			return "", err
		}
		for _, reason := range []string{"unknown", "changed", "unreadable"} {
			if !countsForged(counted.body, reason) {
				return "", didNotHold("payonce_forged_messages_total counts none as %s", reason)
			}
		}
		return fmt.Sprintf("%d forged messages: none told, none booked; the real event %s later", len(forged),
			arrived.Round(time.Second)), nil
	},
}

// countsForged reports whether a scrape counts messages forged for that reason.
func countsForged(metrics, reason string) bool {
	return regexp.MustCompile(`(?m)^payonce_forged_messages_total\{[^}]*reason="` + reason + `"\} [1-9]`).MatchString(metrics)
}
