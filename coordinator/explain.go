package coordinator

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"tranche/allocation"
)

// The verdicts on a text that is said to be a receipt.
const (
	VerdictGenuine    = "genuine"
	VerdictForged     = "forged"      // it was changed, or signed with another key than it says
	VerdictCut        = "cut"         // a part of it is missing
	VerdictForeign    = "foreign"     // of another deployment
	VerdictUnknownKey = "unknown_key" // signed with a key that etcd does not hold: nothing can be said
	VerdictNewer      = "newer"       // of a version that this program does not know
	VerdictNone       = "no_receipt"
)

// ExplainAnswer says what a refusal was, by its receipt alone, and what is known of its budget now.
type ExplainAnswer struct {
	*Evidence
	Verdict string `json:"verdict"`
	Detail  string `json:"detail,omitempty"` // of what is not genuine
	// Only of a genuine one:
	Receipt     *ReceiptAnswer          `json:"receipt,omitempty"`
	Explanation *allocation.Explanation `json:"explanation,omitempty"`
	Now         *ExplainedBudget        `json:"now,omitempty"` // absent: no budget refused
	// Stranded is what was recorded as stranded of the budget when it was refused.
	Stranded []ExplainedStranding `json:"stranded_then,omitempty"`
}

// ReceiptAnswer is what a receipt says.
type ReceiptAnswer struct {
	Decision    string             `json:"decision"`
	AdmissionID string             `json:"admission_id,omitempty"`
	At          time.Time          `json:"at"`
	Region      string             `json:"region"`
	Node        string             `json:"node,omitempty"`
	Op          string             `json:"op,omitempty"`
	Reason      string             `json:"reason"`
	Upstream    string             `json:"upstream,omitempty"`
	Priority    string             `json:"priority,omitempty"`
	Budget      string             `json:"budget,omitempty"`
	Instance    string             `json:"instance,omitempty"`
	Unit        string             `json:"unit,omitempty"`
	Version     int64              `json:"version,omitempty"`
	Generation  int64              `json:"generation,omitempty"`
	Period      *allocation.Period `json:"period,omitempty"`
	Limit       int64              `json:"limit"`
	Share       int64              `json:"share"` // of the region
	Requested   int64              `json:"requested"`
	Remaining   int64              `json:"remaining"` // of the region's share
	Config      int64              `json:"config"`
	Revision    int64              `json:"ledger_revision"`
}

// What is known of the period of a receipt.
const (
	PeriodRunning   = "running"
	PeriodOver      = "over"      // its ledger is open still
	PeriodClosed    = "closed"    // what remains of its term is in Closing
	PeriodForgotten = "forgotten" // its closing is not kept any more
	PeriodAhead     = "ahead"
)

// ExplainedBudget is the budget as it is now, beside what the receipt says of then.
type ExplainedBudget struct {
	Budget         string               `json:"budget"`
	Known          bool                 `json:"known"` // false: there is none of this name any more
	Deleted        bool                 `json:"deleted,omitempty"`
	Version        int64                `json:"version,omitempty"`
	Limit          int64                `json:"limit"`
	Changed        *time.Time           `json:"changed,omitempty"`
	Override       *allocation.Override `json:"override,omitempty"`      // that the limit includes now
	OverrideThen   *Override            `json:"override_then,omitempty"` // that the receipt's limit included
	ChangedSince   bool                 `json:"changed_since"`           // it has another version than the receipt names
	Period         string               `json:"period"`                  // see PeriodRunning
	Shares         *TermShares          `json:"shares,omitempty"`
	Closing        *Closing             `json:"closing,omitempty"` // of the whole term
	Overcommitted  int64                `json:"overcommitted"`     // of the period
	StrandedNow    int64                `json:"stranded_now"`      // of the running period, behind all regions that cannot be asked
	StrandedRegion []string             `json:"stranded_in,omitempty"`
}

// ExplainedStranding is a record of the stranded history that was open at a receipt's time.
type ExplainedStranding struct {
	Region string     `json:"region"`
	Cause  string     `json:"cause"`
	Since  time.Time  `json:"since"`
	Ended  *time.Time `json:"ended,omitempty"`
	How    string     `json:"how,omitempty"`
	Most   int64      `json:"most"` // stranded at once
}

// explain checks a receipt, and says what it means. It needs nothing that was stored of the refusal.
func (s *Service) explain(text string) (ExplainAnswer, error) {
	s.state.mu.Lock()
	a := s.explainKnown(text)
	s.state.mu.Unlock()
	if a.Now == nil || a.Now.Period != PeriodForgotten || a.Receipt.Period == nil {
		return a, nil
	}
	c, err := s.archivedAt(a.Now.Budget, a.Receipt.Period.Start)
	if c != nil {
		a.Now.Period, a.Now.Closing = PeriodClosed, c
	}
	return a, err
}

