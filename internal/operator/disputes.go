package operator

import (
	"context"
	"net/http"
	"strings"

	"example.com/payonce/db"
	"example.com/payonce/internal/disputes"
)

const disputesMax = 20 // that the overview shows

// disputesPanel shows the disputes that have not ended.
type disputesPanel struct {
	panel
	List []disputeRow
}

// disputeRow is a dispute with what to do about it.
type disputeRow struct{ db.Dispute }

// NeedsResponse reports whether somebody must answer it.
func (d disputeRow) NeedsResponse() bool {
	return d.Status == "needs_response" || d.Status == "warning_needs_response"
}

// Evidence is what to send.
func (d disputeRow) Evidence() string { return disputes.Evidence(d.Reason) }

// DashboardURL is where to send it.
func (d disputeRow) DashboardURL() string { return disputes.DashboardURL(d.StripeDisputeID) }

func (p *disputesPanel) read(ctx context.Context, q *db.Queries) error {
	rows, err := q.OperatorDisputes(ctx, disputesMax)
	p.List = disputeRows(rows)
	return err
}

// NeedResponse counts the disputes that somebody must answer.
func (p *disputesPanel) NeedResponse() (n int64) {
	for _, d := range p.List {
		if d.NeedsResponse() {
			n++
		}
	}
	return n
}

func disputeRows(rows []db.Dispute) (list []disputeRow) {
	for _, row := range rows {
		list = append(list, disputeRow{row})
	}
	return list
}

func isDisputeID(id string) bool {
	return strings.HasPrefix(id, "dsp_") || strings.HasPrefix(id, "du_")
}

// findDispute redirects to the page of a dispute's order. The id may be ours or Stripe's.
func (s *Server) findDispute(ctx context.Context, w http.ResponseWriter, r *http.Request, id string) (bool, error) {
	rows, err := s.o.Pool.OperatorFindDispute(ctx, id)
	if err != nil || len(rows) == 0 {
		return false, err
	}
	redirect(w, r, objectHref(rows[0].TenantID, rows[0].ID))
	return true, nil
}
