package stripesim

import "strings"

var (
	shippingParams = params{
		"address": objectOf(addressParams).needed(), "name": stringParam(5000).needed(),
		"carrier": stringParam(5000), "phone": stringParam(5000), "tracking_number": stringParam(5000),
	}
	methodOptionsParams = params{"card": objectOf(params{
		"request_three_d_secure": oneOf("any", "automatic", "challenge"),
		"capture_method":         unsupported, "cvc_token": unsupported, "installments": unsupported,
		"mandate_options": unsupported,
		"network":         unsupported, "setup_future_usage": unsupported, "three_d_secure": unsupported,
		"moto": unsupported,
	})}
	captureMethods = oneOf("automatic", "automatic_async", "manual")
	descriptor     = stringParam(22)

	// intentParams are shared by create and update.
	intentParams = params{
		"amount": integerParam, "currency": stringParam(5000), "capture_method": captureMethods,
		"customer": stringParam(
			5000,
		), "description": stringParam(1000).clearable(), "expand": expandParam, "metadata": metadataParam,
		"payment_method": stringParam(5000), "payment_method_data": objectOf(methodDataParams),
		"payment_method_options": objectOf(methodOptionsParams), "payment_method_types": listOf(stringParam(5000)),
		"receipt_email": stringParam(5000).clearable(), "setup_future_usage": oneOf("off_session", "on_session"),
		"shipping": objectOf(
			shippingParams,
		).clearable(),
		"statement_descriptor": descriptor, "statement_descriptor_suffix": descriptor,
		"transfer_group":         stringParam(5000),
		"application_fee_amount": unsupported, "payment_method_configuration": unsupported,
		"transfer_data": unsupported,
	}
	createIntentParams = intentParams.with(params{
		"amount": integerParam.needed(), "currency": stringParam(5000).needed(), "confirm": booleanParam,
		"confirmation_method": oneOf("automatic", "manual"), "error_on_requires_action": booleanParam,
		"off_session": offSession, "return_url": stringParam(5000), "use_stripe_sdk": booleanParam,
		"radar_options": ignored,
		"automatic_payment_methods": objectOf(
			params{"enabled": booleanParam.needed(), "allow_redirects": oneOf("always", "never")},
		),
		"mandate": unsupported, "mandate_data": unsupported, "on_behalf_of": unsupported,
	})
	updateIntentParams  = intentParams
	confirmIntentParams = params{
		"capture_method": captureMethods, "client_secret": stringParam(5000), "error_on_requires_action": booleanParam,
		"expand":      expandParam,
		"off_session": offSession, "payment_method": stringParam(5000),
		"payment_method_data":    objectOf(methodDataParams),
		"payment_method_options": objectOf(methodOptionsParams), "payment_method_types": listOf(stringParam(5000)),
		"radar_options": ignored, "receipt_email": stringParam(5000).clearable(), "return_url": stringParam(5000),
		"setup_future_usage": oneOf("off_session", "on_session"), "shipping": objectOf(shippingParams).clearable(),
		"use_stripe_sdk": booleanParam, "mandate": unsupported, "mandate_data": unsupported,
	}
	captureIntentParams = params{
		"amount_to_capture": integerParam, "expand": expandParam, "final_capture": booleanParam,
		"metadata":             metadataParam,
		"statement_descriptor": descriptor, "statement_descriptor_suffix": descriptor,
		"application_fee_amount": unsupported, "transfer_data": unsupported,
	}
	cancelIntentParams = params{
		"cancellation_reason": oneOf(
			"duplicate", "fraudulent", "requested_by_customer", "abandoned",
		), "expand": expandParam,
	}
	// off_session is a boolean, or "one_off" or "recurring".
	offSession = oneOf("true", "false", "one_off", "recurring")
)

