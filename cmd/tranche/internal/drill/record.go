package drill

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"tranche/allocation"
)

// Record is what a drill did and found: the decision record, for people and for programs. No secret is in it.
type Record struct {
	Format     int       `json:"format"`
	Drill      string    `json:"drill"`
	ID         string    `json:"id"`
	By         string    `json:"by,omitempty"`
	Started    time.Time `json:"started"`
	Ended      time.Time `json:"ended"`
	Tenant     string    `json:"tenant"`
	Capability string    `json:"capability"` // the expendable one
	Kept       bool      `json:"kept"`       // every promise was
	Failure    string    `json:"failure,omitempty"`

	Nodes     []NodeRecord              `json:"nodes"`
	Keys      []KeyRecord               `json:"keys"`
	Steps     []StepRecord              `json:"steps"`
	Budget    BudgetRecord              `json:"budget"`
	Sequence  []ActionRecord            `json:"sequence"` // each action of the burst, when it was heard first
	Routes    map[string]int            `json:"routes"`   // admitted requests of the expendable capability by route; preferred: the usual one
	Refused   map[string]map[string]int `json:"refused"`  // of it, by priority and reason
	Issued    []NodeTime                `json:"issued"`
	Lowered   []NodeTime                `json:"lowered"`
	Raised    []NodeTime                `json:"raised"`
	Revoked   []NodeTime                `json:"revoked"`
	Surge     SurgeRecord               `json:"surge"`
	Essential EssentialRecord           `json:"essential"`
	Undecided int64                     `json:"undecided"` // answers 503: nothing was decided, and it was asked again
	Undone    []string                  `json:"undone"`
	Left      []string                  `json:"left,omitempty"` // what could not be taken back
}

// NodeRecord is a node that was asked.
type NodeRecord struct {
	Node   string `json:"node"`
	Region string `json:"region"`
	URL    string `json:"url"`
}

// KeyRecord is a key that was issued, by its fingerprint. All are revoked.
type KeyRecord struct {
	Name        string `json:"name"`
	Fingerprint string `json:"fingerprint"`
	Role        string `json:"role"`
}

// StepRecord is one step.
type StepRecord struct {
	Step    string   `json:"step"`
	Promise string   `json:"promise"`
	Kept    bool     `json:"kept"`
	TookMS  int64    `json:"took_ms"`
	Detail  string   `json:"detail"`
	Broken  []string `json:"broken,omitempty"`
}

func (s StepRecord) line() string {
	verdict := "kept"
	if !s.Kept {
		verdict = "BROKEN"
	}
	text := fmt.Sprintf("%-10s %-6s %6d ms  %s", s.Step, verdict, s.TookMS, s.Detail)
	for _, b := range s.Broken {
		text += "\n           " + b
	}
	return text
}

// BudgetRecord is the budget that the burst exhausted.
type BudgetRecord struct {
	Budget        string `json:"budget"`
	Limit         int64  `json:"limit"`
	Protected     int64  `json:"protected"`
	ProtectedLeft int64  `json:"protected_left"` // when the burst was over
	SpentBefore   int64  `json:"spent_before"`
	Spent         int64  `json:"spent"` // at the end
	Exhausted     string `json:"exhausted,omitempty"`
}

// ActionRecord is the first answer of one action.
type ActionRecord struct {
	Action   string `json:"action"`
	Priority string `json:"priority"`
	Reason   string `json:"reason"`
	Route    string `json:"route,omitempty"`
	Node     string `json:"node"`
	AtMS     int64  `json:"at_ms"` // since the drill began
}

// NodeTime is how long a node took to enforce a change, from when it was sent to the coordinator; absent: it never did.
type NodeTime struct {
	Node    string `json:"node"`
	Region  string `json:"region"`
	AfterMS *int64 `json:"after_ms,omitempty"`
}

// SurgeRecord is the release of held clients.
type SurgeRecord struct {
	Held     int   `json:"held"`
	Left     int64 `json:"left"`
	Admitted int64 `json:"admitted"`
}

// EssentialRecord is the essential traffic.
type EssentialRecord struct {
	Capability string `json:"capability"`
	Sent       int    `json:"sent"`
	Admitted   int    `json:"admitted"`
	SlowestMS  int64  `json:"slowest_ms"`
}

// Broken is every promise that was broken, by its step.
func (r *Record) Broken() (list []string) {
	for _, s := range r.Steps {
		for _, b := range s.Broken {
			list = append(list, s.Step+": "+b)
		}
		if !s.Kept && len(s.Broken) == 0 {
			list = append(list, s.Step)
		}
	}
	return list
}

