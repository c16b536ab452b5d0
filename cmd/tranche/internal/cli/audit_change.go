package cli

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// maxAuditFields is how many fields of a change a line of the audit shows; --json has all.
const maxAuditFields = 4

// bookkeeping are fields that every change of a document changes: they say nothing of what somebody did.
var bookkeeping = []string{"format", "version", "number", "changed", "opened_through"}

// oldToNew is what an act changed, field by field: "limit 100 → 50".
func oldToNew(old, now json.RawMessage) string {
	before, after := map[string]string{}, map[string]string{}
	auditFields("", old, before)
	auditFields("", now, after)
	fields := maps.Clone(before)
	maps.Copy(fields, after)
	var parts []string
	more := 0
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		was, had := before[field]
		is, has := after[field]
		if was == is && had == has || slices.Contains(bookkeeping, field) {
			continue
		}
		if len(parts) == maxAuditFields {
			more++
			continue
		}
		name := strings.TrimPrefix(strings.TrimPrefix(field, "budget."), "body.")
		switch {
		case !had && len(before) == 0:
			parts = append(parts, fmt.Sprintf("%s %s", name, is))
		case !had:
			parts = append(parts, fmt.Sprintf("%s – → %s", name, is))
		case !has:
			parts = append(parts, fmt.Sprintf("%s %s → –", name, was))
		default:
			parts = append(parts, fmt.Sprintf("%s %s → %s", name, was, is))
		}
	}
	text := strings.Join(parts, ", ")
	if more > 0 {
		text += fmt.Sprintf(", and %d more", more)
	}
	return text
}

// auditFields are the leaves of a document by their paths; a list is one leaf.
func auditFields(path string, raw json.RawMessage, out map[string]string) {
	var object map[string]json.RawMessage
	if len(raw) == 0 || string(raw) == "null" {
		return
	}
	if json.Unmarshal(raw, &object) != nil {
		out[path] = strings.Trim(string(raw), `"`)
		return
	}
	for name, value := range object {
		auditFields(strings.TrimPrefix(path+"."+name, "."), value, out)
	}
}