// createIntent makes a PaymentIntent and, with confirm=true, tries to charge it
// in the same request. A declined try leaves the intent behind.
func (t *tx) createIntent(c *call) (any, *apiError) {
	p := &c.params
	currency := strings.ToLower(p.str("currency"))
	if err := checkCurrency(currency); err != nil {
		return nil, err
	}
	if err := checkAmount(p.integer("amount"), currency); err != nil {
		return nil, err
	}
	if p.has("customer") {
		return nil, missing(400, "customer", p.str("customer"), "customer")
	}
	pi := &intent{
		Object: kindIntent, Amount: p.integer("amount"), Created: t.now.Unix(), Currency: currency,
		CaptureMethod: "automatic", ConfirmationMethod: "automatic", Metadata: mergeMetadata(map[string]string{}, p),
		Status: requiresPaymentMethod, TransferGroup: p.text("transfer_group"),
	}
	if v := p.str("confirmation_method"); v != "" {
		pi.ConfirmationMethod = v
	}
	if err := pi.chooseMethods(p); err != nil {
		return nil, err
	}
	pi.change(p)
	m, err := t.resolveMethod(p)
	if err != nil {
		return nil, err
	}
	if m != nil {
		pi.PaymentMethod, pi.Status = m.ID, requiresConfirmation
	}
	confirm := p.boolean("confirm")
	for _, name := range []string{"error_on_requires_action", "off_session", "return_url"} {
		if p.has(name) && !confirm {
			return nil, invalid("", name, "You can only set `%s` when `confirm` is `true`.", name)
		}
	}
	// The id comes last, so that a refused request uses none up.
	pi.ID = t.s.newID("pi_3", 23)
	pi.ClientSecret = t.s.newID(pi.ID+"_secret_", 25)
	if confirm {
		if err := pi.confirmable(m, p); err != nil {
			err.executed = false // nothing was created
			err.PaymentIntent = nil
			return nil, err
		}
	}
	t.keep(m)
	t.create(pi)
	t.effect(EffectIntentCreated, pi, pi.Amount, nil)
	t.emit("payment_intent.created", pi, nil)
	if !confirm {
		return pi, nil
	}
	return t.attempt(pi, m, confirmation(p))
}

// chooseMethods settles which payment methods the intent accepts. Without a
// list it takes the Dashboard's: since 2023-08-16 the default is not "card".
func (pi *intent) chooseMethods(p *node) *apiError {
	types, auto := p.strings("payment_method_types"), p.field("automatic_payment_methods")
	for _, name := range types {
		if name != "card" && name != "link" {
			return invalid(
				"", "payment_method_types",
				"The payment method type \"%s\" is invalid. Please ensure the provided type is activated in your "+
					"dashboard (https://dashboard.stripe.com/account/payments/settings) and your account is enabled "+
					"for any preview features that you are trying to use. See "+
					"https://stripe.com/docs/payments/payment-methods/integration-options for supported "+
					"payment method, currency, and country combinations.",
				name,
			)
		}
	}
	switch {
	case auto != nil && len(types) > 0 && auto.boolean("enabled"):
		return invalid(
			"", "", "You may only specify one of these parameters: automatic_payment_methods, payment_method_types.",
		)
	case len(types) > 0:
		pi.PaymentMethodTypes, pi.PaymentMethodOptions = types, optionsOf("automatic")
	case auto != nil && !auto.boolean("enabled"):
		pi.PaymentMethodTypes, pi.PaymentMethodOptions = []string{"card"}, optionsOf("automatic")
	default:
		redirects := "always"
		if v := auto.str("allow_redirects"); v != "" {
			redirects = v
		}
		pi.AutomaticPaymentMethods = &automaticMethods{AllowRedirects: redirects, Enabled: true}
		pi.PaymentMethodConfig = &methodConfig{ID: "pmc_1" + letters(1, 1, 23)}
		pi.PaymentMethodTypes, pi.PaymentMethodOptions = []string{"card", "link"}, optionsOf("automatic")
	}
	return nil
}

func optionsOf(request string) *methodOptions {
	return &methodOptions{Card: cardOptions{RequestThreeDSecure: request}}
}

