package protocol

import "tranche/allocation"

// anyID stands for every admission id: each request is new, and is not asked again.
var anyID = allocation.IDKey{Credential: "caller", Tenant: "tenant", ID: "id"}

// Decide asks the owner for an admission now. The id is remembered no longer than the call: requests are all different.
func (o *Owner) Decide(labels allocation.Labels, costs map[string]int64) allocation.Decision {
	return o.decide(allocation.Spend, labels, costs)
}

func (o *Owner) decide(op allocation.Op, labels allocation.Labels, costs map[string]int64) allocation.Decision {
	now := o.w.instant()
	l := &o.locked
	l.Now = o.w.now
	plan := l.Catalogue.Plan(allocation.Request{Op: op, Key: anyID, Labels: labels, Costs: costs}, now)
	for _, line := range plan.Lines {
		if line.Problem == "" && l.Usage[line.UsageKey] == nil {
			o.make(line)
		}
	}
	out := l.Decide(plan)
	if out.Again {
		o.w.violated("%s: a request is never decided", o.region.Name)
	}
	if op == allocation.Spend && out.Decision.Admitted() {
		for _, line := range plan.Lines {
			o.check(l.Usage[line.UsageKey])
			if sh := o.shares[allocation.ShareRef{Budget: line.UsageKey.Budget, Term: line.Term}]; sh != nil {
				sh.changed++
			}
		}
	}
	clear(l.IDs)
	clear(l.Inserted)
	clear(l.ChangedUsage)
	clear(l.None)
	clear(l.Full)
	return out.Decision
}

// make makes the usage row of a period, or an instance, that is used for the first time.
func (o *Owner) make(line allocation.Line) {
	key := line.UsageKey
	sh := o.shares[allocation.ShareRef{Budget: key.Budget, Term: line.Term}]
	if sh == nil {
		o.locked.None[key] = true
		return
	}
	at := instancesKey{key.Budget, key.Period}
	if most := line.Budget.WithDefaults().MaxInstances; sh.Template && o.instances[at] >= most {
		o.locked.Full[key] = true
		return
	}
	u, ok := sh.Usage(key)
	if !ok {
		o.locked.None[key] = true
		return
	}
	o.instances[at]++
	o.drop(sh)
	sh.rows = append(sh.rows, &u)
	o.locked.Usage[key] = &u
}

// drop forgets rows of a template whose periods are over, so that what is held does not grow with the run.
func (o *Owner) drop(sh *share) {
	now := o.w.instant()
	if !sh.Template || len(sh.rows) == 0 || sh.rows[0].Until > now {
		return
	}
	kept := sh.rows[:0]
	for _, u := range sh.rows {
		if u.Until > now {
			kept = append(kept, u)
			continue
		}
		delete(o.locked.Usage, u.UsageKey)
		delete(o.instances, instancesKey{u.Budget, u.Period})
	}
	clear(sh.rows[len(kept):])
	sh.rows, sh.silent = kept, 0
}
