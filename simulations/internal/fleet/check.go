package fleet

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"tranche/allocation"
	"tranche/coordinator"
	"tranche/simulations/internal/ownertwin"
)

// Violation is an invariant that did not hold. Invariant 0 is a run that did not converge, or that broke down.
type Violation struct {
	Invariant int
	Detail    string
	At        time.Duration
}

func (v *Violation) Error() string {
	if v.Invariant == 0 {
		return v.Detail
	}
	return fmt.Sprintf("invariant %d: %s", v.Invariant, v.Detail)
}

// checks judges what truly happens: every commit of every database when it is durable, every revision of etcd, and every
// answer that a client hears.
type checks struct {
	fleet    *fleet
	ledgers  map[allocation.ShareRef]*ledgerView
	ends     map[string]allocation.Instant // by budget: the end of the last term that was opened
	budgets  map[string]*budgetView
	members  map[string]*coordinator.RegionDocument
	formerly map[string][]string // by region: incarnations that were the present one where etcd went back
	number   coordinator.Deployment

	used       map[allocation.UsageKey]int64    // what truly is spent or reserved: see admissionView.counted
	outlived   map[allocation.UsageKey]outlived // by the general class
	terms      map[allocation.UsageKey]allocation.Instant
	admissions map[claimKey][]*admissionView // more than one, if it was forgotten or lost, and then made again
	lives      map[string]*life              // by incarnation
	claims     map[claimKey]*claim
	byDatabase map[string]*region
	databases  map[string]*ownertwin.Database // of regions of which there is a copy, by name
	copies     map[string][]*ownertwin.Database
	closed     map[string]allocation.Instant // by region: up to which it ever closed its periods
	standing   allocation.Standing           // of etcd
	restores   int                           // of etcd
	unnoticed  bool                          // etcd went back, and no history has begun since
	revisions  int64                         // the highest that etcd ever had, also before it was restored
	latest     allocation.Instant            // that the clock of any replica ever showed
	sealed     map[sealKey]bool              // what a seal was committed of
	linear     *linear
	order      *order
	judged     map[int]int
	modes      map[modeKey]string              // how each id is enforced
	doomed     map[string]bool                 // incarnations of which a commit was lost
	damaged    map[string]bool                 // regions of which one was, of any incarnation, or whose incarnation etcd lost
	stored     map[ownShare][]allocation.Share // what those commits stored of shares
	departed   map[string]bool                 // incarnations that were the present one of a region when that was removed
	spent      map[spentKey]int64              // what each incarnation ever spent
	acts       actsView
	twice      twice
}

type claimKey struct {
	region string
	key    allocation.IDKey
}

// budgetView is what is known of one budget: its versions, and the limit that counts now.
type budgetView struct {
	doc    coordinator.BudgetDocument
	limits map[int64][]versionLimit // by version; more than one, if etcd lost it and gave it out again
	unit   string                   // never changes
	first  bool                     // the present revision opens its first term, which was not seen yet
}

func newChecks(f *fleet) *checks {
	c := &checks{
		fleet: f, ledgers: map[allocation.ShareRef]*ledgerView{}, ends: map[string]allocation.Instant{}, budgets: map[string]*budgetView{},
		members: map[string]*coordinator.RegionDocument{}, formerly: map[string][]string{}, used: map[allocation.UsageKey]int64{}, outlived: map[allocation.UsageKey]outlived{}, terms: map[allocation.UsageKey]allocation.Instant{},
		admissions: map[claimKey][]*admissionView{}, lives: map[string]*life{}, databases: map[string]*ownertwin.Database{}, copies: map[string][]*ownertwin.Database{}, claims: map[claimKey]*claim{}, byDatabase: map[string]*region{}, closed: map[string]allocation.Instant{}, sealed: map[sealKey]bool{}, judged: map[int]int{},
	}
	c.linear, c.modes, c.doomed = newLinear(c), map[modeKey]string{}, map[string]bool{}
	c.damaged = map[string]bool{}
	c.departed, c.spent, c.stored = map[string]bool{}, map[spentKey]int64{}, map[ownShare][]allocation.Share{}
	c.twice.lives = map[string]*besideItself{}
	c.actsAgain()
	f.etcd.OnCommit = c.revision
	c.order = newOrder(c)
	f.truth.OnCommit = c.commit
	f.truth.OnShow = c.shown
	f.truth.OnLost = c.lost
	return c
}

// fail ends the run.
func (c *checks) fail(invariant int, format string, args ...any) {
	c.fleet.w.Fail(c.violation(invariant, format, args...))
}

func (c *checks) violation(invariant int, format string, args ...any) *Violation {
	return &Violation{Invariant: invariant, Detail: fmt.Sprintf(format, args...), At: c.fleet.w.Elapsed()}
}

// must judges once by an invariant.
func (c *checks) must(holds bool, invariant int, format string, args ...any) {
	c.judged[invariant]++
	if !holds {
		c.fail(invariant, format, args...)
	}
}

