package coordinator

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

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

// ledgersOf is all of one budget: its open terms, and a page of its closed ones behind a key, of etcd and of the archive.
func (s *Service) ledgersOf(name, after string, most int) (LedgersPage, error) {
	prefix := strings.TrimSuffix(closingKey(name, 0), path.Base(closingKey(name, 0)))
	switch {
	case after == "":
		after = prefix
	case !strings.HasPrefix(after, prefix):
		return LedgersPage{}, invalid(pageAfter, fmt.Sprintf("is %.300q, which is no closed term of %s", after, name), "give the `more` of the answer before")
	}
	most = min(most, maxClosingsAnswered)
	s.state.mu.Lock()
	if s.state.budgets[name] == nil {
		s.state.mu.Unlock()
		return LedgersPage{}, notFound("budget", name)
	}
	page := LedgersPage{Revision: s.state.revision, EvidenceAge: s.evidenceAge().Milliseconds(), Ledgers: []StoredLedger{}}
	for _, l := range s.state.terms[name] {
		page.Ledgers = append(page.Ledgers, stored(l))
	}
	found := map[string]StoredClosing{}
	for key, c := range s.state.closings {
		if key > after && strings.HasPrefix(key, prefix) {
			found[key] = StoredClosing{Key: key, Closing: c.value}
		}
	}
	s.state.mu.Unlock()
	if s.config.ClosingArchive != nil { // after etcd: what is deleted there meanwhile was archived before
		archived, err := s.config.ClosingArchive.Page(after, func(b string) bool { return b == name }, most+1)
		if err != nil {
			return LedgersPage{}, fmt.Errorf("read the archive of closings: %w", err)
		}
		for _, c := range archived {
			if _, newer := found[c.Key()]; !newer {
				found[c.Key()] = StoredClosing{Key: c.Key(), Archived: true, Closing: c}
			}
		}
	}
	keys := slices.Sorted(maps.Keys(found))
	if len(keys) > most {
		keys, page.More = keys[:most], keys[most-1]
	}
	for _, key := range keys {
		page.Closings = append(page.Closings, found[key])
	}
	return page, nil
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
