package stripesim

// kindAccount is no object of ours: no request makes one, and nothing about it changes.
const kindAccount kind = "account"

// account is the account of a key, which may take payments and is paid out.
type account struct {
	ID              string            `json:"id"`
	Object          kind              `json:"object"`
	BusinessType    text              `json:"business_type"`
	Capabilities    map[string]string `json:"capabilities"`
	ChargesEnabled  bool              `json:"charges_enabled"`
	Country         string            `json:"country"`
	DefaultCurrency string            `json:"default_currency"`
	Details         bool              `json:"details_submitted"`
	Email           text              `json:"email"`
	PayoutsEnabled  bool              `json:"payouts_enabled"`
	Type            string            `json:"type"`
}

func (t *tx) getAccount(*call) (any, *apiError) {
	return &account{
		ID: t.account, Object: kindAccount, Capabilities: map[string]string{"card_payments": "active"},
		ChargesEnabled: true, Country: "US", DefaultCurrency: "usd", Details: true, PayoutsEnabled: true,
		Type: "standard",
	}, nil
}
