package erasure_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/erasure"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/sealed"
	"example.com/payonce/testkit/world"
)

func TestMain(m *testing.M) { world.Main(m) }

const ada = "Ada Lovelace"

// bundle is a server in this process, whose events a test publishes.
type bundle struct {
	*world.World
	api *world.Local
	t   *testing.T
}

func setup(t *testing.T) *bundle {
	t.Helper()
	w := world.New(t)
	// What is stored is searched, so it is not encrypted.
	return &bundle{World: w, api: w.Local(world.LocalOptions{DataKey: "none"}), t: t}
}

func (b *bundle) order(key, reference string) string {
	b.t.Helper()
	a := b.api.Post("/v1/orders", key, fmt.Sprintf(`{"currency":"usd","items":[{"sku":"tea","quantity":1,
		"unit_amount":500}],"customer_reference":%q,"metadata":{"name":%[1]q}}`, reference))
	require.Equal(b.t, http.StatusCreated, a.Status, a)
	return a.ID()
}

// customer is of the world's tenant.
func (b *bundle) customer(reference string) erasure.Customer {
	b.t.Helper()
	stored, err := b.DB.ErasureSecret(b.t.Context(), b.Tenant.ID)
	require.NoError(b.t, err)
	secret, err := b.DB.Box().Open(sealed.FingerprintSecret(b.Tenant.ID), stored)
	require.NoError(b.t, err)
	_, err = b.DB.ErasureSecret(b.t.Context(), "ten_nobodys")
	require.ErrorIs(b.t, err, postgres.ErrNoRows)
	return erasure.Customer{TenantID: b.Tenant.ID, Reference: reference, Secret: secret}
}

// publish does what the relay and the notifier do.
func (b *bundle) publish() {
	b.t.Helper()
	b.Exec(`UPDATE outbox_events SET position = seq, published_at = clock_timestamp() WHERE published_at IS NULL`)
	b.Exec(`INSERT INTO consumer_positions (consumer, tenant_id, position) VALUES ('notifier', $1, 1000000)
		ON CONFLICT DO NOTHING`, b.Tenant.ID)
}

// found is where the text is.
func (b *bundle) found(text string) (columns []string) {
	b.t.Helper()
	for column, content := range b.Columns() {
		if strings.Contains(content, text) {
			columns = append(columns, column)
		}
	}
	return columns
}

// TestErase: page by page, batch by batch, the customer and no other; again without effect.
func TestErase(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for i := range 9 {
		b.order(fmt.Sprintf("ada-%d", i), ada)
		b.order(fmt.Sprintf("bob-%d", i), "Bob")
	}
	b.publish()
	bobs := len(b.found("Bob"))
	done, err := erasure.EraseFew(t.Context(), b.api.Pool, b.customer(ada), "Eve")
	require.NoError(t, err)
	require.Empty(t, b.found(ada))
	require.Len(t, b.found("Bob"), bobs)
	require.Equal(t, erasure.Result{Orders: 9, Keys: 9, Events: 9, ErasedAt: done.ErasedAt}, done)
	require.Equal(t, "5 rows, 9 orders, 9 keys, Eve", b.Text(`SELECT count(*) || ' rows, ' || sum(orders) || ' orders, ' ||
		sum(keys) || ' keys, ' || min(actor) FROM erasures`))

	again, err := erasure.Erase(t.Context(), b.api.Pool, b.customer(ada), "")
	require.NoError(t, err)
	require.Equal(t, erasure.Result{ErasedAt: done.ErasedAt}, again)
	b.order("ada-again", ada)
	b.publish()
	again, err = erasure.Erase(t.Context(), b.api.Pool, b.customer(ada), "")
	require.NoError(t, err)
	require.Equal(t, 1, again.Orders, "who came back may be erased again")
	require.True(t, again.ErasedAt.After(done.ErasedAt))
	_, err = erasure.Erase(t.Context(), b.api.Pool, b.customer("Eve"), "")
	require.ErrorIs(t, err, erasure.ErrUnknown)
}

