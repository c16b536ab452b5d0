package coordinator

import (
	"fmt"
	"slices"
	"strings"

	"tranche/allocation"
)

// The query parameters of a list of closings.
const (
	closingBudget    = "budget"
	closingRegion    = "region"
	closingFrom      = "from"
	closingUntil     = "until"
	closingLate      = "late"
	closingStranded  = "stranded"
	closingOverdraft = "overdraft"
)

// ClosingFilter says which records are asked for. Its zero value asks for all.
type ClosingFilter struct {
	Budget    string             // its name; with a * at its end, all that begin so
	Region    string             // that held something
	From      allocation.Instant // terms that end after it
	Until     allocation.Instant // terms that begin before it; 0: any
	Late      bool               // with late statements
	Stranded  bool               // with permits that were never recovered
	Overdraft bool
}

// Takes says whether a record is asked for.
func (f ClosingFilter) Takes(c Closing) bool {
	begin, all := strings.CutSuffix(f.Budget, "*")
	switch {
	case f.Budget != "" && c.Budget != f.Budget && !(all && strings.HasPrefix(c.Budget, begin)),
		f.Region != "" && !slices.ContainsFunc(c.Regions, func(r ClosedRegion) bool { return r.Region == f.Region }),
		f.From != 0 && c.Until <= f.From,
		f.Until != 0 && c.Term >= f.Until,
		f.Stranded && c.Total.Stranded == 0,
		f.Late && !slices.ContainsFunc(c.Regions, func(r ClosedRegion) bool { return r.Late != nil }),
		f.Overdraft && !slices.ContainsFunc(c.Regions, func(r ClosedRegion) bool { return r.Final().Overdraft > 0 }):
		return false
	}
	return true
}

// ClosingsPage is records in etcd, by budget and term. Older ones are in the archive of a coordinator, if it has one.
type ClosingsPage struct {
	*Evidence
	Closings   []StoredClosing `json:"closings"`
	Amendments []Amendment     `json:"amendments,omitempty"` // on the last page: of records that are archived already
	Next       string          `json:"next,omitempty"`       // the `after` of the next page
}

var closingParameters = []string{
	pageAfter, pageLimit, closingBudget, closingRegion, closingFrom, closingUntil, closingLate, closingStranded, closingOverdraft,
}

func (s *Service) serveClosings(c call) (reply, error) {
	f, err := c.closingFilter()
	if err != nil {
		return reply{}, err
	}
	after, limit, err := c.page()
	if err != nil {
		return reply{}, err
	}
	return ok(s.listClosings(f, after, limit)), nil
}

func (c call) closingFilter() (f ClosingFilter, err error) {
	q := c.URL.Query()
	f.Budget, f.Region = q.Get(closingBudget), q.Get(closingRegion)
	for _, flag := range []struct {
		name string
		to   *bool
	}{{closingLate, &f.Late}, {closingStranded, &f.Stranded}, {closingOverdraft, &f.Overdraft}} {
		if *flag.to, err = c.flag(flag.name); err != nil {
			return f, err
		}
	}
	if f.From, err = c.instantAt(closingFrom); err != nil {
		return f, err
	}
	if f.Until, err = c.instantAt(closingUntil); err != nil {
		return f, err
	}
	return f, nil
}

// instantAt reads a query parameter that is an instant; 0 if it is not given.
func (c call) instantAt(name string) (at allocation.Instant, err error) {
	text := c.URL.Query().Get(name)
	if text == "" {
		return 0, nil
	}
	if err := at.UnmarshalText([]byte(text)); err != nil {
		return 0, invalid(name, fmt.Sprintf("is %.40q", text), "give an instant like 2026-05-04T10:00:00Z")
	}
	return at, nil
}

// listClosings is one page; after is the key of the last record that was seen, without what all keys begin with.
func (s *Service) listClosings(f ClosingFilter, after string, limit int) ClosingsPage {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	page := ClosingsPage{Evidence: s.evidence(), Closings: []StoredClosing{}}
	var keys []string
	for key, c := range s.state.closings {
		if key > closingPrefix+after && f.Takes(c.value) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		if len(page.Closings) == limit {
			page.Next = strings.TrimPrefix(page.Closings[limit-1].Key, closingPrefix)
			return page
		}
		page.Closings = append(page.Closings, StoredClosing{Key: key, Closing: s.state.closings[key].value})
	}
	for _, a := range s.state.amendments {
		if f.Takes(Closing{Budget: a.value.Budget, Term: a.value.Term, Until: a.value.Term + 1, Regions: []ClosedRegion{{Holder: a.value.Holder, Late: &a.value.Late}}}) {
			page.Amendments = append(page.Amendments, a.value)
		}
	}
	slices.SortFunc(page.Amendments, func(a, b Amendment) int {
		return strings.Compare(amendmentKey(a.ref(), a.Holder), amendmentKey(b.ref(), b.Holder))
	})
	return page
}

func (a Amendment) ref() allocation.ShareRef {
	return allocation.ShareRef{Budget: a.Budget, Term: a.Term}
}
