package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// Decision is what a node answers to a request for an admission: the fields that commands and the demo use.
type Decision struct {
	Status      int              `json:"-"`
	Raw         json.RawMessage  `json:"-"`
	Title       string           `json:"title"`
	Detail      string           `json:"detail"`
	Decision    string           `json:"decision"`
	Reason      string           `json:"reason"`
	Action      string           `json:"action"`
	Route       string           `json:"route"` // of degraded
	AdmissionID string           `json:"admission_id"`
	Region      string           `json:"region"`
	State       string           `json:"state"`
	Replayed    bool             `json:"replayed"`
	DecidedAt   string           `json:"decided_at"`
	Retryable   bool             `json:"retryable"`
	Retry       string           `json:"retry"`
	RetryAfter  int64            `json:"retry_after_seconds"`
	Outcome     string           `json:"outcome"`
	Home        string           `json:"home"`
	Blocking    *Blocking        `json:"blocking"`
	Affordable  map[string]int64 `json:"affordable"`
	Budgets     []BudgetPart     `json:"budgets"`
	Shadow      *struct {
		Would    string    `json:"would"`
		Title    string    `json:"title"`
		Blocking *Blocking `json:"blocking"`
	} `json:"shadow"` // of what was let through
}

// Blocking names the first budget that refused.
type Blocking struct {
	Budget string `json:"budget"`
	Unit   string `json:"unit"`
}

// BudgetPart is one budget's part of a decision.
type BudgetPart struct {
	Budget     string  `json:"budget"`
	Instance   string  `json:"instance"`
	Unit       string  `json:"unit"`
	Reason     string  `json:"reason"`
	Period     *Period `json:"period"`
	ResetsIn   *int64  `json:"resets_in_seconds"`
	Generation int64   `json:"generation"`
	Version    int64   `json:"version"`
	Limit      int64   `json:"limit"`
	Share      int64   `json:"share"`
	Requested  int64   `json:"requested"`
	Charged    int64   `json:"charged"`
	Remaining  int64   `json:"remaining"`
}

// Period is one period by its instants.
type Period struct {
	Start string `json:"start"`
	End   string `json:"end"`
}

// Admitted says whether the request may go on.
func (d Decision) Admitted() bool { return d.Status == http.StatusOK && d.Reason == "allow" }

// Unknown says whether the request may have been charged all the same: the same id asked again gets the truth.
func (d Decision) Unknown() bool { return d.Outcome == "unknown" }

// Admission is one request to a node.
type Admission struct {
	ID       string // empty for a check
	Op       string // spend, reserve or check
	Labels   map[string]string
	Costs    map[string]int64
	Priority string        // empty: interactive
	Deadline time.Duration // 0: the node's default
}

// Admit asks a node once. A refusal is a Decision; an error says that no decision came back: it may have been made. What is
// wrong with the request itself is an *Error.
func Admit(ctx context.Context, c *Client, r Admission) (Decision, error) {
	body := map[string]any{"labels": r.Labels, "op": r.Op}
	if len(r.Costs) > 0 {
		body["costs"] = r.Costs
	}
	if r.Priority != "" {
		body["priority"] = r.Priority
	}
	if r.Deadline > 0 {
		body["deadline_ms"] = r.Deadline.Milliseconds()
	}
	call := Call{Method: http.MethodPost, Path: "/v1/admit", Body: body, Reads: r.ID == ""}
	if r.ID != "" {
		call.Header = http.Header{"Admission-Id": {r.ID}}
	}
	status, _, text, err := c.Send(ctx, call)
	if err != nil {
		return Decision{}, err
	}
	d := Decision{Status: status, Raw: text}
	if err := json.Unmarshal(text, &d); err != nil {
		return Decision{}, fmt.Errorf("read the answer of the node at %s (status %d): %w; is this the address of a node?", c.Address(), status, err)
	}
	if d.Decision == "" {
		return d, c.problem(status, text) // it was not even decided
	}
	return d, nil
}
