package stripesim

import "time"

// The objects as Stripe's API of 2023-10-16 shows them. Field order is Stripe's
// own: id, object, then the alphabet. A version of an object is never changed
// once it is in a table: edit makes the next one. That is what lets an event, a
// stored answer and a lagging search keep showing the past.

type (
	// null is a field we always show empty. It keeps the shape complete without
	// pretending to a feature.
	null = *struct{}

	// ref points at another object: nil, an id, or, after expand, the object.
	ref = any

	text = *string // a string that may be null
	unix = *int64  // seconds, or null
)

// object is one of Stripe's objects together with what we keep beside it.
type object interface {
	kind() kind
	id() string
	meta() *row
}

// kind is the name Stripe gives the type of an object in its "object" field.
type kind string

const (
	kindIntent   kind = "payment_intent"
	kindCharge   kind = "charge"
	kindMethod   kind = "payment_method"
	kindRefund   kind = "refund"
	kindDispute  kind = "dispute"
	kindTxn      kind = "balance_transaction"
	kindEvent    kind = "event"
	kindEndpoint kind = "webhook_endpoint"
)

// row is what we keep beside an object and Stripe never shows.
type row struct {
	Account string    `json:"account"`
	Seq     int64     `json:"seq"`     // order of creation: lists are sorted by it, since created has whole seconds
	Written time.Time `json:"written"` // when this version was made
	Origin  origin    `json:"origin,omitzero"`

	Card          string `json:"card,omitempty"`          // payment method: the test card behind it
	Spent         bool   `json:"spent,omitempty"`         // payment method: used once, and attached to no customer
	Authenticated bool   `json:"authenticated,omitempty"` // intent: the customer has passed 3-D Secure

	Capturing *capturing `json:"capturing,omitempty"` // intent: a capture that is processing
	Lapsed    string     `json:"lapsed,omitempty"`    // intent: the error of a capture, for the network dropped the hold
	Released  int64      `json:"released,omitempty"`  // charge: the part of amount_refunded that was never captured
	Kept      int64      `json:"kept,omitempty"`      // charge: the part of it whose refund has failed
	Release   bool       `json:"release,omitempty"`   // refund: it stands for a release, and returned no money

	Secret string `json:"secret,omitempty"` // webhook endpoint: signs its deliveries

	Due   time.Time `json:"due,omitzero"`     // when Stripe will move this object on its own
	DueTo string    `json:"due_to,omitempty"` // and to what

	prev object // the version before, for answers and searches that lag
	made *tx    // the transaction that made this version
}

func (r *row) meta() *row { return r }

// origin is the request that caused something. It is zero for what Stripe does
// on its own.
type origin struct {
	Request string `json:"request,omitempty"`
	Key     string `json:"key,omitempty"`
}

type intent struct {
	row `json:"-"`

	ID                        string            `json:"id"`
	Object                    kind              `json:"object"`
	Amount                    int64             `json:"amount"`
	AmountCapturable          int64             `json:"amount_capturable"`
	AmountDetails             amountDetails     `json:"amount_details"`
	AmountReceived            int64             `json:"amount_received"`
	Application               null              `json:"application"`
	ApplicationFeeAmount      null              `json:"application_fee_amount"`
	AutomaticPaymentMethods   *automaticMethods `json:"automatic_payment_methods"`
	CanceledAt                unix              `json:"canceled_at"`
	CancellationReason        text              `json:"cancellation_reason"`
	CaptureMethod             string            `json:"capture_method"`
	ClientSecret              string            `json:"client_secret"`
	ConfirmationMethod        string            `json:"confirmation_method"`
	Created                   int64             `json:"created"`
	Currency                  string            `json:"currency"`
	Customer                  null              `json:"customer"`
	Description               text              `json:"description"`
	Invoice                   null              `json:"invoice"`
	LastPaymentError          *failure          `json:"last_payment_error"`
	LatestCharge              ref               `json:"latest_charge"`
	Livemode                  bool              `json:"livemode"`
	Metadata                  map[string]string `json:"metadata"`
	NextAction                *nextAction       `json:"next_action"`
	OnBehalfOf                null              `json:"on_behalf_of"`
	PaymentMethod             ref               `json:"payment_method"`
	PaymentMethodConfig       *methodConfig     `json:"payment_method_configuration_details"`
	PaymentMethodOptions      *methodOptions    `json:"payment_method_options"`
	PaymentMethodTypes        []string          `json:"payment_method_types"`
	Processing                null              `json:"processing"`
	ReceiptEmail              text              `json:"receipt_email"`
	Review                    null              `json:"review"`
	SetupFutureUsage          text              `json:"setup_future_usage"`
	Shipping                  *shipping         `json:"shipping"`
	StatementDescriptor       text              `json:"statement_descriptor"`
	StatementDescriptorSuffix text              `json:"statement_descriptor_suffix"`
	Status                    string            `json:"status"`
	TransferData              null              `json:"transfer_data"`
	TransferGroup             text              `json:"transfer_group"`
}

func (*intent) kind() kind   { return kindIntent }
func (o *intent) id() string { return o.ID }

