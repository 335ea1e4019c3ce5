package payments

import (
	"encoding/json"

	"example.com/payonce/db"
	"example.com/payonce/internal/sealed"
)

// sealedAction is a next_action as it is stored while there is a DATA_KEY: what a read-only API key sees of it, for the
// processes of the former version, and all of it, encrypted.
type sealedAction struct {
	Sealed []byte `json:"sealed"`
}

// sealAction is a next_action as the row stores it.
func (s *Service) sealAction(tenantID, paymentID string, action json.RawMessage) json.RawMessage {
	if !s.pool.Box().Seals() || action == nil {
		return action
	}
	members := map[string]any{}
	_ = json.Unmarshal(WithoutSecret(action), &members) // an object of ours
	members["sealed"] = s.pool.Box().Seal(sealed.NextAction(tenantID, paymentID), action)
	stored, err := json.Marshal(members)
	if err != nil {
		panic(err) // It was JSON.
	}
	return stored
}

// shown is PaymentOf with what the customer must do. If that cannot be decrypted, the payment is shown without it.
func (s *Service) shown(row db.Payment) Payment {
	var stored sealedAction
	if json.Unmarshal(row.NextAction, &stored) == nil && stored.Sealed != nil {
		opened, err := s.pool.Box().Open(sealed.NextAction(row.TenantID, row.ID), stored.Sealed)
		if err != nil {
			s.o.Log.Error("what a customer must do cannot be decrypted", "tenant_id", row.TenantID, "payment_id", row.ID, "error", err.Error())
			opened = nil
		}
		row.NextAction = opened
	}
	return PaymentOf(row)
}
