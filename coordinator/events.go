package coordinator

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"tranche/allocation"
)

// The feed tells what a person or a program should hear of: a budget that is used up to some part, permits that are
// stranded, a history that is lost. Each crossing is told once, whatever replicas do:
//
//	the picture ──▶ what holds now ──┐
//	                                 ├─▶ what differs ──▶ one transaction: the events, what was told, the feed's number
//	/tranche/told/… ─▶ what was told ┘
//
// What was told is compared in that transaction. So a replica that starts anew, a second leader, or one whose picture is
// old tells nothing twice; and there is a write only where something crossed, never one for a call of a region.
//
//	/tranche/feed                the number of the latest event
//	/tranche/events/NUMBER-ID    one event (number: 20 digits)
//	/tranche/told/budgets/NAME   what was told of a budget, and holds
//	/tranche/told/regions/NAME   of a region
//	/tranche/told/deployment/-   of all together
const (
	feedKey     = Root + "feed"
	eventPrefix = Root + "events/"
	toldPrefix  = Root + "told/"
)

// Bounds of the feed.
const (
	maxFeedEvents   = 10_000              // older ones go first
	feedRetention   = 30 * 24 * time.Hour // and those that are older
	maxEventBudgets = 20                  // that one event names
	maxToldAtOnce   = 100                 // events of one look; the rest waits for the next
	eventsEvery     = 2 * time.Second     // between two looks
	shortWindow     = time.Hour           // of shorter periods a level is told once in this time
	maxToldSubjects = 100_000             // that wait for a look; beyond it, everything is looked at
)

// EventKind is what an event is about.
type EventKind string

// The kinds of events, and the changes that each tells.
const (
	EventThreshold     EventKind = "threshold"     // crossed
	EventOvercommitted EventKind = "overcommitted" // began, ended
	EventStranded      EventKind = "stranded"      // began, grew, ended
	EventIncarnation   EventKind = "incarnation"   // began: a region began anew with nothing
	EventHistory       EventKind = "history"       // began: etcd lost history; lost: with it, a version of a budget
	EventFrozen        EventKind = "frozen"        // began, ended
	EventBlock         EventKind = "block"         // began, ended
	EventOverride      EventKind = "override"      // began, ended
)

// EventChange is what became of it.
type EventChange string

// The changes.
const (
	EventCrossed EventChange = "crossed"
	EventBegan   EventChange = "began"
	EventGrew    EventChange = "grew"
	EventEnded   EventChange = "ended"
	EventLost    EventChange = "lost"
)

// FeedEvent is one crossing. It holds no secret: keys are named by their fingerprints.
type FeedEvent struct {
	Format      int                `json:"format"`
	ID          string             `json:"id"` // also the cursor behind which the next event stands
	At          time.Time          `json:"at"`
	Kind        EventKind          `json:"kind"`
	Change      EventChange        `json:"change"`
	Text        string             `json:"text"` // for a person
	EventBudget                    // the budget that it is about; empty: it is about a region or all
	Region      string             `json:"region,omitempty"`
	Incarnation string             `json:"incarnation,omitempty"`
	Subject     string             `json:"subject,omitempty"` // the block, history or former incarnation
	Figures     map[string]int64   `json:"figures,omitempty"` // what they are stands in deploy/docs/events.md
	Units       map[string]int64   `json:"units,omitempty"`   // sums over several budgets, by unit
	Budgets     []EventBudget      `json:"budgets,omitempty"` // of several the largest, at most maxEventBudgets
	More        int                `json:"more,omitempty"`    // budgets that are not named
	Until       allocation.Instant `json:"until,omitempty"`
	Reason      string             `json:"reason,omitempty"` // that a person gave
	By          string             `json:"by,omitempty"`
}

// EventBudget is a budget, and whose it is: the labels that a request must carry for it to apply.
type EventBudget struct {
	Budget     string             `json:"budget,omitempty"`
	Unit       string             `json:"unit,omitempty"`
	Capability string             `json:"capability,omitempty"`
	Tenant     string             `json:"tenant,omitempty"`
	Match      map[string]string  `json:"match,omitempty"`
	Template   bool               `json:"template,omitempty"` // figures are of one instance, or of all that were seen together
	Period     *allocation.Period `json:"period,omitempty"`
	Stranded   int64              `json:"stranded,omitempty"` // of this budget, where the event names several
}

// FeedDocument is the feed's own document: it gives out the numbers.
type FeedDocument struct {
	Format int    `json:"format"`
	Last   int64  `json:"last"`  // number of the latest event
	Total  int64  `json:"total"` // events that were ever told
	ID     string `json:"id"`    // of the latest event
}

// number is that of the next event. Each history of etcd has its own range, so that a number which was given out in what
// etcd lost is not given out again once that is known; before it is, the random part tells two events apart.
func (d FeedDocument) number(h allocation.History) int64 {
	return max(d.Last+1, h.Number<<32)
}

func eventID(number int64, random string) string { return fmt.Sprintf("%020d-%s", number, random) }

// parseEventID reads what eventID wrote.
func parseEventID(id string) (number int64, ok bool) {
	digits, random, cut := strings.Cut(id, "-")
	number, err := strconv.ParseInt(digits, 10, 64)
	return number, cut && err == nil && len(digits) == 20 && len(random) == 8
}

func toldBudgetKey(name string) string { return toldPrefix + "budgets/" + url.PathEscape(name) }
func toldRegionKey(name string) string { return toldPrefix + "regions/" + name }

const toldDeploymentKey = toldPrefix + "deployment/-"
