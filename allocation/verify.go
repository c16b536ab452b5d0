package allocation

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// Evidence of a whole account is taken in this order: all ledgers, then every owner that can be reached, then all ledgers
// once more. Nothing stands still meanwhile, so what only rises is judged by the reading that cannot be too low:
//
//	ledgers (earlier)      owner                          ledgers (later)
//	returned          ≤    returned                                            the giver lowers first (4)
//	                       granted                   ≤    granted              nobody spends what was not granted (3)
//	                       spent + reserved ≤ granted − returned               within the share (2)
//	                       Σ spent + reserved        ≤    highest limit        the cap (2)
//
// So a busy system raises no false alarm, and a broken one no false peace.

// OwnerAccount is one owner's whole account, each budget at one snapshot of its database.
type OwnerAccount struct {
	Region      string  `json:"region"`
	Incarnation string  `json:"incarnation"`
	Now         int64   `json:"now"` // the owner's database clock, Unix microseconds
	Shares      []Share `json:"shares"`
	Usage       []Usage `json:"usage"`
}

// Books are what Verify judges: the readings in the order in which they were taken.
type Books struct {
	Earlier []Ledger       `json:"earlier"`
	Owners  []OwnerAccount `json:"owners"` // one for each region that was read
	Later   []Ledger       `json:"later"`
	Now     Instant        `json:"now"` // when the later ledgers were read
}

// The rules that a Violation names.
const (
	RuleLedger       = "ledger"        // the ledger is not conserved within itself
	RuleGiverFirst   = "giver_first"   // the ledger counted a return that the owner did not make
	RuleGranted      = "granted"       // the owner holds permits that the ledger did not grant
	RuleShare        = "share"         // the owner spent beyond its share
	RuleCap          = "cap"           // all owners together spent beyond the limit
	RuleHome         = "home"          // an instance was spent in a region that is not its home
	RuleConservation = "conservation"  // the classes do not add up
	RuleUnknown      = "unknown_share" // an owner holds a share of a term that no ledger knows and that is not over
)

// Violation is one broken promise, and where.
type Violation struct {
	Rule     string  `json:"rule"`
	Budget   string  `json:"budget"`
	Instance string  `json:"instance,omitempty"`
	Period   Instant `json:"period"`
	Region   string  `json:"region,omitempty"`
	Detail   string  `json:"detail"`
}

// String is one line for a person.
func (v Violation) String() string {
	where := v.Budget
	if v.Instance != "" {
		where += " (" + v.Instance + ")"
	}
	where += ", period " + v.Period.String()
	if v.Region != "" {
		where += ", region " + v.Region
	}
	return fmt.Sprintf("%s: %s [%s]", where, v.Detail, v.Rule)
}

// AccountLine is the account of one budget (or one instance) over a run of periods that stand alike. Every permit of a period
// is in exactly one class:
//
//	limit + overcommitted = spent + reserved + spendable + stranded + unallocated + in transit
type AccountLine struct {
	Budget        string        `json:"budget"`
	Instance      string        `json:"instance,omitempty"`
	Unit          string        `json:"unit"`
	Period        Instant       `json:"period"` // the first
	Until         Instant       `json:"until"`  // the end of the last
	Periods       int           `json:"periods"`
	Generation    Generation    `json:"generation"`
	Limit         int64         `json:"limit"`
	Highest       int64         `json:"highest"`
	Overcommitted int64         `json:"overcommitted"`
	Spent         int64         `json:"spent"`                   // by the owners that were read, and OpeningSpent
	OpeningSpent  int64         `json:"opening_spent,omitempty"` // before the budget was declared
	Reserved      int64         `json:"reserved"`
	Spendable     int64         `json:"spendable"`
	Stranded      int64         `json:"stranded"` // held by owners and incarnations that were not read, whatever they spent of it
	Unallocated   int64         `json:"unallocated"`
	InTransit     int64         `json:"in_transit"` // may be below 0 where Moving: counted back since the owner was read
	Overdraft     int64         `json:"overdraft,omitempty"`
	Moving        bool          `json:"moving,omitempty"` // the ledger changed between its two readings
	Parts         []AccountPart `json:"parts"`
}

// AccountPart is what one incarnation holds of a line, as the ledger has it and as its owner stores it.
type AccountPart struct {
	Holder
	Class          Class `json:"class"`
	Read           bool  `json:"read"`            // the owner was read; else the rest is 0
	LedgerGranted  int64 `json:"ledger_granted"`  // by the later reading
	LedgerReturned int64 `json:"ledger_returned"` // by the later reading
	Granted        int64 `json:"granted"`
	Returned       int64 `json:"returned"`
	Spent          int64 `json:"spent"`
	Reserved       int64 `json:"reserved"`
	Overdraft      int64 `json:"overdraft,omitempty"`
}

