package disputes

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/stripe"
)

// listWindow says how far back Stripe's list of disputes is read, and how often.
type listWindow struct {
	name  string
	back  time.Duration
	every time.Duration
	// continues: it begins where it ended last time, minus back.
	continues bool
}

// A dispute that no webhook announced is found by the first window. The second finds it again, if the first could not
// record it because its payment was not adopted yet, and what a restored database has lost.
var listWindows = []listWindow{
	{name: "disputes recent", back: 10 * time.Minute, every: 2 * time.Minute, continues: true},
	{name: "disputes month", back: listMax, every: 6 * time.Hour},
}

var windowNames = []string{listWindows[0].name, listWindows[1].name}

const (
	listMax     = 35 * 24 * time.Hour // how far back a window may begin
	windowLease = 2 * time.Minute     // renewed after each page
	windowAgain = 10 * time.Second
	readMax     = 50 // open disputes that one round reads again
	readLease   = time.Minute
)

// RunOnce reads one window of Stripe's list that is due, and open disputes that are due
// to be read again; it returns how many of both. Any number of processes may run it. An
// error means that the database or Stripe is away. A problem with one dispute is logged
// and counted, and does not keep others from being recorded.
func (s *Service) RunOnce(ctx context.Context) (n int, err error) {
	away := 0
	windows, err := s.pool.ReconcileDue(ctx, windowNames)
	if err != nil {
		return 0, fmt.Errorf("look for windows that are due: %w", err)
	}
	for _, w := range listWindows {
		if !slices.Contains(windows, w.name) {
			continue
		}
		listed, err := s.listOnce(ctx, w, &away)
		if err != nil {
			return n, fmt.Errorf("read window %s: %w", w.name, err)
		}
		if listed {
			n++
			break
		}
	}
	due, err := s.pool.DisputesDue(ctx, db.DisputesDueParams{Lease: readLease, LimitRows: readMax})
	if err != nil {
		return n, fmt.Errorf("read the disputes that are due: %w", err)
	}
	for _, row := range due {
		if _, err := s.readIsolated(ctx, row.StripeDisputeID, &away); err != nil {
			return n, err
		}
		if err := s.pool.DisputeReadAgain(ctx, db.DisputeReadAgainParams{
			TenantID: row.TenantID, ID: row.ID, Again: again(row.CreatedAt),
		}); err != nil {
			return n, fmt.Errorf("record that dispute %s was read: %w", row.ID, err)
		}
		n++
	}
	return n, nil
}

// listOnce reads a window if it is due and no other process has it.
func (s *Service) listOnce(ctx context.Context, w listWindow, away *int) (bool, error) {
	claim, err := s.pool.ReconcileClaim(ctx, db.ReconcileClaimParams{Name: w.name, Lease: windowLease})
	if errors.Is(err, postgres.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("claim the window: %w", err)
	}
	complete, err := s.listWindow(ctx, w, claim, away)
	through, pause := &claim.Now, w.every
	if !complete { // What could not be recorded is read again, from where this began.
		through = nil
	}
	if err != nil {
		pause = windowAgain
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_, released := s.pool.ReconcileRelease(ctx, db.ReconcileReleaseParams{
		Name: w.name, LeaseToken: claim.LeaseToken, Pause: pause, Through: through,
	})
	return true, errors.Join(err, released) // A window that is not released has a lease that runs out.
}

// from is where a window begins. Something that can never be recorded must not make it grow for ever.
func (w listWindow) from(claim db.ReconcileClaimRow) time.Time {
	from, oldest := claim.Now.Add(-w.back), claim.Now.Add(-listMax)
	if w.continues && claim.CoveredThrough != nil {
		from = claim.CoveredThrough.Add(-w.back)
	}
	if from.Before(oldest) {
		return oldest
	}
	return from
}

// listWindow reports whether everything in the window is recorded.
func (s *Service) listWindow(
	ctx context.Context, w listWindow, claim db.ReconcileClaimRow, away *int,
) (complete bool, err error) {
	complete = true
	for listed, err := range pages(ctx, s.gateway, w.from(claim)) {
		if err != nil {
			return false, err
		}
		for _, d := range listed {
			recorded, err := s.recordListed(ctx, d, away)
			if err != nil {
				return false, err
			}
			complete = complete && recorded
		}
		n, err := s.pool.ReconcileExtend(ctx, db.ReconcileExtendParams{
			Name: w.name, LeaseToken: claim.LeaseToken, Lease: windowLease,
		})
		if err == nil && n == 0 {
			err = errors.New("the lease of the window was lost")
		}
		if err != nil {
			return false, err
		}
	}
	return complete, nil
}

// pages lists the disputes that were created since from, newest first, page by page. An error is the last.
func pages(ctx context.Context, g Gateway, from time.Time) iter.Seq2[[]stripe.Dispute, error] {
	return func(yield func([]stripe.Dispute, error) bool) {
		for w := (stripe.Window{From: from}); ; {
			page, err := g.ListDisputes(ctx, w)
			if err != nil {
				yield(nil, fmt.Errorf("list disputes: %w", err))
				return
			}
			if !yield(page.Objects, nil) || !page.More || len(page.Objects) == 0 {
				return
			}
			w.After = page.Objects[len(page.Objects)-1].ID
		}
	}
}

// recordListed reads a dispute of a list by itself, unless what the list shows is recorded already: a page may be
// older than what a webhook has recorded meanwhile.
func (s *Service) recordListed(ctx context.Context, d stripe.Dispute, away *int) (recorded bool, err error) {
	if d.IntentID == "" {
		return true, nil
	}
	known, err := s.pool.DisputeRecorded(ctx, db.DisputeRecordedParams{
		StripeDisputeID: d.ID, Status: d.Status, AmountMinor: d.AmountMinor, Movements: int64(len(d.Movements)),
	})
	if err != nil {
		return false, fmt.Errorf("look for dispute %s: %w", d.ID, err)
	}
	if known {
		return true, nil
	}
	return s.readIsolated(ctx, d.ID, away)
}

// awayMax is how many disputes in a row may be without a response in one round. Then Stripe is away, and no other is
// asked for; one that Stripe alone cannot show holds up none of them.
const awayMax = 3

// readIsolated keeps one dispute that cannot be recorded from holding up all others. away counts those of the round
// that Stripe did not respond about, since it last did.
func (s *Service) readIsolated(ctx context.Context, stripeID string, away *int) (recorded bool, err error) {
	err = s.Read(ctx, stripeID)
	switch {
	case errors.Is(err, stripe.ErrAway) && ctx.Err() == nil:
		if *away++; *away >= awayMax {
			return false, err
		}
	case err == nil:
		*away = 0
		return true, nil
	case !ofTheDispute(ctx, err):
		return false, err
	default: // Stripe has responded.
		*away = 0
	}
	s.metrics.failures.Inc()
	s.log.Error("a dispute cannot be recorded; it will be read again", "stripe_dispute", stripeID,
		"error", postgres.ErrorText(err))
	return false, nil
}

// ofTheDispute reports whether an error is about this dispute, and not about the database or Stripe.
func ofTheDispute(ctx context.Context, err error) bool {
	if ctx.Err() != nil || errors.Is(err, postgres.ErrInDoubt) {
		return false
	}
	for _, definite := range []error{stripe.ErrNotShown, stripe.ErrNoSuchObject, errNotAdopted, errMoved} {
		if errors.Is(err, definite) {
			return true
		}
	}
	return postgres.IsRejected(err)
}