// revision judges one revision of etcd.
func (c *checks) revision(who string, number int64, events []coordinator.Event) {
	c.fleet.faults.around(who)
	c.clocks()
	c.revisions = max(c.revisions, number)
	c.judgeActs(events)
	c.judgeRebalances(events)
	for _, prefix := range []string{"history", "deployment", "budgets/", "regions/", "ledgers/"} {
		for _, e := range events {
			if kind, is := strings.CutPrefix(e.Key, coordinator.Root+prefix); is {
				c.event(prefix, kind, e)
			}
		}
	}
}

func read[T any](c *checks, e coordinator.Event) (out T) {
	if err := json.Unmarshal(e.Value, &out); err != nil {
		c.fail(0, "read %s: %v", e.Key, err)
	}
	return out
}

func (c *checks) event(prefix, rest string, e coordinator.Event) {
	switch prefix {
	case "history":
		c.standingChanged(read[coordinator.StandingDocument](c, e).Standing)
	case "deployment":
		next := read[coordinator.Deployment](c, e)
		c.must(next.Config >= c.number.Config && next.Members >= c.number.Members, 8, "the deployment's numbers fell from %d, %d to %d, %d",
			c.number.Config, c.number.Members, next.Config, next.Members)
		c.number = next
	case "budgets/":
		c.budgetChanged(read[coordinator.BudgetDocument](c, e))
	case "regions/":
		d := read[coordinator.RegionDocument](c, e)
		c.judgeRegion(c.members[d.Region], d)
		c.members[d.Region] = &d
	case "ledgers/":
		if e.Deleted {
			c.ledgerClosed(e.Key)
			return
		}
		c.ledgerChanged(e.Key, read[allocation.Ledger](c, e))
	}
}

func (c *checks) budgetChanged(d coordinator.BudgetDocument) {
	name := d.Budget.Name
	v := c.budgets[name]
	if v == nil {
		v = &budgetView{limits: map[int64][]versionLimit{}, unit: d.Budget.Unit}
		c.budgets[name] = v
	} else {
		c.must(d.Version >= v.doc.Version && d.Number >= v.doc.Number && d.OpenedThrough >= v.doc.OpenedThrough, 8,
			"budget %s went from version %d, number %d, opened through %s to %d, %d, %s", name, v.doc.Version, v.doc.Number, v.doc.OpenedThrough,
			d.Version, d.Number, d.OpenedThrough)
	}
	v.first = v.doc.OpenedThrough == 0
	if d.Lost {
		v.doc = d // only the name and the last version of it are known: it says nothing of a limit
		return
	}
	c.versionGiven(v, d)
	v.doc = d
	limit := limitOf(d)
	for _, l := range c.ledgers {
		if l.doc.Budget == name {
			l.highest = max(l.highest, limit)
		}
	}
}

// restored forgets what etcd is to go on from: it went back, which is the fault of nobody who runs on it. What owners hold
// is judged against all that was ever granted.
func (c *checks) restored() {
	c.restores, c.unnoticed = c.restores+1, true
	c.number, c.standing = coordinator.Deployment{}, allocation.Standing{}
	clear(c.ends)
	c.actsAgain()
	for _, v := range c.budgets {
		v.doc = coordinator.BudgetDocument{}
	}
	for _, l := range c.ledgers {
		l.lost = append(l.lost, l.doc)
		items := c.fleet.etcd.Items(l.key)
		if l.restored = len(items) == 0; !l.restored {
			l.doc = read[allocation.Ledger](c, coordinator.Event{Item: items[0]})
		}
		l.closed = l.restored && len(c.fleet.etcd.Items(closingOf(l.key))) > 0
	}
	for name, d := range c.members {
		c.formerly[name] = append(c.formerly[name], d.Incarnation)
		delete(c.members, name)
	}
	for _, item := range c.fleet.etcd.Items(coordinator.Root + "regions/") {
		d := read[coordinator.RegionDocument](c, coordinator.Event{Item: item})
		c.members[d.Region] = &d
	}
	for _, item := range c.fleet.etcd.Items(coordinator.Root + "history") {
		c.standing = read[coordinator.StandingDocument](c, coordinator.Event{Item: item}).Standing
	}
	for _, item := range c.fleet.etcd.Items(coordinator.Root + "deployment") {
		c.event("deployment", "", coordinator.Event{Item: item})
	}
	for _, item := range c.fleet.etcd.Items(coordinator.Root + "budgets/") {
		d := read[coordinator.BudgetDocument](c, coordinator.Event{Item: item})
		if v := c.budgets[d.Budget.Name]; v != nil {
			v.doc = d
		}
	}
}

// exhausted counts the periods of which every permit that ever was to be had was spent.
func (c *checks) exhausted() (n int) {
	for _, t := range c.fleet.truth.Totals() {
		ref := allocation.ShareRef{Budget: t.Budget, Term: c.terms[t.UsageKey]}
		if l := c.ledgers[ref]; l != nil && t.Spent > 0 && t.Spent >= l.limitOf(t.Period) {
			n++
		}
	}
	return n
}

func (c *checks) regionOf(database string) *region {
	if r := c.byDatabase[database]; r != nil {
		return r
	}
	for _, r := range c.fleet.regions {
		if r.db.Name() == database {
			c.byDatabase[database] = r
			return r
		}
	}
	return nil
}

func (c *checks) databaseOf(name string) *ownertwin.Database {
	for _, r := range c.fleet.regions {
		if r.name == name {
			return r.db
		}
	}
	return nil
}
