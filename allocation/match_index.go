package allocation

import (
	"cmp"
	"maps"
	"slices"
)

// labelPair is one label with its value.
type labelPair struct{ name, value string }

func (p labelPair) hash() uint32 { return folded(hashOn(hashOn(hashStart, p.name)+1, p.value)) }

// MatchIndex finds the budgets of a request without looking at all of them. It
// never changes after it was made, so any number of goroutines may use it.
type MatchIndex struct {
	byName parted[string, *filed]
	byPair parted[labelPair, []*filed] // each list by name
	shared parted[labelPair, int]      // how many budgets ask for the pair
	always []*filed                    // budgets without match, by name
}

// filed is a budget in the index; it never changes once it stands there.
type filed struct {
	budget   *Budget
	template []string  // its template labels
	under    labelPair // zero: always
}

// NewMatchIndex returns an index of these budgets; of several of one name the last counts. Each is filed once, under the
// labelPair of its match that the fewest budgets share, so that a request looks at
// little besides what it hits.
func NewMatchIndex(budgets []Budget) *MatchIndex {
	x := &MatchIndex{
		byName: newParted[string, *filed](hashName), byPair: newParted[labelPair, []*filed](labelPair.hash), shared: newParted[labelPair, int](labelPair.hash),
	}
	e := x.edit()
	for _, b := range slices.Clone(budgets) {
		e.put(&b)
	}
	return e.done()
}

// with is the index after budgets came, changed or were deleted. It costs what changed.
func (x *MatchIndex) with(changed []ConfiguredBudget) *MatchIndex {
	e := x.edit()
	for _, c := range changed {
		if c.Deleted {
			e.drop(c.Budget.Name)
		} else {
			e.put(&c.Budget)
		}
	}
	return e.done()
}

// Match returns what MatchBudgets does.
func (x *MatchIndex) Match(l Labels) ([]Hit, *MissingLabel) {
	var few [2 * MaxBudgetsPerRequest]*filed // on the stack, as nearly always
	candidates := append(few[:0], x.always...)
	for name, value := range l {
		list, _ := x.byPair.get(labelPair{name, value})
		candidates = append(candidates, list...)
	}
	slices.SortFunc(candidates, func(a, b *filed) int { return cmp.Compare(a.budget.Name, b.budget.Name) })
	var m matched
	for _, f := range candidates {
		instance, applies, label := f.budget.matches(f.template, l)
		m.look(f.budget, l, instance, applies, label)
	}
	return m.result()
}

// indexing is an index while it is changed. New budgets are filed at the end, when it is known how many share each pair.
type indexing struct {
	byName *edition[string, *filed]
	byPair *edition[labelPair, []*filed]
	shared *edition[labelPair, int]
	always []*filed
	fresh  map[string]*filed // not filed yet, by name
}

func (x *MatchIndex) edit() *indexing {
	return &indexing{byName: x.byName.edit(), byPair: x.byPair.edit(), shared: x.shared.edit(), always: slices.Clone(x.always), fresh: map[string]*filed{}}
}

// put enters a budget. One that asks for the same labels as before stays where it is filed: a new limit, the usual change,
// files nothing anew.
func (e *indexing) put(b *Budget) {
	before, known := e.byName.get(b.Name)
	if known && e.fresh[b.Name] == nil && maps.Equal(before.budget.Match, b.Match) {
		f := &filed{b, b.TemplateLabels(), before.under}
		e.byName.put(b.Name, f)
		e.refile(f.under, b.Name, f)
		return
	}
	e.drop(b.Name)
	f := &filed{budget: b, template: b.TemplateLabels()}
	e.byName.put(b.Name, f)
	e.fresh[b.Name] = f
	e.count(b, 1)
}

func (e *indexing) drop(name string) {
	before, known := e.byName.get(name)
	if !known {
		return
	}
	e.count(before.budget, -1)
	e.byName.drop(name)
	if e.fresh[name] != nil {
		delete(e.fresh, name)
		return
	}
	e.refile(before.under, name, nil)
}

// count notes that one more or one less budget shares the pairs of its match.
func (e *indexing) count(b *Budget, by int) {
	for name, value := range b.Match {
		p := labelPair{name, value}
		n, _ := e.shared.get(p)
		if n += by; n == 0 {
			e.shared.drop(p)
		} else {
			e.shared.put(p, n)
		}
	}
}

// refile replaces what is filed under a pair for one budget; nil: nothing is.
func (e *indexing) refile(under labelPair, budget string, f *filed) {
	list := e.always
	if under != (labelPair{}) {
		list, _ = e.byPair.get(under)
		list = slices.Clone(list) // the older index has it
	}
	i, found := slices.BinarySearchFunc(list, budget, func(f *filed, name string) int { return cmp.Compare(f.budget.Name, name) })
	switch {
	case f == nil && found:
		list = slices.Delete(list, i, i+1)
	case f != nil && found:
		list[i] = f
	case f != nil:
		list = slices.Insert(list, i, f)
	}
	switch {
	case under == (labelPair{}):
		e.always = list
	case len(list) == 0:
		e.byPair.drop(under)
	default:
		e.byPair.put(under, list)
	}
}

// done files what is new under the pair that the fewest share now. What was filed before stays, though others may share its
// pair by now: few are filed under a pair before many share it, so a request still looks at little.
func (e *indexing) done() *MatchIndex {
	for name, f := range e.fresh {
		fewest := 0
		for _, label := range slices.Sorted(maps.Keys(f.budget.Match)) {
			p := labelPair{label, f.budget.Match[label]}
			if n, _ := e.shared.get(p); fewest == 0 || n < fewest {
				f.under, fewest = p, n
			}
		}
		e.refile(f.under, name, f)
	}
	return &MatchIndex{byName: e.byName.parted, byPair: e.byPair.parted, shared: e.shared.parted, always: e.always}
}
