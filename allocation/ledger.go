package allocation

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// LedgerFormat is the format number of a Ledger document. A process that reads another one leaves the document alone.
const LedgerFormat = 1

// Bounds of a Ledger document.
const (
	// MaxEntries is how many runs of differing periods one document lists; a change beyond it waits for the next term.
	MaxEntries = 256
	// maxStamps is how many of its latest generations a document remembers by stamp.
	maxStamps = 32
)

// Class says which traffic may spend a permit.
type Class string

// General permits are for all traffic; Protected ones for essential traffic only.
const (
	General   Class = "general"
	Protected Class = "protected"
)

// Generation stamps one state of a ledger. Number rises with every change of an allocation; Stamp is random, so that two
// ledgers that descend from one backup cannot be taken for each other. It is never derived from an etcd revision.
type Generation struct {
	Number int64  `json:"number"`
	Stamp  string `json:"stamp"`
}

// String is the number and the stamp, as reports print it: "7·5f0c9a41d2e83b60".
func (g Generation) String() string { return fmt.Sprintf("%d·%s", g.Number, g.Stamp) }

// History names one line of descent of what etcd holds. A restored etcd is a new history.
type History struct {
	Number int64  `json:"number"`
	Stamp  string `json:"stamp"`
}

// Members are the regions of a deployment, as a ledger sees them.
type Members struct {
	Number   int64    // rises whenever any of the rest changes
	Regions  []string // all that are registered
	Draining []string // those that give back and take no more
	Holders  []Holder // the current incarnations of those that have one and are not draining

	Seen map[string]int64 // what each region used and lacked of late, for the bases of policy demand; nil: not known
	Lost []LostHolder     // incarnations that nobody can speak for: see Standing
}

// Holder is an incarnation to which a ledger may grant: one unbroken life of a region's owner.
type Holder struct {
	Region      string `json:"region"`
	Incarnation string `json:"incarnation"`
}

// Ledger is the coordinator's account of one budget over one term: who was granted what, in each of its periods.
//
// An Entry holds for every period from its From on, up to the next entry, so a whole term of a minute budget is one
// entry. Take a limit of 100 split 60 to 40 over 90 periods:
//
//	from 0: limit 100   a: granted 60 returned 0 target 60    b: granted 40 returned 0 target 40
//
// The limit is lowered to 50 while period 7 runs. Nothing can be taken from an owner, so only targets change:
//
//	from 0: limit 100   a: 60 0 60    b: 40 0 40
//	from 7: limit  50   a: 60 0 30    b: 40 0 20        overcommitted 50
//
// When a states that it has returned 30 of every period from 7 on, the entry becomes a: 60 30 30, overcommitted 20.
//
// Everything that moves permits works so: it sets targets; what a region holds too much comes back by its own return,
// and what is then unallocated goes to those below their target (invariant 4).
type Ledger struct {
	Format     int          `json:"format"`
	Budget     string       `json:"budget"`
	Unit       string       `json:"unit"`
	Version    int64        `json:"version"`            // of the budget, when this document last followed it
	Members    int64        `json:"members,omitempty"`  // the number of the members that it last followed
	Template   bool         `json:"template,omitempty"` // counts are per instance, and returns are not counted
	Policy     Policy       `json:"policy"`
	Regions    []string     `json:"regions"` // those that the term names, sorted; hash_of picks among them
	Periods    Periods      `json:"periods"`
	Generation Generation   `json:"generation"`
	Stamps     []Generation `json:"stamps,omitempty"` // the latest generations before this one, oldest first
	Entries    []Entry      `json:"entries"`
	History    History      `json:"history,omitzero"` // under which it was last settled: see Settle
}

// Entry holds the limit and the allocations of a run of periods.
type Entry struct {
	From        int          `json:"from"` // index of its first period in the term
	Limit       int64        `json:"limit"`
	Highest     int64        `json:"highest"`             // limit that these periods ever had: what is out never exceeds it
	Allocations []Allocation `json:"allocations"`         // sorted by region, incarnation, class
	Protected   int64        `json:"protected,omitempty"` // of Limit: a floor that only essential traffic may go below
	// OpeningSpent was spent elsewhere before the budget was declared. It is out from the start, held by nobody, and never
	// changes.
	OpeningSpent int64 `json:"opening_spent,omitempty"`
}

// Allocation is what one incarnation may spend in one period, in one class of permits.
//
// Granted is written by the ledger only, Returned follows the owner's statements only, and both only rise. Target is what
// the ledger would have the incarnation hold; the difference is on its way.
type Allocation struct {
	Holder
	Class    Class `json:"class"`
	Granted  int64 `json:"granted"`
	Returned int64 `json:"returned"`
	Target   int64 `json:"target"`
	Moved    int64 `json:"moved,omitempty"` // of Target, by manual rebalances: below 0 for a giver
	// Protected is how much of Target only essential traffic may spend.
	Protected int64 `json:"protected,omitempty"`
}

