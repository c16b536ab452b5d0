package coordinator

import (
	"fmt"
	"maps"
	"slices"

	"tranche/allocation"
)

// Records of closed terms move out of etcd once they are older than the retention:
//
//	in etcd ──append, synced──▶ in etcd and in the archive ──delete──▶ in the archive
//
// A crash in between leaves a record in both: it is appended again, and readers take one for each key. Where the append
// fails nothing is deleted, and the next sweep tries again.

// ClosingArchive is where records of closed terms go when etcd does not keep them any more.
type ClosingArchive interface {
	// Append returns nil once the records are on stable storage. One may be there already: the later one counts.
	Append(closings []Closing) error
	// Page is the records behind a key, in the order of their keys, of the budgets that are wanted, at most as many.
	Page(after string, wanted func(budget string) bool, most int) ([]Closing, error)
	// Update offers the records that are there, of those named by key, to `change`, and appends what it changes, as Append does.
	Update(late map[string]LateStatement, change func(Closing, LateStatement) (Closing, bool)) error
}

// Key is the record's name: that of its document in etcd. Keys sort by budget and term.
func (c Closing) Key() string { return closingKey(c.Budget, c.Term) }

// archiveClosings says which records may be deleted now: those that the archive has, or all if there is none.
func (s *Service) archiveClosings(over []*doc[Closing]) ([]Item, error) {
	if len(over) == 0 {
		return nil, nil
	}
	if s.config.ClosingArchive != nil {
		closings := make([]Closing, len(over))
		for i, c := range over {
			closings[i] = c.value
		}
		if err := s.config.ClosingArchive.Append(closings); err != nil {
			return nil, fmt.Errorf("archive %d closings, which stay in etcd: %w", len(closings), err)
		}
	}
	items := make([]Item, len(over))
	for i, c := range over {
		items[i] = c.item
	}
	return items, nil
}

// closingsPage is the records behind a key that etcd has, and those that the archive has, each once; one more than `most` says
// that there are more. Etcd is looked at first: what is deleted there meanwhile was archived before.
func (s *Service) closingsPage(f StrandedFilter, after string, most int) (*Evidence, []Closing, error) {
	wanted := func(budget string) bool { // under the lock of the state
		return f.selectsName(budget) && (len(f.Match) == 0 || f.selects(s.state.budgets[budget]))
	}
	found := map[string]Closing{}
	s.state.mu.Lock()
	evidence := s.evidence()
	for key, c := range s.state.closings {
		if key > after && wanted(c.value.Budget) {
			found[key] = c.value
		}
	}
	s.state.mu.Unlock()
	if s.config.ClosingArchive != nil {
		archived, err := s.config.ClosingArchive.Page(after, func(budget string) bool {
			s.state.mu.Lock()
			defer s.state.mu.Unlock()
			return wanted(budget)
		}, most+1)
		if err != nil {
			return nil, nil, err
		}
		for _, c := range archived {
			if _, newer := found[c.Key()]; !newer {
				found[c.Key()] = c
			}
		}
	}
	keys := slices.Sorted(maps.Keys(found))
	page := make([]Closing, 0, min(len(keys), most+1))
	for _, key := range keys[:min(len(keys), most+1)] {
		page = append(page, found[key])
	}
	return evidence, page, nil
}

// archivedAt is the record in the archive of the term that holds an instant; nil: it has none.
func (s *Service) archivedAt(budget string, at allocation.Instant) (*Closing, error) {
	if s.config.ClosingArchive == nil {
		return nil, nil
	}
	for after := closingKey(budget, 0); ; {
		page, err := s.config.ClosingArchive.Page(after, func(b string) bool { return b == budget }, maxClosingsAnswered)
		if err != nil {
			return nil, fmt.Errorf("read the archive of closings: %w", err)
		}
		for i := range page {
			switch p := page[i].Periods; {
			case p.Start() > at:
				return nil, nil
			case at < p.End():
				return &page[i], nil
			}
		}
		if len(page) < maxClosingsAnswered {
			return nil, nil
		}
		after = page[len(page)-1].Key()
	}
}
