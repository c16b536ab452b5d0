package coordinator

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"tranche/allocation"
)

// RotateRequest rotates a key or a token: the old one stays valid for Overlap.
type RotateRequest struct {
	Overlap allocation.Duration `json:"overlap"`
	For     allocation.Duration `json:"for,omitempty"` // of a key: 0: as long as the one before it
}

// EndRequest ends something before its time.
type EndRequest struct {
	Reason string `json:"reason"` // why, for the audit
	By     string `json:"by,omitempty"`
}

// keyRoutes are those of keys and blocks.
func (s *Service) keyRoutes(mux *http.ServeMux) {
	s.exposureRoutes(mux)
	s.route(mux, "POST /v1/keys", admins, func(c call) (reply, error) {
		q, err := decodeBody[KeyRequest](c, maxBody)
		if err != nil {
			return reply{}, err
		}
		a, err := s.issueKey(c.ctx, c.who(), q)
		return reply{status: http.StatusCreated, body: a}, err
	})
	s.route(mux, "GET /v1/keys", readers, func(call) (reply, error) { return ok(s.listKeys()), nil })
	s.route(mux, "GET /v1/keys/{key}", readers, func(c call) (reply, error) {
		s.state.mu.Lock()
		defer s.state.mu.Unlock()
		list := KeysList{}
		for _, d := range s.state.keysOf(c.PathValue("key")) {
			list.Keys = append(list.Keys, s.answerKey(d))
		}
		if len(list.Keys) == 0 {
			return reply{}, notFound("key", c.PathValue("key"))
		}
		return ok(list), nil
	})
	s.route(mux, "POST /v1/keys/{key}/rotate", admins, func(c call) (reply, error) {
		q, err := decodeBody[RotateRequest](c, maxBody)
		if err != nil {
			return reply{}, err
		}
		a, err := s.rotateKey(c.ctx, c.who(), c.PathValue("key"), q.Overlap, q.For)
		return reply{status: http.StatusCreated, body: a}, err
	})
	s.route(mux, "POST /v1/keys/{key}/revoke", admins, func(c call) (reply, error) {
		q, err := decodeBody[EndRequest](c, maxBody)
		if err != nil {
			return reply{}, err
		}
		list, err := s.revokeKey(c.ctx, c.who(), c.PathValue("key"), q.Reason)
		return ok(KeysList{list}), err
	})
	s.route(mux, "POST /v1/blocks", admins, func(c call) (reply, error) {
		q, err := decodeBody[BlockRequest](c, maxBody)
		if err != nil {
			return reply{}, err
		}
		a, err := s.block(c.ctx, c.who(), q)
		return reply{status: http.StatusCreated, body: a}, err
	})
	s.route(mux, "GET /v1/blocks", readers, func(c call) (reply, error) {
		all, err := c.flag("all")
		if err != nil {
			return reply{}, err
		}
		return ok(s.listBlocks(all)), nil
	}, "all")
	s.route(mux, "POST /v1/blocks/{id}/lift", admins, func(c call) (reply, error) {
		q, err := decodeBody[EndRequest](c, maxBody)
		if err != nil {
			return reply{}, err
		}
		a, err := s.unblock(c.ctx, c.who(), c.PathValue("id"), q.By, q.Reason)
		return ok(a), err
	})
	s.route(mux, "GET /v1/enforced/{number}", readers, s.serveEnforced, "wait_ms", "labels")
}

func (s *Service) serveEnforced(c call) (reply, error) {
	number, err := strconv.ParseInt(c.PathValue("number"), 10, 64)
	if err != nil || number < 1 {
		return reply{}, invalid("number", fmt.Sprintf("is %.40q", c.PathValue("number")), "give the number that the change was answered with")
	}
	q := c.URL.Query()
	var wait int64
	if text := q.Get("wait_ms"); text != "" {
		if wait, err = strconv.ParseInt(text, 10, 64); err != nil || wait < 0 || wait > maxEnforcedWait.Milliseconds() {
			return reply{}, invalid("wait_ms", fmt.Sprintf("is %.40q", text), fmt.Sprintf("use 0 to %d", maxEnforcedWait.Milliseconds()))
		}
	}
	labels := allocation.Labels{}
	for pair := range strings.SplitSeq(q.Get("labels"), ",") {
		if name, value, found := strings.Cut(pair, "="); found {
			labels[name] = value
		} else if pair != "" {
			return reply{}, invalid("labels", fmt.Sprintf("%.40q is no label", pair), "write name=value, with commas between them")
		}
	}
	return ok(s.enforced(c.ctx, number, labels, time.Duration(wait)*time.Millisecond)), nil
}
