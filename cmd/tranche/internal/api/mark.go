package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// Who answered, as far as an answer tells.
const (
	coordinatorService = "coordinator"
	nodeService        = "node"
)

// The types of problems (RFC 9457) that the services answer with: urn:tranche:CODE is a coordinator's,
// urn:tranche:problem:REASON a node's.
const (
	typeOfNode        = "urn:tranche:problem:"
	typeOfCoordinator = "urn:tranche:"
)

// whose tells which service gave an answer that anybody may ask for: GET /v1/status. Empty: neither.
func whose(body []byte) string {
	var told struct {
		Type   string `json:"type"`
		Region string `json:"region"`
		Node   string `json:"node"`
	}
	switch {
	case json.Unmarshal(body, &told) != nil:
		return ""
	case strings.HasPrefix(told.Type, typeOfNode), told.Region != "" && told.Node != "":
		return nodeService
	case strings.HasPrefix(told.Type, typeOfCoordinator):
		return coordinatorService
	}
	return ""
}

// probe asks without a token whether a coordinator answers at the address. A coordinator always demands one, in words of
// its own; so neither a token nor a change goes to what is none.
func (c *Client) probe(ctx context.Context, base string) error {
	status, _, body, err := c.sendTo(ctx, base, Call{Method: http.MethodGet, Path: "/v1/status"}, "")
	switch {
	case err != nil:
		return err
	case whose(body) == coordinatorService:
		return nil
	case status >= http.StatusInternalServerError && whose(body) == "":
		return fmt.Errorf("the coordinator at %s %w: the answer was %d %s; is a coordinator running behind it?", base, ErrUnreachable, status, http.StatusText(status))
	}
	return c.Mistaken(base, whose(body))
}

// Mistaken is the error for an address at which another service answers, or none of ours: it names who answered.
func (c *Client) Mistaken(base, who string) error {
	looks := ""
	if who != "" && who != c.service {
		looks = fmt.Sprintf(" (it looks like a %s: use --%s)", who, who)
	}
	return &mistaken{fmt.Sprintf("%s is no %s%s; correct --%s or TRANCHE_%s", base, c.service, looks, c.service, strings.ToUpper(c.service))}
}

// mistaken ends a call for good: another replica is not asked, for the address is to be corrected.
type mistaken struct{ text string }

func (m *mistaken) Error() string { return m.text }
