package postgres_test

import (
	"strings"
	"time"
)

// The defaults of the tables that every service has.
func init() {
	defaults["tenants"] = values(map[string]string{"fingerprint_secret": strings.Repeat("s", 32)})
	defaults["api_keys"] = values(map[string]string{"key_hash": strings.Repeat("k", 32), "hint": "k1_e"})
	defaults["idempotency_keys"] = completeKey
	defaults["outbox_events"] = values(map[string]string{"type": "order.created", "data": "{}", "created_at": "-9h"})
	defaults["orders"] = values(map[string]string{"amount_minor": "1000", "currency": "eur", "items": "[]",
		"created_at": "-9h"})
	defaults["payments"] = completePayment
	defaults["stripe_call_rows"] = values(map[string]string{"operation": "confirm", "resource_id": "pay",
		"params_sha256": "sha", "first_sent_at": "-9h", "last_sent_at": "-9h"})
	defaults["intent_searches"] = values(map[string]string{"from_at": "-9h", "until_at": "-8h"})
	defaults["refunds"] = completeRefund
	defaults["refunds_owed"] = completeOwed
	defaults["inbox_events"] = completeInbox
	defaults["discrepancies"] = completeDiscrepancy
}

// confirmed is SQL that inserts payments whose confirm was sent and has no outcome, each under a tenant and a key.
func confirmed(tenantsAndKeys ...string) string {
	var values []string
	for _, of := range tenantsAndKeys {
		tenant, key, _ := strings.Cut(of, "/")
		values = append(values, "('"+tenant+"', 'sent_"+key+"', 'o_"+key+"', '"+key+"', 1000, 'eur', 'pm', 1, 'pi', now(), "+
			"'"+at("-99h").Format(time.RFC3339)+"')")
	}
	return "INSERT INTO payments (tenant_id, id, order_id, idempotency_key, amount_minor, currency, payment_method, " +
		"intent_number, intent_id, created_at, confirm_sent_at) VALUES " + strings.Join(values, ", ")
}

func completeKey(row map[string]string) map[string]string {
	d := map[string]string{
		"operation": "create_payment", "fingerprint": strings.Repeat("f", 32), "fingerprint_version": "1",
		"request_id": "req", "resource_id": "pay_" + row["key"], "recovery_point": "started",
		"claim_token": "00000000-0000-4000-8000-00000000000a", "leased_until": "-infinity", "next_attempt_at": "-1h",
		"history": "{}", "created_at": "-9h",
	}
	if row["finished_at"] != "" {
		d["recovery_point"] = "finished"
		if row["answer_dropped_at"] == "" {
			d["answer_version"], d["answer_status"], d["answer_headers"], d["answer_body"] = "1", "201", "h", "{}"
		}
	}
	return d
}

func completePayment(row map[string]string) map[string]string {
	d := map[string]string{
		"status": "processing", "order_id": "ord_" + row["id"], "idempotency_key": "key_" + row["id"],
		"amount_minor": "1000", "currency": "eur", "payment_method": "pm", "intent_number": "1", "created_at": "-9h",
		"updated_at": "-9h",
	}
	switch row["status"] {
	case "failed":
		d["failure_code"] = "card_declined"
	case "succeeded":
		d["intent_id"] = "pi_" + row["id"]
	}
	return d
}

func completeRefund(row map[string]string) map[string]string {
	d := map[string]string{
		"origin": "api", "payment_id": "pay", "order_id": "ord", "idempotency_key": "key_" + row["id"],
		"stripe_key": tenant + ":key_" + row["id"] + ":refund", "amount_minor": "100", "currency": "eur",
		"created_at": "-9h", "updated_at": "-9h",
	}
	if row["status"] == "succeeded" {
		d["stripe_refund_id"] = "re_" + row["id"]
	}
	return d
}

func completeOwed(row map[string]string) map[string]string {
	d := map[string]string{"order_id": "ord", "currency": "eur", "last_refund_id": "ref", "last_error": "declined",
		"since": "-9h", "next_attempt_at": "-1h"}
	if row["ended_at"] != "" {
		d["ended_how"] = "refunded"
	}
	return d
}

func completeInbox(row map[string]string) map[string]string {
	d := map[string]string{"consumer": "stripe", "status": "pending", "type": "payment_intent.succeeded",
		"received_at": "-9h"}
	switch row["status"] {
	case "done":
		d["done_at"] = "-8h"
		return d
	case "parked":
		d["parked_at"] = "-8h"
	}
	d["payload"] = "{}"
	return d
}

func completeDiscrepancy(row map[string]string) map[string]string {
	d := map[string]string{"object": "payment_intent", "kind": "amount_mismatch", "currency": "eur", "drift_minor": "5",
		"detail": "differs", "found_at": "-9h", "seen_at": "-9h"}
	if row["resolved_at"] != "" {
		d["resolution"] = "agrees"
	}
	return d
}
