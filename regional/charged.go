package regional

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strconv"
	"time"

	"tranche/allocation"
)

// MaxChargedLines bounds the budgets of one account of what was charged.
const MaxChargedLines = 1000

// ErrTooLong says that the database did not find an answer within the time that such a read may take: nothing is known.
var ErrTooLong = errors.New("it takes longer than such a read may")

// ChargedQuery chooses admissions by the name of a credential, by a tenant, or by both.
type ChargedQuery struct {
	Credential string // empty: any
	Tenant     string // empty: any
	Since      int64  // Unix microseconds: what was admitted before is left out
}

// Charged is what the admissions of a caller or a tenant were charged in this region, exactly, as far back as ids are kept.
type Charged struct {
	Now   int64         // the database's clock, Unix microseconds
	Kept  int64         // ids are kept from here on, Unix microseconds
	Lines []ChargedLine // by budget and unit
	More  bool          // there are more than MaxChargedLines
}

// ChargedLine is what was charged to one budget, all its instances and periods together.
type ChargedLine struct {
	Budget     string
	Unit       string
	Admissions int64 // that were charged something that they did not give back
	Spent      int64
	Reserved   int64
	Overdraft  int64
	First      int64 // when the first of them was admitted, Unix microseconds
	Last       int64
}

// SumCharged sums up admissions as an owner's database does: what is chosen, by budget and unit.
func SumCharged(q ChargedQuery, all iter.Seq[*allocation.Admission]) (lines []ChargedLine, more bool) {
	sums := map[[2]string]*ChargedLine{}
	for a := range all {
		if a.At < q.Since || q.Credential != "" && a.Credential != q.Credential || q.Tenant != "" && a.Tenant != q.Tenant {
			continue
		}
		for _, l := range a.Lines {
			if l.Enforcement == allocation.Shadow || l.Spent == 0 && l.Held == 0 && l.Overdraft == 0 {
				continue
			}
			key := [2]string{l.Budget, l.Unit}
			sum := sums[key]
			if sum == nil {
				sum = &ChargedLine{Budget: l.Budget, Unit: l.Unit, First: a.At, Last: a.At}
				sums[key] = sum
			}
			sum.Admissions++
			sum.Spent, sum.Reserved = allocation.SumUp(sum.Spent, l.Spent), allocation.SumUp(sum.Reserved, l.Held)
			sum.Overdraft = allocation.SumUp(sum.Overdraft, l.Overdraft)
			sum.First, sum.Last = min(sum.First, a.At), max(sum.Last, a.At)
		}
	}
	for _, sum := range sums {
		lines = append(lines, *sum)
	}
	slices.SortFunc(lines, func(a, b ChargedLine) int {
		return cmp.Or(cmp.Compare(a.Budget, b.Budget), cmp.Compare(a.Unit, b.Unit))
	})
	more = len(lines) > MaxChargedLines
	return lines[:min(len(lines), MaxChargedLines)], more
}

// Charged asks the owner.
func (n *Node) Charged(ctx context.Context, q ChargedQuery) (Charged, error) {
	return n.owner.Charged(ctx, q)
}

// Charged asks the node.
func (l *Late) Charged(ctx context.Context, q ChargedQuery) (Charged, error) {
	if n := l.now.Load(); n != nil {
		return n.Charged(ctx, q)
	}
	return Charged{}, ErrNotReady
}

// ChargedAnswer is what GET /v1/charged answers.
type ChargedAnswer struct {
	Region     string          `json:"region"`
	Credential string          `json:"credential,omitempty"`
	Tenant     string          `json:"tenant,omitempty"`
	Since      string          `json:"since"`
	AsOf       string          `json:"as_of"`     // by the database's clock
	KeptFrom   string          `json:"kept_from"` // ids of before are gone
	Complete   bool            `json:"complete"`  // since is not before that: the figures are exact; else they are at least this
	Lines      []ChargedBudget `json:"budgets"`
	More       bool            `json:"more,omitempty"` // there are more budgets than are listed
}

// ChargedBudget is one budget of it.
type ChargedBudget struct {
	Budget     string `json:"budget"`
	Unit       string `json:"unit"`
	Admissions int64  `json:"admissions"`
	Spent      int64  `json:"spent"`
	Reserved   int64  `json:"reserved"`
	Overdraft  int64  `json:"overdraft,omitempty"`
	First      string `json:"first"`
	Last       string `json:"last"`
}

const chargedPath = "/v1/charged"

// charged answers GET /v1/charged?credential=&tenant=&since=: what a caller, or a tenant, was charged in this region.
func (a *api) charged(w http.ResponseWriter, r *http.Request, caller string) {
	q, wrong := chargedQuery(r)
	if wrong == nil {
		wrong = a.speaksFor(caller, q.Tenant)
	}
	if wrong != nil {
		writeFault(w, *wrong)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), readDeadline)
	defer cancel()
	found, err := a.Charged(ctx, q)
	if err != nil {
		a.config.Logger.Debug("sum up what was charged", "error", err)
		fault := readFault(err)
		if errors.Is(err, ErrTooLong) {
			fault = reasonFault(allocation.Overloaded, "the database holds too many ids to sum up in time; ask by credential, which is indexed, or at a quieter time")
		}
		writeFault(w, fault)
		return
	}
	body := ChargedAnswer{
		Region: a.Status().Region, Credential: q.Credential, Tenant: q.Tenant, Since: formatMicros(q.Since), AsOf: formatMicros(found.Now),
		KeptFrom: formatMicros(found.Kept), Complete: found.Kept <= q.Since, Lines: make([]ChargedBudget, len(found.Lines)), More: found.More,
	}
	for i, l := range found.Lines {
		body.Lines[i] = ChargedBudget{l.Budget, l.Unit, l.Admissions, l.Spent, l.Reserved, l.Overdraft, formatMicros(l.First), formatMicros(l.Last)}
	}
	writeJSON(w, http.StatusOK, "application/json", body)
}

func chargedQuery(r *http.Request) (ChargedQuery, *fault) {
	params, wrong := query(r, "credential", "tenant", "since")
	if wrong != nil {
		return ChargedQuery{}, wrong
	}
	q := ChargedQuery{Credential: params["credential"], Tenant: params["tenant"]}
	if q.Credential == "" && q.Tenant == "" {
		return q, invalid(allocation.FieldError{Field: "tenant", Problem: "is missing", Fix: "name a tenant, or a credential: a gateway's name, or key: and the name of a key"})
	}
	for name, text := range params {
		if len(text) > allocation.MaxLabelValue {
			return q, invalid(allocation.FieldError{Field: name, Problem: fmt.Sprintf("has %d bytes", len(text)), Fix: "use at most " + strconv.Itoa(allocation.MaxLabelValue)})
		}
	}
	at, err := time.Parse(time.RFC3339, params["since"])
	if err != nil || at.Unix() < 0 {
		return q, invalid(allocation.FieldError{Field: "since", Problem: "is no instant", Fix: "write it like 2026-11-30T08:00:00Z"})
	}
	q.Since = at.UnixMicro()
	return q, nil
}

func chargedParameters() []any {
	return []any{
		query1("credential", "a gateway's name, or key: and the name of a key"), query1("tenant", "the label of the admissions"),
		query1("since", "an instant as RFC 3339 writes it; of the ids that are kept"),
	}
}
