package stripe

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	stripego "github.com/stripe/stripe-go/v76"

	"example.com/payonce/db"
)

// Until API version 2025-03-31 Stripe shows what it releases of an authorization as a refund: the rest of a partial
// capture, all of one that was canceled or has expired. From then on there is none
// (https://docs.stripe.com/changelog/basil/2025-03-31/remove-refund-from-partial-capture-and-payment-cancellation-flow).
// Which of the two an account does depends on the version of the request, and for what no request of ours has done on
// the account's own. So both are understood, and what was released is no refund in either.

// categoryRelease is the category of the balance transaction of such a refund, if it was of a partial capture
// (https://docs.stripe.com/reports/reporting-categories).
const categoryRelease = "partial_capture_reversal"

// knownReleasesMax is how many refunds one map of knownReleases has. Two maps of 64 Ki ids, each of 27 bytes, take 11 MB.
// The reconciler lists the refunds of two days every few minutes, and so many of them are a release every three seconds.
const knownReleasesMax = 1 << 16

// knownReleases says of the refunds whose category was read whether they are releases, by their ids. A category never
// changes, and reading it costs a call. When recent is full it becomes older; what is then not used again is dropped.
type knownReleases struct {
	mu            sync.Mutex
	recent, older map[string]bool
}

func (k *knownReleases) get(refundID string) (released, known bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if released, known = k.recent[refundID]; known {
		return released, true
	}
	if released, known = k.older[refundID]; known {
		k.add(refundID, released)
	}
	return released, known
}

func (k *knownReleases) put(refundID string, released bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.add(refundID, released)
}

// add expects that the caller holds mu.
func (k *knownReleases) add(refundID string, released bool) {
	if k.recent == nil || len(k.recent) >= knownReleasesMax {
		k.recent, k.older = map[string]bool{}, k.recent
	}
	k.recent[refundID] = released
}

// captureBefore is when the authorization of a charge expires, as its network says; zero: it is not shown.
func captureBefore(c *stripego.Charge) time.Time {
	if c.PaymentMethodDetails == nil || c.PaymentMethodDetails.Card == nil ||
		c.PaymentMethodDetails.Card.CaptureBefore == 0 {
		return time.Time{}
	}
	return time.Unix(c.PaymentMethodDetails.Card.CaptureBefore, 0).UTC()
}

// releasedMinor is how much of a charge was authorized and not captured. A charge that is only named has no amount.
func releasedMinor(c *stripego.Charge) int64 {
	switch {
	case c == nil || c.Amount == 0 || c.Captured && c.AmountCaptured == 0:
		return 0
	case !c.Captured:
		return c.Amount
	}
	return c.Amount - c.AmountCaptured
}

// isRelease reports whether a refund, whose charge is expanded, is what Stripe released of an authorization. oldest says
// whether it is the oldest of its charge, as a release always is.
func (s *Client) isRelease(
	ctx context.Context, tenantID string, r *stripego.Refund, oldest func() (bool, error),
) (bool, error) {
	released := releasedMinor(r.Charge)
	switch {
	case released == 0:
		return false, nil
	case !r.Charge.Captured: // Stripe refunds nothing else of it.
		return true, nil
	case r.Amount != released, len(r.Metadata) > 0, r.Reason != "", r.Status != stripego.RefundStatusSucceeded:
		return false, nil
	}
	if released, known := s.releases.get(r.ID); known {
		return released, nil
	}
	// A real refund may be of as much as was released. The movement of the balance tells the two apart, if the key
	// may read it.
	category, err := s.refundCategory(ctx, tenantID, r.ID)
	switch {
	case err != nil:
		return false, err
	case category == "": // This is not kept: the next response may show it.
		return oldest()
	}
	s.releases.put(r.ID, category == categoryRelease)
	return category == categoryRelease, nil
}

// refundCategory is the category of the balance transaction of a refund; empty: it is not shown.
func (s *Client) refundCategory(
	ctx context.Context, tenantID, refundID string,
) (category stripego.BalanceTransactionReportingCategory, err error) {
	err = s.get(ctx, tenantID, OpListRefunds, func(p stripego.Params) error {
		params := &stripego.RefundParams{Params: p}
		params.AddExpand("balance_transaction")
		shown, err := s.api.Refunds.Get(refundID, params)
		if err == nil && shown.BalanceTransaction != nil {
			category = shown.BalanceTransaction.ReportingCategory
		}
		var refused *stripego.Error
		if errors.As(err, &refused) && refused.HTTPStatusCode == http.StatusForbidden {
			return nil
		}
		return err
	})
	if errors.Is(err, ErrNotShown) || errors.Is(err, ErrNoSuchObject) {
		err = nil
	}
	return category, err
}

// isOldestOfCharge reports whether the nth refund of a list, which has the newest first, is the oldest of its charge.
func isOldestOfCharge(list []*stripego.Refund, n int) bool {
	return !slices.ContainsFunc(list[n+1:], func(r *stripego.Refund) bool {
		return r.Charge != nil && list[n].Charge != nil && r.Charge.ID == list[n].Charge.ID
	})
}

// oldestOfCharge is isOldestOfCharge for a refund of another list.
func (s *Client) oldestOfCharge(ctx context.Context, tenantID string, refund *stripego.Refund) (bool, error) {
	last := ""
	err := s.get(ctx, tenantID, OpListRefunds, func(p stripego.Params) error {
		params := &stripego.RefundListParams{Charge: stripego.String(refund.Charge.ID)}
		params.Context, params.Limit = p.Context, stripego.Int64(100)
		refunds := s.api.Refunds.List(params)
		for refunds.Next() {
			last = refunds.Refund().ID
		}
		return refunds.Err()
	})
	return last == refund.ID, err
}

// refundedOf is how much was given back of an intent, without what was released.
func (s *Client) refundedOf(ctx context.Context, tenantID, intentID string) (int64, error) {
	refunds, err := s.RefundsOf(ctx, tenantID, intentID)
	var sum int64
	for _, r := range refunds {
		if r.Status == db.RefundStatusSucceeded || r.Status == db.RefundStatusPending {
			sum += r.AmountMinor
		}
	}
	return sum, err
}
