package world

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/dbtest"
)

func unique() string { return uuid.NewString() }

// The promises, as they are looked for in Violations.
const (
	OneRowPerKey           = "a key has one row"
	OneOrderPerKey         = "a key makes one order"
	OnePaymentPerKey       = "a key makes one payment"
	OnePaymentPerOrder     = "an order has one payment that succeeded or may"
	OneChargePerOrder      = "an order is charged once"
	OneIntentPerNumber     = "a numbered intent exists once"
	OneRefundPerRefund     = "a refund is made once"
	ChargedUnderCallersKey = "a charge carries its caller's key"
	EventsCountVersions    = "each version of a payment has one event"
	OnlyHoldersWrite       = "only the holder of a claim moves it"
	OneAnswerPerKey        = "every final answer of a key is the same"
	NothingElseWhileInWork = "a duplicate gets the answer or a retryable 409"
)

// Violations asks both witnesses, the database and Stripe's effect log, which
// promises are broken right now, by whom. It is the check in tests of the
// service and of the tests themselves: what it lets pass on a sound service it
// must find on one whose guard was taken away.
func (w *World) Violations() (broken []string) {
	w.T.Helper()
	for promise, query := range map[string]string{
		OneRowPerKey: `SELECT tenant_id || ' ' || key FROM idempotency_keys GROUP BY tenant_id, key
			HAVING count(*) > 1`,
		OneOrderPerKey: `SELECT customer_reference FROM orders WHERE customer_reference IS NOT NULL
			GROUP BY customer_reference HAVING count(*) > 1`,
		OnePaymentPerKey: `SELECT tenant_id || ' ' || idempotency_key FROM payments
			GROUP BY tenant_id, idempotency_key HAVING count(*) > 1`,
		OnePaymentPerOrder: `SELECT order_id FROM payments
			WHERE status NOT IN ('failed', 'canceled') GROUP BY order_id HAVING count(*) > 1`,
		EventsCountVersions: `SELECT p.id FROM payments p LEFT JOIN (SELECT aggregate_id, count(*) n, max(version) top
			FROM outbox_events GROUP BY 1) e ON e.aggregate_id = p.id
			WHERE coalesce(e.n, 0) <> p.version OR coalesce(e.top, 0) <> p.version`,
	} {
		broken = append(broken, w.offenders(promise, query)...)
	}
	if w.Count(`SELECT count(*) FROM pg_class WHERE relname = 'owner_writes'`) > 0 {
		broken = append(broken,
			w.offenders(OnlyHoldersWrite,
				`SELECT key || ': token ' || token || ' was ' || holder || '''s, and ' || writer || ' wrote'
					FROM owner_writes WHERE writer <> holder`)...)
	}
	return append(broken, w.strayEffects()...)
}

func (w *World) offenders(promise, query string) (broken []string) {
	w.T.Helper()
	rows, err := w.DB.Raw().Query(context.Background(), query)
	require.NoError(w.T, err)
	defer rows.Close()
	for rows.Next() {
		var who string
		require.NoError(w.T, rows.Scan(&who))
		broken = append(broken, promise+": "+who)
	}
	require.NoError(w.T, rows.Err())
	return broken
}

// strayEffects is what Stripe's log tells against us.
func (w *World) strayEffects() (broken []string) {
	w.T.Helper()
	charges, intents, refunds := map[string]int{}, map[string]int{}, map[string]int{}
	for _, e := range w.Sim.Effects() {
		order := e.Metadata["order_id"]
		switch e.Kind {
		case stripesim.EffectCharge:
			if charges[order]++; charges[order] == 2 {
				broken = append(broken, OneChargePerOrder+": "+order)
			}
			if e.Key != "" && w.Count(`SELECT count(*) FROM payments WHERE order_id = $1
				AND (tenant_id || ':' || idempotency_key || ':confirm' = $2
					OR tenant_id || ':' || idempotency_key || ':capture' = $2 AND manual_capture OR EXISTS (
					SELECT FROM idempotency_keys k WHERE k.tenant_id = payments.tenant_id AND k.resource_id = payments.id
						AND k.tenant_id || ':' || k.key || ':capture' = $2))`, order, e.Key) == 0 {
				broken = append(broken, ChargedUnderCallersKey+": "+e.Key)
			}
		case stripesim.EffectIntentCreated:
			intents[order]++
		case stripesim.EffectRefund:
			if id := e.Metadata["refund_id"]; id != "" {
				if refunds[id]++; refunds[id] == 2 {
					broken = append(broken, OneRefundPerRefund+": "+id+" was made twice at Stripe")
				}
			}
		}
	}
	for order, n := range intents {
		if made := w.Count(`SELECT coalesce(max(intent_number), 0) FROM payments WHERE order_id = $1`,
			order); n > made {
			broken = append(broken, fmt.Sprintf("%s: %s has %d, numbered up to %d", OneIntentPerNumber, order, n, made))
		}
	}
	return broken
}

