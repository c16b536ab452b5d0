package coordinator

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
)

// AuditPage is acts in their order.
type AuditPage struct {
	Lines []AuditEntry `json:"lines"`
	Next  string       `json:"next,omitempty"` // the `after` of the next page
}

// AuditEntry is a line and its name, for paging.
type AuditEntry struct {
	ID string `json:"id"`
	AuditLine
}

// auditPage lists acts after a line's id, oldest first. The latest maxAuditLines are in memory; for older ones the store
// is read.
func (s *Service) auditPage(ctx context.Context, after string, limit int) (AuditPage, error) {
	s.state.mu.Lock()
	lines := slices.Clone(s.state.audit)
	s.state.mu.Unlock()
	if len(lines) >= maxAuditLines && (after == "" || auditPrefix+after < lines[0].Key) {
		items, _, err := s.config.Store.Range(ctx, auditPrefix)
		if err != nil {
			return AuditPage{}, err
		}
		lines = items
	}
	page := AuditPage{Lines: []AuditEntry{}}
	for _, item := range lines {
		id := strings.TrimPrefix(item.Key, auditPrefix)
		if id <= after {
			continue
		}
		if len(page.Lines) == limit {
			page.Next = page.Lines[limit-1].ID
			break
		}
		e := AuditEntry{ID: id}
		if json.Unmarshal(item.Value, &e.AuditLine) == nil {
			page.Lines = append(page.Lines, e)
		}
	}
	return page, nil
}