// change applies the parameters that create, update and confirm share.
func (pi *intent) change(p *node) {
	set := func(name string, to *text) {
		if p.has(name) {
			*to = p.text(name)
		}
	}
	set("description", &pi.Description)
	set("receipt_email", &pi.ReceiptEmail)
	set("setup_future_usage", &pi.SetupFutureUsage)
	set("statement_descriptor", &pi.StatementDescriptor)
	set("statement_descriptor_suffix", &pi.StatementDescriptorSuffix)
	if v := p.str("capture_method"); v != "" {
		pi.CaptureMethod = v
	}
	if v := p.field("payment_method_options").field("card").str("request_three_d_secure"); v != "" {
		pi.PaymentMethodOptions = optionsOf(v)
	}
	if n := p.field("shipping"); n != nil {
		pi.Shipping = nil
		if !n.leaf() {
			pi.Shipping = &shipping{
				Address: readAddress(n.field("address")), Carrier: n.text("carrier"), Name: n.str("name"),
				Phone: n.text("phone"), TrackingNumber: n.text("tracking_number"),
			}
		}
	}
}

func (t *tx) findIntent(c *call) (*intent, *apiError) {
	if pi, ok := t.s.st.intents.get(t.account, c.id); ok {
		return pi, nil
	}
	return nil, missing(404, "payment_intent", c.id, "intent")
}

func (t *tx) getIntent(c *call) (any, *apiError) {
	pi, err := t.findIntent(c)
	if err != nil {
		return nil, err
	}
	return pi, nil
}

func (t *tx) listIntents(c *call) (any, *apiError) {
	if c.params.has("customer") {
		return nil, missing(400, "customer", c.params.str("customer"), "customer")
	}
	return page(
		t, c, t.s.st.intents, t.s.st.intents.order[t.account],
		func(pi *intent) bool { return c.inRange(pi.Created) },
	)
}

func (t *tx) updateIntent(c *call) (any, *apiError) {
	pi, err := t.findIntent(c)
	if err != nil {
		return nil, err
	}
	p := &c.params
	if p.has("customer") {
		return nil, missing(400, "customer", p.str("customer"), "customer")
	}
	open := pi.Status == requiresPaymentMethod || pi.Status == requiresConfirmation || pi.Status == requiresAction
	for _, name := range []string{"amount", "currency", "payment_method", "payment_method_data", "payment_method_types",
		"capture_method"} {
		if p.has(name) && !open {
			return nil, conflict(
				pi, "payment_intent_unexpected_state", name,
				"This PaymentIntent's %s could not be updated because it has a status of %s. You may only update the "+
					"%s of a PaymentIntent with one of the following statuses: requires_payment_method, "+
					"requires_confirmation, requires_action.",
				name, pi.Status, name,
			)
		}
	}
	amount, currency := pi.Amount, pi.Currency
	if p.has("amount") {
		amount = p.integer("amount")
	}
	if p.has("currency") {
		currency = strings.ToLower(p.str("currency"))
	}
	if err := checkCurrency(currency); err != nil {
		return nil, err
	}
	if err := checkAmount(amount, currency); err != nil {
		return nil, err
	}
	m, err := t.resolveMethod(p)
	if err != nil {
		return nil, err
	}
	pi = edit(t, pi)
	if types := p.strings("payment_method_types"); len(types) > 0 {
		if err := pi.chooseMethods(p); err != nil {
			return nil, err
		}
		pi.AutomaticPaymentMethods, pi.PaymentMethodConfig = nil, nil
	}
	pi.change(p)
	pi.Amount, pi.Currency, pi.Metadata = amount, currency, mergeMetadata(pi.Metadata, p)
	if m != nil {
		t.keep(m)
		pi.PaymentMethod, pi.Status, pi.NextAction = m.ID, requiresConfirmation, nil
	}
	return pi, nil
}

