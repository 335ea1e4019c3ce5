package stripe

import (
	"context"
	"time"

	stripego "github.com/stripe/stripe-go/v76"
)

// The endpoints of disputes.
const (
	OpGetDispute   Operation = "get_dispute"
	OpListDisputes Operation = "list_disputes"
)

// Dispute is what we need to know about a dispute at Stripe.
type Dispute struct {
	ID          string
	Status      string // Stripe's own; the list may grow
	Reason      string
	IntentID    string // empty: the charge was made without an intent, so not by us
	ChargeID    string
	AmountMinor int64
	Currency    string    // the charge's
	DueBy       time.Time // zero: no answer is possible
	CreatedAt   time.Time
	Movements   []DisputeMovement // all of them, oldest first
}

// DisputeMovement is a balance transaction of a dispute. It is in the currency in which
// the account is settled, which need not be the charge's.
type DisputeMovement struct {
	ID          string
	Category    string // Stripe's reporting category
	AmountMinor int64  // negative: withdrawn
	FeeMinor    int64
	NetMinor    int64
	Currency    string
	CreatedAt   time.Time
}

// GetDispute reads a dispute with its balance transactions. ErrNoSuchObject: the account
// has no such dispute.
func (s *Client) GetDispute(ctx context.Context, id string) (Dispute, error) {
	var dispute Dispute
	err := s.get(ctx, NoTenant, OpGetDispute, func(p stripego.Params) error {
		d, err := s.api.Disputes.Get(id, &stripego.DisputeParams{Params: p})
		if err == nil && d.ID != id {
			err = errAnotherObject
		}
		if err == nil {
			dispute = disputeOf(d)
		}
		return err
	})
	return dispute, err
}

// ListDisputes lists the disputes that were created in a window, newest first, one page.
func (s *Client) ListDisputes(ctx context.Context, w Window) (Page[Dispute], error) {
	return s.listDisputes(ctx, func(ctx context.Context) *stripego.DisputeListParams {
		return &stripego.DisputeListParams{ListParams: w.params(ctx), CreatedRange: w.created()}
	})
}

// DisputesOf lists the disputes of an intent. A charge can be disputed more than once,
// but not a hundred times, so one page is enough.
func (s *Client) DisputesOf(ctx context.Context, intentID string) ([]Dispute, error) {
	page, err := s.listDisputes(ctx, func(ctx context.Context) *stripego.DisputeListParams {
		return &stripego.DisputeListParams{
			ListParams: Window{}.params(ctx), PaymentIntent: stripego.String(intentID),
		}
	})
	return page.Objects, err
}

func (s *Client) listDisputes(
	ctx context.Context, params func(context.Context) *stripego.DisputeListParams,
) (page Page[Dispute], err error) {
	err = s.get(ctx, NoTenant, OpListDisputes, func(p stripego.Params) error {
		list := s.api.Disputes.List(params(p.Context))
		for list.Next() {
			page.Objects = append(page.Objects, disputeOf(list.Dispute()))
		}
		page.More = list.Meta().HasMore
		return list.Err()
	})
	return page, err
}

func disputeOf(d *stripego.Dispute) Dispute {
	dispute := Dispute{
		ID: d.ID, Status: string(d.Status), Reason: string(d.Reason), AmountMinor: d.Amount,
		Currency: string(d.Currency), CreatedAt: time.Unix(d.Created, 0).UTC(),
	}
	if d.PaymentIntent != nil {
		dispute.IntentID = d.PaymentIntent.ID
	}
	if d.Charge != nil {
		dispute.ChargeID = d.Charge.ID
	}
	if e := d.EvidenceDetails; e != nil && e.DueBy > 0 {
		dispute.DueBy = time.Unix(e.DueBy, 0).UTC()
	}
	for _, b := range d.BalanceTransactions {
		dispute.Movements = append(dispute.Movements, DisputeMovement{
			ID: b.ID, Category: string(b.ReportingCategory), AmountMinor: b.Amount, FeeMinor: b.Fee, NetMinor: b.Net,
			Currency: string(b.Currency), CreatedAt: time.Unix(b.Created, 0).UTC(),
		})
	}
	return dispute
}