// WatchHolders makes the database note who moves each claim, and whose it was.
// Sessions are distinguished by their name, so servers under watch have one each.
func (w *World) WatchHolders() {
	w.T.Helper()
	w.Exec(dbtest.Undone(`
		CREATE TABLE owner_writes (key text, token bigint, holder text, writer text, point text);
		CREATE TABLE owners (tenant_id text, key text, token bigint, holder text);
		CREATE FUNCTION note_owner() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
		BEGIN
			IF TG_OP = 'INSERT' OR NEW.lease_token > OLD.lease_token THEN
				INSERT INTO owners VALUES (NEW.tenant_id, NEW.key, NEW.lease_token, current_setting('application_name'));
			ELSIF NEW.recovery_point <> OLD.recovery_point OR (NEW.leased_until = 'epoch') > (OLD.leased_until = 'epoch') THEN
				INSERT INTO owner_writes
				SELECT NEW.key, NEW.lease_token, o.holder, current_setting('application_name'), NEW.recovery_point
				FROM owners o WHERE (o.tenant_id, o.key, o.token) = (NEW.tenant_id, NEW.key, NEW.lease_token);
			END IF;
			RETURN NULL;
		END $$;
		CREATE TRIGGER note_owner AFTER INSERT OR UPDATE ON idempotency_keys FOR EACH ROW EXECUTE FUNCTION note_owner();`))
	w.T.Cleanup(func() {
		w.Exec(dbtest.Undone(`DROP TRIGGER note_owner ON idempotency_keys; DROP FUNCTION note_owner; DROP TABLE owners, owner_writes`))
	})
}

// Disagreements is what is wrong with the answers to one request that was sent
// many times: the final ones must be the same bytes, and the others must say
// that they are not final.
func Disagreements(answers []Answer) (broken []string) {
	final := map[string]int{}
	for _, a := range answers {
		switch {
		case a.Err != nil: // No response, so nothing was promised.
		case a.Status < 300 && a.Status != http.StatusAccepted, a.Status == http.StatusPaymentRequired,
			a.Problem().Code != "" && !a.Problem().Retryable:
			final[a.Identity()]++
		case a.Status == http.StatusConflict && a.Code() == "idempotency-key-in-flight" && a.Header.Get("Retry-After") != "":
		default:
			broken = append(broken, NothingElseWhileInWork+": "+a.String())
		}
	}
	if len(final) > 1 {
		var all []string
		for identity, n := range final {
			all = append(all, fmt.Sprintf("%d× %s", n, identity))
		}
		broken = append(broken, OneAnswerPerKey+": "+strings.Join(all, " | "))
	}
	return broken
}

// RequireSound fails the test if any promise is broken.
func (w *World) RequireSound() {
	w.T.Helper()
	require.Empty(w.T, w.Violations())
}

// RequireChargedOnce asks both witnesses about an order that was paid.
func (w *World) RequireChargedOnce(order string) {
	w.T.Helper()
	w.RequireSound()
	require.Equal(w.T, 1, w.Sim.ChargeCount(order), "charges at Stripe")
	require.Equal(w.T, 1, w.Count(`SELECT count(*) FROM payments WHERE order_id = $1 AND status = 'succeeded'`, order),
		"payments that succeeded")
	require.Equal(w.T, 1, w.Count(`SELECT count(*) FROM outbox_events e JOIN payments p ON p.id = e.aggregate_id
		WHERE p.order_id = $1 AND e.type = 'payment.succeeded'`, order), "events payment.succeeded")
	require.Equal(w.T, 1, w.Count(`SELECT count(*) FROM outbox_events WHERE aggregate_id = $1 AND type = 'order.paid'`,
		order), "events order.paid")
	require.Equal(w.T, "paid", w.Text(`SELECT status FROM orders WHERE id = $1`, order))
}