// confirmIntent tries to charge the intent.
func (t *tx) confirmIntent(c *call) (any, *apiError) {
	pi, err := t.findIntent(c)
	if err != nil {
		return nil, err
	}
	if err := pi.awaitsConfirmation(); err != nil {
		return nil, err
	}
	m, err := t.resolveMethod(&c.params)
	if err != nil {
		return nil, err
	}
	if m == nil {
		m = t.s.st.methods.byID[id(pi.PaymentMethod)]
	}
	if err := pi.confirmable(m, &c.params); err != nil {
		return nil, err
	}
	t.keep(m)
	pi = edit(t, pi)
	pi.change(&c.params)
	return t.attempt(pi, m, confirmation(&c.params))
}

// awaitsConfirmation refuses a confirm by the state the intent is in.
func (pi *intent) awaitsConfirmation() *apiError {
	switch pi.Status {
	case requiresPaymentMethod, requiresConfirmation, requiresAction:
		return nil
	case succeeded:
		return conflict(
			pi, "payment_intent_unexpected_state", "",
			"You cannot confirm this PaymentIntent because it has already succeeded after being previously confirmed.",
		)
	}
	return conflict(
		pi, "payment_intent_unexpected_state", "",
		"You cannot confirm this PaymentIntent because it has a status of %s. Only a PaymentIntent with one of the "+
			"following statuses may be confirmed: requires_confirmation, requires_action.",
		pi.Status,
	)
}

// confirmable refuses a confirm that lacks something.
func (pi *intent) confirmable(m *method, p *node) *apiError {
	if m == nil {
		return conflict(
			pi, "payment_intent_unexpected_state", "",
			"You cannot confirm this PaymentIntent because it's missing a payment method. You can either update the "+
				"PaymentIntent with a payment method and then confirm it again, or confirm it again directly with a "+
				"payment method or ConfirmationToken.",
		)
	}
	auto := pi.AutomaticPaymentMethods
	if auto != nil && auto.AllowRedirects == "always" && !p.has("return_url") {
		return conflict(
			pi, "", "",
			"This PaymentIntent is configured to accept payment methods enabled in your Dashboard. Because some of "+
				"these payment methods might redirect your customer off of your page, you must provide a "+
				"`return_url`. If you don't want to accept redirect-based payment methods, set "+
				"`automatic_payment_methods[enabled]` to `true` and "+
				"`automatic_payment_methods[allow_redirects]` to `never` when creating Setup Intents and "+
				"Payment Intents.",
		)
	}
	return nil
}

// cancelIntent ends an intent for good; no money can move through it any more.
func (t *tx) cancelIntent(c *call) (any, *apiError) {
	pi, err := t.findIntent(c)
	if err != nil {
		return nil, err
	}
	switch pi.Status {
	case requiresPaymentMethod, requiresCapture, requiresConfirmation, requiresAction, processing:
		if pi.Capturing == nil {
			return t.cancel(pi, c.params.text("cancellation_reason"), EffectReleased), nil
		}
	}
	return nil, conflict(
		pi, "payment_intent_unexpected_state", "",
		"You cannot cancel this PaymentIntent because it has a status of %s. Only a PaymentIntent with one of the "+
			"following statuses may be canceled: requires_payment_method, requires_capture, requires_confirmation, "+
			"requires_action, processing.",
		pi.Status,
	)
}

// cancel ends an intent. What it has reserved is released, which is entered in the log of effects as release.
func (t *tx) cancel(pi *intent, reason text, release string) *intent {
	pi = edit(t, pi)
	if pi.Status == requiresCapture || pi.Capturing != nil {
		t.release(pi, pi.Amount, release)
	}
	at := t.now.Unix()
	pi.Status, pi.CanceledAt, pi.CancellationReason, pi.NextAction, pi.AmountCapturable = canceled, &at, reason, nil, 0
	pi.Due, pi.DueTo, pi.Capturing = noTime, "", nil
	t.effect(EffectCancel, pi, pi.Amount, nil)
	t.emit("payment_intent.canceled", pi, nil)
	return pi
}
