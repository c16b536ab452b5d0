package api

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"tranche/allocation"
)

// Error is an answer that is no success, as the service told it.
type Error struct {
	Service  string
	Status   int
	Code     string
	Title    string
	Detail   string
	Field    string
	Fix      string
	Problems []allocation.FieldError
}

// problem reads application/problem+json of either service; anything else is told as it is.
func (c *Client) problem(status int, body []byte) error {
	var told struct {
		Code     string                  `json:"code"`
		Reason   string                  `json:"reason"`
		Title    string                  `json:"title"`
		Detail   string                  `json:"detail"`
		Field    string                  `json:"field"`
		Fix      string                  `json:"fix"`
		Problems []allocation.FieldError `json:"problems"`
		Errors   []allocation.FieldError `json:"errors"`
	}
	if who := whose(body); c.service == nodeService && who == coordinatorService {
		return c.Mistaken(c.Address(), who)
	}
	if json.Unmarshal(body, &told) != nil {
		told.Detail = fmt.Sprintf("answered %.200q; is this the address of a %s?", strings.TrimSpace(string(body)), c.service)
	}
	return &Error{
		Service: c.service, Status: status, Code: cmp.Or(told.Code, told.Reason), Title: told.Title, Detail: told.Detail,
		Field: told.Field, Fix: told.Fix, Problems: append(told.Problems, told.Errors...),
	}
}

// Error is what is wrong, each problem on a line of its own, and what to do.
func (e *Error) Error() string {
	if e.Status == http.StatusUnauthorized {
		return fmt.Sprintf("the %s does not know this token (401): %s; %s", e.Service, cmp.Or(e.Detail, e.Title), e.tokenHint())
	}
	if len(e.Problems) > 0 {
		return allocation.Problems(e.Problems).Error()
	}
	text := cmp.Or(e.Detail, e.Title, http.StatusText(e.Status))
	if e.Field != "" {
		text = e.Field + ": " + text
	}
	if e.Fix != "" {
		text += "; " + e.Fix
	}
	return text
}

func (e *Error) tokenHint() string {
	if e.Service == "node" {
		return "give a gateway's token: --node-token or TRANCHE_NODE_TOKEN"
	}
	return "give an admin's or viewer's token: --token or TRANCHE_TOKEN (the coordinator printed the first one at its first start)"
}

// BadInput says whether the caller has to change what was sent.
func (e *Error) BadInput() bool {
	switch e.Status {
	case http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType:
		return true
	}
	return false
}