// The statuses of a PaymentIntent.
const (
	requiresPaymentMethod = "requires_payment_method"
	requiresConfirmation  = "requires_confirmation"
	requiresAction        = "requires_action"
	requiresCapture       = "requires_capture"
	processing            = "processing"
	succeeded             = "succeeded"
	canceled              = "canceled"
)

type amountDetails struct {
	Tip struct{} `json:"tip"`
}

type automaticMethods struct {
	AllowRedirects string `json:"allow_redirects,omitempty"`
	Enabled        bool   `json:"enabled"`
}

type methodConfig struct {
	ID     string `json:"id"`
	Parent null   `json:"parent"`
}

type methodOptions struct {
	Card cardOptions `json:"card"`
}

type cardOptions struct {
	Installments        null   `json:"installments"`
	MandateOptions      null   `json:"mandate_options"`
	Network             null   `json:"network"`
	RequestThreeDSecure string `json:"request_three_d_secure"`
}

type nextAction struct {
	RedirectToURL *redirect `json:"redirect_to_url,omitempty"`
	Type          string    `json:"type"`
	UseStripeSDK  *sdk      `json:"use_stripe_sdk,omitempty"`
}

type redirect struct {
	ReturnURL string `json:"return_url"`
	URL       string `json:"url"`
}

type sdk struct {
	Source string `json:"three_d_secure_2_source"`
	Type   string `json:"type"`
}

type shipping struct {
	Address        address `json:"address"`
	Carrier        text    `json:"carrier"`
	Name           string  `json:"name"`
	Phone          text    `json:"phone"`
	TrackingNumber text    `json:"tracking_number"`
}

type address struct {
	City       text `json:"city"`
	Country    text `json:"country"`
	Line1      text `json:"line1"`
	Line2      text `json:"line2"`
	PostalCode text `json:"postal_code"`
	State      text `json:"state"`
}

type billing struct {
	Address address `json:"address"`
	Email   text    `json:"email"`
	Name    text    `json:"name"`
	Phone   text    `json:"phone"`
}

type charge struct {
	row `json:"-"`

	ID                        string            `json:"id"`
	Object                    kind              `json:"object"`
	Amount                    int64             `json:"amount"`
	AmountCaptured            int64             `json:"amount_captured"`
	AmountRefunded            int64             `json:"amount_refunded"`
	Application               null              `json:"application"`
	ApplicationFee            null              `json:"application_fee"`
	ApplicationFeeAmount      null              `json:"application_fee_amount"`
	BalanceTransaction        ref               `json:"balance_transaction"`
	BillingDetails            billing           `json:"billing_details"`
	CalculatedStatement       string            `json:"calculated_statement_descriptor"`
	Captured                  bool              `json:"captured"`
	Created                   int64             `json:"created"`
	Currency                  string            `json:"currency"`
	Customer                  null              `json:"customer"`
	Description               text              `json:"description"`
	Disputed                  bool              `json:"disputed"`
	FailureBalanceTransaction null              `json:"failure_balance_transaction"`
	FailureCode               text              `json:"failure_code"`
	FailureMessage            text              `json:"failure_message"`
	FraudDetails              struct{}          `json:"fraud_details"`
	Invoice                   null              `json:"invoice"`
	Livemode                  bool              `json:"livemode"`
	Metadata                  map[string]string `json:"metadata"`
	OnBehalfOf                null              `json:"on_behalf_of"`
	Outcome                   *outcome          `json:"outcome"`
	Paid                      bool              `json:"paid"`
	PaymentIntent             ref               `json:"payment_intent"`
	PaymentMethod             string            `json:"payment_method"`
	PaymentMethodDetails      *chargeMethod     `json:"payment_method_details"`
	RadarOptions              struct{}          `json:"radar_options"`
	ReceiptEmail              text              `json:"receipt_email"`
	ReceiptNumber             null              `json:"receipt_number"`
	ReceiptURL                text              `json:"receipt_url"`
	Refunded                  bool              `json:"refunded"`
	Refunds                   *list             `json:"refunds,omitempty"` // only when expanded, since 2022-11-15
	Review                    null              `json:"review"`
	Shipping                  *shipping         `json:"shipping"`
	SourceTransfer            null              `json:"source_transfer"`
	StatementDescriptor       text              `json:"statement_descriptor"`
	StatementDescriptorSuffix text              `json:"statement_descriptor_suffix"`
	Status                    string            `json:"status"`
	TransferData              null              `json:"transfer_data"`
	TransferGroup             text              `json:"transfer_group"`
}

func (*charge) kind() kind   { return kindCharge }
func (o *charge) id() string { return o.ID }

type outcome struct {
	NetworkStatus string `json:"network_status"`
	Reason        text   `json:"reason"`
	RiskLevel     string `json:"risk_level"`
	RiskScore     int    `json:"risk_score"`
	SellerMessage string `json:"seller_message"`
	Type          string `json:"type"`
}

type chargeMethod struct {
	Card chargeCard `json:"card"`
	Type string     `json:"type"`
}

