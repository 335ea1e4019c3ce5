package stripesim

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v76"
)

// endpoint asks for an endpoint of these types.
func (b *bench) endpoint(key, url string, types ...string) (*stripe.WebhookEndpoint, error) {
	return b.api.WebhookEndpoints.New(&stripe.WebhookEndpointParams{
		Params: keyed(key), URL: stripe.String(url), EnabledEvents: stripe.StringSlice(types),
	})
}

func TestEndpoints(t *testing.T) {
	t.Parallel()
	const url = "https://pay.example.com/v1/webhooks/stripe"

	t.Run("ShowsTheSecretInTheAnswerToTheCreationOnly", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		made, err := b.endpoint("k", url, "charge.captured", "charge.expired")
		require.NoError(t, err)
		require.Regexp(t, `^whsec_\w{32}$`, made.Secret)
		require.Equal(t, "enabled", made.Status)
		require.Equal(t, []string{"charge.captured", "charge.expired"}, made.EnabledEvents)

		again, err := b.endpoint("k", url, "charge.captured", "charge.expired")
		require.NoError(t, err)
		require.Equal(t, made.ID, again.ID)
		require.Equal(t, made.Secret, again.Secret, "the stored answer has it")
		require.Equal(t, "true", b.header("Idempotent-Replayed"))
		_, err = b.endpoint("k", url, "charge.captured")
		require.ErrorContains(t, err, "Keys for idempotent requests can only be used with the same parameters")

		got, err := b.api.WebhookEndpoints.Get(made.ID, nil)
		require.NoError(t, err)
		require.Empty(t, got.Secret)
		changed, err := b.api.WebhookEndpoints.Update(made.ID, &stripe.WebhookEndpointParams{Disabled: stripe.Bool(true)})
		require.NoError(t, err)
		require.Empty(t, changed.Secret)
		require.Equal(t, "disabled", changed.Status)
		list := b.api.WebhookEndpoints.List(&stripe.WebhookEndpointListParams{})
		require.True(t, list.Next())
		require.Equal(t, made.ID, list.WebhookEndpoint().ID)
		require.Empty(t, list.WebhookEndpoint().Secret)
		require.False(t, list.Next(), "the key made one")
	})

	t.Run("RefusesTypesThatDoNotExist", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		made, err := b.endpoint("all", url, "*")
		require.NoError(t, err)
		for _, unknown := range []string{"charge.caught", "charge.*", "refund.failed", "Charge.captured"} {
			_, err := b.endpoint("k-"+unknown, url, "charge.captured", unknown)
			refused(t, err, 400, "")
			require.ErrorContains(t, err, "Invalid enabled_events[1]")
			_, err = b.api.WebhookEndpoints.Update(made.ID,
				&stripe.WebhookEndpointParams{EnabledEvents: stripe.StringSlice([]string{unknown})})
			refused(t, err, 400, "")
		}
		_, err = b.api.WebhookEndpoints.New(&stripe.WebhookEndpointParams{URL: stripe.String(url)})
		refused(t, err, 400, stripe.ErrorCodeParameterMissing)
		_, err = b.endpoint("nowhere", "pay.example.com", "*")
		refused(t, err, 400, stripe.ErrorCodeURLInvalid)
	})

	t.Run("SetsTheVersionAtTheCreationOnly", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		made, err := b.endpoint("k", url, "*")
		require.NoError(t, err)
		require.Empty(t, made.APIVersion, "the account's")
		for _, of := range []*stripe.WebhookEndpointParams{
			{APIVersion: stripe.String(apiVersion)}, {Connect: stripe.Bool(true)},
		} {
			_, err := b.api.WebhookEndpoints.Update(made.ID, of)
			refused(t, err, 400, stripe.ErrorCodeParameterUnknown)
		}
	})

	t.Run("AreSixteenOfAnAccount", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		for n := range endpointsMax {
			_, err := b.endpoint(fmt.Sprint("k", n), fmt.Sprintf("https://pay.example.com/%d", n), "*")
			require.NoError(t, err)
		}
		_, err := b.endpoint("one more", url, "*")
		refused(t, err, 400, "")
		require.ErrorContains(t, err, "maximum of 16")
		list := b.api.WebhookEndpoints.List(&stripe.WebhookEndpointListParams{})
		require.True(t, list.Next())
		_, err = b.api.WebhookEndpoints.Del(list.WebhookEndpoint().ID, nil)
		require.NoError(t, err)
		_, err = b.endpoint("one more", url, "*")
		refused(t, err, 400, "")
		_, err = b.endpoint("with another key", url, "*")
		require.NoError(t, err)
	})

	t.Run("GetWhatTheyAskFor", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		some, all, none := newReceiver(t), newReceiver(t), newReceiver(t)
		for of, types := range map[*receiver][]string{
			some: {"payment_intent.succeeded", "charge.refunded"}, all: {"*"}, none: {"charge.captured"},
		} {
			_, err := b.endpoint(of.URL, of.URL, types...)
			require.NoError(t, err)
		}
		b.paid("o1")
		b.settle()
		require.Len(t, some.all(), 1)
		require.Contains(t, some.all()[0].body, `"type": "payment_intent.succeeded"`)
		require.Len(t, all.all(), 3)
		require.Empty(t, none.all())
	})
}
