package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"tranche/allocation"
)

// hiddenRounds bounds how often a document is read again without what was found to be wrong with it.
const hiddenRounds = 4

// parseBudget is allocation.ParseBudget, but finds all that is wrong at once: that one looks at a budget's values only
// when it could read every field, so that somebody with an unknown field and a wrong zone would need two rounds. What is
// wrong is left out, and the rest is read again. wrong are fields that are known to be wrong already.
func parseBudget(text []byte, wrong ...string) (allocation.Budget, allocation.Problems) {
	var found allocation.Problems
	for range hiddenRounds {
		b, err := allocation.ParseBudget(without(text, wrong))
		if err == nil {
			return b, found
		}
		problems, ok := errors.AsType[allocation.Problems](err)
		if !ok {
			return allocation.Budget{}, append(found, allocation.FieldError{Field: "document", Problem: err.Error(), Fix: "give one object"})
		}
		before, left := len(found), slices.Clone(wrong)
		for _, p := range problems {
			if !slices.ContainsFunc(left, func(out string) bool { return restsOn(p.Field, out) }) {
				found, wrong = append(found, p), append(wrong, p.Field)
			}
		}
		if len(found) == before {
			break
		}
	}
	return allocation.Budget{}, found
}

// without is the document without some fields, which may stand in it or not. What is no object stays as it is.
func without(text []byte, fields []string) []byte {
	var tree map[string]any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if len(fields) == 0 || d.Decode(&tree) != nil {
		return text
	}
	for _, field := range fields {
		drop(tree, field)
	}
	out, err := json.Marshal(tree)
	if err != nil {
		return text
	}
	return out
}

// drop takes a field out by its path. A label's name may hold dots itself.
func drop(tree map[string]any, path string) bool {
	if _, ok := tree[path]; ok {
		delete(tree, path)
		return true
	}
	for i, c := range path {
		if below, ok := tree[path[:i]].(map[string]any); ok && c == '.' && drop(below, path[i+1:]) {
			return true
		}
	}
	return false
}

// restsOn says whether a problem with one field may come from another's being left out: it is that field, lies within or
// around it, or is judged by it.
func restsOn(field, out string) bool {
	within := func(a, b string) bool { return a == b || strings.HasPrefix(a, b+".") }
	if within(field, out) || within(out, field) {
		return true
	}
	switch out {
	case "budget": // whether it is a template, and of which labels
		return field == "missing_label" || field == "max_instances" || within(field, "allocation")
	case "max_evidence_age":
		return field == "on_stale_evidence"
	}
	return false
}