// explainKnown is explain by what etcd has.
func (s *Service) explainKnown(text string) ExplainAnswer {
	a := ExplainAnswer{Evidence: s.evidence()}
	sealed, err := allocation.ParseReceipt(text)
	if err != nil {
		a.Verdict, a.Detail = VerdictForged, err.Error()
		for is, verdict := range map[error]string{
			allocation.ErrReceiptCut: VerdictCut, allocation.ErrNoReceipt: VerdictNone, allocation.ErrReceiptNewer: VerdictNewer,
		} {
			if errors.Is(err, is) {
				a.Verdict = verdict
			}
		}
		return a
	}
	var r allocation.Receipt
	if r, a.Verdict, a.Detail = s.openReceipt(sealed); a.Verdict != VerdictGenuine {
		return a
	}
	e := allocation.Explain(r)
	a.Receipt, a.Explanation = receiptAnswer(r), &e
	if r.Budget != "" {
		now := s.budgetSince(r)
		a.Now, a.Stranded = &now, s.state.strandedThen(r.Budget, time.UnixMicro(r.At))
	}
	return a
}

// openReceipt reads a receipt, and says whether it is true.
func (s *Service) openReceipt(sealed allocation.SealedReceipt) (r allocation.Receipt, verdict, detail string) {
	if s.state.deployment != nil && sealed.Deployment != s.state.deployment.value.ID {
		return r, VerdictForeign, fmt.Sprintf("it says that it is of deployment %.40q, and this is %s: ask the coordinator of that one", sealed.Deployment, s.state.deployment.value.ID)
	}
	key, known := s.state.receiptKey(sealed.Region, sealed.Key)
	switch {
	case !known && s.state.regions[sealed.Region] == nil:
		return r, VerdictForged, fmt.Sprintf("there was never a region %.70q here", sealed.Region)
	case !known:
		return r, VerdictUnknownKey, fmt.Sprintf("no key %.16q of region %s is known: it is forged, or was signed with a token of the region that etcd lost in a restore", sealed.Key, sealed.Region)
	}
	if r, known = key.Open(sealed); !known {
		return r, VerdictForged, "the signature does not fit: it was changed, or nobody here signed it"
	}
	return r, VerdictGenuine, ""
}

func receiptAnswer(r allocation.Receipt) *ReceiptAnswer {
	a := &ReceiptAnswer{
		Decision: r.Decision, AdmissionID: r.Admission, At: time.UnixMicro(r.At).UTC(), Region: r.Region, Node: r.Node, Op: string(r.Op),
		Reason: string(r.Reason), Upstream: string(r.Upstream), Priority: string(r.Priority), Budget: r.Budget, Instance: r.Instance, Unit: r.Unit,
		Version: r.Version, Generation: r.Generation, Limit: r.Limit, Share: r.Share, Requested: r.Requested, Remaining: r.Remaining,
		Config: r.Config, Revision: r.LedgerRevision,
	}
	if r.Until != 0 {
		a.Period = &allocation.Period{Start: r.Period, End: r.Until}
	}
	return a
}

// budgetSince is what is known now of the budget and the period that a receipt names.
func (s *Service) budgetSince(r allocation.Receipt) ExplainedBudget {
	a := ExplainedBudget{Budget: r.Budget, Period: PeriodForgotten}
	d := s.state.budgets[r.Budget]
	if d == nil {
		return a
	}
	changed := d.value.Changed
	a.Known, a.Deleted, a.Version, a.Changed = true, d.value.Deleted, d.value.Version, &changed
	if limit := d.value.Budget.Limit; limit != nil && !a.Deleted {
		a.Limit = *limit
	}
	a.Override, a.OverrideThen = d.value.Budget.Override, s.state.overrideOf(r.Budget, r.Version)
	a.ChangedSince = r.Version != 0 && d.value.Version != r.Version
	now := s.instant()
	for _, l := range s.state.terms[r.Budget] {
		i, found := l.value.Periods.Index(r.Period)
		if !found || r.Until == 0 {
			continue
		}
		p := l.value.Periods.At(i)
		switch a.Period = PeriodRunning; {
		case now < p.Start:
			a.Period = PeriodAhead
		case p.End <= now:
			a.Period = PeriodOver
		}
		shares := s.sharesAt(l.value, i, a.Period == PeriodRunning)
		a.Shares, a.Overcommitted = &shares, shares.Overcommitted
	}
	for _, c := range s.state.closings {
		if a.Shares == nil && r.Until != 0 && c.value.Budget == r.Budget && c.value.Periods.Start() <= r.Period && r.Period < c.value.Periods.End() {
			closing := c.value
			a.Period, a.Closing = PeriodClosed, &closing
		}
	}
	for _, line := range s.strandedOf(r.Budget, s.now()) {
		if line.Stranded > 0 {
			a.StrandedNow = allocation.SumUp(a.StrandedNow, line.Stranded)
			a.StrandedRegion = append(a.StrandedRegion, line.Region)
		}
	}
	return a
}

// strandedThen are the records of a budget that were open at a time.
func (s *state) strandedThen(budget string, at time.Time) (out []ExplainedStranding) {
	for _, d := range s.strandings {
		for _, e := range d.value.Entries {
			if e.Budget != budget || e.Since.After(at) || e.Ended != nil && e.Ended.Before(at) {
				continue
			}
			out = append(out, ExplainedStranding{Region: e.Region, Cause: e.Cause, Since: e.Since, Ended: e.Ended, How: e.How, Most: e.Most})
		}
	}
	slices.SortFunc(out, func(a, b ExplainedStranding) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Region, b.Region))
	})
	return out
}