func (r *Record) sequenceWords() string {
	var parts []string
	for _, a := range r.Sequence {
		text := a.Action
		if a.Route != "" {
			text += " (route " + a.Route + ")"
		}
		if a.Action != allocation.ActionPreferred {
			text += ", " + a.Priority
			if a.Reason != string(allocation.Allow) {
				text += " " + a.Reason
			}
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, " → ")
}

// summary fills in what follows from what was heard.
func (d *drill) summary() {
	r := d.record
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range d.heard {
		if e.admitted() {
			route := "preferred"
			if e.Route != "" {
				route = e.Route
			}
			r.Routes[route]++
			continue
		}
		if r.Refused[e.priority] == nil {
			r.Refused[e.priority] = map[string]int{}
		}
		r.Refused[e.priority][e.Reason]++
		if e.Action == allocation.ActionRefused && r.Budget.Exhausted == "" && e.Reason != string(allocation.RegionShareSpent) {
			r.Budget.Exhausted = e.at.UTC().Format(time.RFC3339)
		}
	}
	r.Undecided = d.undecided.Load()
	r.Ended = time.Now().UTC()
	r.Kept = len(r.Broken()) == 0 && len(r.Left) == 0 && len(r.Steps) > 0
}

// Markdown is the record for people.
func (r *Record) Markdown() string {
	var b strings.Builder
	verdict := "every promise was kept"
	if !r.Kept {
		verdict = "**a promise was broken**"
	}
	if r.Failure != "" {
		verdict = "**it was not brought to its end**: " + r.Failure
	}
	fmt.Fprintf(&b, "# Drill: a leaked key of tenant %s\n\n%s, %s to %s%s: %s.\n\n", r.Tenant, r.ID, r.Started.Format(time.RFC3339), r.Ended.Format(time.RFC3339), by(r.By), verdict)
	b.WriteString("| step | promise | | took | |\n|---|---|---|---|---|\n")
	for _, s := range r.Steps {
		kept := "kept"
		if !s.Kept {
			kept = "**broken**"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %d ms | %s |\n", s.Step, s.Promise, kept, s.TookMS, cell(s.Detail))
	}
	if list := r.Broken(); len(list) > 0 {
		b.WriteString("\n## Broken\n\n")
		for _, text := range list {
			fmt.Fprintf(&b, "- %s\n", cell(text))
		}
	}
	fmt.Fprintf(&b, "\n## What was exhausted\n\nCapability %s, budget `%s`: %d of %d spent at the end, %d of them before the drill", r.Capability, r.Budget.Budget, r.Budget.Spent, r.Budget.Limit, r.Budget.SpentBefore)
	if r.Budget.Exhausted != "" {
		fmt.Fprintf(&b, "; first refused at %s", r.Budget.Exhausted)
	}
	fmt.Fprintf(&b, ". Of %d protected permits %d were left after the burst.\n\nSequence: %s.\n", r.Budget.Protected, r.Budget.ProtectedLeft, r.sequenceWords())
	r.tables(&b)
	fmt.Fprintf(&b, "\n## Surge\n\n%d clients were released together; %d permits were left; %d were admitted.\n", r.Surge.Held, r.Surge.Left, r.Surge.Admitted)
	fmt.Fprintf(&b, "\n## Essential traffic\n\n%d of %d requests for %s were admitted; the slowest took %d ms.\n", r.Essential.Admitted, r.Essential.Sent, r.Essential.Capability, r.Essential.SlowestMS)
	if r.Undecided > 0 {
		fmt.Fprintf(&b, "\n%d answers were 503: nothing was decided, and it was asked again under the same id.\n", r.Undecided)
	}
	b.WriteString("\n## Cleaned up\n\n")
	for _, text := range r.Undone {
		fmt.Fprintf(&b, "- done: %s\n", text)
	}
	for _, text := range r.Left {
		fmt.Fprintf(&b, "- **left**: %s\n", cell(text))
	}
	return b.String()
}

// tables are the routes, the refusals, and how long each node took.
func (r *Record) tables(b *strings.Builder) {
	b.WriteString("\n## Which routes were chosen\n\n| route | admitted |\n|---|---|\n")
	for _, route := range slices.Sorted(maps.Keys(r.Routes)) {
		fmt.Fprintf(b, "| %s | %d |\n", route, r.Routes[route])
	}
	b.WriteString("\n## What was refused\n\n| priority | reason | requests |\n|---|---|---|\n")
	for _, priority := range slices.Sorted(maps.Keys(r.Refused)) {
		for _, reason := range slices.Sorted(maps.Keys(r.Refused[priority])) {
			fmt.Fprintf(b, "| %s | `%s` | %d |\n", priority, reason, r.Refused[priority][reason])
		}
	}
	b.WriteString("\n## How long each node took\n\n| node | region | keys | limit 0 | limit raised | revoked |\n|---|---|---|---|---|---|\n")
	for i, n := range r.Nodes {
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s |\n", n.Node, n.Region, at(r.Issued, i), at(r.Lowered, i), at(r.Raised, i), at(r.Revoked, i))
	}
}

func at(list []NodeTime, i int) string {
	switch {
	case i >= len(list):
		return "-"
	case list[i].AfterMS == nil:
		return "**never**"
	}
	return fmt.Sprintf("%d ms", *list[i].AfterMS)
}

func by(name string) string {
	if name == "" {
		return ""
	}
	return ", by " + cell(name)
}

// cell keeps a text within its cell of a table.
func cell(text string) string {
	return strings.NewReplacer("|", "\\|", "\n", " ").Replace(text)
}
