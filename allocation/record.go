package allocation

import (
	"cmp"
	"slices"
)

// PeriodRecord is what became of one period of a closed term, or of a run of them: then every number is a sum over the
// run. In words of DESIGN.md, and with nothing in transit any more (invariant 1):
//
//	limit + overcommitted = spent + reserved + unused + stranded
//
// A budget of 100 a minute over three minutes, of which one was used, leaves two records. a held 60 and stated that it
// spent 50; b held 40, and never said anything again:
//
//	10:00 to 10:01  limit 100  spent 50  unused 10  stranded 40
//	10:01 to 10:03  limit 200  spent  0  unused 120 stranded 80
//
// Of a template the limit is that of one instance, the other numbers are sums over the instances that were seen, and
// unused is 0: an instance that never came is nobody's permit.
type PeriodRecord struct {
	From    Instant `json:"from"`
	Until   Instant `json:"until"`
	Periods int     `json:"periods"`
	Limit   int64   `json:"limit"`
	RecordSums
	Overcommitted int64         `json:"overcommitted,omitempty"`
	Unused        int64         `json:"unused,omitempty"` // free to the end: unallocated, or held by an owner that stated all
	Shares        []ShareRecord `json:"shares,omitempty"` // of the owners that held or used something
}

// RecordSums is what owners did.
type RecordSums struct {
	Spent     int64 `json:"spent"`
	Reserved  int64 `json:"reserved,omitempty"` // by reservations that were still open: what they settle comes late
	Overdraft int64 `json:"overdraft,omitempty"`
	// Stranded was held by owners that never stated what became of it, and so was never recovered.
	Stranded int64 `json:"stranded,omitempty"`
}

// ShareRecord is one owner's part.
type ShareRecord struct {
	Holder    int   `json:"holder"` // its place in the list of accounts
	Granted   int64 `json:"granted"`
	Returned  int64 `json:"returned,omitempty"`
	Instances int64 `json:"instances,omitempty"`
	RecordSums
}

// Account is what an incarnation last stated of a term.
type Account struct {
	Holder
	Statement ShareStatement
	// Final: it stated all that it did, and spends nothing more. Otherwise what it holds is stranded for good.
	Final bool
}

// Record is what is to be kept of the ledger, period by period, once it is closed. Periods that are alike stand together.
func (l Ledger) Record(accounts []Account) []PeriodRecord {
	var out []PeriodRecord
	used := l.usedBy(accounts)
	for n, e := range l.Entries {
		from := e.From
		for _, k := range used {
			if k < e.From || k >= l.endOf(n) {
				continue
			}
			if k > from {
				out = append(out, l.record(accounts, from, k))
			}
			out = append(out, l.record(accounts, k, k+1))
			from = k + 1
		}
		if from < l.endOf(n) {
			out = append(out, l.record(accounts, from, l.endOf(n)))
		}
	}
	return out
}

// usedBy are the periods of which some account says something, in order.
func (l Ledger) usedBy(accounts []Account) []int {
	var used []int
	for _, a := range accounts {
		for _, u := range a.Statement.Usage {
			if i, ok := l.Periods.Index(u.Period); ok {
				used = append(used, i)
			}
		}
	}
	slices.Sort(used)
	return slices.Compact(used)
}

// record is the periods [from, end), of which only the first is used, and only if it is the only one.
func (l Ledger) record(accounts []Account, from, end int) PeriodRecord {
	n := int64(end - from)
	r := PeriodRecord{From: l.Periods.At(from).Start, Until: l.Periods.At(end - 1).End, Periods: end - from, Limit: multiply(l.EntryAt(from).Limit, n)}
	if !l.Template {
		r.Unused, r.Overcommitted = multiply(l.Unallocated(from), n), multiply(l.Overcommitted(from), n)
	}
	for i, a := range accounts {
		left := l.RemainderAt(a.Holder, from, a.Statement, 0)
		s := ShareRecord{Holder: i, Granted: multiply(left.Granted, n), Returned: multiply(left.Returned, n), RecordSums: RecordSums{Spent: left.Spent, Reserved: left.Reserved}}
		for _, u := range a.Statement.Usage {
			if u.Period == r.From {
				s.Overdraft, s.Instances = addUp(s.Overdraft, u.Overdraft), max(s.Instances, u.Instances)
			}
		}
		if rest := multiply(left.Stranded, n); !a.Final {
			s.Stranded = rest
		} else if !l.Template {
			r.Unused = addUp(r.Unused, rest)
		}
		if s.Granted != 0 || s.RecordSums != (RecordSums{}) {
			r.Shares, r.RecordSums = append(r.Shares, s), r.RecordSums.Add(s.RecordSums)
		}
	}
	return r
}

// Add sums two.
func (s RecordSums) Add(o RecordSums) RecordSums {
	return RecordSums{
		Spent: addUp(s.Spent, o.Spent), Reserved: addUp(s.Reserved, o.Reserved), Overdraft: addUp(s.Overdraft, o.Overdraft), Stranded: addUp(s.Stranded, o.Stranded),
	}
}

// SumOf is what a statement says of a share, over all of its periods.
func SumOf(st ShareStatement) (sum RecordSums) {
	for _, u := range st.Usage {
		sum = sum.Add(RecordSums{Spent: u.Spent, Reserved: u.Reserved, Overdraft: u.Overdraft})
	}
	return sum
}

// Join is two records that follow each other as one.
func (r PeriodRecord) Join(o PeriodRecord) PeriodRecord {
	out := PeriodRecord{
		From: r.From, Until: o.Until, Periods: r.Periods + o.Periods, Limit: addUp(r.Limit, o.Limit), RecordSums: r.RecordSums.Add(o.RecordSums),
		Overcommitted: addUp(r.Overcommitted, o.Overcommitted), Unused: addUp(r.Unused, o.Unused), Shares: slices.Clone(r.Shares),
	}
	for _, s := range o.Shares {
		i := slices.IndexFunc(out.Shares, func(t ShareRecord) bool { return t.Holder == s.Holder })
		if i < 0 {
			out.Shares = append(out.Shares, s)
			continue
		}
		t := &out.Shares[i]
		t.Granted, t.Returned, t.Instances = addUp(t.Granted, s.Granted), addUp(t.Returned, s.Returned), addUp(t.Instances, s.Instances)
		t.RecordSums = t.RecordSums.Add(s.RecordSums)
	}
	slices.SortFunc(out.Shares, func(a, b ShareRecord) int { return cmp.Compare(a.Holder, b.Holder) })
	return out
}

// Coarser joins records that follow each other, two and two: half as many, which say as much in sum.
func Coarser(records []PeriodRecord) []PeriodRecord {
	var out []PeriodRecord
	for i := 0; i < len(records); i += 2 {
		if i+1 == len(records) {
			return append(out, records[i])
		}
		out = append(out, records[i].Join(records[i+1]))
	}
	return out
}