// Held is the permits that the incarnation may still have, or have spent: granted and not returned.
func (a Allocation) Held() int64 { return a.Granted - a.Returned }

// ErrTooManyEntries refuses a change that would list more differing periods than a document may; it can be made in the
// next term.
var ErrTooManyEntries = errors.New("the running term already lists 256 runs of periods that differ; the change can take effect with the next term")

// OpenLedger makes the document of a new term: the limit is split over the holders by the budget's policy, and granted at
// once, since nothing of these periods is out yet. A region of the policy that has no incarnation yet gets nothing: its
// part stays unallocated until Follow is called with its holder.
//
// The budget's OpeningSpent counts in the term's first period: whoever opens a later term of the budget leaves it out.
func OpenLedger(b Budget, version int64, periods Periods, m Members, gen Generation) Ledger {
	l := Ledger{
		Format: LedgerFormat, Budget: b.Name, Unit: b.Unit, Template: b.IsTemplate(),
		Policy: b.Allocation, Regions: without(m.Regions, m.Draining), Periods: periods,
		Entries: []Entry{{}},
	}
	l, err := l.openWith(b.OpeningSpent).Follow(b, version, 0, m, gen)
	if err != nil {
		panic("a new term has one entry: " + err.Error())
	}
	return l
}

// without is the names that are not among `drop`, sorted.
func without(names, drop []string) []string {
	names = slices.DeleteFunc(slices.Clone(names), func(n string) bool { return slices.Contains(drop, n) })
	slices.Sort(names)
	return names
}

// Follow brings the periods from index `from` on to the budget as it is now: its limit, and the targets that its policy
// gives to the members. Incarnations that are not among the holders get target 0: they are asked to return what they can.
// Periods before `from` keep what they had, and of them such incarnations are granted nothing more. The generation rises. It
// fails with ErrTooManyEntries only.
//
// A draining region's weight goes to the others; the part of a region that has no incarnation yet stays unallocated.
// Manual moves stand while the budget's version does, as long as both of their regions are holders.
func (l Ledger) Follow(b Budget, version int64, from int, m Members, gen Generation) (Ledger, error) {
	l = l.cut(from).cutAtEnd(b.Override, from)
	sameVersion, lost := version == l.Version, l.unprovenLimits(m)
	l.Version, l.Members = version, m.Number
	if !l.Template {
		l.Policy = b.Allocation
	}
	for i := range l.Entries {
		e := &l.Entries[i]
		if e.From < from {
			e.promiseNoMore(func(h Holder) bool { return !slices.Contains(m.Holders, h) })
			continue
		}
		left := b.In(l.Periods.At(e.From).Start)
		e.Protected = left.Protected
		l.raise(e, *left.Limit, lost)
		givable := e.Givable()
		left.Limit = &givable
		split := l.split(left, m)
		if l.followsDemand() {
			split = e.demandTargets(left, m, split)
		}
		keep := sameVersion && e.movesAmong(m.Holders)
		for j := range e.Allocations {
			a := &e.Allocations[j]
			if a.Target = 0; !keep {
				a.Moved = 0
			}
		}
		if keep {
			e.fitMoves(m.Holders, split)
		}
		for _, h := range m.Holders {
			// A region that gets nothing is told so too: it must know the term to say why it refuses.
			a := e.allocation(h, General)
			a.Target = split[h.Region] + a.Moved
		}
	}
	l = l.grant(gen)
	if len(l.Entries) > MaxEntries {
		return l, ErrTooManyEntries
	}
	return l, nil
}

// promiseNoMore lets nobody of those that take no more be granted anything: what comes back of a period that is over for the
// coordinator may still run for its owners.
func (e *Entry) promiseNoMore(to func(Holder) bool) {
	for i := range e.Allocations {
		if a := &e.Allocations[i]; to(a.Holder) {
			a.Target = min(a.Target, a.Held())
		}
	}
}

// split is the policy's share of each region, by the policy and the regions that this term names.
func (l Ledger) split(b Budget, m Members) map[string]int64 {
	b.Allocation = l.Policy
	if b.Allocation.Policy == "fixed" {
		weights := map[string]int64{}
		for r, w := range l.Policy.Weights {
			if w > 0 && !slices.Contains(m.Draining, r) {
				weights[r] = w
			}
		}
		if len(weights) == 0 {
			return nil
		}
		b.Allocation.Weights = weights
	}
	if l.followsDemand() {
		return b.demandBase(*b.Limit, l.Regions, m.Seen)
	}
	return b.Split(*b.Limit, l.Regions)
}

// cut returns a deep copy in which an entry begins at period `from`.
func (l Ledger) cut(from int) Ledger {
	l.Stamps = slices.Clone(l.Stamps)
	entries := make([]Entry, 0, len(l.Entries)+1)
	for i, e := range l.Entries {
		e.Allocations = slices.Clone(e.Allocations)
		entries = append(entries, e)
		next := l.Periods.Len()
		if i+1 < len(l.Entries) {
			next = l.Entries[i+1].From
		}
		if e.From < from && from < next {
			e.From, e.Allocations = from, slices.Clone(e.Allocations)
			entries = append(entries, e)
		}
	}
	l.Entries = entries
	return l
}