// TestReferenceIsHashed: with the tenant's secret, so that the table alone does not lead to the reference.
func TestReferenceIsHashed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.order("k", ada)
	b.publish()
	_, err := erasure.Erase(t.Context(), b.api.Pool, b.customer(ada), "")
	require.NoError(t, err)
	var mac []byte
	require.NoError(t, b.DB.Raw().QueryRow(t.Context(), `SELECT reference_mac FROM erasures`).Scan(&mac))
	want := hmac.New(sha256.New, b.customer(ada).Secret)
	want.Write([]byte("customer_reference\x00" + ada))
	require.Equal(t, want.Sum(nil), mac)
}

// TestUnfinishedStaysWhole: if anything of one order is unfinished, none is erased.
func TestUnfinishedStaysWhole(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.order("first", ada)
	b.publish()
	last := b.order("last", ada) // its event is not published
	_, err := erasure.EraseFew(t.Context(), b.api.Pool, b.customer(ada), "")
	var unfinished *erasure.UnfinishedError
	require.True(t, errors.As(err, &unfinished), "%v", err)
	require.Equal(t, []erasure.Thing{{Kind: "event", ID: last + "-1"}}, unfinished.Things)
	require.Zero(t, unfinished.Erased)
	require.Equal(t, 2, b.Count(`SELECT count(*) FROM orders WHERE customer_reference = $1`, ada))
	require.Zero(t, b.Count(`SELECT count(*) FROM idempotency_keys WHERE answer_dropped_at IS NOT NULL`))
}

// TestAnswersThatAreStoredMeanwhile: a request that has begun to answer with the customer's text when the customer is
// erased either is waited for, or answers without it.
func TestAnswersThatAreStoredMeanwhile(t *testing.T) {
	t.Parallel()

	t.Run("BeforeTheOrderIsLocked", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		order := b.order("order", ada)
		cancel := func(key string) world.Answer { return b.api.Post("/v1/orders/"+order+"/cancel", key, "") }
		require.Equal(t, http.StatusOK, cancel("cancels").Status)
		b.publish()
		var canceled <-chan world.Answer
		var erased <-chan error
		b.WhileLocked(2, func() {
			canceled = world.Async(func() world.Answer { return cancel("again") })
			b.Until("the answer waits for the order", func() bool { return b.WaitingForLocks() == 1 })
			erased = world.Async(func() error {
				_, err := erasure.Erase(t.Context(), b.api.Pool, b.customer(ada), "")
				return err
			})
		}, `SELECT FROM orders WHERE id = $1 FOR UPDATE`, order)
		require.Equal(t, ada, (<-canceled).Get("customer_reference"))
		require.NoError(t, <-erased)
		require.Empty(t, b.found(ada))
	})

	t.Run("AfterTheCustomerIsErased", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		order := b.order("order", ada)
		cancel := func(key string) world.Answer { return b.api.Post("/v1/orders/"+order+"/cancel", key, "") }
		require.Equal(t, http.StatusOK, cancel("cancels").Status)
		b.publish()
		tx, err := b.DB.Raw().Begin(t.Context())
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), `INSERT INTO idempotency_keys (tenant_id, key, operation, fingerprint, resource_id,
				request_id, fingerprint_version, claim_token, leased_until, next_attempt_at, recovery_point)
			SELECT tenant_id, 'again', operation, fingerprint, resource_id, request_id, fingerprint_version, claim_token,
				leased_until, next_attempt_at, 'started' FROM idempotency_keys WHERE key = 'cancels'`)
		require.NoError(t, err)
		canceled := world.Async(func() world.Answer { return cancel("again") })
		b.Until("the request has read the order, and waits for its key", func() bool { return b.WaitingForLocks() == 1 })
		_, err = erasure.Erase(t.Context(), b.api.Pool, b.customer(ada), "")
		require.NoError(t, err)
		require.NoError(t, tx.Rollback(t.Context()))
		a := <-canceled
		require.Equal(t, http.StatusOK, a.Status, a)
		require.Nil(t, a.Get("customer_reference"))
		require.Empty(t, b.found(ada))
	})
}
