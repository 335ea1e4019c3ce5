package stripesim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v76"
)

func TestAccount(t *testing.T) {
	t.Parallel()
	b := setup(t)
	account, err := b.api.Accounts.Get()
	require.NoError(t, err)
	require.Regexp(t, `^acct_1\w{15}$`, account.ID)
	require.True(t, account.ChargesEnabled && account.PayoutsEnabled && account.DetailsSubmitted)

	rolled, err := newClient(DefaultKey+"_rolled", b.url, b.shapes, 10*time.Second).Accounts.Get()
	require.NoError(t, err)
	require.Equal(t, account.ID, rolled.ID, "two keys of one account")
}

// TestRestrictedKeys: a restricted key may do what its permissions say, and a refusal names the one that is missing.
func TestRestrictedKeys(t *testing.T) {
	t.Parallel()
	const reader, writer = "rk_test_payonce_reader", "rk_test_payonce_writer"
	b := setup(t, func(o *Options) {
		o.Restricted = map[string][]string{reader: {"payment_intent_read", "charge_read"}, writer: {"charge_write"}}
	})
	pi := b.paid("o1")
	as := func(key string) *bench {
		other := *b
		other.api = newClient(key, b.url, b.shapes, 10*time.Second)
		return &other
	}
	lacks := func(err error, permission string) {
		t.Helper()
		refused(t, err, 403, "")
		require.ErrorContains(t, err, "Having the 'rak_"+permission+"' permission would allow this request to continue.")
		require.ErrorContains(t, err, "The provided key 'rk_test_*")
		require.NotContains(t, err.Error(), reader)
		require.NotContains(t, err.Error(), writer)
	}

	got, err := as(reader).api.PaymentIntents.Get(pi.ID, nil)
	require.NoError(t, err, "the account is that of the secret key")
	require.Equal(t, pi.ID, got.ID)
	_, err = as(reader).api.Refunds.New(&stripe.RefundParams{PaymentIntent: stripe.String(pi.ID)})
	lacks(err, "charge_write")
	_, err = as(reader).api.Events.Get("evt_none", nil)
	lacks(err, "event_read")
	_, err = as(reader).api.Accounts.Get()
	lacks(err, "accounts_kyc_basic_read")

	_, err = as(writer).api.Refunds.New(&stripe.RefundParams{PaymentIntent: stripe.String(pi.ID)})
	require.NoError(t, err)
	_, err = as(writer).api.Charges.Get(pi.LatestCharge.ID, nil)
	require.NoError(t, err, "to write is to read, too")
	_, err = as(writer).api.PaymentIntents.Get(pi.ID, nil)
	lacks(err, "payment_intent_read")

	_, err = as("rk_test_payonce_any").api.PaymentIntents.Get(pi.ID, nil)
	require.NoError(t, err, "without a list of permissions it has all of them")
}