// grant raises what each incarnation was granted towards its target, as far as permits are unallocated (invariant 4), and
// stamps the new state.
func (l Ledger) grant(gen Generation) Ledger {
	for i := range l.Entries {
		e := &l.Entries[i]
		l.protect(e)
		for j := range e.Allocations {
			a := &e.Allocations[j]
			if want := a.Target - a.Held(); want > 0 {
				a.Granted += min(want, l.grantable(*e, a.Holder))
			}
		}
	}
	l.Entries = merge(l.Entries)
	if l.Generation.Number > 0 {
		l.Stamps = append(l.Stamps, l.Generation)
		l.Stamps = l.Stamps[max(0, len(l.Stamps)-maxStamps):]
	}
	l.Generation = gen
	return l
}

// merge drops entries that say the same as the one before them.
func merge(entries []Entry) []Entry {
	out := entries[:0]
	for _, e := range entries {
		if n := len(out); n > 0 && out[n-1].Limit == e.Limit && out[n-1].Highest == e.Highest && out[n-1].OpeningSpent == e.OpeningSpent && out[n-1].Protected == e.Protected && slices.Equal(out[n-1].Allocations, e.Allocations) {
			continue
		}
		out = append(out, e)
	}
	return out
}

// perInstanceHome says that every region holds the whole limit, for those instances of a template that are at home there.
func (l Ledger) perInstanceHome() bool {
	return l.Template && l.Policy.Policy == "home" && l.Policy.Region == ""
}

// out is how many permits of a period (for a template: of one instance) may be held or spent by owners, or were spent before.
func (l Ledger) out(e Entry) int64 {
	if l.perInstanceHome() {
		return e.mostInOneRegion()
	}
	sum := e.OpeningSpent
	for _, a := range e.Allocations {
		sum += a.Held()
	}
	return sum
}

// mostInOneRegion is what the incarnations of the region that holds most hold together, in all classes.
func (e Entry) mostInOneRegion() (most int64) {
	held := map[string]int64{}
	for _, a := range e.Allocations {
		held[a.Region] += a.Held()
		most = max(most, held[a.Region])
	}
	return most
}

// Out is how many permits of the period of index i are out: spent before it was declared, or held by owners and not returned. For a
// template it is of one instance.
func (l Ledger) Out(i int) int64 { return l.out(l.EntryAt(i)) }

// unallocated is what may still be granted to h. Where each instance has one home, regions do not share a limit.
func (l Ledger) unallocated(e Entry, h Holder) int64 {
	if !l.perInstanceHome() {
		return max(0, e.Limit-l.out(e))
	}
	var held int64
	for _, a := range e.Allocations {
		// Several incarnations of one region do share it: a new one does not speak for the one before it.
		if a.Region == h.Region {
			held += a.Held()
		}
	}
	return max(0, e.Limit-held)
}

// EntryAt is the entry that holds for the period of index i.
func (l Ledger) EntryAt(i int) Entry {
	n, found := slices.BinarySearchFunc(l.Entries, i, func(e Entry, i int) int { return e.From - i })
	if !found {
		n--
	}
	return l.Entries[n]
}

// Unallocated is max(0, limit − Σ(granted − returned) − opening spent) of the period of index i, in the ledger.
func (l Ledger) Unallocated(i int) int64 {
	e := l.EntryAt(i)
	return max(0, e.Limit-l.out(e))
}

// Overcommitted is how far the limit of the period of index i lies below what is already out.
func (l Ledger) Overcommitted(i int) int64 {
	e := l.EntryAt(i)
	return max(0, l.out(e)-e.Limit)
}

// allocation finds or makes the allocation of h in class c.
func (e *Entry) allocation(h Holder, c Class) *Allocation {
	if a := e.find(h, c); a != nil {
		return a
	}
	e.Allocations = append(e.Allocations, Allocation{Holder: h, Class: c})
	slices.SortFunc(e.Allocations, func(a, b Allocation) int {
		return strings.Compare(a.Region+"\x00"+a.Incarnation+"\x00"+string(a.Class), b.Region+"\x00"+b.Incarnation+"\x00"+string(b.Class))
	})
	return e.find(h, c)
}

// movesAmong says whether what was moved by hand went from holders to holders.
func (e *Entry) movesAmong(holders []Holder) bool {
	var sum int64
	for _, a := range e.Allocations {
		if slices.Contains(holders, a.Holder) {
			sum += a.Moved
		}
	}
	return sum == 0
}

func (e *Entry) find(h Holder, c Class) *Allocation {
	for i := range e.Allocations {
		if a := &e.Allocations[i]; a.Holder == h && a.Class == c {
			return a
		}
	}
	return nil
}