type chargeCard struct {
	AmountAuthorized         unix        `json:"amount_authorized"`
	Brand                    string      `json:"brand"`
	CaptureBefore            int64       `json:"capture_before,omitempty"`
	Checks                   checks      `json:"checks"`
	Country                  string      `json:"country"`
	ExpMonth                 int         `json:"exp_month"`
	ExpYear                  int         `json:"exp_year"`
	ExtendedAuthorization    feature     `json:"extended_authorization"`
	Fingerprint              string      `json:"fingerprint"`
	Funding                  string      `json:"funding"`
	IncrementalAuthorization feature     `json:"incremental_authorization"`
	Installments             null        `json:"installments"`
	Last4                    string      `json:"last4"`
	Mandate                  null        `json:"mandate"`
	Multicapture             feature     `json:"multicapture"`
	Network                  string      `json:"network"`
	NetworkToken             tokenUse    `json:"network_token"`
	Overcapture              overcapture `json:"overcapture"`
	ThreeDSecure             *threeDS    `json:"three_d_secure"`
	Wallet                   null        `json:"wallet"`
}

type checks struct {
	Line1      text   `json:"address_line1_check"`
	PostalCode text   `json:"address_postal_code_check"`
	CVC        string `json:"cvc_check"`
}

type feature struct {
	Status string `json:"status"`
}

type tokenUse struct {
	Used bool `json:"used"`
}

type overcapture struct {
	Maximum int64  `json:"maximum_amount_capturable"`
	Status  string `json:"status"`
}

type threeDS struct {
	AuthenticationFlow string `json:"authentication_flow"`
	Indicator          string `json:"electronic_commerce_indicator"`
	ExemptionIndicator null   `json:"exemption_indicator"`
	Result             string `json:"result"`
	ResultReason       null   `json:"result_reason"`
	TransactionID      string `json:"transaction_id"`
	Version            string `json:"version"`
}

type method struct {
	row `json:"-"`

	ID             string            `json:"id"`
	Object         kind              `json:"object"`
	BillingDetails billing           `json:"billing_details"`
	Card           methodCard        `json:"card"`
	Created        int64             `json:"created"`
	Customer       null              `json:"customer"`
	Livemode       bool              `json:"livemode"`
	Metadata       map[string]string `json:"metadata"`
	Type           string            `json:"type"`
}

func (*method) kind() kind   { return kindMethod }
func (o *method) id() string { return o.ID }

type methodCard struct {
	Brand             string    `json:"brand"`
	Checks            checks    `json:"checks"`
	Country           string    `json:"country"`
	DisplayBrand      string    `json:"display_brand"`
	ExpMonth          int       `json:"exp_month"`
	ExpYear           int       `json:"exp_year"`
	Fingerprint       string    `json:"fingerprint"`
	Funding           string    `json:"funding"`
	GeneratedFrom     null      `json:"generated_from"`
	Last4             string    `json:"last4"`
	Networks          networks  `json:"networks"`
	ThreeDSecureUsage supported `json:"three_d_secure_usage"`
	Wallet            null      `json:"wallet"`
}

type networks struct {
	Available []string `json:"available"`
	Preferred null     `json:"preferred"`
}

type supported struct {
	Supported bool `json:"supported"`
}

type txn struct {
	row `json:"-"`

	ID                string `json:"id"`
	Object            kind   `json:"object"`
	Amount            int64  `json:"amount"`
	AvailableOn       int64  `json:"available_on"`
	Created           int64  `json:"created"`
	Currency          string `json:"currency"`
	Description       text   `json:"description"`
	ExchangeRate      null   `json:"exchange_rate"`
	Fee               int64  `json:"fee"`
	FeeDetails        []fee  `json:"fee_details"`
	Net               int64  `json:"net"`
	ReportingCategory string `json:"reporting_category"`
	Source            ref    `json:"source"`
	Status            string `json:"status"`
	Type              string `json:"type"`
}

func (*txn) kind() kind   { return kindTxn }
func (o *txn) id() string { return o.ID }

type fee struct {
	Amount      int64  `json:"amount"`
	Application null   `json:"application"`
	Currency    string `json:"currency"`
	Description string `json:"description"`
	Type        string `json:"type"`
}

type event struct {
	row `json:"-"`

	ID              string       `json:"id"`
	Object          kind         `json:"object"`
	APIVersion      string       `json:"api_version"`
	Created         int64        `json:"created"`
	Data            eventData    `json:"data"`
	Livemode        bool         `json:"livemode"`
	PendingWebhooks int          `json:"pending_webhooks"`
	Request         eventRequest `json:"request"`
	Type            string       `json:"type"`
}

func (*event) kind() kind   { return kindEvent }
func (o *event) id() string { return o.ID }

type eventData struct {
	Object   any            `json:"object"`
	Previous map[string]any `json:"previous_attributes,omitempty"`
}

type eventRequest struct {
	ID             text `json:"id"`
	IdempotencyKey text `json:"idempotency_key"`
}

// list is a page of objects.
type list struct {
	Object  string `json:"object"`
	Data    []any  `json:"data"`
	HasMore bool   `json:"has_more"`
	URL     string `json:"url"`
}
