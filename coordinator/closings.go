package coordinator

import (
	"fmt"
	"net/http"
	"strconv"

	"tranche/allocation"
)

// maxClosingsAnswered bounds one answer; `after` goes on from there.
const maxClosingsAnswered = 500

// ClosingsAnswer lists records of closed terms, by budget and term.
type ClosingsAnswer struct {
	*Evidence
	Closings []Closing `json:"closings"`
	More     string    `json:"more,omitempty"` // give it as `after` to go on; empty: these were the last
}

// limitOver is the sum of a term's limits, period by period.
func limitOver(l allocation.Ledger) (sum int64) {
	for i := range l.Periods.Len() {
		sum = allocation.SumUp(sum, l.EntryAt(i).Limit)
	}
	return sum
}

// sum enters what all regions made of a term together. Of a template the limit is that of each instance, so nothing is
// said of what was not used.
func (s *state) sum(c *Closing, l allocation.Ledger) {
	used := c.OpeningSpent
	for i := range c.Regions {
		at := &c.Regions[i]
		at.Held = heldOver(l, at.Holder)
		used = allocation.SumUp(used, allocation.SumUp(at.Spent, at.Reserved))
		r := s.regions[at.Region]
		if r != nil && r.doc != nil && r.doc.value.Incarnation == at.Incarnation {
			continue
		}
		if at.Unrecovered = max(0, at.Held-at.Spent-at.Reserved); !l.Template {
			c.Unrecovered = allocation.SumUp(c.Unrecovered, at.Unrecovered)
		}
	}
	if l.Template {
		return
	}
	c.Limit = limitOver(l)
	c.Unused = max(0, c.Limit-used-c.Unrecovered)
}

const (
	closingsAfter = "after"
	closingsLimit = "limit"
)

func (s *Service) closingRoutes(mux *http.ServeMux) {
	s.route(mux, "GET /v1/closings", readers, func(c call) (reply, error) {
		f, err := s.strandedFilter(c)
		if err != nil {
			return reply{}, err
		}
		most := maxClosingsAnswered
		if text := c.URL.Query().Get(closingsLimit); text != "" {
			if most, err = strconv.Atoi(text); err != nil || most < 1 || most > maxClosingsAnswered {
				return reply{}, invalid(closingsLimit, fmt.Sprintf("is %.20q", text), fmt.Sprintf("give a number from 1 to %d", maxClosingsAnswered))
			}
		}
		answer, err := s.listClosings(f, c.URL.Query().Get(closingsAfter), most)
		return ok(answer), err
	}, byBudget, byMatch, closingsAfter, closingsLimit)
}

// listClosings is one page of the records that are kept, here and in etcd.
func (s *Service) listClosings(f StrandedFilter, after string, most int) (ClosingsAnswer, error) {
	evidence, page, err := s.closingsPage(f, after, most)
	if err != nil {
		return ClosingsAnswer{}, err
	}
	answer := ClosingsAnswer{Evidence: evidence, Closings: page}
	if len(page) > most {
		answer.Closings, answer.More = page[:most], page[most-1].Key()
	}
	return answer, nil
}
