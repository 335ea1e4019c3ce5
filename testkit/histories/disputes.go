package histories

import (
	"context"

	"github.com/stretchr/testify/require"
)

func init() { acts = append(acts, act{2, (*history).dispute}) }

// dispute is a bank that takes money back.
func (h *history) dispute() {
	for _, i := range h.atStripe() {
		if i.ChargeID != "" && h.IntN(2) == 0 {
			_, err := h.b.Sim.OpenDispute(i.ChargeID, "fraudulent", false)
			h.tell("a bank disputes %s: %v", h.name(i.ID), err)
			return
		}
	}
}

// disputed reads the disputes at Stripe.
func disputed(h *history) {
	for range 5 {
		n, err := h.b.API.Disputes.RunOnce(context.Background())
		require.NoError(h, err)
		if n == 0 {
			return
		}
	}
}
