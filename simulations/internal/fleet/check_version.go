package fleet

import (
	"slices"

	"tranche/allocation"
	"tranche/coordinator"
)

// versionLimit is the limit of one version of a budget, and what of it is an override.
type versionLimit struct {
	limit    int64
	override *allocation.Override
	under    allocation.History // in which it was given out
}

// limitOf is the limit that a budget's document says.
func limitOf(d coordinator.BudgetDocument) int64 {
	if d.Deleted {
		return 0
	}
	return d.Budget.LimitOrZero()
}

func (l versionLimit) same(as versionLimit) bool {
	return l.limit == as.limit && (l.override == nil) == (as.override == nil) && (l.override == nil || *l.override == *as.override)
}

// versionGiven judges that a version has one limit (invariant 8). Where etcd went back and nobody has noticed it yet, it gives
// out once more what it gave out in what is lost: both were told to owners, and the stricter counts once all have stated. Where
// a history has begun since, versions are above all that were ever given out, but in histories of which nobody had told it:
// those that are lost and have no lower number. The first owner that knows one of them contradicts it.
func (c *checks) versionGiven(v *budgetView, d coordinator.BudgetDocument) {
	now := versionLimit{limitOf(d), d.Budget.Override, c.standing.History}
	given := v.limits[d.Version]
	if slices.ContainsFunc(given, now.same) {
		return
	}
	known := func(l versionLimit) bool { return l.under == now.under || l.under.Number < now.under.Number }
	c.must(len(given) == 0 || d.Version > v.doc.Version && (c.unnoticed || !slices.ContainsFunc(given, known)), 8, "budget %s, version %d, had limits %+v and now %d", d.Budget.Name, d.Version, given, now.limit)
	v.limits[d.Version] = append(given, now)
}

// limitIn is the limit of a version in a period: an override counts only in periods that begin before its end. Where there
// are several it is the one that was told, if it is among them.
func (v *budgetView) limitIn(version int64, period allocation.Instant, told int64) (limit int64, known bool) {
	for _, l := range v.limits[version] {
		if o := l.override; o != nil && period >= o.Until {
			l.limit -= o.Units
		}
		if limit, known = l.limit, true; limit == told {
			break
		}
	}
	return limit, known
}
