package allocation

import "strings"

// Priority says what is refused first as a budget is used up: batch, then interactive, then essential traffic.
type Priority string

// The priorities. A request that names none is interactive. Who may name Essential is its credential's to say.
const (
	Essential   Priority = "essential"
	Interactive Priority = "interactive"
	Batch       Priority = "batch"
)

// Priorities are all of them, the last to be refused first.
func Priorities() []Priority { return []Priority{Essential, Interactive, Batch} }

// ParsePriority reads one; an empty text is interactive. The problem has no field: it is the caller's to name.
func ParsePriority(text string) (Priority, *FieldError) {
	switch p := Priority(text); p {
	case "":
		return Interactive, nil
	case Essential, Interactive, Batch:
		return p, nil
	}
	return Interactive, &FieldError{
		Problem: "is not a priority", Fix: "use " + strings.Join([]string{string(Essential), string(Interactive), string(Batch)}, ", ") + ", or leave it out for interactive",
	}
}

// priority is what the request counts as: whatever is no priority is at most interactive.
func (r Request) priority() Priority {
	if r.Priority == Essential || r.Priority == Batch {
		return r.Priority
	}
	return Interactive
}