// AccountReport is what Verify found. Without violations the account is proven for the owners that were read.
type AccountReport struct {
	Lines      []AccountLine `json:"lines"`
	Violations []Violation   `json:"violations"`
	Unread     []string      `json:"unread,omitempty"` // regions that hold permits and were not read
	Closed     int           `json:"closed,omitempty"` // shares of terms that are over and whose ledgers are gone; not judged
}

// Conserved says whether nothing was found.
func (r AccountReport) Conserved() bool { return len(r.Violations) == 0 }

// Moving says whether some ledger changed between the two readings, so that its lines are no still picture.
func (r AccountReport) Moving() bool {
	return slices.ContainsFunc(r.Lines, func(l AccountLine) bool { return l.Moving })
}

// Verify judges the whole account. It is pure: whoever holds the same books comes to the same report.
func Verify(b Books) AccountReport {
	v := verifier{
		earlier: map[ShareRef]*Ledger{}, owners: map[string]*OwnerAccount{}, shares: map[ShareRef][]ownedShare{},
		usage: map[ShareRef][]ownedUsage{}, report: AccountReport{Lines: []AccountLine{}, Violations: []Violation{}}, unread: map[string]bool{},
	}
	for i := range b.Earlier {
		l := &b.Earlier[i]
		v.earlier[ShareRef{Budget: l.Budget, Term: l.Periods.Start()}] = l
	}
	for i := range b.Owners {
		v.enter(&b.Owners[i])
	}
	later := slices.SortedFunc(slices.Values(b.Later), func(x, y Ledger) int {
		return cmp.Or(compare(x.Budget, y.Budget), compare(x.Periods.Start(), y.Periods.Start()))
	})
	known := map[ShareRef]bool{}
	for i := range later {
		known[ShareRef{Budget: later[i].Budget, Term: later[i].Periods.Start()}] = true
		v.ledger(&later[i])
	}
	v.unknownShares(known, b.Now)
	v.report.Unread = slices.Sorted(maps.Keys(v.unread))
	return v.report
}

type verifier struct {
	earlier map[ShareRef]*Ledger
	owners  map[string]*OwnerAccount // by region
	shares  map[ShareRef][]ownedShare
	usage   map[ShareRef][]ownedUsage
	report  AccountReport
	unread  map[string]bool
}

type ownedShare struct {
	Holder
	Share
}

type ownedUsage struct {
	Holder
	Usage
}

func (v *verifier) enter(o *OwnerAccount) {
	v.owners[o.Region] = o
	h := Holder{Region: o.Region, Incarnation: o.Incarnation}
	for _, s := range o.Shares {
		ref := ShareRef{Budget: s.Budget, Term: s.Term()}
		v.shares[ref] = append(v.shares[ref], ownedShare{h, s})
	}
	for _, u := range o.Usage {
		ref := ShareRef{Budget: u.Budget, Term: u.Term}
		v.usage[ref] = append(v.usage[ref], ownedUsage{h, u})
	}
}

// unknownShares looks for shares and usage of terms that no ledger speaks of. Those that are over were closed: the ledger
// goes before the owners forget.
func (v *verifier) unknownShares(known map[ShareRef]bool, now Instant) {
	for ref, list := range v.shares {
		for _, s := range list {
			switch {
			case known[ref]:
			case s.Periods.End() <= now:
				v.report.Closed++
			default:
				v.broken(Violation{
					Rule: RuleUnknown, Budget: ref.Budget, Period: ref.Term, Region: s.Region,
					Detail: "the owner holds a share of this term, and no ledger knows the term",
				})
			}
		}
	}
	for ref, list := range v.usage {
		for _, u := range list {
			held := slices.ContainsFunc(v.shares[ref], func(s ownedShare) bool { return s.Holder == u.Holder })
			if !held && u.Until > now {
				v.broken(Violation{
					Rule: RuleUnknown, Budget: u.Budget, Instance: u.Instance, Period: u.Period, Region: u.Region,
					Detail: "permits are counted of a period of which the owner holds no share",
				})
			}
		}
	}
	slices.SortFunc(v.report.Violations, func(a, b Violation) int {
		return cmp.Or(compare(a.Budget, b.Budget), compare(a.Instance, b.Instance), compare(a.Period, b.Period), compare(a.Region, b.Region), compare(a.Rule, b.Rule))
	})
}

func (v *verifier) broken(x Violation) { v.report.Violations = append(v.report.Violations, x) }
