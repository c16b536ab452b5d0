package allocation

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// Difference is one field in which a replayed decision is not the recorded one.
type Difference struct {
	Field    string `json:"field"`
	Recorded string `json:"recorded"` // as JSON; empty: it has none
	Replayed string `json:"replayed"`
}

// Compare replays the record, and names every field in which the outcome is not the recorded decision; none: they are the same.
func (r Record) Compare() ([]Difference, error) {
	again, err := r.Replay()
	if err != nil {
		return nil, err
	}
	recorded, err := fieldsOf(r.Decision)
	if err != nil {
		return nil, err
	}
	replayed, err := fieldsOf(again)
	if err != nil {
		return nil, err
	}
	all := maps.Clone(recorded)
	maps.Copy(all, replayed)
	var out []Difference
	for _, field := range slices.Sorted(maps.Keys(all)) {
		if recorded[field] != replayed[field] {
			out = append(out, Difference{Field: field, Recorded: recorded[field], Replayed: replayed[field]})
		}
	}
	return out, nil
}

// fieldsOf are the leaves of a decision, as JSON, by their path.
func fieldsOf(d Decision) (map[string]string, error) {
	text, err := json.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("write a decision: %w", err)
	}
	out := map[string]string{}
	var walk func(path string, text json.RawMessage)
	walk = func(path string, text json.RawMessage) {
		under := func(name string) string {
			if path == "" {
				return name
			}
			return path + "." + name
		}
		var object map[string]json.RawMessage
		var list []json.RawMessage
		switch {
		case text[0] == '{' && json.Unmarshal(text, &object) == nil:
			for name, value := range object {
				walk(under(name), value)
			}
		case text[0] == '[' && json.Unmarshal(text, &list) == nil:
			for i, value := range list {
				walk(under(strconv.Itoa(i)), value)
			}
		default:
			out[path] = string(text)
		}
	}
	walk("", text)
	return out, nil
}
