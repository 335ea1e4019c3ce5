package stripesim

import (
	"strconv"
	"strings"
)

var (
	addressParams = params{
		"city": stringParam(
			5000,
		).clearable(),
		"country": stringParam(5000).clearable(), "line1": stringParam(5000).clearable(),
		"line2": stringParam(
			5000,
		).clearable(),
		"postal_code": stringParam(5000).clearable(), "state": stringParam(5000).clearable(),
	}
	methodDataParams = params{
		"type": oneOf("card").needed(),
		"card": objectOf(params{
			"token": stringParam(5000), "number": stringParam(5000), "exp_month": integerParam,
			"exp_year": integerParam, "cvc": stringParam(5000),
		}),
		"billing_details": objectOf(params{
			"address": objectOf(addressParams), "email": stringParam(5000).clearable(),
			"name": stringParam(5000).clearable(), "phone": stringParam(5000).clearable(),
		}),
		"metadata":      metadataParam,
		"radar_options": ignored,
	}
	createMethodParams = methodDataParams.with(otherMethods).
				with(params{"expand": expandParam, "customer": unsupported, "payment_method": unsupported})
)

// otherMethods are Stripe's payment methods that are no cards.
var otherMethods = func() params {
	p := params{}
	for _, name := range strings.Fields(`
		acss_debit affirm afterpay_clearpay alipay au_becs_debit bacs_debit bancontact blik boleto cashapp
		customer_balance eps fpx giropay grabpay ideal interac_present klarna konbini link oxxo p24 paynow
		paypal pix promptpay revolut_pay sepa_debit sofort swish us_bank_account wechat_pay zip
	`) {
		p[name] = unsupported
	}
	return p
}()

// createMethod makes a payment method from a test token or a test card number.
func (t *tx) createMethod(c *call) (any, *apiError) {
	m, err := t.newMethod(&c.params)
	if err != nil {
		return nil, err
	}
	t.create(m)
	return m, nil
}

func (t *tx) newMethod(n *node) (*method, *apiError) {
	given := n.field("card")
	if given == nil {
		return nil, invalid("parameter_missing", "card", "Missing required param: card.")
	}
	name, param := given.str("token"), "card[token]"
	if name == "" {
		name, param = strings.ReplaceAll(given.str("number"), " ", ""), "card[number]"
	}
	if param == "card[number]" && !luhn(name) {
		return nil, refuse(402, typeCard, "incorrect_number", "number", "Your card number is incorrect.")
	}
	found := cardsByName[name]
	switch {
	case found == nil && param == "card[token]":
		return nil, missing(400, "token", name, "card[token]")
	case found == nil:
		return nil, refuse(
			402, typeCard, "card_declined", "number",
			"Your card was declined. Your request was in test mode, but used a non test card. For a list of valid "+
				"test cards, visit: https://stripe.com/docs/testing.",
		)
	}
	m := t.methodOf(found)
	if month, year := given.integer("exp_month"), given.integer("exp_year"); month != 0 {
		m.Card.ExpMonth, m.Card.ExpYear = int(month), int(year)
	}
	b := n.field("billing_details")
	m.BillingDetails = billing{
		Address: readAddress(b.field("address")), Email: b.text("email"), Name: b.text("name"), Phone: b.text("phone"),
	}
	m.Metadata = mergeMetadata(m.Metadata, n)
	return m, nil
}

// methodOf makes a fresh payment method of a test card, as Stripe does each
// time a pm_card_… token is used.
func (t *tx) methodOf(c *card) *method {
	m := &method{
		ID: t.s.newID(
			"pm_1", 23,
		), Object: kindMethod, Created: t.now.Unix(), Type: "card", Metadata: map[string]string{},
		Card: methodCard{
			Brand: c.brand, Checks: checks{CVC: "unchecked"}, Country: c.country, DisplayBrand: c.brand,
			ExpMonth: 8, ExpYear: t.now.Year() + 1, Fingerprint: c.fingerprint(), Funding: c.funding, Last4: c.last4(),
			Networks: networks{Available: []string{c.brand}}, ThreeDSecureUsage: supported{true},
		},
	}
	m.row.Card = c.token
	return m
}

// resolveMethod finds the payment method a request names: by id, by test token,
// or spelled out in payment_method_data. It is nil if the request names none.
// A token becomes a new object only in keep, once the request is accepted.
func (t *tx) resolveMethod(n *node) (*method, *apiError) {
	if data := n.field("payment_method_data"); data != nil {
		return t.newMethod(data)
	}
	name := n.str("payment_method")
	if name == "" {
		return nil, nil
	}
	if c := cardsByName[name]; c != nil && strings.HasPrefix(name, "pm_card_") {
		return t.methodOf(c), nil
	}
	m, ok := t.s.st.methods.get(t.account, name)
	if !ok {
		return nil, missing(400, "PaymentMethod", name, "payment_method")
	}
	if m.Spent {
		return nil, invalid(
			"", "payment_method",
			"The provided PaymentMethod was previously used with a PaymentIntent without Customer attachment, shared "+
				"with a connected account without Customer attachment, or was detached from a Customer. It may not "+
				"be used again. To use a PaymentMethod multiple times, you must attach it to a Customer first.",
		)
	}
	return m, nil
}

// keep stores a method that resolveMethod made.
func (t *tx) keep(m *method) {
	if m != nil && m.Seq == 0 {
		t.create(m)
	}
}

func (t *tx) getMethod(c *call) (any, *apiError) {
	if m, ok := t.s.st.methods.get(t.account, c.id); ok {
		return m, nil
	}
	return nil, missing(404, "PaymentMethod", c.id, "payment_method")
}

func readAddress(n *node) address {
	return address{
		City: n.text("city"), Country: n.text("country"), Line1: n.text("line1"), Line2: n.text("line2"),
		PostalCode: n.text("postal_code"), State: n.text("state"),
	}
}

func luhn(number string) bool {
	sum := 0
	for i := range len(number) {
		d, err := strconv.Atoi(number[len(number)-1-i : len(number)-i])
		if err != nil {
			return false
		}
		if i%2 == 1 {
			if d *= 2; d > 9 {
				d -= 9
			}
		}
		sum += d
	}
	return number != "" && sum%10 == 0
}
