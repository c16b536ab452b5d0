package demo

import (
	"maps"
	"slices"
	"sync"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/api"
)

// record is what the gateways wrote down themselves: every id and what was answered.
type record struct {
	mu       sync.Mutex
	admitted map[string]bool // by region and id: an id is one admission, however often it is asked
	counted  map[place]*counts
}

// place is where permits are counted.
type place struct{ budget, period, region string }

// counts are by distinct ids.
type counts struct {
	asked, admitted int64
	former          int64 // admitted by a database that was lost since; no part of admitted
	limit           int64
}

func newRecord() *record {
	return &record{admitted: map[string]bool{}, counted: map[place]*counts{}}
}

func (r *record) note(region, id string, d api.Decision) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := region + " " + id
	if r.admitted[key] || len(d.Budgets) == 0 || d.Budgets[0].Period == nil {
		return
	}
	b := d.Budgets[0]
	at := place{b.Budget, b.Period.Start, region}
	c := r.counted[at]
	if c == nil {
		c = &counts{}
		r.counted[at] = c
	}
	c.limit = b.Limit
	c.asked++
	if d.Admitted() {
		r.admitted[key] = true
		c.admitted++
	}
}

// differs finds a place where the gateways' record and the databases are not the same.
func (r *record) differs(owners []allocation.OwnerAccount) (at place, recorded, stored int64, differs bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	spent := map[place]int64{}
	for _, o := range owners {
		for _, u := range o.Usage {
			if u.Spent > 0 {
				spent[place{u.Budget, u.Period.String(), o.Region}] += u.Spent
			}
		}
	}
	places := map[place]bool{}
	for p := range spent {
		places[p] = true
	}
	for p := range r.counted {
		places[p] = true
	}
	for p := range places {
		var admitted int64
		if c := r.counted[p]; c != nil {
			admitted = c.admitted
		}
		if admitted != spent[p] {
			return p, admitted, spent[p], true
		}
	}
	return place{}, 0, 0, false
}

// naive is what the same requests would have cost if each region had counted up to the whole limit by itself.
func (r *record) naive() (cost int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range maps.Values(r.counted) {
		cost += min(c.limit, c.asked)
	}
	return cost
}

// spentIn lists the periods of a budget in which something was admitted, in order.
func (r *record) spentIn(budget string) (periods []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for p, c := range r.counted {
		if p.budget == budget && c.admitted > 0 && !slices.Contains(periods, p.period) {
			periods = append(periods, p.period)
		}
	}
	slices.Sort(periods)
	return periods
}

// lose says that a region's database has lost all that it knew: what was admitted is known to the gateways only.
func (r *record) lose(region string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for p, c := range r.counted {
		if p.region == region {
			c.former, c.admitted = c.former+c.admitted, 0
		}
	}
}

// sums are all admissions by the gateways' own record; over says how many of them no limit covers.
func (r *record) sums() (admitted, over int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	type budgetPeriod struct{ budget, period string }
	by, limits := map[budgetPeriod]int64{}, map[budgetPeriod]int64{}
	for p, c := range r.counted {
		at := budgetPeriod{p.budget, p.period}
		by[at] += c.admitted + c.former
		limits[at] = max(limits[at], c.limit)
	}
	for at, n := range by {
		admitted, over = admitted+n, over+max(0, n-limits[at])
	}
	return admitted, over
}
