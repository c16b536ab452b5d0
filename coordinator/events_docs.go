package coordinator

import (
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"tranche/allocation"
)

// ToldBudget is what was told of a budget and holds, or may not be told again yet.
type ToldBudget struct {
	Format  int                `json:"format"`
	Budget  string             `json:"budget"`
	Crossed []ToldLevel        `json:"crossed,omitempty"`
	Over    *allocation.Period `json:"over,omitempty"` // it is overcommitted, since a look in this period

	Override   string `json:"override,omitempty"`    // the id of the one that stands
	OverrideIn int64  `json:"override_in,omitempty"` // the history in which that was told, by its number
	Lost       int64  `json:"lost,omitempty"`        // the version that etcd lost, as it was told
}

// ToldLevel is a part of a budget that was used up.
type ToldLevel struct {
	Percent int64              `json:"percent"`
	Period  allocation.Instant `json:"period"`
	At      time.Time          `json:"at"`
	End     allocation.Instant `json:"end"`             // of the period
	Limit   int64              `json:"limit,omitempty"` // that it was a part of; 0: told by a version that did not note it
}

// ToldRegion is what was told of a region and holds.
type ToldRegion struct {
	Format      int            `json:"format"`
	Region      string         `json:"region"`
	Incarnation string         `json:"incarnation,omitempty"`
	Stranded    []ToldStranded `json:"stranded,omitempty"`
}

// ToldStranded is an incarnation with stranded permits: what was said of them last.
type ToldStranded struct {
	Incarnation string           `json:"incarnation"`
	Since       time.Time        `json:"since"`
	Budgets     int              `json:"budgets"`
	Units       map[string]int64 `json:"units,omitempty"`
}

// ToldDeployment is what was told of all together and holds.
type ToldDeployment struct {
	Format  int                           `json:"format"`
	History allocation.History            `json:"history"`
	Frozen  bool                          `json:"frozen,omitempty"`
	Blocks  map[string]allocation.Instant `json:"blocks,omitempty"` // in force, by name: when each ends
}

// feed is the part of the picture that these documents make, and what the next look looks at.
type feed struct {
	head       *doc[FeedDocument]
	events     []FeedEvent // by id
	keys       []Item      // of the events, in the same order, without their values
	budgets    map[string]*doc[ToldBudget]
	toldOf     map[string]*doc[ToldRegion]
	deployment *doc[ToldDeployment]
	hook       *doc[WebhookDocument]

	moved map[topic]bool  // of which something changed since the last look
	all   bool            // everything may have
	over  map[string]bool // budgets that were told to be overcommitted: time alone can end it
}

// topic is one thing that events are about.
type topic struct {
	kind byte // 'b': a budget, 'r': a region, 'd': the deployment
	name string
}

func (f *feed) clear() {
	*f = feed{
		budgets: map[string]*doc[ToldBudget]{}, toldOf: map[string]*doc[ToldRegion]{}, moved: map[topic]bool{}, all: true, over: map[string]bool{},
	}
}

// touch notes that something of a subject changed.
func (f *feed) touch(s topic) {
	if f.all {
		return
	}
	if f.moved[s] = true; len(f.moved) > maxToldSubjects {
		f.moved, f.all = map[topic]bool{}, true
	}
}

// enterFeed takes one change of these documents.
func (f *feed) enterFeed(e Event) error {
	switch kindOf(e.Key) {
	case "feed":
		f.head = nil
		return enter(e, func(d *doc[FeedDocument]) { f.head = d })
	case "webhook":
		f.hook = nil
		return enter(e, func(d *doc[WebhookDocument]) { f.hook = d })
	case "events":
		i, found := slices.BinarySearchFunc(f.keys, e.Key, func(a Item, key string) int { return strings.Compare(a.Key, key) })
		if found {
			f.keys, f.events = slices.Delete(f.keys, i, i+1), slices.Delete(f.events, i, i+1)
		}
		return enter(e, func(d *doc[FeedEvent]) {
			f.keys = slices.Insert(f.keys, i, Item{Key: d.item.Key, Revision: d.item.Revision, Value: d.item.Value})
			f.events = slices.Insert(f.events, i, d.value)
		})
	}
	return f.enterTold(e)
}

func (f *feed) enterTold(e Event) error {
	kind, name, _ := strings.Cut(keyName(e.Key), "/")
	switch kind {
	case "budgets":
		if name, err := url.PathUnescape(name); err == nil {
			delete(f.budgets, name)
			delete(f.over, name)
		}
		return enter(e, func(d *doc[ToldBudget]) {
			f.budgets[d.value.Budget] = d
			if d.value.Over != nil {
				f.over[d.value.Budget] = true
			}
		})
	case "regions":
		delete(f.toldOf, name)
		return enter(e, func(d *doc[ToldRegion]) { f.toldOf[d.value.Region] = d })
	default:
		f.deployment = nil
		return enter(e, func(d *doc[ToldDeployment]) { f.deployment = d })
	}
}

// sweepFeed is what is not kept any more: events beyond the bounds, and what was told of periods that are over.
func (s *Service) sweepFeed() (due []Item) {
	f, before := &s.state.feed, s.now().Add(-feedRetention)
	for i, e := range f.events {
		if i < len(f.events)-maxFeedEvents || e.At.Before(before) {
			due = append(due, f.keys[i])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.budgets)) {
		if d := f.budgets[name]; d.value.Over == nil && d.value.Override == "" && d.value.Lost == 0 && !slices.ContainsFunc(d.value.Crossed, func(c ToldLevel) bool { return c.counts(s.now()) }) {
			due = append(due, d.item)
		}
	}
	return due[:min(len(due), maxPerTick)]
}

// counts says whether a level may not be told again yet: its period runs, or was a short one that was told of lately.
func (c ToldLevel) counts(now time.Time) bool {
	return c.End > allocation.At(now) || c.short() && now.Sub(c.At) < shortWindow
}

func (c ToldLevel) short() bool { return c.End-c.Period < allocation.Instant(shortWindow/time.Second) }

// scopeOf is a budget as events name it.
func scopeOf(b allocation.Budget) EventBudget {
	return EventBudget{Budget: b.Name, Unit: b.Unit, Capability: b.Match["capability"], Tenant: b.Match["tenant"], Match: b.Match, Template: b.IsTemplate()}
}
